"""The least that a library can be: one kernel for one dtype."""

from torchmojo import MutTensor, Tensor


def twice(dst: MutTensor[DType.float32, 1, "n"], src: Tensor[DType.float32, 1, "n"]):
    """Writes `2 * src` into `dst`.

    Args:
        dst: The products `[n]`.
        src: The numbers `[n]`.
    """
    for i in range(dst.dim(0)):
        dst[i] = 2 * src[i]
