"""The first kernel: one plain function."""

from torchmojo import MutTensor, Tensor


def scaled_add[
    dtype: DType
](
    dst: MutTensor[dtype, 1, "n"],
    a: Tensor[dtype, 1, "n"],
    b: Tensor[dtype, 1, "n"],
    alpha: Float64,
) where dtype.is_floating_point():
    """Writes a + alpha * b into dst.

    Parameters:
        dtype: Element type of all three.

    Args:
        dst: Result `[n]`; may be `a` or `b` itself.
        a: First term `[n]`.
        b: Second term `[n]`.
        alpha: Factor of the second term.
    """
    for i in range(dst.dim(0)):
        dst[i] = a[i] + Scalar[dtype](alpha) * b[i]
