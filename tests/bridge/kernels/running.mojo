"""Kernels of the tests: ones that wait for other threads, every kind of argument at once, float8."""

from std.atomic import Atomic
from std.ffi import external_call

from torchmojo import (
    Layout,
    MutTensor,
    MutTensorList,
    OptionalMutTensor,
    OptionalTensor,
    Tensor,
    TensorList,
    parallel_for,
)


def meet(counter: MutTensor[DType.int64, 1], count: Int, patience: Int) -> Bool:
    """Adds one, then waits for others to do so, at most so many milliseconds."""
    var place = counter.unsafe_ptr()
    _ = Atomic[Int64].fetch_add(place, Int64(1))
    for _ in range(patience):
        if Atomic[Int64].load(place) >= Int64(count):
            return True
        _ = external_call["usleep", Int32](Int32(1000))
    return False


def hold(
    data: MutTensor[DType.uint8, 1],
    tensors: MutTensorList[DType.float32, 1],
    counter: MutTensor[DType.int64, 1],
    count: Int,
    patience: Int,
) -> Bool:
    """Writes 7 everywhere after the others came."""
    var met = meet(counter, count, patience)
    for i in range(data.dim(0)):
        data[i] = 7
    for k in range(len(tensors)):
        for i in range(tensors[k].dim(0)):
            tensors[k][i] = 7
    return met


def grid(dst: MutTensor[DType.int64, 2], grain: Int):
    """Adds its number to each element, in a parallel loop inside a parallel loop."""

    def rows(start: Int, end: Int) {dst, grain}:
        for i in range(start, end):

            def columns(low: Int, high: Int) {dst, i}:
                for j in range(low, high):
                    dst[i, j] += Int64(i * dst.dim(1) + j)

            parallel_for(columns, dst.dim(1), grain)

    parallel_for(rows, dst.dim(0), grain)


def mixed(
    dst: MutTensor[DType.uint8, 1, "n"],
    src: Tensor[DType.uint8, 1, "n"],
    xs: TensorList[DType.uint8, 1],
    count: Int8 = 0,
    text: String = "",
    values: List[Int8] = [],
    extra: OptionalTensor[DType.float32, 2, "m 2", Layout.ROW_MAJOR] = {},
    result: OptionalMutTensor[DType.float32, 1] = {},
) raises -> Int:
    """Copies src to dst; raises the text, if there is one."""
    for i in range(src.dim(0)):
        dst[i] = src[i]
    if text.byte_length() > 0:
        raise Error(text)
    return len(xs)


def conjugate(
    x: MutTensor[DType.float32, 2, "n complex"], xs: MutTensorList[DType.float32, 2, "n complex"]
):
    """Changes the sign of imaginary parts in place."""
    for i in range(x.dim(0)):
        x[i, 1] = -x[i, 1]
    for k in range(len(xs)):
        for i in range(xs[k].dim(0)):
            xs[k][i, 1] = -xs[k][i, 1]


def to_float8[
    dtype: DType
](dst: MutTensor[dtype, 1, "n"], src: Tensor[DType.float32, 1, "n"]) where (
    dtype == DType.float8_e5m2
    or dtype == DType.float8_e4m3fn
    or dtype == DType.float8_e5m2fnuz
    or dtype == DType.float8_e4m3fnuz
):
    for i in range(src.dim(0)):
        dst[i] = src[i].cast[dtype]()


def from_float8[
    dtype: DType
](dst: MutTensor[DType.float32, 1, "n"], src: Tensor[dtype, 1, "n"]) where (
    dtype == DType.float8_e5m2
    or dtype == DType.float8_e4m3fn
    or dtype == DType.float8_e5m2fnuz
    or dtype == DType.float8_e4m3fnuz
):
    for i in range(src.dim(0)):
        dst[i] = src[i].cast[DType.float32]()
