"""Plain tensors: dense memory of the CPU that nothing stands before, known by their key set.

Their layout, device and lazy bits need not be asked for: other ones are other keys.
"""

from torchmojo._glue.code import Code
from torchmojo._glue.doors import _check, element_width, get_int, get_int32
from torchmojo._glue.python import word
from torchmojo._glue.record import Record
from torchmojo._glue.table import Slot
from torchmojo_ops.table import Entry, table


@always_inline
def is_plain(handle: Int) -> Bool:
    """Returns whether a tensor is dense, on the CPU, and stands for itself.

    Args:
        handle: Address of an `at::Tensor`.
    """
    var keys = word(word(handle, 0), word(table(), Entry.KEYS_OFFSET))
    return keys == word(table(), Entry.PLAIN_KEYS) or keys == word(table(), Entry.INFERENCE_KEYS)


@no_inline
def acquire_plain(
    doors: Int,
    handle: Int,
    mut record: Record,
    mut blocks: Int,
    writes: Bool,
    rank: Int,
    layout: Int,
    parts: Bool,
) -> Int:
    """Reads a plain tensor; see `torchmojo._glue.doors.acquire_handle`.

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
    record.dtype = get_int32(doors, Slot.GET_DTYPE, handle)
    record.handle = handle
    record.read_only = 0
    var size = 0
    var offset = 0
    var slot = Slot.GET_MUTABLE_DATA if writes else Slot.GET_CONST_DATA
    if not (
        get_int(doors, Slot.GET_DIM, handle, record.ndim)
        and get_int(doors, Slot.GET_SIZES, handle, record.shape)
        and get_int(doors, Slot.GET_STRIDES, handle, record.strides)
        and get_int(doors, Slot.GET_STORAGE_SIZE, handle, size)
        and get_int(doors, Slot.GET_STORAGE_OFFSET, handle, offset)
        and get_int(doors, slot, handle, record.data)
    ):
        return Code.NO_DATA
    record.low = record.data - offset * element_width(doors, record.dtype)
    record.high = record.low + size
    return _check(doors, record, blocks, writes, rank, layout, parts)


@no_inline
def acquire_result(
    doors: Int,
    handle: Int,
    mut record: Record,
    mut blocks: Int,
    rank: Int,
    layout: Int,
    parts: Bool,
) -> Int:
    """Reads a tensor that this call has made, which nobody else has seen.

    Its record has no handle, so that no autograd is asked for leave to write and no version is
    raised.

    Args:
        doors: The table.
        handle: Address of the `at::Tensor`.
        record: Filled in.
        blocks: Blocks of the call.
        rank: Number of axes asked for, -1 for any.
        layout: Code of the layout asked for.
        parts: Whether complex numbers are taken as two floats on a last axis.

    Returns:
        `Code.OK`, or why the result does not fit the kernel.
    """
    record.dtype = get_int32(doors, Slot.GET_DTYPE, handle)
    record.handle = 0
    record.read_only = 0
    if not (
        get_int(doors, Slot.GET_DIM, handle, record.ndim)
        and get_int(doors, Slot.GET_SIZES, handle, record.shape)
        and get_int(doors, Slot.GET_STRIDES, handle, record.strides)
        and get_int(doors, Slot.GET_MUTABLE_DATA, handle, record.data)
    ):
        return Code.NO_DATA
    record.low = record.data
    record.high = Int.MAX
    return _check(doors, record, blocks, True, rank, layout, parts)
