"""Three picture filters in plain Mojo: the kernels that `torchmojo demo` runs.

Outputs come first and are the caller's memory, as the inputs are: nothing is copied. Each filter
takes pictures of any size, empty ones included, and of any strides, such as those of flipped,
sliced and transposed ones. Rows are shared between torch's threads; along a row, a filter handles
four SIMD registers at a time, then single ones, then the last pixels one by one.
"""

from std.math import ceil, exp, sqrt
from std.memory import Pointer
from std.sys import simd_width_of
from std.utils import IndexList

from torchmojo import MutTensor, Tensor, parallel_for

comptime MAX_SIGMA = 10000
"""The widest blur, in pixels; its scratch row is 60,000 pixels longer than the picture's rows."""

comptime PIXELS_PER_THREAD = 32768
"""How many pixels are worth a thread of their own."""

# --- grayscale --------------------------------------------------------------------------------


def grayscale(dst: MutTensor[DType.float32, 2, "h w"], image: Tensor[DType.uint8, 3, "h w 3"]):
    """Writes the luma of an RGB picture, with the weights of ITU-R BT.601.

    Args:
        dst: Gray picture `[h, w]`, from 0 (black) to 1 (white).
        image: RGB picture `[h, w, 3]`, from 0 to 255.
    """
    var width = dst.dim(1)
    var red = image.select(2, 0)
    var green = image.select(2, 1)
    var blue = image.select(2, 2)
    # Most decoders and cameras store RGBRGBRGB... without gaps: read it whole, then pick.
    var packed = image.stride(2) == 1 and image.stride(1) == 3

    def rows(start: Int, end: Int) {imm}:
        for y in range(start, end):

            def pixels[n: Int](x: Int) {imm}:
                var gray: SIMD[DType.float32, n]
                if n > 1 and packed:
                    var rgb = _load_triples[n](Pointer(to=image[y, x, 0]))
                    gray = _luma(
                        _every_third[n, 0](rgb), _every_third[n, 1](rgb), _every_third[n, 2](rgb)
                    )
                else:
                    gray = _luma(red.load[n](y, x), green.load[n](y, x), blue.load[n](y, x))
                dst.store(y, x, value=gray)

            _sweep[simd_width_of[DType.float32]()](width, pixels)

    parallel_for(rows, dst.dim(0), _rows_per_thread(width))


@always_inline
def _luma[
    n: Int
](red: SIMD[DType.uint8, n], green: type_of(red), blue: type_of(red)) -> SIMD[DType.float32, n]:
    """Returns the weighted sum of three colours."""
    comptime f32 = DType.float32
    var sum = red.cast[f32]() * 0.299 + green.cast[f32]() * 0.587 + blue.cast[f32]() * 0.114
    return sum * (1.0 / 255)


@always_inline
def _load_triples[n: Int](first: Pointer[UInt8, _]) -> SIMD[DType.uint8, 4 * n]:
    """Reads the `3 * n` bytes of `n` pixels, and none after them; the rest of the vector is 0."""
    var low = first.unsafe_load[width=n](0).join(first.unsafe_load[width=n](n))
    var high = first.unsafe_load[width=n](2 * n).join(SIMD[DType.uint8, n](0))
    return rebind[SIMD[DType.uint8, 4 * n]](low.join(high))


@always_inline
def _every_third[n: Int, first: Int](triples: SIMD[DType.uint8, 4 * n]) -> SIMD[DType.uint8, n]:
    """Returns one colour of `n` pixels: the bytes `first`, `first + 3`, `first + 6`..."""

    def places() {} -> IndexList[4 * n]:
        var at = IndexList[4 * n](fill=0)
        for i in range(n):
            at[i] = first + 3 * i
        return at

    return triples.shuffle[places()]().slice[n]()


# --- Gaussian blur ----------------------------------------------------------------------------


