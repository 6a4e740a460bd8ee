"""A kernel that needs no run-time library of Mojo's."""

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
