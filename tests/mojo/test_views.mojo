"""Views of plain Mojo memory, without Python and without torch."""

from std.collections import Optional
from std.memory import Pointer
from std.testing import TestSuite, assert_equal, assert_false, assert_true
from std.utils import IndexList

from torchmojo import Layout, MutTensor, Tensor, TensorView, num_threads, parallel_for
from torchmojo.optional import OptionalView
from torchmojo.trap import Trap


def _numbers(count: Int) -> List[Float32]:
    var numbers = List[Float32](capacity=count)
    for i in range(count):
        numbers.append(Float32(i))
    return numbers^


def _sum(x: Tensor[DType.float32, 2]) -> Float32:
    var sum = Float32(0)
    for i in range(x.dim(0)):
        for j in range(x.dim(1)):
            sum += x[i, j]
    return sum


def _fill(x: MutTensor[DType.float32, 1], value: Float32):
    for i in range(len(x)):
        x[i] = value


def _twice[dtype: DType](x: Tensor[dtype, 1]) -> Scalar[dtype]:
    return x[0] + x[0]


def _contiguous(mut memory: List[Float32], n: Int, m: Int, s: Int, t: Int) -> Bool:
    var x = TensorView[True, DType.float32, 2, "", Layout.ANY](
        memory.unsafe_ptr(), IndexList[2](n, m), IndexList[2](s, t), Trap(0)
    )
    return x.is_contiguous()


def test_index_and_shape() raises:
    var memory = _numbers(24)
    var x = TensorView[True, DType.float32, 3, "a b c", Layout.ROW_MAJOR](
        memory.unsafe_ptr(), IndexList[3](2, 3, 4), IndexList[3](12, 4, 1), Trap(0)
    )
    assert_equal(x[1, 2, 3], 23)
    assert_equal(x[UInt8(1), Int32(0), 2], 14)
    x[1, 2, 3] = 5
    x[0, 0, 0] += 2
    assert_equal(memory[23], 5)
    assert_equal(memory[0], 2)
    assert_equal(len(x), 2)
    assert_equal(x.dim(1), 3)
    assert_equal(x.stride(0), 12)
    assert_equal(x.numel(), 24)
    assert_true(x.is_contiguous())


def test_contiguous_is_about_axes_longer_than_one() raises:
    var memory = _numbers(24)

    assert_true(_contiguous(memory, 2, 3, 3, 1))
    assert_false(_contiguous(memory, 2, 3, 4, 1))
    assert_false(_contiguous(memory, 3, 2, 1, 3))
    assert_true(_contiguous(memory, 1, 3, 99, 1))
    assert_true(_contiguous(memory, 3, 1, 1, 99))
    assert_true(_contiguous(memory, 0, 3, 7, 5))
    assert_false(_contiguous(memory, 2, 2, 0, 1))
    assert_false(_contiguous(memory, 1, 2, 2, -1))


def test_load_and_store_in_any_stride() raises:
    var memory = _numbers(40)
    var columns = TensorView[True, DType.float32, 2, "", Layout.ANY](
        memory.unsafe_ptr(), IndexList[2](2, 8), IndexList[2](1, 4), Trap(0)
    )
    assert_equal(columns.load[4](1, 2), SIMD[DType.float32, 4](9, 13, 17, 21))
    columns.store[4](0, 1, value=SIMD[DType.float32, 4](-1, -2, -3, -4))
    assert_equal(memory[4], -1)
    assert_equal(memory[16], -4)
    assert_equal(memory[5], 5)
    assert_equal(columns.load[1](1, 7), 29)
    var backwards = TensorView[True, DType.float32, 1, "", Layout.ANY](
        memory.unsafe_ptr().unsafe_offset(39), IndexList[1](8), IndexList[1](-1), Trap(0)
    )
    assert_equal(backwards.load[4](0), SIMD[DType.float32, 4](39, 38, 37, 36))
    backwards.store[2](6, value=SIMD[DType.float32, 2](1, 2))
    assert_equal(memory[33], 1)
    assert_equal(memory[32], 2)
    var rows = TensorView[True, DType.float32, 2, "", Layout.ROW_MAJOR](
        memory.unsafe_ptr(), IndexList[2](5, 8), IndexList[2](8, 1), Trap(0)
    )
    assert_equal(rows.load[8](2, 0)[7], 23)


