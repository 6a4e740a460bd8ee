"""Kernels of the tests: every way to use an index, for indices inside and outside a tensor."""

from torchmojo import (
    MutTensor,
    MutTensorList,
    OptionalMutTensor,
    OptionalTensor,
    Tensor,
    TensorList,
    parallel_for,
)


def get0(x: Tensor[DType.float32, 0]) -> Float32:
    return x[]


def get1(x: Tensor[DType.float32, 1], i: Int) -> Float32:
    return x[i]


def get2(x: Tensor[DType.float32, 2], i: Int, j: Int) -> Float32:
    return x[i, j]


def get3(x: Tensor[DType.float32, 3], i: Int, j: Int, k: Int) -> Float32:
    return x[i, j, k]


def get_bool(x: Tensor[DType.bool, 1], i: Int) -> Bool:
    return Bool(x[i])


def set1(x: MutTensor[DType.float32, 1], i: Int, value: Float32):
    x[i] = value


def set2(x: MutTensor[DType.float32, 2], i: Int, j: Int, value: Float32):
    x[i, j] = value


def set_double(x: MutTensor[DType.float64, 1], i: Int, value: Float64):
    x[i] = value


def add1(x: MutTensor[DType.float32, 1], i: Int):
    x[i] += 1


def load4(x: Tensor[DType.float32, 2], i: Int, j: Int) -> Float32:
    return x.load[4](i, j).reduce_add()


def store4(x: MutTensor[DType.float32, 2], i: Int, j: Int):
    x.store[4](i, j, value=SIMD[DType.float32, 4](9))


def select1(x: MutTensor[DType.float32, 1], index: Int) -> Float32:
    """Writes 9 through the view without axes."""
    var y = x.select(0, index)
    y[] = 9
    return y[]


def select2(x: MutTensor[DType.float32, 2], axis: Int, index: Int, i: Int) -> Float32:
    var y = x.select(axis, index)
    y[i] = 9
    return y[i]


def slice1(x: MutTensor[DType.float32, 1], start: Int, end: Int, step: Int, i: Int) -> Float32:
    var y = x.slice(0, start, end, step)
    y[i] = 9
    return y[i]


def transposed(x: MutTensor[DType.float32, 2], i: Int, j: Int) -> Float32:
    var y = x.transpose(0, 1)
    y[i, j] = 9
    return y[i, j]


def dim_of(x: Tensor[DType.float32, 2], axis: Int) -> Int:
    return x.dim(axis)


def stride_of(x: Tensor[DType.float32, 2], axis: Int) -> Int:
    return x.stride(axis)


def slice2(x: MutTensor[DType.float32, 2], axis: Int) -> Float32:
    var y = x.slice(axis, 0, 2)
    y[0, 0] = 9
    return y[0, 0]


def transposed2(x: MutTensor[DType.float32, 2], axis: Int) -> Float32:
    var y = x.transpose(0, axis)
    y[0, 0] = 9
    return y[0, 0]


def list_get(xs: TensorList[DType.float32, 1], k: Int, i: Int) -> Float32:
    return xs[k][i]


def list_set(xs: MutTensorList[DType.float32, 1], k: Int, i: Int):
    xs[k][i] = 9


def list_get0(xs: TensorList[DType.float32, 0], k: Int) -> Float32:
    return xs[k][]


def list_set0(xs: MutTensorList[DType.float32, 0], k: Int):
    xs[k][] = 9


def optional_get(x: OptionalTensor[DType.float32, 1], i: Int) -> Float32:
    return x.value()[i] if x else Float32(-1)


def optional_set(x: OptionalMutTensor[DType.float32, 1], i: Int):
    if x:
        x.value()[i] = 9


def helper_get(x: MutTensor[DType.float32, 1], i: Int) -> Float32:
    """Reads in a helper that takes a read-only view."""
    return _read(x, i)


def _read(x: Tensor[DType.float32, 1], i: Int) -> Float32:
    return x[i]


def second_argument(a: Tensor[DType.float32, 1], b: Tensor[DType.float32, 1], i: Int) -> Float32:
    return a[0] + b[i]


def many(x: MutTensor[DType.float32, 1], start: Int, end: Int):
    """Writes 9 at every index of a range."""
    for i in range(start, end):
        x[i] = 9


def raises_after(x: MutTensor[DType.float32, 1], i: Int) raises:
    x[i] = 9
    raise Error("after the index")


def parallel(x: MutTensor[DType.float32, 1], n: Int):
    def body(start: Int, end: Int) {x}:
        for i in range(start, end):
            x[i] = 9

    parallel_for(body, n, 8)


def told(x: Tensor[DType.float32, 2], axis: Int) -> Int:
    """Asks for an axis that there may not be."""
    return 10 * x.dim(axis) + x.stride(axis)


def slice_axis(x: MutTensor[DType.float32, 2], axis: Int):
    x.slice(axis, 0, 2)[0, 0] = 9


def transpose_axis(x: MutTensor[DType.float32, 2], axis: Int):
    x.transpose(0, axis)[0, 0] = 9


def after_stray(x: MutTensor[DType.float32, 1], i: Int, dst: MutTensor[DType.float32, 1]):
    """Writes where there may be nothing, then reads from there."""
    x[i] = 9
    dst[0] = x[i]


def sixteen(x: MutTensor[DType.float32, 2]):
    """Uses every form outside the tensor, sixteen times."""
    var sum = Float32(0)
    for i in range(1, 5):
        sum += x[x.dim(0) + i, 0]
        x[0, -i] = 9
        sum += x.load[4](i, x.dim(1) - 1).reduce_add()
        x.store[4](0, -i, value=SIMD[DType.float32, 4](sum))
