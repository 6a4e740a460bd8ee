"""DLPack exports of memory that Python objects own, with deleters that may run anywhere.

All exports share a table of words, which Python made and never frees:

    0  exports alive          3  address of Py_IsFinalizing, or 0
    1  exports deleted        4  blocks that went through the ring
    2  second deletes         5  address of the exception class for a second delete, or 0
    8  a ring of 1024 blocks that are deleted but not freed yet

A block is freed only after 1024 later ones: a consumer that calls a deleter twice meets a dead
mark instead of memory that belongs to someone else by then. Words change under the GIL only.
"""

from std.ffi import external_call
from std.memory import Pointer

from torchmojo._glue.python import Words, word

comptime _ALIVE = 0
comptime _DELETED = 8
comptime _DOUBLE = 16
comptime _IS_FINALIZING = 24
comptime _TURN = 32
comptime _ERROR = 40
comptime _RING = 64
comptime _RING_SIZE = 1024

# A block: our mark and the table's address; then a DLManagedTensorVersioned (version, context,
# deleter, flags, tensor) or a legacy DLManagedTensor (tensor, context, deleter); sizes; strides.
# The context is the owner. Offsets count from the managed tensor, whose address consumers see.
comptime _MARK = -16
comptime _TABLE = -8
comptime _LIVE = 0x746D6F6A6F6C6976  # "tmojoliv"
comptime _DEAD = 0x746D6F6A6F646561  # "tmojodea"

comptime _VERSION_1_0 = 1
comptime _CPU = 1


@fieldwise_init
struct _Form(TrivialRegisterPassable):
    """Where things are in a managed tensor."""

    var context: Int
    var deleter: Int
    var tensor: Int
    var size: Int


comptime _VERSIONED = _Form(8, 16, 32, 80)
comptime _FLAGS = 24
comptime _LEGACY = _Form(48, 56, 0, 64)

comptime _Function = def(Int) thin abi("C") -> None
comptime _Question = def() thin abi("C") -> Int32


@always_inline
def _put(base: Int, offset: Int, value: Int):
    Words(unsafe_from_address=base + offset)[] = value


@always_inline
def _add(base: Int, offset: Int, value: Int):
    _put(base, offset, word(base, offset) + value)


def _is_over(table: Int) -> Bool:
    """Tells whether another thread is ending the interpreter: waiting for the GIL would not end."""
    var address = word(table, _IS_FINALIZING)
    return (
        address != 0
        and Pointer(to=address).unsafe_bitcast[_Question]()[]() != 0
        and external_call["PyGILState_Check", Int32]() == 0
    )


def _report(table: Int):
    """Says on standard error that a consumer deleted twice; there is nobody to raise it to."""
    var error = word(table, _ERROR)
    if error == 0:
        return
    # A deleter may run while an exception is on its way: that one must go on.
    var kind = 0
    var value = 0
    var trace = 0
    external_call["PyErr_Fetch", NoneType](Pointer(to=kind), Pointer(to=value), Pointer(to=trace))
    external_call["PyErr_SetString", NoneType](
        error,
        (
            "a DLPack consumer called the deleter of a tensor twice; the second call did nothing"
        ).as_c_string_span(),
    )
    external_call["PyErr_WriteUnraisable", NoneType](Int(0))
    external_call["PyErr_Restore", NoneType](kind, value, trace)


def _let_go(managed: Int, form: _Form):
    """Drops the owner; without an interpreter there is nothing to drop any more."""
    if external_call["Py_IsInitialized", Int32]() == 0:
        return
    var table = word(managed, _TABLE)
    if _is_over(table):
        return
    var state = external_call["PyGILState_Ensure", Int32]()
    if word(managed, _MARK) != _LIVE:
        _add(table, _DOUBLE, 1)
        _report(table)
    else:
        var owner = word(managed, form.context)
        _put(managed, _MARK, _DEAD)
        _put(managed, form.context, 0)
        _add(table, _ALIVE, -1)
        _add(table, _DELETED, 1)
        var place = _RING + word(table, _TURN) % _RING_SIZE * 8
        var oldest = word(table, place)
        _put(table, place, managed + _MARK)
        _add(table, _TURN, 1)
        external_call["free", NoneType](oldest)
        # Last: this may run any code, other deleters among it.
        external_call["Py_DecRef", NoneType](owner)
    external_call["PyGILState_Release", NoneType](state)


def _delete(managed: Int) abi("C"):
    """`void (*deleter)(DLManagedTensorVersioned *)`."""
    _let_go(managed, _VERSIONED)


def _delete_legacy(managed: Int) abi("C"):
    """`void (*deleter)(DLManagedTensor *)`."""
    _let_go(managed, _LEGACY)


def _close(capsule: Int) abi("C"):
    """Deletes what nobody took out of its capsule."""
    var name = "dltensor_versioned".as_c_string_span()
    if external_call["PyCapsule_IsValid", Int32](capsule, name) != 0:
        _delete(external_call["PyCapsule_GetPointer", Int](capsule, name))


def _close_legacy(capsule: Int) abi("C"):
    """Deletes what nobody took out of its capsule."""
    var name = "dltensor".as_c_string_span()
    if external_call["PyCapsule_IsValid", Int32](capsule, name) != 0:
        _delete_legacy(external_call["PyCapsule_GetPointer", Int](capsule, name))


def lend_memory(
    owner: Int,
    data: Int,
    ndim: Int,
    sizes: Int,
    strides: Int,
    dtype: Int,
    flags: Int,
    versioned: Bool,
    table: Int,
) -> Int:
    """Makes a capsule; the GIL is held.

    Args:
        owner: Address of the object that owns the memory.
        data: Address of the first element.
        ndim: Number of axes.
        sizes: Address of the sizes.
        strides: Address of the strides in elements.
        dtype: DLPack's code, bits and lanes.
        flags: DLPack's flags.
        versioned: Whether to make the form of DLPack 1.0.
        table: Address of the table.

    Returns:
        A new reference, or 0 with an exception set.
    """
    var form = _VERSIONED if versioned else _LEGACY
    var block = external_call["calloc", Int](Int(1), form.size + 16 * (ndim + 1))
    if block == 0:
        return external_call["PyErr_NoMemory", Int]()
    var managed = block - _MARK
    _put(managed, _MARK, _LIVE)
    _put(managed, _TABLE, table)
    var tensor = managed + form.tensor
    var shape = managed + form.size
    _put(tensor, 0, data)
    _put(tensor, 8, _CPU)
    _put(tensor, 16, ndim | (dtype << 32))
    _put(tensor, 24, shape)
    _put(tensor, 32, shape + 8 * ndim)
    for i in range(ndim):
        _put(shape, 8 * i, word(sizes, 8 * i))
        _put(shape, 8 * (ndim + i), word(strides, 8 * i))
    external_call["Py_IncRef", NoneType](owner)
    _put(managed, form.context, owner)
    _add(table, _ALIVE, 1)
    var deleter: _Function = _delete_legacy
    var close: _Function = _close_legacy
    var name = "dltensor".as_c_string_span()
    if versioned:
        deleter = _delete
        close = _close
        name = "dltensor_versioned".as_c_string_span()
        _put(managed, 0, _VERSION_1_0)
        _put(managed, _FLAGS, flags)
    _put(managed, form.deleter, Pointer(to=deleter).unsafe_bitcast[Int]()[])
    var capsule = external_call["PyCapsule_New", Int](
        managed, name, Pointer(to=close).unsafe_bitcast[Int]()[]
    )
    if capsule == 0:
        deleter(managed)
    return capsule
