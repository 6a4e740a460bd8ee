"""Plain Mojo functions that Python calls on tensors, with no copy."""

from torchmojo import MutTensor, Tensor, parallel_for

comptime ELEMENTS_PER_THREAD = 32768
"""How many elements are worth a thread of their own."""


def soft_threshold[
    dtype: DType
](
    dst: MutTensor[dtype, 2, "rows columns"],
    src: Tensor[dtype, 2, "rows columns"],
    limit: Float64,
) where dtype.is_floating_point():
    """Writes values moved towards zero by a limit, and zero for those that are nearer than that.

    Parameters:
        dtype: Element type of both tensors.

    Args:
        dst: Result `[rows, columns]`; may be `src` itself.
        src: Values `[rows, columns]` of any strides; NaN stays NaN.
        limit: How far values move; 0 or more.
    """
    var step = Scalar[dtype](limit)

    def rows(start: Int, end: Int) {imm}:
        for i in range(start, end):
            for j in range(src.dim(1)):
                var x = src[i, j]
                if x > step:
                    dst[i, j] = x - step
                elif x < -step:
                    dst[i, j] = x + step
                else:
                    dst[i, j] = x * 0

    parallel_for(rows, src.dim(0), 1 + ELEMENTS_PER_THREAD // max(1, src.dim(1)))
