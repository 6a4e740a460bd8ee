"""Kernels of the tests of copies: each tells what lies in the memory that it was given."""

from torchmojo import (
    Layout,
    MutTensor,
    MutTensorList,
    OptionalMutTensor,
    OptionalTensor,
    Tensor,
    TensorList,
)


# --- what an input looks like: its memory, element after element ---------------------------------


def seen[
    dtype: DType
](dst: MutTensor[dtype, 1], x: Tensor[dtype, 2, "", Layout.ROW_MAJOR]) where (
    dtype == DType.bool or dtype.is_numeric()
):
    for i in range(x.numel()):
        dst[i] = x.unsafe_ptr()[unsafe_offset=i]


def seen_rank[
    rank: Int
](dst: MutTensor[DType.float32, 1], x: Tensor[DType.float32, rank, "", Layout.ROW_MAJOR]) where (
    0 <= rank <= 5
):
    for i in range(x.numel()):
        dst[i] = x.unsafe_ptr()[unsafe_offset=i]


def seen_channels_last(
    dst: MutTensor[DType.float32, 1], x: Tensor[DType.float32, 4, "", Layout.CHANNELS_LAST]
):
    for i in range(x.numel()):
        dst[i] = x.unsafe_ptr()[unsafe_offset=i]


def seen_channels_last_3d(
    dst: MutTensor[DType.float32, 1], x: Tensor[DType.float32, 5, "", Layout.CHANNELS_LAST]
):
    for i in range(x.numel()):
        dst[i] = x.unsafe_ptr()[unsafe_offset=i]


def seen_complex[
    dtype: DType
](dst: MutTensor[dtype, 1], z: Tensor[dtype, 2, "_ complex", Layout.ROW_MAJOR]) where (
    dtype.is_floating_point() and not dtype.is_float8()
):
    for i in range(z.numel()):
        dst[i] = z.unsafe_ptr()[unsafe_offset=i]


def assign[
    dtype: DType
](dst: MutTensor[dtype, 1, "n"], src: Tensor[dtype, 1, "n"]) where (
    dtype == DType.bool or dtype.is_numeric()
):
    """Takes any strides; the first argument says the dtype."""
    for i in range(src.dim(0)):
        dst[i] = src[i]


def give[
    dtype: DType
](src: Tensor[dtype, 1, "n"], dst: MutTensor[dtype, 1, "n"]) where (
    dtype == DType.bool or dtype.is_numeric()
):
    for i in range(src.dim(0)):
        dst[i] = src[i]


def total(x: Tensor[DType.float32, 1, "", Layout.ROW_MAJOR]) -> Float64:
    var sum = Float64(0)
    for i in range(x.dim(0)):
        sum += Float64(x[i])
    return sum


def list_total[
    dtype: DType
](xs: TensorList[dtype, 1], y: OptionalTensor[dtype, 1] = {}) -> Float64 where (
    dtype == DType.float32 or dtype == DType.float64 or dtype == DType.int64
):
    var sum = Float64(0)
    for k in range(len(xs)):
        for i in range(xs[k].dim(0)):
            sum += xs[k][i].cast[DType.float64]()
    if y:
        for i in range(y.value().dim(0)):
            sum += y.value()[i].cast[DType.float64]()
    return sum


def late[
    dtype: DType
](x: OptionalTensor[dtype, 1] = {}, y: OptionalTensor[dtype, 1] = {}) -> Int where (
    dtype == DType.float32 or dtype == DType.int64
):
    """Names its dtype on an argument that may be missing."""
    return (x.value().numel() if x else 0) + 10 * (y.value().numel() if y else 0)


# --- what is written: memory in order, part of it, and what a raise leaves -----------------------


def add_index[
    dtype: DType
](x: MutTensor[dtype, 2, "h w", Layout.ROW_MAJOR], count: Int = -1) where dtype.is_numeric():
    """Adds its number to each of the first elements, counted in memory."""
    for i in range(x.numel() if count < 0 else count):
        x.unsafe_ptr()[unsafe_offset=i] += Scalar[dtype](i)


