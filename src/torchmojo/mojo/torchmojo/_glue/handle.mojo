"""What glue asks of a `torchmojo.Handle`: its target, and whether that is still what was shared."""

from std.ffi import external_call

from torchmojo._glue.python import word
from torchmojo._glue.record import Record
from torchmojo._glue.table import Slot


@always_inline
def _slot(doors: Int, handle: Int, slot: Int) -> Int:
    """Returns the object in one of a handle's slots."""
    return word(handle, word(doors, slot))


@always_inline
def target_of(doors: Int, handle: Int) -> Int:
    """Returns what a handle holds: a tensor, an exporter or a lease; `None` once released.

    Args:
        doors: The table.
        handle: Address of the handle, which the caller holds; the GIL is held.
    """
    return _slot(doors, handle, Slot.HANDLE_TARGET)


@always_inline
def is_frozen(doors: Int, handle: Int) -> Bool:
    """Returns whether a handle lends for reading only.

    Args:
        doors: The table.
        handle: Address of the handle.
    """
    return _slot(doors, handle, Slot.HANDLE_FROZEN) == word(doors, Slot.TRUE)


@no_inline
def has_changed(doors: Int, handle: Int, record: Record) -> Bool:
    """Returns whether the lender's memory or shape differs from when the handle was made.

    Args:
        doors: The table.
        handle: Address of the handle.
        record: What has just been read of its target.
    """
    var told = external_call["PyLong_AsVoidPtr", Int](_slot(doors, handle, Slot.HANDLE_ADDRESS))
    var sizes = _slot(doors, handle, Slot.HANDLE_SHAPE)
    var strides = _slot(doors, handle, Slot.HANDLE_STRIDES)
    if told != record.data or external_call["PyTuple_Size", Int](sizes) != record.ndim:
        return True
    for i in range(record.ndim):
        if _item(sizes, i) != record.size(i) or _item(strides, i) != record.stride(i):
            return True
    return False


@always_inline
def _item(tuple: Int, index: Int) -> Int:
    """Reads a number of a tuple of ints."""
    return external_call["PyLong_AsSsize_t", Int](
        external_call["PyTuple_GetItem", Int](tuple, index)
    )
