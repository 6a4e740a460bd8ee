"""Kernels of the tests of operators: each is obvious, and tells what it was given."""

from torchmojo import Layout, MutTensor, MutTensorList, OptionalTensor, Tensor, TensorList


# --- one result, two, none ----------------------------------------------------------------------


def add[
    dtype: DType
](
    dst: MutTensor[dtype, 1, "n"],
    a: Tensor[dtype, 1, "n"],
    b: Tensor[dtype, 1, "n"],
    alpha: Float64 = 1.0,
) raises where (dtype == DType.float32 or dtype == DType.float64):
    """Writes a + alpha * b; raises for an alpha of 13."""
    if alpha == 13:
        raise Error("alpha is unlucky")
    for i in range(a.dim(0)):
        dst[i] = a[i] + Scalar[dtype](alpha) * b[i]


def mul[
    dtype: DType
](dst: MutTensor[dtype, 1, "n"], a: Tensor[dtype, 1, "n"], b: Tensor[dtype, 1, "n"]) where (
    dtype == DType.float32 or dtype == DType.float64
):
    for i in range(a.dim(0)):
        dst[i] = a[i] * b[i]


def powers[
    dtype: DType
](
    square: MutTensor[dtype, 1, "n"], cube: MutTensor[dtype, 1, "n"], x: Tensor[dtype, 1, "n"]
) where (dtype == DType.float32 or dtype == DType.float64):
    for i in range(x.dim(0)):
        square[i] = x[i] * x[i]
        cube[i] = x[i] * x[i] * x[i]


def scale_[
    dtype: DType
](x: MutTensor[dtype, 1], by: Float64) where dtype == DType.float32 or dtype == DType.float64:
    for i in range(x.dim(0)):
        x[i] *= Scalar[dtype](by)


def outer[
    dtype: DType
](dst: MutTensor[dtype, 2, "n m"], a: Tensor[dtype, 1, "n"], b: Tensor[dtype, 1, "m"]) where (
    dtype == DType.float32 or dtype == DType.float64
):
    for i in range(a.dim(0)):
        for j in range(b.dim(0)):
            dst[i, j] = a[i] * b[j]


# --- numbers, text and lists --------------------------------------------------------------------


def tell(
    dst: MutTensor[DType.float64, 1],
    x: Tensor[DType.float64, 1],
    a: Int,
    b: Int8,
    c: UInt8,
    d: UInt64,
    e: Bool,
    f: Float32,
    g: Float64,
    h: String,
    i: List[Int],
    j: List[Float64],
    k: List[Bool],
    l: StaticString = 'a "b" \\',
    m: List[Int] = [1, -2],
    n: Float64 = -1.5,
    o: Bool = True,
    p: Int = -7,
):
    """Writes each argument as a number; text and lists as lengths, then contents."""
    dst[0] = Float64(a)
    dst[1] = Float64(b)
    dst[2] = Float64(c)
    dst[3] = Float64(d)
    dst[4] = 1 if e else 0
    dst[5] = Float64(f)
    dst[6] = g
    dst[7] = Float64(h.byte_length())
    dst[8] = Float64(len(i))
    dst[9] = Float64(len(j))
    dst[10] = Float64(len(k))
    dst[11] = Float64(l.byte_length())
    dst[12] = Float64(len(m))
    dst[13] = n
    dst[14] = 1 if o else 0
    dst[15] = Float64(p)
    var at = 16
    for q in range(len(i)):
        dst[at] = Float64(i[q])
        at += 1
    for q in range(len(j)):
        dst[at] = j[q]
        at += 1
    for q in range(len(k)):
        dst[at] = 1 if k[q] else 0
        at += 1
    for q in range(len(m)):
        dst[at] = Float64(m[q])
        at += 1


