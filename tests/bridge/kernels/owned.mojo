"""Kernels that make tensors."""

from std.utils import IndexList

from torchmojo import MutTensor, OwnedTensor, Tensor


def ramp(n: Int) raises -> OwnedTensor[DType.float32, 1]:
    """Makes 0, 1, ... n - 1."""
    var made = OwnedTensor[DType.float32, 1](IndexList[1](n))
    var view = made.view()
    for i in range(n):
        view[i] = Float32(i)
    return made^


def outer[dtype: DType](a: Tensor[dtype, 1], b: Tensor[dtype, 1]) raises -> OwnedTensor[dtype, 2]:
    """Makes the outer product of two vectors, or just picks where dtypes cannot multiply."""
    var made = OwnedTensor[dtype, 2](IndexList[2](len(a), len(b)))
    var view = made.view()
    for i in range(len(a)):
        for j in range(len(b)):
            view[i, j] = a[i] if j % 2 == 0 else b[j]
    return made^


def fails(n: Int) raises -> OwnedTensor[DType.float32, 1]:
    """Makes a tensor, then raises; the compiler asks for its end first."""
    var made = OwnedTensor[DType.float32, 1](IndexList[1](n))
    if n > 1:
        made^.release()
        raise Error("too many")
    return made^


def moved(n: Int) raises -> OwnedTensor[DType.int64, 3]:
    """Makes a tensor and hands it from owner to owner."""
    var first = OwnedTensor[DType.int64, 3](IndexList[3](n, 2, 3))
    var second = first^
    var view = second.view()
    for i in range(n):
        for j in range(2):
            for k in range(3):
                view[i, j, k] = Int64(100 * i + 10 * j + k)
    return second^


def handed_on(n: Int) raises -> Int:
    """Makes a tensor, gives it to a handle and ends that."""
    var made = OwnedTensor[DType.float64, 1](IndexList[1](n))
    var handle = made^.into_handle()
    handle^.release()
    return n


def through_torch(n: Int) raises -> Int:
    """Makes a tensor, gives it to torch and drops it there."""
    var made = OwnedTensor[DType.float32, 2](IndexList[2](n, 3))
    made.view()[0, 0] = 1
    var tensor = made^.into_torch()
    var handle = tensor.address()
    tensor^.release()
    return 1 if handle != 0 else 0
