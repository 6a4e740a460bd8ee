"""The operator that `ops.py` calls."""

from std.algorithm import vectorize
from std.sys import simd_width_of

from torchmojo import MutTensor, Tensor


def add(
    dst: MutTensor[DType.float32, 1, "n"],
    a: Tensor[DType.float32, 1, "n"],
    b: Tensor[DType.float32, 1, "n"],
):
    """Writes `a + b` into `dst`, on one thread.

    Args:
        dst: The sums `[n]`.
        a: First terms `[n]`.
        b: Second terms `[n]`.
    """

    def part[n: Int](i: Int) {var}:
        dst.store(i, value=a.load[n](i) + b.load[n](i))

    vectorize[simd_width_of[DType.float32]()](dst.dim(0), part)