def gaussian_blur[
    dtype: DType
](
    dst: MutTensor[dtype, 2, "h w"], src: Tensor[dtype, 2, "h w"], sigma: Float64
) raises where dtype.is_floating_point():
    """Writes a picture blurred by a Gaussian.

    The window reaches `ceil(3 * sigma)` pixels to each side. Beyond the borders the picture is
    mirrored about its outermost pixels, `d c b | a b c d | c b a`, again and again where the window
    is wider than the picture. Sums are made in float32, or in float64 for float64 pictures.

    Parameters:
        dtype: Element type of both pictures.

    Args:
        dst: Blurred picture `[h, w]`; shares no memory with `src`.
        src: Picture `[h, w]`.
        sigma: Standard deviation in pixels, above 0 and at most 10000.

    Raises:
        If `sigma` is out of range, or `dst` and `src` share memory.
    """
    if not (sigma > 0 and sigma <= MAX_SIGMA):
        raise Error(t"sigma must be above 0 and at most {MAX_SIGMA} pixels, got {sigma}")
    if dst.shares_memory(src):
        raise Error("dst and src share memory, and a blur must not read pixels that it has written")
    # A Gaussian looks alike from both sides: walk along the axis whose pixels lie closer together.
    if abs(src.stride(1)) <= abs(src.stride(0)):
        _blur(dst, src, sigma)
    else:
        _blur(dst.transpose(0, 1), src.transpose(0, 1), sigma)


def _blur[
    dtype: DType
](dst: MutTensor[dtype, 2], src: Tensor[dtype, 2], sigma: Float64) where dtype.is_floating_point():
    """Blurs row by row: each one is summed over its neighbours above and below, then along itself."""
    comptime sum_type = DType.float64 if dtype == DType.float64 else DType.float32
    comptime lanes = simd_width_of[sum_type]()
    var height = src.dim(0)
    var width = src.dim(1)
    var window = _gaussian[sum_type](sigma)
    var radius = len(window) - 1
    var rows_at = _mirrored(height, radius)
    var columns_at = _mirrored(width, radius)
    # Pointers, as a checked list index costs more than the multiplication that it feeds.
    var weight = window.unsafe_ptr()
    var row = rows_at.unsafe_ptr().unsafe_offset(radius)

    def rows(start: Int, end: Int) {imm}:
        # One row of sums with `radius` pixels of border on either side: all the memory that a
        # thread needs, and it stays in the cache.
        var line = List[Scalar[sum_type]](length=width + 2 * radius, fill=0)
        var column = line.unsafe_ptr().unsafe_offset(radius)
        for y in range(start, end):

            def sum_down[n: Int](x: Int) {imm}:
                var sum = src.load[n](y, x).cast[sum_type]() * weight[]
                for k in range(1, radius + 1):
                    var above = src.load[n](row[unsafe_offset=y - k], x).cast[sum_type]()
                    var below = src.load[n](row[unsafe_offset=y + k], x).cast[sum_type]()
                    sum = (above + below).fma(weight[unsafe_offset=k], sum)
                column.unsafe_store(x, sum)

            def sum_across[n: Int](x: Int) {imm}:
                var sum = column.unsafe_load[width=n](x) * weight[]
                for k in range(1, radius + 1):
                    var left = column.unsafe_load[width=n](x - k)
                    var right = column.unsafe_load[width=n](x + k)
                    sum = (left + right).fma(weight[unsafe_offset=k], sum)
                dst.store(y, x, value=sum.cast[dtype]())

            _sweep[lanes](width, sum_down)
            for i in range(radius):
                line[i] = line[radius + columns_at[i]]
                line[radius + width + i] = line[radius + columns_at[radius + width + i]]
            _sweep[lanes](width, sum_across)

    parallel_for(rows, height if width > 0 else 0, _rows_per_thread(width))


def _gaussian[dtype: DType](sigma: Float64) -> List[Scalar[dtype]]:
    """Returns one half of a Gaussian window, its middle first; the whole window sums to 1."""
    var radius = Int(ceil(3 * sigma))
    var heights = List[Float64](capacity=radius + 1)
    var total = -1.0  # the middle is counted twice below
    for k in range(radius + 1):
        var distance = Float64(k) / sigma
        heights.append(exp(-0.5 * distance * distance))
        total += 2 * heights[k]
    return [Scalar[dtype](height / total) for height in heights]


