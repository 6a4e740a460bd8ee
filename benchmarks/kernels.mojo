"""What the benchmarks call: one kernel, written in the ways that differ in speed.

The closures copy what they use (`{var}`), as hot loops should: one that refers to it (`{imm}`) reads
each view's address and stride again for each block, since a store into `dst` might have changed them.
"""

from std.algorithm import vectorize
from std.sys import size_of

from torchmojo import MutTensor, Tensor, parallel_for


def scaled_add[
    dtype: DType
](
    dst: MutTensor[dtype, 1, "n"],
    a: Tensor[dtype, 1, "n"],
    b: Tensor[dtype, 1, "n"],
    alpha: Float64 = 1.0,
):
    """Writes `a + alpha * b` into `dst`, on one thread.

    Parameters:
        dtype: Element type.

    Args:
        dst: The sums `[n]`.
        a: First terms `[n]`.
        b: Second terms `[n]`.
        alpha: Factor of `b`.
    """
    _add_part(dst, a, b, Scalar[dtype](alpha), 0, dst.dim(0))


def scaled_add_parallel[
    dtype: DType
](
    dst: MutTensor[dtype, 1, "n"],
    a: Tensor[dtype, 1, "n"],
    b: Tensor[dtype, 1, "n"],
    alpha: Float64 = 1.0,
):
    """Writes `a + alpha * b` into `dst`, on torch's threads.

    Parameters:
        dtype: Element type.

    Args:
        dst: The sums `[n]`.
        a: First terms `[n]`.
        b: Second terms `[n]`.
        alpha: Factor of `b`.
    """
    var factor = Scalar[dtype](alpha)

    def part(start: Int, end: Int) {var}:
        _add_part(dst, a, b, factor, start, end)

    parallel_for(part, dst.dim(0))


def scaled_add_reference[
    dtype: DType
](
    dst: MutTensor[dtype, 1, "n"],
    a: Tensor[dtype, 1, "n"],
    b: Tensor[dtype, 1, "n"],
    alpha: Float64 = 1.0,
):
    """Writes `a + alpha * b` into `dst` on torch's threads, by closures that refer to the views.

    Parameters:
        dtype: Element type.

    Args:
        dst: The sums `[n]`.
        a: First terms `[n]`.
        b: Second terms `[n]`.
        alpha: Factor of `b`.
    """
    var factor = Scalar[dtype](alpha)

    def part(start: Int, end: Int) {imm}:
        def block[n: Int](i: Int) {imm}:
            var at = start + i
            dst.store(at, value=a.load[n](at) + factor * b.load[n](at))

        vectorize[_BYTES // size_of[dtype]()](end - start, block)

    parallel_for(part, dst.dim(0))


def scaled_add_loop[
    dtype: DType
](
    dst: MutTensor[dtype, 1, "n"],
    a: Tensor[dtype, 1, "n"],
    b: Tensor[dtype, 1, "n"],
    alpha: Float64 = 1.0,
):
    """Writes `a + alpha * b` into `dst`, one element at a time.

    Parameters:
        dtype: Element type.

    Args:
        dst: The sums `[n]`.
        a: First terms `[n]`.
        b: Second terms `[n]`.
        alpha: Factor of `b`.
    """
    for i in range(dst.dim(0)):
        dst[i] = a[i] + Scalar[dtype](alpha) * b[i]


# Half of an AVX-512 register: a million elements wait for memory, and wider blocks waited 5 % longer.
comptime _BYTES = 32


@always_inline
def _add_part[
    dtype: DType
](
    dst: MutTensor[dtype, 1],
    a: Tensor[dtype, 1],
    b: Tensor[dtype, 1],
    factor: Scalar[dtype],
    start: Int,
    end: Int,
):
    """Writes the sums of `start ..< end`."""

    def block[n: Int](i: Int) {var}:
        var at = start + i
        dst.store(at, value=a.load[n](at) + factor * b.load[n](at))

    vectorize[_BYTES // size_of[dtype]()](end - start, block)
