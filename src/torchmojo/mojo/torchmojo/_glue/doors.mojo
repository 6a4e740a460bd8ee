"""The fast door: reads a torch tensor through libtorch's C functions, found once by Python.

A `torch.Tensor` object holds an `at::Tensor`; its address is the handle that the stable C ABI takes
(`aoti_torch_get_sizes` and its kin). Python finds the offset and proves it on live tensors before it
opens the door (`torchmojo/bridge/aten.py`), so that nothing here depends on a guess.
"""

from std.ffi import external_call
from std.memory import Pointer

from torchmojo._glue.buffer import borrow, keep
from torchmojo._glue.code import Code
from torchmojo._glue.handle import has_changed, is_frozen, target_of
from torchmojo._glue.parts import is_complex, split_complex
from torchmojo._glue.python import Object, address, object_at, type_of_object, word
from torchmojo._glue.record import Record
from torchmojo._glue.table import Slot

comptime _OutInt = Pointer[Int, MutAnyOrigin]
comptime _GetInt = def(Int, _OutInt) thin abi("C") -> Int32
comptime _OutInt32 = Pointer[Int32, MutAnyOrigin]
comptime _GetInt32 = def(Int, _OutInt32) thin abi("C") -> Int32
comptime _Ask = def(Int) thin abi("C") -> Bool
comptime _AskNobody = def() thin abi("C") -> Bool
comptime _Tell = def(Int) thin abi("C") -> None

comptime _INT64_MAX = Int128(Int64.MAX)


@always_inline
def _function[F: TrivialRegisterPassable](doors: Int, slot: Int) -> F:
    """Returns a C function of the table."""
    return Pointer[F, MutUntrackedOrigin](unsafe_from_address=doors + slot)[]


@always_inline
def get_int(doors: Int, slot: Int, handle: Int, mut result: Int) -> Bool:
    """Asks for a 64-bit fact of a tensor.

    Args:
        doors: The table.
        slot: Offset of the function.
        handle: Address of the `at::Tensor`.
        result: Filled in.

    Returns:
        False where torch has no answer.
    """
    var get = _function[_GetInt](doors, slot)
    return get(handle, Pointer(to=result).unsafe_origin_cast[MutAnyOrigin]()) == 0


@always_inline
def get_int32(doors: Int, slot: Int, handle: Int) -> Int:
    """Asks for a 32-bit fact of a tensor.

    Args:
        doors: The table.
        slot: Offset of the function.
        handle: Address of the `at::Tensor`.

    Returns:
        -1 where torch has no answer.
    """
    var result = Int32(-1)
    var get = _function[_GetInt32](doors, slot)
    if get(handle, Pointer(to=result).unsafe_origin_cast[MutAnyOrigin]()) != 0:
        return -1
    return Int(result)


@always_inline
def _is_tensor(doors: Int, type: Int) -> Bool:
    """Returns whether objects of a type are known to hold a plain tensor."""
    if type == word(doors, Slot.TENSOR_TYPES) or type == word(doors, Slot.TENSOR_TYPES + 8):
        return type != 0
    comptime for i in range(2, Slot.TENSOR_TYPE_COUNT):
        var known = word(doors, Slot.TENSOR_TYPES + 8 * i)
        if known == 0:
            return False
        if known == type:
            return True
    return False


def element_width(doors: Int, dtype: Int) -> Int:
    """Returns the bytes of an element, 0 for a dtype that no kernel takes.

    Args:
        doors: The table.
        dtype: Torch's number of the dtype.
    """
    if dtype < 0 or dtype > 63:
        return 0
    var widths = Pointer[UInt8, MutUntrackedOrigin](unsafe_from_address=doors + Slot.WIDTHS)
    return Int(widths[unsafe_offset=dtype])


