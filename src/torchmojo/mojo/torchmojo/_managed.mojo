"""DLPack managed tensors (dlpack.h 1.x) over memory that Mojo allocated."""

from std.ffi import external_call
from std.memory import Pointer
from std.utils import IndexList

from torchmojo.trap import CHECK_BOUNDS

# DLManagedTensorVersioned, offsets in bytes: version, context, deleter, flags, then a DLTensor of
# data, device {type, id}, ndim, dtype {code, bits, lanes}, shape, strides, byte_offset.
comptime _CONTEXT = 8
comptime _DELETER = 16
comptime _DATA = 32
comptime _DEVICE = 40
comptime _NDIM_DTYPE = 48
comptime _SHAPE = 56
comptime _STRIDES = 64
comptime _SIZE = 80

comptime _VERSION_1_0 = 1
comptime _CPU = 1
comptime _ONE_LANE = 1 << 48

comptime Deleter = def(Int) thin abi("C") -> None
"""`void (*deleter)(DLManagedTensorVersioned *)`."""


@always_inline
def _word(base: Int, offset: Int) -> ref[MutUntrackedOrigin] Int:
    return Pointer[Int, MutUntrackedOrigin](unsafe_from_address=base + offset)[]


def _free(managed: Int) abi("C"):
    """Frees the memory and the managed tensor: C's `free` alone, so any thread will do, with or
    without Python."""
    external_call["free", NoneType](_word(managed, _CONTEXT))
    external_call["free", NoneType](managed)


def managed_from_memory[
    rank: Int
](data: Int, shape: IndexList[rank], code: Int, bits: Int) -> UnsafeTensorHandle:
    """Wraps memory from `aligned_alloc` into a managed tensor.

    Parameters:
        rank: Number of axes.

    Args:
        data: Address of the memory, which the managed tensor owns from now on.
        shape: Sizes of a row-major tensor.
        code: DLPack's type code.
        bits: Bits of an element.

    Returns:
        The owner.
    """
    var managed = external_call["calloc", Int](Int(1), _SIZE + 16 * rank)
    if managed == 0:
        # A hundred bytes are not to be had: nothing that runs after this can go well.
        external_call["abort", NoneType]()
    var deleter: Deleter = _free
    _word(managed, 0) = _VERSION_1_0
    _word(managed, _CONTEXT) = data
    _word(managed, _DELETER) = Pointer(to=deleter).unsafe_bitcast[Int]()[]
    _word(managed, _DATA) = data
    _word(managed, _DEVICE) = _CPU
    _word(managed, _NDIM_DTYPE) = rank | (code << 32) | (bits << 40) | _ONE_LANE
    _word(managed, _SHAPE) = managed + _SIZE
    _word(managed, _STRIDES) = managed + _SIZE + 8 * rank
    var step = 1
    comptime for k in range(rank):
        comptime axis = rank - 1 - k
        _word(managed, _SIZE + 8 * axis) = shape[axis]
        _word(managed, _SIZE + 8 * (rank + axis)) = step
        step *= shape[axis]
    return UnsafeTensorHandle(unsafe_from_address=managed)


@explicit_destroy("end it by release() or into_address()")
struct UnsafeTensorHandle(not Deinitable, Movable):
    """A managed tensor that may cross threads or C, where no origin can follow it.

    Safety: one owner at a time, as the compiler sees to within Mojo. Who takes the address by
    `into_address` must hand it to exactly one consumer, which calls the deleter exactly once. The
    memory must not be used by two threads at a time unless both only read. With `bounds=True` an
    address that is no managed tensor of ours is refused.
    """

    var _managed: Int

    def __init__(out self, *, unsafe_from_address: Int):
        """Takes over a `DLManagedTensorVersioned *`.

        Args:
            unsafe_from_address: Its address, which nobody else will free.
        """
        comptime if CHECK_BOUNDS:
            if unsafe_from_address == 0 or _word(unsafe_from_address, 0) & 0xFFFF_FFFF != 1:
                external_call["abort", NoneType]()
        self._managed = unsafe_from_address

    def __init__(out self, *, deinit move: Self):
        """Takes over from another handle.

        Args:
            move: The former owner, which is gone.
        """
        self._managed = move._managed

    def into_address(deinit self) -> Int:
        """Gives up ownership.

        Returns:
            Address of the managed tensor; the taker calls its deleter once.
        """
        return self._managed

    def release(deinit self):
        """Calls the deleter."""
        var deleter = _word(self._managed, _DELETER)
        if deleter != 0:
            Pointer(to=deleter).unsafe_bitcast[Deleter]()[](self._managed)


def _close_capsule(capsule: Int) abi("C"):
    """Frees a managed tensor that nobody took out of its capsule."""
    var name = "dltensor_versioned".as_c_string_span()
    if external_call["PyCapsule_IsValid", Int32](capsule, name) != 0:
        var managed = external_call["PyCapsule_GetPointer", Int](capsule, name)
        UnsafeTensorHandle(unsafe_from_address=managed).release()


def into_capsule(managed: Int) -> Int:
    """Puts a managed tensor into a Python capsule; the GIL is held.

    Args:
        managed: Its address; the capsule owns it from now on.

    Returns:
        Address of a new capsule, or 0 with an exception set; then the tensor has been freed.
    """
    var close: Deleter = _close_capsule
    var capsule = external_call["PyCapsule_New", Int](
        managed,
        "dltensor_versioned".as_c_string_span(),
        Pointer(to=close).unsafe_bitcast[Int]()[],
    )
    if capsule == 0:
        UnsafeTensorHandle(unsafe_from_address=managed).release()
    return capsule
