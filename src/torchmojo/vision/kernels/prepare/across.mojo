"""Rows of bytes to rows of floats that are as wide as the output: two pixels each."""

from std.math import fma
from std.memory import Pointer, bitcast
from std.utils import IndexList

from source import Bytes, Floats, LANES, PACKED_3, PACKED_4, PLANES, Source
from place import pair

comptime Places = Pointer[Int, MutUntrackedOrigin]


@fieldwise_init
struct Columns(ImplicitlyCopyable):
    """For each output column, where its two pixels begin in a row, and the weight of the second."""

    var count: Int
    var safe: Int  # columns whose vector load stays inside the row
    var step: Int  # from the first to the second of a pair, in bytes
    var places: Places
    var weights: Floats

    def __init__(out self, mode: Int, src: Source, count: Int, places: Places, weights: Floats):
        self.count = count
        self.safe = 0
        self.step = src.column if src.width > 1 else 0
        self.places = places
        self.weights = weights
        var bytes = 2 if src.kind == PLANES else 8
        for x in range(count):
            var found = pair(mode, x, src.width, count)
            places[unsafe_offset=x] = found[0] * src.column
            weights[unsafe_offset=x] = found[1]
            if found[0] * src.column + bytes <= src.width * src.column:
                self.safe = x + 1

    def run(self, dst: Floats, stride: Int, src: Source, y: Int):
        """Writes row y of the source as `[planes, count]`, with `stride` floats between planes."""
        var done = self.safe // LANES * LANES
        if src.kind == PLANES:
            for plane in range(src.planes):
                self._blocks[PLANES](
                    dst.unsafe_offset(plane * stride), stride, src.at(y, plane), done
                )
        elif src.kind == PACKED_3:
            self._blocks[PACKED_3](dst, stride, src.at(y, 0), done)
        elif src.kind == PACKED_4:
            self._blocks[PACKED_4](dst, stride, src.at(y, 0), done)
        else:
            done = 0
        for plane in range(src.planes):
            var row = src.at(y, plane)
            var line = dst.unsafe_offset(plane * stride)
            for x in range(done, self.count):
                var place = self.places[unsafe_offset=x]
                var left = Float32(row[unsafe_offset=place])
                var right = Float32(row[unsafe_offset=place + self.step])
                line[unsafe_offset=x] = fma(right - left, self.weights[unsafe_offset=x], left)

    @always_inline
    def _blocks[kind: Int](self, dst: Floats, stride: Int, row: Bytes, end: Int):
        """Fills whole vectors of columns; one load fetches all bytes of a pair."""
        for x in range(0, end, LANES):
            var weight = self.weights.unsafe_load[width=LANES](x)
            comptime assert LANES == 16, "two fetches of eight"
            comptime if kind == PLANES:
                var pairs = SIMD[DType.uint16, LANES]()
                comptime for i in range(LANES):
                    var place = self.places[unsafe_offset=x + i]
                    pairs[i] = bitcast[DType.uint16, 1](row.unsafe_load[width=2](place))
                _mix(dst.unsafe_offset(x), weight, pairs & 255, pairs >> 8)
            else:
                var low = self._fetch(row, x)
                var high = self._fetch(row, x + LANES // 2)
                comptime for c in range(3):
                    # Four bytes for each pixel: left, two of no use, right.
                    var both = bitcast[DType.int32, LANES](
                        low.shuffle[mask=_picks(c, kind + c)](high)
                    )
                    var right = bitcast[DType.int32, LANES](
                        bitcast[DType.uint32, LANES](both) >> 24
                    )
                    _mix(dst.unsafe_offset(c * stride + x), weight, both & 255, right)

    @always_inline
    def _fetch(self, row: Bytes, x: Int) -> SIMD[DType.uint8, 64]:
        # Vectors of bytes, as the compiler makes of integers a gather, which takes 1.3 times as long.
        var a = self._pair(row, x).join(self._pair(row, x + 1))
        var b = self._pair(row, x + 2).join(self._pair(row, x + 3))
        var c = self._pair(row, x + 4).join(self._pair(row, x + 5))
        var d = self._pair(row, x + 6).join(self._pair(row, x + 7))
        return a.join(b).join(c.join(d))

    @always_inline
    def _pair(self, row: Bytes, x: Int) -> SIMD[DType.uint8, 8]:
        return row.unsafe_load[width=8](self.places[unsafe_offset=x])


@always_inline
def _mix[
    dtype: DType
](dst: Floats, weight: SIMD[DType.float32, LANES], left: SIMD[dtype, LANES], right: type_of(left)):
    var first = left.cast[DType.float32]()
    dst.unsafe_store(0, fma(right.cast[DType.float32]() - first, weight, first))


def _picks(left: Int, right: Int) -> IndexList[64]:
    var mask = IndexList[64]()
    for i in range(LANES):
        mask[4 * i] = 8 * i + left
        mask[4 * i + 1] = 8 * i + left
        mask[4 * i + 2] = 8 * i + right
        mask[4 * i + 3] = 8 * i + right
    return mask