@no_inline
def acquire(
    doors: Int,
    object: Object,
    mut record: Record,
    mut blocks: Int,
    writes: Bool,
    rank: Int,
    layout: Int,
    parts: Bool,
) -> Int:
    """Reads a tensor argument and makes every check that concerns it alone.

    Args:
        doors: The table.
        object: The argument.
        record: Filled in.
        blocks: Buffer exports of the call, see `borrow`.
        writes: Whether the kernel writes it.
        rank: Number of axes asked for, -1 for any.
        layout: Code of the layout asked for.
        parts: Whether complex numbers are taken as two floats on a last axis.

    Returns:
        `Code.OK`, or why the argument is refused; then no memory has been touched.
    """
    var at = address(object)
    var type = type_of_object(at)
    var shared = 0
    if type == word(doors, Slot.HANDLE_TYPE) and type != 0:
        shared = at
        at = target_of(doors, shared)
        if at == word(doors, Slot.NONE):
            return Code.RELEASED
        if writes and is_frozen(doors, shared):
            return Code.READ_ONLY
        type = type_of_object(at)
        # Another thread may release the handle while the kernel runs.
        var users = 0
        if type == word(doors, Slot.LEASE_TYPE):
            users = _record_of(doors, at) + Record.USERS
        external_call["Py_IncRef", NoneType](at)
        var code = keep(object_at(at), blocks, users)
        if code != Code.OK:
            return code
    if _is_tensor(doors, type):
        var handle = at + word(doors, Slot.TENSOR_OFFSET)
        var code = _read_tensor(doors, handle, record, writes)
        if code != Code.OK:
            return code
    elif type == word(doors, Slot.LEASE_TYPE) and type != 0:
        var found = _record_of(doors, at)
        record = Pointer[Record, MutUntrackedOrigin](unsafe_from_address=found)[].copy()
    elif at == word(doors, Slot.NONE):
        return Code.NONE
    else:
        var code = borrow(doors, at, record, blocks)
        if code != Code.OK:
            return code
    if shared != 0 and has_changed(doors, shared, record):
        return Code.MOVED
    return _check(doors, record, blocks, writes, rank, layout, parts)


@no_inline
def acquire_handle(
    doors: Int,
    handle: Int,
    mut record: Record,
    mut blocks: Int,
    writes: Bool,
    rank: Int,
    layout: Int,
    parts: Bool,
) -> Int:
    """Reads a tensor by its `at::Tensor`, as an operator gets it; see `acquire`.

    Args:
        doors: The table.
        handle: Address of the `at::Tensor`.
        record: Filled in.
        blocks: Blocks of the call.
        writes: Whether the kernel writes it.
        rank: Number of axes asked for, -1 for any.
        layout: Code of the layout asked for.
        parts: Whether complex numbers are taken as two floats on a last axis.

    Returns:
        `Code.OK`, or why the argument is refused.
    """
    var code = _read_tensor(doors, handle, record, writes)
    if code != Code.OK:
        return code
    return _check(doors, record, blocks, writes, rank, layout, parts)


@always_inline
def _check(
    doors: Int,
    mut record: Record,
    mut blocks: Int,
    writes: Bool,
    rank: Int,
    layout: Int,
    parts: Bool,
) -> Int:
    """Makes the checks of one tensor whose record has been read."""
    if parts:
        var code = split_complex(record, blocks)
        if code != Code.OK:
            return code
    if rank >= 0 and record.ndim != rank:
        return Code.RANK
    var width = element_width(doors, record.dtype)
    if width == 0:
        return Code.DTYPE
    return _check_extent(record, width, writes, layout)


@always_inline
def _record_of(doors: Int, lease: Int) -> Int:
    """Returns the address of a lease's record."""
    var number = word(lease, word(doors, Slot.LEASE_RECORD))
    return external_call["PyLong_AsVoidPtr", Int](number)


@always_inline
def _read_tensor(doors: Int, handle: Int, mut record: Record, writes: Bool) -> Int:
    """Fills a record from a torch tensor."""
    if word(handle, 0) == 0:
        return Code.NO_DATA
    if get_int32(doors, Slot.GET_LAYOUT, handle) != 0:
        return Code.LAYOUT_KIND
    if get_int32(doors, Slot.GET_DEVICE_TYPE, handle) != 0:
        return Code.DEVICE
    record.dtype = get_int32(doors, Slot.GET_DTYPE, handle)
    record.handle = handle
    record.read_only = 0
    if not (
        get_int(doors, Slot.GET_DIM, handle, record.ndim)
        and get_int(doors, Slot.GET_SIZES, handle, record.shape)
        and get_int(doors, Slot.GET_STRIDES, handle, record.strides)
    ):
        return Code.LAYOUT_KIND
    var size = 0
    var offset = 0
    # No storage: a tensor under vmap, grad or functionalize, which stands for others.
    if not get_int(doors, Slot.GET_STORAGE_SIZE, handle, size):
        return Code.NO_DATA
    if not get_int(doors, Slot.GET_STORAGE_OFFSET, handle, offset):
        return Code.NO_DATA
    var slot = Slot.GET_MUTABLE_DATA if writes else Slot.GET_CONST_DATA
    if not get_int(doors, slot, handle, record.data):
        return Code.NO_DATA
    if _function[_Ask](doors, Slot.IS_NEG)(handle):
        return Code.NEG_BIT
    if is_complex(record.dtype) and _function[_Ask](doors, Slot.IS_CONJ)(handle):
        return Code.CONJ_BIT
    # The storage is the owner's promise: [low, high) here, compared with the reach below.
    var start = record.data - offset * element_width(doors, record.dtype)
    record.low = start
    record.high = start + size
    return Code.OK


