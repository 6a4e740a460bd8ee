"""The kernels: one image of bytes becomes one picture of a model's input."""

from std.memory import Pointer
from std.utils import IndexList

from torchmojo import MutTensor, OwnedTensor, Tensor, num_threads, parallel_for

from across import Columns, Places
from down import Rows, Windows
from finish import Finish
from place import ANTIALIAS, AREA, BILINEAR, NEAREST, Window, pair
from source import Floats, MOST, Source, up

comptime WORK = 1 << 16
"""Pixels of the source and the output that are worth a thread of their own."""


def prepare[
    dtype: DType
](
    dst: MutTensor[dtype, 3],
    src: Tensor[DType.uint8, 3],
    mode: Int,
    top: Int,
    left: Int,
    height: Int,
    width: Int,
    planes: List[Int],
    factor: List[Float64],
    shift: List[Float64],
    fill: List[Float64],
) raises where (dtype == DType.uint8 or dtype == DType.float32 or dtype.is_half_float()):
    """Resizes an image into a part of `dst`, pads the rest, and finishes each value.

    Parameters:
        dtype: Element type of the output.

    Args:
        dst: Picture `[c, h, w]`, with any strides.
        src: Image `[h, w, c]` of 1, 3 or 4 channels, with any strides.
        mode: 0 nearest, 1 bilinear, 2 bilinear with antialias, 3 area.
        top: First row of the image in the picture.
        left: First column of the image in the picture.
        height: Rows of the image in the picture.
        width: Columns of the image in the picture.
        planes: For each output channel, the source channel; three for one output of gray.
        factor: For each output channel, by what a level is multiplied.
        shift: For each output channel, what is added afterwards.
        fill: For each output channel, the level of the padding.
    """
    var image = Source(src)
    var channels = dst.dim(0)
    if top < 0 or left < 0 or height < 1 or width < 1:
        raise Error("dst: the image lies outside")
    if top + height > dst.dim(1) or left + width > dst.dim(2):
        raise Error("dst: the image lies outside")
    if max(height, width) > MOST:
        raise Error(t"dst: wanted {MOST} rows and columns at most")
    var gray = channels == 1 and len(planes) == 3
    if channels > 3 or (len(planes) != channels and not gray):
        raise Error(t"planes: wanted one for each of {channels} channels, given {len(planes)}")
    if len(factor) != channels or len(shift) != channels or len(fill) != channels:
        raise Error(t"factor, shift, fill: wanted one for each of {channels} channels")
    if mode < NEAREST or mode > AREA:
        raise Error(t"mode: wanted 0 to 3, given {mode}")

    var finish = Finish[dtype](dst.slice(1, top, top + height).slice(2, left, left + width), gray)
    for k in range(len(planes)):
        if planes[k] < 0 or planes[k] >= image.planes:
            raise Error(t"planes: wanted 0 to {image.planes - 1}, given {planes[k]}")
        finish.planes[k] = planes[k]
    for k in range(channels):
        finish.factor[k] = Float32(factor[k])
        finish.shift[k] = Float32(shift[k])
        if height < dst.dim(1) or width < dst.dim(2):
            var level = finish.convert[1](k, Float32(fill[k]))
            var plane = dst.select(0, k)
            _paint(plane.slice(0, 0, top), level)
            _paint(plane.slice(0, top + height, dst.dim(1)), level)
            var middle = plane.slice(0, top, top + height)
            _paint(middle.slice(1, 0, left), level)
            _paint(middle.slice(1, left + width, dst.dim(2)), level)

    if mode == NEAREST or mode == BILINEAR:
        _by_pairs(finish, image, mode, height, width)
    else:
        _by_windows(finish, image, mode, height, width)


def _by_pairs[
    dtype: DType
](finish: Finish[dtype], src: Source, mode: Int, height: Int, width: Int) raises:
    """Takes two columns and two rows for each output pixel.

    Each source row that is needed is brought to the output's width once, and kept while it is
    needed: an even and an odd row at a time.
    """
    var gap = up(width)
    var rows = min(src.height, 2 * height)
    var parts = max(1, min(num_threads(), min(height, (height + rows) * width // WORK)))
    var memory = OwnedTensor[DType.float32, 1]((parts * 6 * gap + 3 * gap,))
    var start = Floats(unsafe_from_address=Int(memory.view().unsafe_ptr()))
    var table = start.unsafe_offset(parts * 6 * gap)
    var places = Places(unsafe_from_address=Int(table))
    var columns = Columns(mode, src, width, places, table.unsafe_offset(2 * gap))

    def share(first: Int, end: Int) {var}:
        for part in range(first, end):
            var ring = start.unsafe_offset(part * 6 * gap)
            var even = -1
            var odd = -1
            for y in range(height * part // parts, height * (part + 1) // parts):
                var found = pair(mode, y, src.height, height)
                var upper = found[0]
                var lower = min(upper + 1, src.height - 1)
                if found[1] == 0:
                    lower = upper
                elif found[1] == 1:
                    upper = lower
                for row in range(upper, lower + 1):
                    var slot = even if row % 2 == 0 else odd
                    if slot != row:
                        columns.run(ring.unsafe_offset(row % 2 * 3 * gap), gap, src, row)
                        if row % 2 == 0:
                            even = row
                        else:
                            odd = row
                finish.row(
                    y,
                    ring.unsafe_offset(upper % 2 * 3 * gap),
                    ring.unsafe_offset(lower % 2 * 3 * gap),
                    found[1],
                    gap,
                )

    parallel_for(share, parts, grain=1)
    memory^.release()


def _by_windows[
    dtype: DType
](finish: Finish[dtype], src: Source, mode: Int, height: Int, width: Int) raises:
    """Takes weighted means: first of rows, which are long and packed, then of columns."""
    var gap = up(width)
    var tall = Window.most(mode, src.height, height)
    var taps = up(Window.most(mode, src.width, width))
    var size = up(Rows.size(src, tall) + 3 * gap)
    var work = src.height * src.width + height * width
    var parts = max(1, min(num_threads(), min(height, work // WORK)))
    var memory = OwnedTensor[DType.float32, 1]((parts * size + (4 + taps) * gap,))
    var start = Floats(unsafe_from_address=Int(memory.view().unsafe_ptr()))
    var table = start.unsafe_offset(parts * size)
    var windows = Windows(
        width,
        taps,
        Places(unsafe_from_address=Int(table)),
        Places(unsafe_from_address=Int(table.unsafe_offset(2 * gap))),
        table.unsafe_offset(4 * gap),
    )
    windows.fill(mode, src.width)

    def share(first: Int, end: Int) {var}:
        for part in range(first, end):
            var own = start.unsafe_offset(part * size)
            var rows = Rows(src, tall, own.unsafe_offset(3 * gap))
            for y in range(height * part // parts, height * (part + 1) // parts):
                rows.run(Window.of(mode, y, src.height, height))
                windows.run(own, gap, rows)
                finish.row(y, own, own, 0, gap)

    parallel_for(share, parts, grain=1)
    memory^.release()


def _paint[dtype: DType](dst: MutTensor[dtype, 2], value: Scalar[dtype]):
    for y in range(dst.dim(0)):
        for x in range(dst.dim(1)):
            dst[y, x] = value