def _mirrored(size: Int, margin: Int) -> List[Int]:
    """Returns the index that stands for each index in `-margin ..< size + margin` of an axis."""
    var period = max(1, 2 * (size - 1))
    var indices = List[Int](capacity=size + 2 * margin)
    for i in range(-margin, size + margin):
        var phase = abs(i) % period
        indices.append(min(phase, period - phase))
    return indices^


# --- Sobel ------------------------------------------------------------------------------------


def sobel(dst: MutTensor[DType.float32, 2, "h w"], src: Tensor[DType.float32, 2, "h w"]) raises:
    """Writes how steep a picture is at each pixel: the length of its Sobel gradient.

    Beyond the borders the outermost pixels are repeated, `a a | a b c d | d d`.

    Args:
        dst: Length of the gradient `[h, w]`; shares no memory with `src`.
        src: Picture `[h, w]`.

    Raises:
        If `dst` and `src` share memory.
    """
    if dst.shares_memory(src):
        raise Error("dst and src share memory, and Sobel must not read pixels that it has written")
    # Its length is the same with both axes exchanged: see gaussian_blur.
    if abs(src.stride(1)) <= abs(src.stride(0)):
        _gradient_length(dst, src)
    else:
        _gradient_length(dst.transpose(0, 1), src.transpose(0, 1))


def _gradient_length(dst: MutTensor[DType.float32, 2], src: Tensor[DType.float32, 2]):
    """Writes the length of the gradient row by row."""
    var height = src.dim(0)
    var width = src.dim(1)

    def rows(start: Int, end: Int) {imm}:
        for y in range(start, end):
            var up = max(y - 1, 0)
            var down = min(y + 1, height - 1)

            def gradient[n: Int](left: Int, x: Int, right: Int) {imm}:
                # `\` and `/`: differences along the diagonals, which both directions share.
                var falling = src.load[n](down, right) - src.load[n](up, left)
                var rising = src.load[n](up, right) - src.load[n](down, left)
                var across = src.load[n](y, right) - src.load[n](y, left)
                var along = src.load[n](down, x) - src.load[n](up, x)
                var gx = 2 * across + falling + rising
                var gy = 2 * along + falling - rising
                dst.store(y, x, value=sqrt(gx * gx + gy * gy))

            def inside[n: Int](i: Int) {imm}:
                gradient[n](i, i + 1, i + 2)

            gradient[1](0, 0, min(1, width - 1))
            _sweep[simd_width_of[DType.float32]()](width - 2, inside)
            gradient[1](max(width - 2, 0), width - 1, width - 1)

    parallel_for(rows, height if width > 0 else 0, _rows_per_thread(width))


# --- what they share --------------------------------------------------------------------------


@always_inline
def _sweep[lanes: Int, F: def[n: Int](x: Int) -> None](count: Int, body: F):
    """Calls `body[n](x)` for blocks of `n` pixels that cover `0 ..< count` once.

    Most blocks are four registers wide, so that four sums grow at a time.
    """
    var x = 0
    comptime for n in [4 * lanes, lanes, 1]:
        while x + n <= count:
            body[n](x)
            x += n


def _rows_per_thread(width: Int) -> Int:
    """Returns how many rows hold enough pixels for a thread of their own."""
    return 1 + PIXELS_PER_THREAD // max(width, 1)


# --- proof ------------------------------------------------------------------------------------


def address[
    dtype: DType
](picture: Tensor[dtype, 2]) -> Int where dtype == DType.uint8 or dtype == DType.float32:
    """Tells where Mojo sees a picture, to compare with where torch keeps it.

    Parameters:
        dtype: Element type.

    Args:
        picture: Any picture `[h, w]`.

    Returns:
        The address of the first element.
    """
    return Int(picture.unsafe_ptr())