@always_inline
def _check_extent(mut record: Record, width: Int, writes: Bool, layout: Int) -> Int:
    """Compares the reach of shape and strides with the memory that the owner promised.

    On entry `low` and `high` bound the owner's memory; on success they bound the tensor's bytes.
    The sums are 128 bits wide: a shape or stride from a hostile producer cannot wrap.
    """
    var count = Int128(1)
    var below = Int128(0)
    var above = Int128(0)
    var dense = True
    for i in range(record.ndim):
        var axis = record.ndim - 1 - i
        var size = Int128(record.size(axis))
        var stride = Int128(record.stride(axis))
        if size < 0:
            return Code.NO_DATA
        if size != 1 and stride != count:
            dense = False
        count *= size
        if count > _INT64_MAX:
            return Code.NO_DATA
        var reach = (size - 1) * stride
        if reach < 0:
            below += reach
        else:
            above += reach
    if count == 0:
        record.low = record.data
        record.high = record.data
        return Code.OK
    if record.data == 0:
        return Code.NO_DATA
    if record.data & (width - 1) != 0:
        return Code.ALIGNMENT
    var low = Int128(record.data) + below * Int128(width)
    var high = Int128(record.data) + (above + 1) * Int128(width)
    if low < Int128(record.low) or high > Int128(record.high):
        return Code.NO_DATA
    record.low = Int(low)
    record.high = Int(high)
    if layout == 1 and not dense:
        return Code.LAYOUT
    if layout == 2 and not _is_channels_last(record):
        return Code.LAYOUT
    if writes and record.read_only != 0:
        return Code.READ_ONLY
    return Code.OK


def _is_channels_last(record: Record) -> Bool:
    """Returns whether axes `[n, c, spatial...]` lie in memory as `[n, spatial..., c]`."""
    if record.ndim != 4 and record.ndim != 5:
        return False
    var expected = 1
    for i in range(record.ndim):
        # Fastest first: c, then the last spatial axis backwards, then n.
        var axis = 1 if i == 0 else (0 if i == record.ndim - 1 else record.ndim - i)
        if record.size(axis) != 1 and record.stride(axis) != expected:
            return False
        expected *= record.size(axis)
    return True


@always_inline
def claim(doors: Int, record: Record) -> Int:
    """Checks that autograd allows a write in place.

    Args:
        doors: The table.
        record: A tensor that the kernel writes; nothing to ask where it is not torch's.

    Returns:
        `Code.OK`, `Code.GRAD` or `Code.INFERENCE`.
    """
    if record.handle == 0:
        return Code.OK
    # `requires_grad` is a method of the TensorImpl, which the at::Tensor points to.
    if _function[_Ask](doors, Slot.REQUIRES_GRAD)(word(record.handle, 0)):
        if _function[_AskNobody](doors, Slot.GRAD_ENABLED)():
            return Code.GRAD
    if _function[_Ask](doors, Slot.IS_INFERENCE)(record.handle):
        if not _function[_AskNobody](doors, Slot.INFERENCE_ENABLED)():
            return Code.INFERENCE
    return Code.OK


@always_inline
def raise_version(doors: Int, record: Record):
    """Raises the version counter, so that autograd sees the write.

    Args:
        doors: The table.
        record: A tensor that is about to be written. It passed `claim`, so torch cannot throw here:
            it does so only for an inference tensor outside inference mode.
    """
    if record.handle != 0:
        _function[_Tell](doors, Slot.BUMP_VERSION)(record.handle)
