"""Kernels of the tests: every kind of argument and of result, each told back as Mojo sees it."""

from torchmojo import (
    MutTensor,
    MutTensorList,
    OptionalMutTensor,
    OptionalTensor,
    Tensor,
    TensorList,
)


# --- numbers and text: one that gives back what it was given, one that may be None -------------


def echo_bool(x: Bool) -> Bool:
    return x


def echo_int(x: Int) -> Int:
    return x


def echo_int8(x: Int8) -> Int8:
    return x


def echo_int16(x: Int16) -> Int16:
    return x


def echo_int32(x: Int32) -> Int32:
    return x


def echo_int64(x: Int64) -> Int64:
    return x


def echo_uint(x: UInt) -> UInt:
    return x


def echo_uint8(x: UInt8) -> UInt8:
    return x


def echo_uint16(x: UInt16) -> UInt16:
    return x


def echo_uint32(x: UInt32) -> UInt32:
    return x


def echo_uint64(x: UInt64) -> UInt64:
    return x


def echo_float32(x: Float32) -> Float32:
    return x


def echo_float64(x: Float64) -> Float64:
    return x


def echo_string(x: String) -> String:
    return x


def echo_static(x: StaticString) -> String:
    return String(x)


def _tell[T: Writable & ImplicitlyCopyable](x: Optional[T]) -> String:
    return String(x.value()) if x else String("nothing")


def maybe_bool(x: Optional[Bool]) -> String:
    return _tell(x)


def maybe_int(x: Optional[Int] = 5) -> String:
    return _tell(x)


def maybe_int8(x: Optional[Int8] = None) -> String:
    return _tell(x)


def maybe_int16(x: Optional[Int16] = None) -> String:
    return _tell(x)


def maybe_int32(x: Optional[Int32] = None) -> String:
    return _tell(x)


def maybe_int64(x: Optional[Int64] = None) -> String:
    return _tell(x)


def maybe_uint(x: Optional[UInt] = None) -> String:
    return _tell(x)


def maybe_uint8(x: Optional[UInt8] = None) -> String:
    return _tell(x)


def maybe_uint16(x: Optional[UInt16] = None) -> String:
    return _tell(x)


def maybe_uint32(x: Optional[UInt32] = None) -> String:
    return _tell(x)


def maybe_uint64(x: Optional[UInt64] = None) -> String:
    return _tell(x)


def maybe_float32(x: Optional[Float32] = None) -> String:
    return _tell(x)


def maybe_float64(x: Optional[Float64] = 0.5) -> String:
    return _tell(x)


def maybe_string(x: Optional[String] = String("default")) -> String:
    return x.value() if x else String("nothing")


def maybe_static(x: Optional[StaticString] = None) -> String:
    return String(x.value()) if x else String("nothing")


# --- lists of numbers ---------------------------------------------------------------------------


def _join[T: Writable & Copyable](x: List[T]) -> String:
    var text = String()
    for i in range(len(x)):
        text += String(t"{x[i]};")
    return text


def list_bool(x: List[Bool]) -> String:
    return _join(x)


def list_int(x: List[Int]) -> String:
    return _join(x)


def list_int8(x: List[Int8]) -> String:
    return _join(x)


def list_int32(x: List[Int32]) -> String:
    return _join(x)


def list_uint16(x: List[UInt16]) -> String:
    return _join(x)


def list_uint64(x: List[UInt64]) -> String:
    return _join(x)


def list_float32(x: List[Float32]) -> String:
    return _join(x)


def list_float64(x: List[Float64]) -> String:
    return _join(x)


def list_maybe(x: Optional[List[Int]] = None) -> String:
    return _join(x.value()) if x else String("nothing")


def list_default(x: List[Int] = []) -> String:
    return _join(x)


def list_filled(x: List[Int] = [1, -2]) -> String:
    return _join(x)


# --- defaults, names, order ---------------------------------------------------------------------


def nothing():
    pass


def defaults(
    a: Int,
    b: Bool = True,
    c: Int8 = -4,
    d: UInt64 = 18446744073709551615,
    e: Float32 = 1.5,
    f: Float64 = -1e-7,
    g: String = 'tab\t "quoted" \\ é',
    h: StaticString = "static",
) -> String:
    """Tells what it was given.

    Args:
        a: The first.
        b: A flag.
    """
    return String(t"{a}|{b}|{c}|{d}|{e}|{f}|{g}|{h}")


def positional_only(x: Int, /, y: Int) -> Int:
    return 10 * x + y


def keyword_only(x: Int, *, y: Int = 7) -> Int:
    return 10 * x + y


def keyword_required(x: Int = 1, *, y: Int, z: Int = 2, w: Int) -> Int:
    return 1000 * x + 100 * y + 10 * z + w


def fails(text: String, really: Bool = True) raises -> Int:
    if really:
        raise Error(text)
    return 1


# --- tensors ------------------------------------------------------------------------------------


