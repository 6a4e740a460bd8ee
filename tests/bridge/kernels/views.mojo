"""Kernels of the tests: shapes, strides, layouts, names of axes, ranks, lists, overlap."""

from torchmojo import (
    Layout,
    MutTensor,
    MutTensorList,
    OptionalMutTensor,
    OptionalTensor,
    Tensor,
    TensorList,
)


def describe[rank: Int](x: Tensor[DType.float32, rank]) -> String:
    """Tells address, shape, strides and contiguity."""
    var text = String(Int(x.unsafe_ptr()))
    for axis in range(rank):
        text += String(t" {x.dim(axis)}:{x.stride(axis)}")
    return text + (" contiguous" if x.is_contiguous() else " strided")


def copy[
    dtype: DType, rank: Int
](dst: MutTensor[dtype, rank], src: Tensor[dtype, rank]) where (
    dtype == DType.bool or dtype.is_numeric()
) and 1 <= rank <= 3:
    """Copies element by element, in any strides; both must have the same shape."""
    comptime if rank == 1:
        for i in range(src.dim(0)):
            dst.unsafe_ptr()[unsafe_offset=i * dst.stride(0)] = src.unsafe_ptr()[
                unsafe_offset=i * src.stride(0)
            ]
    elif rank == 2:
        for i in range(src.dim(0)):
            for j in range(src.dim(1)):
                dst.unsafe_ptr()[
                    unsafe_offset=i * dst.stride(0) + j * dst.stride(1)
                ] = src.unsafe_ptr()[unsafe_offset=i * src.stride(0) + j * src.stride(1)]
    else:
        for i in range(src.dim(0)):
            for j in range(src.dim(1)):
                for k in range(src.dim(2)):
                    dst.unsafe_ptr()[
                        unsafe_offset=i * dst.stride(0) + j * dst.stride(1) + k * dst.stride(2)
                    ] = src.unsafe_ptr()[
                        unsafe_offset=i * src.stride(0) + j * src.stride(1) + k * src.stride(2)
                    ]


def scalar_of(x: Tensor[DType.float32, 0]) -> Float32:
    return x[]


def put_scalar(x: MutTensor[DType.float32, 0], value: Float32):
    x[] = value


def row_major(x: Tensor[DType.float32, 2, "h w", Layout.ROW_MAJOR]) -> String:
    return String(t"{x.stride(0)},{x.stride(1)} {x.is_contiguous()} {x.load[2](1, 0)}")


def channels_last(x: Tensor[DType.float32, 4, "n c h w", Layout.CHANNELS_LAST]) -> String:
    return String(t"{x.stride(0)},{x.stride(1)},{x.stride(2)},{x.stride(3)} {x[1, 1, 0, 1]}")


def channels_last_3d(x: Tensor[DType.float32, 5, "n c d h w", Layout.CHANNELS_LAST]) -> String:
    return String(t"{x.stride(1)},{x.stride(4)} {x[0, 1, 1, 0, 1]}")


def row_major_any(x: Tensor[DType.float32, 2, "h w", Layout.ROW_MAJOR]) -> Bool:
    return x.is_contiguous()


def takes_channels_last(x: Tensor[DType.float32, 4, "", Layout.CHANNELS_LAST]) -> Bool:
    return True


def fixed(image: Tensor[DType.uint8, 3, "h w 3"]) -> Int:
    return image.dim(0) * image.dim(1)


def square(x: Tensor[DType.float32, 2, "n n"]) -> Int:
    return x.dim(0)


def named(
    dst: MutTensor[DType.float32, 2, "n m"],
    a: Tensor[DType.float32, 2, "n k"],
    b: Tensor[DType.float32, 2, "k m"],
    bias: OptionalTensor[DType.float32, 1, "m"] = {},
):
    """Writes the matrix product of a and b, plus bias."""
    for i in range(dst.dim(0)):
        for j in range(dst.dim(1)):
            var sum = bias.value()[j] if bias else Float32(0)
            for k in range(a.dim(1)):
                sum += a[i, k] * b[k, j]
            dst[i, j] = sum


def wild(x: Tensor[DType.float32, 3, "_ _ n"], y: Tensor[DType.float32, 1, "n"]) -> Int:
    return x.dim(0) * 100 + x.dim(1) * 10 + y.dim(0)


def same_rank[rank: Int](a: Tensor[DType.float32, rank], b: Tensor[DType.int64, rank]) -> Int:
    return rank


def two_dtypes[
    first: DType, second: DType
](a: Tensor[first, 1], b: Tensor[second, 1], c: Tensor[first, 1]) -> String where (
    first == DType.float32 or first == DType.int64
) and (second == DType.uint8 or second == DType.int64):
    return String(t"{first} {second}")


