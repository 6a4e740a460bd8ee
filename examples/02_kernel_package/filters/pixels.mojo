"""From the bytes of pictures to what a network takes."""

from torchmojo import Layout, MutTensor, OptionalTensor, Tensor, parallel_for

from .checks import _rows_per_thread


def normalize(
    dst: MutTensor[DType.float32, 4, "n 3 h w", Layout.CHANNELS_LAST],
    image: Tensor[DType.uint8, 4, "n h w 3"],
    mean: OptionalTensor[DType.float32, 1, "3"] = None,
    std: OptionalTensor[DType.float32, 1, "3"] = None,
):
    """Writes (image / 255 - mean) / std.

    Args:
        dst: Input of a network `[n, 3, h, w]`, stored channels-last.
        image: RGB pictures `[n, h, w, 3]`, 0 to 255.
        mean: Mean of each colour, 0 where it is left out.
        std: Standard deviation of each colour, 1 where it is left out.
    """
    var scale = SIMD[DType.float32, 4](1.0 / 255)
    var shift = SIMD[DType.float32, 4](0)
    for c in range(3):
        var deviation = std.value()[c] if std else Float32(1)
        scale[c] /= deviation
        shift[c] = (mean.value()[c] if mean else Float32(0)) / deviation
    var height = dst.dim(2)
    var width = dst.dim(3)

    def rows(start: Int, end: Int) {dst, image, scale, shift, height, width}:
        for row in range(start, end):
            var picture = row // height
            var y = row % height
            for x in range(width):
                for c in range(3):
                    var pixel = Float32(image[picture, y, x, c])
                    dst[picture, c, y, x] = pixel * scale[c] - shift[c]

    parallel_for(rows, dst.dim(0) * height, _rows_per_thread(3 * width))
