"""Makes an operator's results by the rule that was read from its Python function."""

from std.memory import Pointer

from torchmojo._glue.doors import get_int, get_int32
from torchmojo._glue.numbers import Numbers
from torchmojo._glue.python import word
from torchmojo._glue.table import Slot
from torchmojo_ops.table import Entry, function, table

comptime _MAX = 16
comptime _Out = Pointer[Int, MutAnyOrigin]
comptime _EmptyStrided = def(Int, _Out, _Out, Int32, Int32, Int32, _Out) thin abi("C") -> Int32

# Words of an allocation: form, then for LIKE the place of a tensor on the stack; for SIZES number of
# axes, place of the tensor whose dtype it has or -1, the dtype, then two words an axis: place of a
# tensor and its axis, or -1 and a size.
comptime LIKE = 0
comptime SIZES = 1


def allocate(stack: Int, words: Int) -> Int:
    """Makes one result.

    Args:
        stack: The operator's values.
        words: Address of the allocation's words.

    Returns:
        A new handle, or 0 where torch refuses.
    """
    var sizes = Numbers[_MAX](fill=0)
    var strides = Numbers[_MAX](fill=0)
    var doors = word(table(), Entry.DOORS)
    var count = 0
    var dtype = 0
    if word(words, 0) == LIKE:
        var handle = word(stack, 8 * word(words, 8))
        var size_at = 0
        var stride_at = 0
        if not (
            get_int(doors, Slot.GET_DIM, handle, count)
            and get_int(doors, Slot.GET_SIZES, handle, size_at)
            and get_int(doors, Slot.GET_STRIDES, handle, stride_at)
        ):
            return 0
        if count > _MAX:
            return 0
        dtype = get_int32(doors, Slot.GET_DTYPE, handle)
        for i in range(count):
            sizes[i] = word(size_at, 8 * i)
            strides[i] = word(stride_at, 8 * i)
        if not _is_dense(count, sizes, strides):
            _make_dense(count, sizes, strides)
    else:
        count = word(words, 8)
        dtype = word(words, 24)
        if word(words, 16) >= 0:
            dtype = get_int32(doors, Slot.GET_DTYPE, word(stack, 8 * word(words, 16)))
        for i in range(count):
            var place = word(words, 32 + 16 * i)
            var value = word(words, 40 + 16 * i)
            if place >= 0:
                var size_at = 0
                var dim = 0
                var handle = word(stack, 8 * place)
                if not (
                    get_int(doors, Slot.GET_DIM, handle, dim)
                    and get_int(doors, Slot.GET_SIZES, handle, size_at)
                ):
                    return 0
                # An input of another rank is refused later, by its own check.
                value = word(size_at, 8 * value) if value < dim else 0
            sizes[i] = value
        var step = 1
        for k in range(count):
            var axis = count - 1 - k
            strides[axis] = step
            step *= max(sizes[axis], 1)
    var result = 0
    var code = function[_EmptyStrided](Entry.EMPTY_STRIDED)(
        count, sizes.pointer(), strides.pointer(), Int32(dtype), 0, -1, _out(result)
    )
    return result if code == 0 else 0


@always_inline
def _out(mut value: Int) -> _Out:
    return Pointer(to=value).unsafe_origin_cast[MutAnyOrigin]()


def _is_dense(count: Int, sizes: Numbers[_MAX], strides: Numbers[_MAX]) -> Bool:
    """Returns whether the elements lie without gaps and overlaps, in any order of axes.

    As `c10::TensorImpl::is_non_overlapping_and_dense`, to which a tensor without elements is dense.
    """
    for i in range(count):
        if sizes[i] == 0:
            return True
    var expected = 1
    var done = Numbers[_MAX](fill=0)
    for _ in range(count):
        var next = -1
        for i in range(count):
            if done[i] == 0 and sizes[i] > 1 and (next < 0 or strides[i] < strides[next]):
                next = i
        if next < 0:
            return True
        if strides[next] != expected:
            return False
        expected *= sizes[next]
        done[next] = 1
    return True


def _make_dense(count: Int, sizes: Numbers[_MAX], mut strides: Numbers[_MAX]):
    """Replaces strides by dense ones in the same order of axes.

    As `at::infer_dense_strides`, ties included, so that the result has the strides that
    `torch.empty_like` gives.
    """
    var order = Numbers[_MAX](fill=0)
    for i in range(count):
        order[i] = count - 1 - i
    for i in range(1, count):
        var one = i
        for k in range(i):
            var zero = i - 1 - k
            var verdict = _compare(sizes, strides, order[zero], order[one])
            if verdict > 0:
                var kept = order[zero]
                order[zero] = order[one]
                order[one] = kept
                one = zero
            elif verdict < 0:
                break
    var step = 1
    for i in range(count):
        var axis = order[i]
        strides[axis] = step
        if sizes[axis] > 1:
            step *= sizes[axis]


@always_inline
def _compare(sizes: Numbers[_MAX], strides: Numbers[_MAX], a: Int, b: Int) -> Int:
    if strides[a] == 0 or strides[b] == 0:
        return 0
    if strides[a] != strides[b]:
        return -1 if strides[a] < strides[b] else 1
    return 1 if sizes[a] > sizes[b] else 0