def flip(x: MutTensor[DType.bool, 2, "", Layout.ROW_MAJOR]):
    for i in range(x.numel()):
        x.unsafe_ptr()[unsafe_offset=i] = ~x.unsafe_ptr()[unsafe_offset=i]


def add_index_channels_last(x: MutTensor[DType.float32, 4, "", Layout.CHANNELS_LAST]):
    for i in range(x.numel()):
        x.unsafe_ptr()[unsafe_offset=i] += Float32(i)


def add_index_complex[
    dtype: DType
](z: MutTensor[dtype, 2, "_ complex", Layout.ROW_MAJOR]) where (
    dtype.is_floating_point() and not dtype.is_float8()
):
    for i in range(z.numel()):
        z.unsafe_ptr()[unsafe_offset=i] += Scalar[dtype](i)


def mix(
    dst: MutTensor[DType.float32, 2, "n m", Layout.ROW_MAJOR],
    a: Tensor[DType.float32, 2, "n m", Layout.ROW_MAJOR],
    b: Tensor[DType.float32, 2, "n m"],
    c: OptionalTensor[DType.float32, 1, "m", Layout.ROW_MAJOR] = {},
):
    """Writes a + 10 b + 100 c."""
    for i in range(dst.dim(0)):
        for j in range(dst.dim(1)):
            dst[i, j] = a[i, j] + 10 * b[i, j]
            if c:
                dst[i, j] += 100 * c.value()[j]


def stack(
    dst: MutTensor[DType.float32, 2, "n m", Layout.ROW_MAJOR],
    xs: TensorList[DType.float32, 2, "n m", Layout.ROW_MAJOR],
):
    """Writes the sum of the tensors, each times its number from 1 on."""
    for i in range(dst.dim(0)):
        for j in range(dst.dim(1)):
            dst[i, j] = 0
            for k in range(len(xs)):
                dst[i, j] += Float32(k + 1) * xs[k][i, j]


def spread(xs: MutTensorList[DType.float32, 2, "", Layout.ROW_MAJOR], start: Float32):
    """Fills each tensor with its number."""
    for k in range(len(xs)):
        for i in range(xs[k].numel()):
            xs[k].unsafe_ptr()[unsafe_offset=i] = start + Float32(k)


def put_maybe(x: OptionalMutTensor[DType.float32, 2, "", Layout.ROW_MAJOR], value: Float32) -> Bool:
    if not x:
        return False
    for i in range(x.value().numel()):
        x.value().unsafe_ptr()[unsafe_offset=i] = value
    return True


def pair(
    a: MutTensor[DType.float32, 1, "", Layout.ROW_MAJOR],
    b: MutTensor[DType.float32, 1, "", Layout.ROW_MAJOR],
    fail: Bool = False,
) raises:
    """Fills a with 1 and b with 2; may raise after the first element of b."""
    for i in range(a.dim(0)):
        a[i] = 1
    for i in range(b.dim(0)):
        b[i] = 2
        if fail:
            raise Error("half of it")


def stray(x: MutTensor[DType.float32, 1, "", Layout.ROW_MAJOR], i: Int):
    """Writes inside, then where the index says."""
    x[0] = 7
    x[i] = 9


def grow[
    dtype: DType
](x: MutTensor[dtype, 1], by: Int64) where dtype == DType.int64 or dtype == DType.uint64:
    for i in range(x.dim(0)):
        x[i] += by.cast[dtype]()


def double(x: MutTensor[DType.float64, 1]):
    for i in range(x.dim(0)):
        x[i] *= 2


def next_to(
    dst: MutTensor[DType.float32, 1, "n"], a: Tensor[DType.float32, 1, "n", Layout.ROW_MAJOR]
):
    """Takes an input that must be dense and an output of any strides."""
    for i in range(dst.dim(0)):
        dst[i] = a[i] + 1