def touch[
    r: Int, s: Int
](dst: MutTensor[DType.uint8, r], src: Tensor[DType.uint8, s]) -> Bool where (
    0 <= r <= 3 and 0 <= s <= 3
):
    """Reads and writes nothing: for the checks alone."""
    return dst.shares_memory(src)


def touch_wide(dst: MutTensor[DType.float32, 2], src: Tensor[DType.uint8, 2]) -> Bool:
    return dst.shares_memory(src)


def touch_wild[r: Int](dst: MutTensor[DType.float32, r], src: Tensor[DType.float32, r]):
    pass


def two_outputs(a: MutTensor[DType.float32, 1], b: MutTensor[DType.float32, 1]):
    for i in range(a.dim(0)):
        a[i] = 1
    for i in range(b.dim(0)):
        b[i] = 2


def inputs_first(src: Tensor[DType.float32, 1, "n"], dst: MutTensor[DType.float32, 1, "n"]):
    for i in range(src.dim(0)):
        dst[i] = src[i] + 1


def list_out(xs: MutTensorList[DType.float32, 1], src: Tensor[DType.float32, 1]):
    for k in range(len(xs)):
        for i in range(xs[k].dim(0)):
            xs[k][i] = src[0] + Float32(k)


def list_both(xs: MutTensorList[DType.float32, 1], ys: TensorList[DType.float32, 1]) -> Int:
    return 10 * len(xs) + len(ys)


def list_dtypes[
    dtype: DType
](xs: TensorList[dtype, 1, "n"], y: Tensor[dtype, 1]) -> Int where (
    dtype == DType.float32 or dtype == DType.int64
):
    return len(xs)


def list_ranks[rank: Int](xs: TensorList[DType.float32, rank]) -> Int where rank >= 1:
    var total = 0
    for k in range(len(xs)):
        total += xs[k].numel()
    return total


def outputs(
    a: MutTensor[DType.float32, 1],
    b: OptionalMutTensor[DType.float32, 1] = {},
    fail: Bool = False,
) raises:
    a[0] = 1
    if b:
        b.value()[0] = 2
    if fail:
        raise Error("on purpose")


def steps(x: MutTensor[DType.float32, 2], width: Int) -> Float32:
    """Adds 1 to every element with SIMD loads and stores of 4 and a scalar tail."""
    var sum = Float32(0)
    for i in range(x.dim(0)):
        var j = 0
        while j + 4 <= x.dim(1):
            var four = x.load[4](i, j) + 1
            x.store[4](i, j, value=four)
            sum += four.reduce_add()
            j += 4
        while j < x.dim(1):
            x[i, j] += 1
            sum += x[i, j]
            j += 1
    return sum


def chain(x: MutTensor[DType.float32, 3]) -> String:
    """Looks through select, slice and transpose."""
    var a = x.select(1, 1)
    var b = x.transpose(0, 2)
    var c = x.slice(2, 1, 100, 2)
    var d = c.slice(0, -3, 1)
    var e = x.slice(1, 3, 2)
    b[0, 0, 1] = 50
    return String(
        t"{a.dim(0)}x{a.dim(1)} {a[1, 2]} {b.dim(0)}x{b.dim(2)} {x[1, 0, 0]} "
        t"{c.dim(2)} {c[0, 0, 1]} {d.dim(0)} {e.dim(1)} {e.numel()} {len(x)} "
        t"{a.is_contiguous()} {x.is_contiguous()}"
    )


def split_complex(
    real: MutTensor[DType.float32, 1, "n"],
    imaginary: MutTensor[DType.float32, 1, "n"],
    z: Tensor[DType.float32, 2, "n complex"],
):
    """Writes the parts of complex numbers."""
    for i in range(z.dim(0)):
        real[i] = z[i, 0]
        imaginary[i] = z[i, 1]


def conjugate[
    dtype: DType
](z: MutTensor[dtype, 2, "n complex"]) -> String where (
    dtype == DType.float16 or dtype == DType.float32 or dtype == DType.float64
):
    for i in range(z.dim(0)):
        z[i, 1] = -z[i, 1]
    return String(t"{dtype} {z.stride(0)} {z.stride(1)} {Int(z.unsafe_ptr())}")


def complex_any[
    rank: Int
](z: Tensor[DType.float32, 3, "_ _ complex"], x: Tensor[DType.float32, rank]) -> Int where (
    rank <= 1
):
    return z.dim(0) * 10 + z.dim(1)


def complex_dense(z: Tensor[DType.float32, 3, "_ _ complex", Layout.ROW_MAJOR]) -> Int:
    return z.numel()
