"""Kernels of the tests: plain arithmetic, to be compared bit by bit with torch."""

from torchmojo import MutTensor, Tensor
from std.algorithm import vectorize
from std.sys import simd_width_of


def fma[
    dtype: DType
](
    dst: MutTensor[dtype, 1, "n"],
    a: Tensor[dtype, 1, "n"],
    b: Tensor[dtype, 1, "n"],
    c: Tensor[dtype, 1, "n"],
) where dtype.is_floating_point():
    """Writes a * b + c with SIMD and a scalar tail."""

    def body[w: Int](i: Int) {dst, a, b, c}:
        dst.store[w](i, value=a.load[w](i) * b.load[w](i) + c.load[w](i))

    vectorize[simd_width_of[dtype]()](dst.dim(0), body)


def fma_scalar[
    dtype: DType
](
    dst: MutTensor[dtype, 1, "n"],
    a: Tensor[dtype, 1, "n"],
    b: Tensor[dtype, 1, "n"],
    c: Tensor[dtype, 1, "n"],
) where dtype.is_floating_point():
    """Writes a * b + c one by one."""
    for i in range(dst.dim(0)):
        dst[i] = a[i] * b[i] + c[i]


def add_mul[
    dtype: DType
](
    sum: MutTensor[dtype, 1, "n"],
    product: MutTensor[dtype, 1, "n"],
    a: Tensor[dtype, 1, "n"],
    b: Tensor[dtype, 1, "n"],
) where dtype.is_integral():
    """Writes a + b and a * b; integers wrap."""
    for i in range(sum.dim(0)):
        sum[i] = a[i] + b[i]
        product[i] = a[i] * b[i]


def assumed[dtype: DType](dst: MutTensor[dtype, 1, "n"], src: Tensor[dtype, 1, "n"]):
    """Compiles for bool too, without having said so."""
    for i in range(src.dim(0)):
        dst[i] = src[i]


def doubled[dtype: DType](dst: MutTensor[dtype, 1, "n"], src: Tensor[dtype, 1, "n"]):
    """Does not compile for bool."""
    for i in range(src.dim(0)):
        dst[i] = src[i] + src[i]
