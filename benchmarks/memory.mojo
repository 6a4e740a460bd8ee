"""Kernels of the benchmark `memory`: nothing but tensors to check, and one that asks for rows."""

from torchmojo import Layout, MutTensor, OwnedTensor, Tensor
from std.utils import IndexList


def one(a: Tensor[DType.float32, 1]):
    """Takes one tensor.

    Args:
        a: Any vector.
    """
    pass


def five(
    a: Tensor[DType.float32, 1],
    b: Tensor[DType.float32, 1],
    c: Tensor[DType.float32, 1],
    d: Tensor[DType.float32, 1],
    e: Tensor[DType.float32, 1],
):
    """Takes five tensors.

    Args:
        a: Any vector.
        b: Any vector.
        c: Any vector.
        d: Any vector.
        e: Any vector.
    """
    pass


def rows(a: Tensor[DType.float32, 2, layout=Layout.ROW_MAJOR]) -> Float32:
    """Takes a contiguous matrix.

    Args:
        a: Any matrix.

    Returns:
        Its first element.
    """
    return a[0, 0]


def made(n: Int) raises -> OwnedTensor[DType.float32, 1]:
    """Makes a vector.

    Args:
        n: Its length.

    Returns:
        Memory that is not initialised.
    """
    return OwnedTensor[DType.float32, 1](IndexList[1](n))


def fails(a: MutTensor[DType.float32, 1], after: Int) raises:
    """Writes a few ones, then raises.

    Args:
        a: Gets the ones.
        after: How many.
    """
    for i in range(min(after, a.dim(0))):
        a[i] = 1
    raise Error("asked for")


def add(dst: MutTensor[DType.float32, 1, "n"], a: Tensor[DType.float32, 1, "n"]):
    """Adds to a vector.

    Args:
        dst: Changed.
        a: Added to it.
    """
    for i in range(a.dim(0)):
        dst[i] += a[i]