def maybe(
    dst: MutTensor[DType.float64, 1, "n"],
    x: Tensor[DType.float64, 1, "n"],
    y: OptionalTensor[DType.float64, 1, "n"] = {},
    a: Optional[Int] = None,
    b: Optional[Float64] = 0.5,
    c: Optional[String] = None,
    d: Optional[List[Int]] = None,
    e: Optional[Bool] = None,
):
    """Writes x, plus y, plus 10 a, plus b, plus 100 for each byte of c, plus the sum of d."""
    for i in range(x.dim(0)):
        dst[i] = x[i]
        if y:
            dst[i] += y.value()[i]
        if a:
            dst[i] += 10 * Float64(a.value())
        if b:
            dst[i] += b.value()
        if c:
            dst[i] += 100 * Float64(c.value().byte_length())
        if d:
            var numbers = d.value().copy()
            for k in range(len(numbers)):
                dst[i] += Float64(numbers[k])
        if e:
            dst[i] += Float64(1000) if e.value() else Float64(2000)


# --- lists of tensors ---------------------------------------------------------------------------


def total[
    dtype: DType
](dst: MutTensor[dtype, 1, "n"], x: Tensor[dtype, 1, "n"], xs: TensorList[dtype, 1, "n"]) where (
    dtype == DType.float32 or dtype == DType.float64
):
    """Writes x, plus each of the list times its number from 1."""
    for i in range(dst.dim(0)):
        dst[i] = x[i]
        for k in range(len(xs)):
            dst[i] += Scalar[dtype](k + 1) * xs[k][i]


def total_list(dst: MutTensor[DType.float64, 1, "n"], xs: TensorList[DType.float64, 1, "n"]):
    """Writes the sum."""
    for i in range(dst.dim(0)):
        dst[i] = 0
        for k in range(len(xs)):
            dst[i] += xs[k][i]


def number_(xs: MutTensorList[DType.float32, 1], start: Float32):
    for k in range(len(xs)):
        var x = xs[k]
        for i in range(x.dim(0)):
            x[i] = start + Float32(k)


# --- dtypes, ranks, layouts, complex ------------------------------------------------------------


def flip[
    dtype: DType
](dst: MutTensor[dtype, 1, "n"], x: Tensor[dtype, 1, "n"]) where (
    dtype == DType.bool or dtype.is_integral() or dtype.is_floating_point()
) and not dtype.is_float8():
    for i in range(x.dim(0)):
        dst[i] = x[x.dim(0) - 1 - i]


def sizes[
    rank: Int
](dst: MutTensor[DType.int64, 1], x: Tensor[DType.float32, rank]) where 0 <= rank <= 5:
    """Writes rank, number of elements, then the size of each axis."""
    dst[0] = Int64(rank)
    dst[1] = Int64(x.numel())
    comptime for i in range(rank):
        dst[2 + i] = Int64(x.dim(i))


def touch[
    rank: Int
](dst: MutTensor[DType.float32, rank], x: Tensor[DType.float32, rank]) where 0 <= rank <= 5:
    """Writes nothing; the result has whatever strides it was given."""
    pass


def double(dst: MutTensor[DType.float32, 2, "h w"], x: Tensor[DType.float32, 2, "h w"]):
    for i in range(x.dim(0)):
        for j in range(x.dim(1)):
            dst[i, j] = 2 * x[i, j]


def rows(dst: MutTensor[DType.float32, 1], x: Tensor[DType.float32, 2, "", Layout.ROW_MAJOR]):
    """Writes the elements in the order of memory."""
    for i in range(x.numel()):
        dst[i] = x.unsafe_ptr()[unsafe_offset=i]


def square_complex(
    dst: MutTensor[DType.float64, 2, "n complex"], z: Tensor[DType.float64, 2, "n complex"]
):
    for i in range(z.dim(0)):
        var re = z[i, 0]
        var im = z[i, 1]
        dst[i, 0] = re * re - im * im
        dst[i, 1] = 2 * re * im


def fetch(dst: MutTensor[DType.float32, 1], x: Tensor[DType.float32, 1], index: Int):
    """Reads one element; `bounds=True` says what is outside."""
    dst[0] = x[index]


def returns(x: Tensor[DType.float32, 1]) -> Int:
    return x.dim(0)
