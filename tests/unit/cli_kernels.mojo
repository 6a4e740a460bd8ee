"""Two kernels for the tests of the command-line tool."""

from torchmojo import MutTensor, Tensor


def scale(
    dst: MutTensor[DType.float32, 1, "n"], src: Tensor[DType.float32, 1, "n"], by: Float32 = 2
):
    """Writes src times a number.

    Args:
        dst: Result `[n]`.
        src: Values `[n]`.
    """
    for i in range(dst.dim(0)):
        dst[i] = src[i] * by


def last(src: Tensor[DType.float32, 1]) raises -> Float32:
    """Returns the last value.

    Args:
        src: Values, at least one.
    """
    if src.dim(0) == 0:
        raise Error("there is none")
    return src[src.dim(0) - 1]