def address(x: Tensor[DType.float32, 1]) -> Int:
    """Tells where the first element lies."""
    return Int(x.unsafe_ptr())


def address_out(x: MutTensor[DType.float32, 1]) -> Int:
    return Int(x.unsafe_ptr())


def add(
    dst: MutTensor[DType.float32, 1, "n"],
    a: Tensor[DType.float32, 1, "n"],
    b: Tensor[DType.float32, 1, "n"],
    alpha: Float64 = 1.0,
) raises:
    """Writes a + alpha * b into dst; raises for an alpha of 77 after it wrote one element."""
    for i in range(a.dim(0)):
        dst[i] = a[i] + Float32(alpha) * b[i]
        if alpha == 77:
            raise Error("seventy-seven")


def total(x: Tensor[DType.float64, 1]) -> Float64:
    var sum = Float64(0)
    for i in range(x.dim(0)):
        sum += x[i]
    return sum


def total_float32(x: Tensor[DType.float32, 1]) -> Float64:
    var sum = Float64(0)
    for i in range(x.dim(0)):
        sum += Float64(x[i])
    return sum


def total_int64(x: Tensor[DType.int64, 1]) -> Int64:
    var sum = Int64(0)
    for i in range(x.dim(0)):
        sum += x[i]
    return sum


def tail_uint8(x: Tensor[DType.uint8, 1], count: Int) -> Int:
    """Sums the last elements."""
    var sum = 0
    for i in range(x.dim(0) - count, x.dim(0)):
        sum += Int(x[i])
    return sum


def scale(x: MutTensor[DType.float32, 1], factor: Float64):
    for i in range(x.dim(0)):
        x[i] *= Float32(factor)


def first[
    dtype: DType
](x: Tensor[dtype, 1]) -> Scalar[dtype] where dtype == DType.bool or dtype.is_numeric():
    return x[0]


def pick_first(x: OptionalTensor[DType.float32, 1] = {}) -> String:
    return String(x.value()[0]) if x else String("nothing")


def pick_count(x: OptionalTensor[DType.float32, 1] = {}) -> Int:
    return x.value().numel() if x else -1


def halves_any[
    dtype: DType
](x: Tensor[dtype, 1]) -> Int where dtype == DType.uint8 or dtype.is_half_float():
    return x.numel()


def put_maybe(x: OptionalMutTensor[DType.float32, 1], value: Float32) -> Bool:
    if not x:
        return False
    for i in range(x.value().dim(0)):
        x.value()[i] = value
    return True


def sum_list(dst: MutTensor[DType.float32, 1, "n"], xs: TensorList[DType.float32, 1, "n"]) -> Int:
    """Writes the sum of the tensors; returns how many there were."""
    for i in range(dst.dim(0)):
        dst[i] = 0
        for k in range(len(xs)):
            dst[i] += xs[k][i]
    return len(xs)


def number_list(xs: MutTensorList[DType.float32, 1], start: Float32):
    """Fills each tensor with its number."""
    for k in range(len(xs)):
        var x = xs[k]
        for i in range(x.dim(0)):
            x[i] = start + Float32(k)


def cast_to[
    target: DType, source: DType
](dst: MutTensor[target, 1, "n"], src: Tensor[source, 1, "n"]) where (
    target == DType.float32 or target == DType.int64 or target == DType.uint8
) and (source == DType.float64 or source == DType.int32):
    for i in range(src.dim(0)):
        dst[i] = src[i].cast[target]()


def either[
    a: DType, b: DType
](x: Tensor[a, 1], y: Tensor[b, 1]) -> Int where (
    (a == DType.float32 or b == DType.float32)
    and (a == DType.float32 or a == DType.int8)
    and (b == DType.float32 or b == DType.int8)
):
    """Takes two dtypes of which one must be float32."""
    return (1 if a == DType.float32 else 0) + (2 if b == DType.float32 else 0)


def narrow[
    dtype: DType
](x: Tensor[dtype, 1]) -> String where dtype == DType.float8_e5m2 or dtype == DType.float8_e4m3fn:
    return String(x[0].cast[DType.float32]())


def halves[dtype: DType](x: Tensor[dtype, 1]) -> String where dtype.is_half_float():
    return String(x[0].cast[DType.float64]())


def paired[
    a: DType, b: DType
](x: Tensor[a, 1], y: OptionalTensor[b, 1] = {}) -> String where a == b and (
    a == DType.int8 or a == DType.float32
):
    """Takes two dtypes that must be equal, without saying so by one name."""
    return String(t"{a} {b}")


def paired_lists[
    a: DType, b: DType
](xs: TensorList[a, 1], ys: TensorList[b, 1]) -> String where (
    a == DType.int8 and b == DType.float32
) or (a == DType.float32 and b == DType.int8):
    return String(t"{a} {b} {len(xs)} {len(ys)}")


def nothing_given[
    d: DType, r: Int
](x: OptionalTensor[d, r] = {}) -> String where d.is_half_float() and r > 1:
    return String(t"{d} {r} {Bool(x)}")