def test_sub_views() raises:
    var memory = _numbers(24)
    var x = TensorView[True, DType.float32, 3, "", Layout.ANY](
        memory.unsafe_ptr(), IndexList[3](2, 3, 4), IndexList[3](12, 4, 1), Trap(0)
    )
    assert_equal(x.select(0, 1)[2, 3], 23)
    assert_equal(x.select(1, 2)[1, 0], 20)
    assert_equal(x.select(2, 3)[1, 1], 19)
    assert_equal(x.select(0, 1).select(0, 1).select(0, 1)[], 17)
    var s = x.slice(2, 1, 4, 2)
    assert_equal(s.dim(2), 2)
    assert_equal(s[1, 2, 1], 23)
    assert_equal(x.slice(1, -7, 99).dim(1), 3)
    assert_equal(x.slice(1, 2, 1).dim(1), 0)
    assert_equal(x.slice(1, 0, 3, 2).dim(1), 2)
    assert_equal(x.slice(1, 0, 3, 0).dim(1), 3)
    assert_equal(x.slice(2, 4, 9).numel(), 0)
    var t = x.transpose(0, 2)
    assert_equal(t.dim(0), 4)
    assert_equal(t[3, 0, 1], 15)
    t[3, 0, 1] = 7
    assert_equal(memory[15], 7)
    assert_false(t.is_contiguous())
    assert_true(t.transpose(2, 0).is_contiguous())


def test_shares_memory() raises:
    var a = _numbers(10)
    var b = _numbers(10)
    var x = TensorView[False, DType.float32, 1, "", Layout.ANY, ImmOrigin(origin_of(a))](
        a.unsafe_ptr(), IndexList[1](5), IndexList[1](1), Trap(0)
    )
    var rest = TensorView[False, DType.float32, 1, "", Layout.ANY, ImmOrigin(origin_of(a))](
        a.unsafe_ptr().unsafe_offset(4), IndexList[1](5), IndexList[1](1), Trap(0)
    )
    var end = TensorView[False, DType.float32, 1, "", Layout.ANY, ImmOrigin(origin_of(a))](
        a.unsafe_ptr().unsafe_offset(9), IndexList[1](5), IndexList[1](-1), Trap(0)
    )
    var other = TensorView[False, DType.float32, 1, "", Layout.ANY, ImmOrigin(origin_of(b))](
        b.unsafe_ptr(), IndexList[1](5), IndexList[1](1), Trap(0)
    )
    var none = TensorView[False, DType.float32, 1, "", Layout.ANY, ImmOrigin(origin_of(a))](
        a.unsafe_ptr().unsafe_offset(2), IndexList[1](0), IndexList[1](1), Trap(0)
    )
    assert_true(x.shares_memory(rest))
    assert_false(x.shares_memory(end))
    assert_true(rest.shares_memory(end))
    assert_false(x.shares_memory(other))
    assert_false(x.shares_memory(none))
    assert_false(none.shares_memory(x))


def test_helpers_take_any_view() raises:
    """A view with names, a layout or write access converts to a plain one."""
    var memory = _numbers(6)
    var x = TensorView[True, DType.float32, 2, "h 3", Layout.ROW_MAJOR](
        memory.unsafe_ptr(), IndexList[2](2, 3), IndexList[2](3, 1), Trap(0)
    )
    assert_equal(_sum(x), 15)
    assert_equal(_sum(x.transpose(0, 1)), 15)
    _fill(x.select(0, 1), 9)
    assert_equal(_sum(x), 30)
    assert_equal(_twice(x.select(0, 1)), 18)


def test_optional_views() raises:
    var memory = _numbers(3)
    var view = TensorView[True, DType.float32, 1, "", Layout.ANY](
        memory.unsafe_ptr(), IndexList[1](3), IndexList[1](1), Trap(0)
    )
    var some = OptionalView[True, DType.float32, 1, "", Layout.ANY](view)
    assert_true(Bool(some))
    some.value()[1] = 8
    assert_equal(memory[1], 8)
    var none = OptionalView[True, DType.float32, 1, "", Layout.ANY, origin_of(memory)]()
    assert_false(Bool(none))


def test_layouts() raises:
    assert_true(Layout.ANY == Layout.ANY)
    assert_false(Layout.ROW_MAJOR == Layout.CHANNELS_LAST)


def test_parallel_loop_without_torch() raises:
    """The whole range in one piece on this thread; nothing for an empty one."""
    assert_equal(num_threads(), 1)
    var calls = List[Int](length=2, fill=0)
    var p = calls.unsafe_ptr()

    def body(start: Int, end: Int) {var p}:
        p[unsafe_offset=0] += 1
        p[unsafe_offset=1] += end - start

    parallel_for(body, 100_000, 1)
    parallel_for(body, 5, 10)
    parallel_for(body, 0, 1)
    parallel_for(body, -3, 1)
    assert_equal(calls[0], 2)
    assert_equal(calls[1], 100_005)


def main() raises:
    TestSuite.discover_tests[__functions_in_module()]().run()
