"""Weighted means of many rows, then of many columns."""

from std.math import fma
from std.memory import Pointer
from std.utils import IndexList

from source import Bytes, Floats, LANES, PACKED_3, PLANES, STRIDED, Source, up
from place import Window


comptime WIDE = 8
"""Vectors of sums that are kept in registers while the rows of a window pass by."""


def sum_rows(dst: Floats, first: Bytes, step: Int, weights: Floats, taps: Int, count: Int):
    """Writes weighted sums of rows of bytes.

    Args:
        dst: Sums `[count]`.
        first: Bytes of the first row `[count]`.
        step: Bytes from a row to the next.
        weights: One for each row `[taps]`.
        taps: How many rows.
        count: Bytes of a row.
    """
    var x = 0
    while x + WIDE * LANES <= count:
        _sum[WIDE * LANES](dst.unsafe_offset(x), first.unsafe_offset(x), step, weights, taps)
        x += WIDE * LANES
    while x + LANES <= count:
        _sum[LANES](dst.unsafe_offset(x), first.unsafe_offset(x), step, weights, taps)
        x += LANES
    while x < count:
        _sum[1](dst.unsafe_offset(x), first.unsafe_offset(x), step, weights, taps)
        x += 1


@always_inline
def _sum[n: Int](dst: Floats, first: Bytes, step: Int, weights: Floats, taps: Int):
    var sum = SIMD[DType.float32, n](0)
    var row = first
    for k in range(taps):
        var value = row.unsafe_load[width=n](0).cast[DType.float32]()
        sum = fma(value, SIMD[DType.float32, n](weights[unsafe_offset=k]), sum)
        row = row.unsafe_offset(step)
    dst.unsafe_store(0, sum)


@fieldwise_init
struct Rows(ImplicitlyCopyable):
    """Weighted means of rows of the source, as planes of floats."""

    var src: Source
    var weights: Floats  # [most rows of a window]
    var mixed: Floats  # [w * channels], as the bytes of a row lie
    var planes: Floats  # [planes, stride]
    var stride: Int  # the columns of the source, and zeros enough for a vector

    @staticmethod
    def size(src: Source, taps: Int) -> Int:
        return up(taps) + up(4 * src.width) + 3 * Self.gap(src)

    @staticmethod
    def gap(src: Source) -> Int:
        return up(src.width + LANES)

    def __init__(out self, src: Source, taps: Int, memory: Floats):
        self.src = src
        self.stride = Self.gap(src)
        self.weights = memory
        self.mixed = memory.unsafe_offset(up(taps))
        self.planes = self.mixed.unsafe_offset(up(4 * src.width))
        for plane in range(3):
            for x in range(src.width, self.stride):
                self.planes[unsafe_offset=plane * self.stride + x] = 0

    def run(self, window: Window):
        """Writes `planes`."""
        ref src = self.src
        window.weights(self.weights, window.count)
        if src.kind == PLANES:
            for plane in range(src.planes):
                sum_rows(
                    self.planes.unsafe_offset(plane * self.stride),
                    src.at(window.first, plane),
                    src.row,
                    self.weights,
                    window.count,
                    src.width,
                )
        elif src.kind == STRIDED:
            for plane in range(src.planes):
                for x in range(src.width):
                    _sum[1](
                        self.planes.unsafe_offset(plane * self.stride + x),
                        src.at(window.first, plane).unsafe_offset(x * src.column),
                        src.row,
                        self.weights,
                        window.count,
                    )
        else:
            var bytes = src.width * src.kind
            var first = src.at(window.first, 0)
            sum_rows(self.mixed, first, src.row, self.weights, window.count, bytes)
            self._split()

    def _split(self):
        """Sorts the channels of pixels into planes."""
        var channels = self.src.kind
        var done = 0
        if channels == PACKED_3:
            done = self.src.width // LANES * LANES
            for x in range(0, done, LANES):
                var a = self.mixed.unsafe_load[width=LANES](3 * x)
                var b = self.mixed.unsafe_load[width=LANES](3 * x + LANES)
                var c = self.mixed.unsafe_load[width=LANES](3 * x + 2 * LANES)
                comptime for k in range(3):
                    var both = a.shuffle[mask=_first(k)](b)
                    var plane = both.shuffle[mask=_second(k)](c)
                    self.planes.unsafe_store(k * self.stride + x, plane)
        for k in range(self.src.planes):
            var line = self.planes.unsafe_offset(k * self.stride)
            for x in range(done, self.src.width):
                line[unsafe_offset=x] = self.mixed[unsafe_offset=x * channels + k]


def _first(k: Int) -> IndexList[LANES]:
    var mask = IndexList[LANES]()
    for i in range(LANES):
        mask[i] = min(3 * i + k, 2 * LANES - 1)
    return mask


def _second(k: Int) -> IndexList[LANES]:
    var mask = IndexList[LANES]()
    for i in range(LANES):
        var place = 3 * i + k
        mask[i] = i if place < 2 * LANES else place - LANES
    return mask


@fieldwise_init
struct Windows(ImplicitlyCopyable):
    """The windows of all output columns."""

    var count: Int
    var taps: Int  # room for the weights of one, in whole vectors
    var firsts: Pointer[Int, MutUntrackedOrigin]
    var counts: Pointer[Int, MutUntrackedOrigin]
    var weights: Floats  # [count, taps]

    def fill(self, mode: Int, source: Int):
        """Computes them."""
        for x in range(self.count):
            var window = Window.of(mode, x, source, self.count)
            self.firsts[unsafe_offset=x] = window.first
            self.counts[unsafe_offset=x] = window.count
            window.weights(self.weights.unsafe_offset(x * self.taps), self.taps)

    def run(self, dst: Floats, gap: Int, rows: Rows):
        """Writes the means of columns `[planes, count]`, with `gap` floats between planes."""
        for plane in range(rows.src.planes):
            var line = rows.planes.unsafe_offset(plane * rows.stride)
            for x in range(self.count):
                var row = line.unsafe_offset(self.firsts[unsafe_offset=x])
                var weights = self.weights.unsafe_offset(x * self.taps)
                var sum = SIMD[DType.float32, LANES](0)
                for k in range(0, self.counts[unsafe_offset=x], LANES):
                    sum = fma(
                        row.unsafe_load[width=LANES](k), weights.unsafe_load[width=LANES](k), sum
                    )
                dst[unsafe_offset=plane * gap + x] = sum.reduce_add()
