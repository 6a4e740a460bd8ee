"""Borrows memory from objects that are not torch tensors, for the time of one call.

Three protocols, in this order: the buffer protocol (NumPy arrays, ``array``, ``bytes``, ``mmap``,
``memoryview``), DLPack (``__dlpack__``), and NumPy's array interface (``__array_interface__``). A
lease holds the lender and gives everything back when it is released, also when the call fails.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

from torchmojo.bridge import doors
from torchmojo.bridge.record import Record
from torchmojo.dtypes import BY_CODE, BY_DLPACK, BY_NAME, DTypeInfo
from torchmojo.errors import DeviceError, DTypeError, LayoutError, NoDataError, ReadOnlyError

__all__ = ["Lease", "borrow", "has_buffer"]

_INT64_MAX = 2**63 - 1


class Lease:
    """A foreign object's memory, borrowed.

    Attributes:
        record: Address of the record that the glue reads (an int object, found by its offset).
        dtype: The dtype, or None for one that kernels do not know.
        shape: Sizes.
        strides: Strides in elements.
        read_only: Whether memory must not be written.
        type_name: Compact name of the dtype for messages, also of an unknown one.
    """

    __slots__ = (
        "_arrays",
        "_giver",
        "_lender",
        "_record",
        "dtype",
        "read_only",
        "record",
        "shape",
        "strides",
        "type_name",
    )

    def __init__(
        self,
        lender: object,
        give_back: Callable[[], None] | None,
        *,
        data: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: DTypeInfo | None,
        type_name: str,
        read_only: bool,
        low: int | None = None,
        high: int | None = None,
    ) -> None:
        """Describes borrowed memory; ``low`` and ``high`` bound what the lender owns."""
        count = len(shape)
        sizes = (ctypes.c_int64 * max(count, 1))(*shape)
        steps = (ctypes.c_int64 * max(count, 1))(*strides)
        if low is None or high is None:
            low, high = _reach(data, shape, strides, dtype.width if dtype else 1)
        self._record = Record(
            data,
            ctypes.addressof(sizes),
            ctypes.addressof(steps),
            count,
            dtype.code if dtype else -1,
            int(read_only),
            low,
            high,
            0,
        )
        self._arrays = (sizes, steps)
        self._lender = lender
        self._giver = give_back
        self.record = ctypes.addressof(self._record)
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.read_only = read_only
        self.type_name = type_name

    def release(self) -> None:
        """Gives the memory back; a second call does nothing."""
        give_back, self._giver = self._giver, None
        self._lender = None
        if give_back is not None:
            give_back()

    def __del__(self) -> None:
        """Gives the memory back if nobody did."""
        if getattr(self, "_giver", None) is not None:
            self.release()


def _reach(
    data: int, shape: tuple[int, ...], strides: tuple[int, ...], width: int
) -> tuple[int, int]:
    """Returns the bytes that shape and strides reach; the lender vouches for them."""
    if 0 in shape:
        return data, data
    low = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)
    high = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0)
    return data + low * width, data + (high + 1) * width


def borrow(thing: object, what: str) -> Lease:
    """Borrows an object's memory.

    Args:
        thing: Anything with the buffer protocol, ``__dlpack__`` or ``__array_interface__``.
        what: Operation and argument for messages, as ``scaled_add: a``.

    Returns:
        A lease; nothing has been copied. The caller releases it.

    Raises:
        DTypeError: The object is no tensor at all, or its byte order is foreign.
        DeviceError: Its memory is not the CPU's.
        LayoutError: Its strides are no multiple of the element size.
        NoDataError: It describes memory that it does not have.
    """
    lease = _from_buffer(thing, what)
    if lease is None and hasattr(thing, "__dlpack__"):
        lease = _from_dlpack(thing, what)
    if lease is None and hasattr(thing, "__array_interface__"):
        lease = _from_array_interface(thing, what)
    if lease is None:
        kind = type(thing)
        raise DTypeError(
            f"{what}: wanted a tensor (torch, NumPy, or any object with the buffer protocol or "
            f"__dlpack__), given {kind.__module__}.{kind.__qualname__}"
        )
    return lease


# -- the buffer protocol -------------------------------------------------------------------------


class _PyBuffer(ctypes.Structure):
    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    )


_RECORDS_RO = 0x1C  # PyBUF_RECORDS_RO: strides and format, writable or not (object.h)
_check_buffer = ctypes.pythonapi.PyObject_CheckBuffer
_check_buffer.argtypes = (ctypes.py_object,)
_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_PyBuffer),)
_release_buffer.restype = None

_BY_FORMAT = {letter: info for info in BY_CODE.values() for letter in info.formats}
_NATIVE = "<" if sys.byteorder == "little" else ">"


def _format(text: str, itemsize: int) -> tuple[DTypeInfo | None, bool]:
    """Returns the dtype of a format string, and whether its bytes are in foreign order."""
    order, letter = (text[0], text[1:]) if text[:1] in tuple("@=<>!") else ("@", text)
    info = _BY_FORMAT.get(letter)
    if info is not None and info.width != itemsize:
        # `l` is 4 bytes in standard sizes and 8 in native ones.
        info = next(
            (i for i in BY_CODE.values() if i.kind == info.kind and i.width == itemsize), None
        )
    foreign = order not in ("@", "=", _NATIVE) and not (order == "!" and _NATIVE == ">")
    return info, foreign and itemsize > 1


def has_buffer(thing: object) -> bool:
    """Returns whether an object exports a buffer.

    Args:
        thing: Any object.
    """
    return bool(_check_buffer(thing))


def _from_buffer(thing: object, what: str) -> Lease | None:
    if not has_buffer(thing):
        return None
    view = _PyBuffer()
    try:
        _get_buffer(thing, ctypes.byref(view), _RECORDS_RO)
    except (BufferError, ValueError):
        # An exporter may refuse a format it cannot name (NumPy and ml_dtypes): another door.
        return None

    def give_back() -> None:
        _release_buffer(ctypes.byref(view))

    try:
        return _read_buffer(thing, view, give_back, what)
    except BaseException:
        give_back()
        raise


def _read_buffer(
    thing: object, view: _PyBuffer, give_back: Callable[[], None], what: str
) -> Lease | None:
    text = (view.format or b"B").decode("latin-1")
    dtype, foreign = _format(text, view.itemsize)
    if dtype is None and hasattr(thing, "__dlpack__"):
        give_back()
        return None
    count = view.ndim
    if view.shape:
        shape = tuple(view.shape[i] for i in range(count))
    else:
        shape = (view.len // max(view.itemsize, 1),)
    if view.suboffsets and any(view.suboffsets[i] >= 0 for i in range(count)):
        raise LayoutError(
            f"{what}: wanted strided memory, given an indirect buffer (suboffsets); "
            "make a NumPy array of it first"
        )
    if foreign:
        raise DTypeError(
            f"{what}: wanted native byte order, given format {text!r}; write "
            f"x.astype(x.dtype.newbyteorder('=')), which copies"
        )
    if view.strides:
        steps = tuple(view.strides[i] for i in range(count))
    else:
        steps = _contiguous(shape, view.itemsize)
    strides = _elements(steps, shape, view.itemsize, what)
    return Lease(
        thing,
        give_back,
        data=view.buf or 0,
        shape=shape,
        strides=strides,
        dtype=dtype,
        type_name=dtype.short if dtype else f"format {text!r}",
        read_only=bool(view.readonly),
    )


def _contiguous(shape: tuple[int, ...], width: int) -> tuple[int, ...]:
    steps = [width] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        steps[i] = steps[i + 1] * max(shape[i + 1], 1)
    return tuple(steps)


def _elements(
    steps: tuple[int, ...], shape: tuple[int, ...], width: int, what: str
) -> tuple[int, ...]:
    """Turns strides in bytes into strides in elements."""
    if any(step % max(width, 1) for step, n in zip(steps, shape, strict=True) if n > 1):
        raise LayoutError(
            f"{what}: wanted strides that are multiples of the element size, given strides "
            f"{steps} bytes of {width}-byte elements; write x.copy()"
        )
    return tuple(step // max(width, 1) for step in steps)


# -- DLPack --------------------------------------------------------------------------------------


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


_HOST_DEVICES = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost (dlpack.h)
_COMPLEX = 5  # kDLComplex
_READ_ONLY_FLAG = 1  # DLPACK_FLAG_BITMASK_READ_ONLY
_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.argtypes, _capsule_name.restype = (ctypes.py_object,), ctypes.c_char_p
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_capsule_pointer.restype = ctypes.c_void_p


def _from_dlpack(thing: Any, what: str) -> Lease:
    if hasattr(thing, "__dlpack_device__"):
        device = int(thing.__dlpack_device__()[0])
        if device not in _HOST_DEVICES:
            raise DeviceError(
                f"{what}: wanted CPU memory, given DLPack device type {device}; "
                "move it to the CPU first"
            )
    try:
        capsule = thing.__dlpack__(max_version=(1, 0))
    except TypeError:  # a producer of DLPack before 1.0 takes no such keyword
        capsule = thing.__dlpack__()
    except (BufferError, RuntimeError, ValueError) as error:
        raise NoDataError(
            f"{what}: wanted memory through DLPack, given a refusal: {str(error).splitlines()[0]}"
        ) from error
    # The capsule is only read, never consumed: it stays the owner, and dropping it gives back.
    name = _capsule_name(capsule)
    if name == b"dltensor_versioned":
        managed = _Versioned.from_address(_capsule_pointer(capsule, name))
        if managed.major != 1:
            raise NoDataError(
                f"{what}: wanted DLPack 1, given DLPack {managed.major}.{managed.minor}"
            )
        return _read_dlpack(capsule, managed.tensor, bool(managed.flags & _READ_ONLY_FLAG), what)
    if name == b"dltensor":
        tensor = _DLTensor.from_address(_capsule_pointer(capsule, name))
        return _read_dlpack(capsule, tensor, False, what)
    raise NoDataError(
        f"{what}: wanted an unused DLPack capsule, given one named "
        f"{(name or b'NULL').decode('latin-1')!r}"
    )


def _read_dlpack(capsule: object, tensor: _DLTensor, read_only: bool, what: str) -> Lease:
    if tensor.device_type not in _HOST_DEVICES:
        raise DeviceError(
            f"{what}: wanted CPU memory, given DLPack device type {tensor.device_type}"
        )
    count = tensor.ndim
    if count < 0 or count > 64 or (count and not tensor.shape):
        raise NoDataError(f"{what}: wanted a shape, given DLPack ndim {count} without one")
    shape = tuple(tensor.shape[i] for i in range(count))
    if any(n < 0 for n in shape):
        raise NoDataError(f"{what}: wanted sizes of 0 or more, given DLPack shape {shape}")
    if tensor.strides:
        strides = tuple(tensor.strides[i] for i in range(count))
    else:
        strides = _contiguous(shape, 1)
    dtype = BY_DLPACK.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    name = f"DLPack type {tensor.code} with {tensor.bits} bits, {tensor.lanes} lanes"
    if tensor.code == _COMPLEX and tensor.lanes == 1:
        name = f"c{tensor.bits}"
    width = dtype.width if dtype else 1
    numel = 1
    for n in shape:
        numel *= n
    data = (tensor.data or 0) + tensor.byte_offset
    low, high = _reach(data, shape, strides, width)
    if numel > _INT64_MAX or low < 0 or high > _INT64_MAX:
        raise NoDataError(
            f"{what}: wanted memory below 2^63 bytes, given DLPack shape {shape} "
            f"strides {strides}"
        )
    if numel and not tensor.data:
        raise NoDataError(f"{what}: wanted memory, given a DLPack tensor {shape} without data")
    return Lease(
        capsule,
        None,
        data=data,
        shape=shape,
        strides=strides,
        dtype=dtype,
        type_name=dtype.short if dtype else name,
        read_only=read_only,
    )


# -- NumPy's array interface ---------------------------------------------------------------------


def _from_array_interface(thing: Any, what: str) -> Lease:
    facts = thing.__array_interface__
    text = facts["typestr"]
    width = int(text[2:])
    kind = {"f": "f", "i": "i", "u": "u", "b": "b"}.get(text[1])
    dtype = next(
        (i for i in BY_NAME.values() if i.kind == kind and i.width == width and i.formats), None
    )
    if text[0] not in ("|", _NATIVE) and width > 1:
        raise DTypeError(f"{what}: wanted native byte order, given typestr {text!r}")
    if not facts.get("data"):
        raise NoDataError(f"{what}: wanted an address in __array_interface__, given none")
    address, read_only = facts["data"]
    shape = tuple(facts["shape"])
    steps = facts.get("strides") or _contiguous(shape, width)
    return Lease(
        (thing, facts),
        None,
        data=address,
        shape=shape,
        strides=_elements(tuple(steps), shape, width, what),
        dtype=dtype,
        type_name=dtype.short if dtype else f"typestr {text!r}",
        read_only=bool(read_only),
    )


def _open() -> None:
    """Tells the door table where a lease keeps the address of its record."""
    sample = Lease(
        None, None, data=0, shape=(), strides=(), dtype=None, type_name="", read_only=True
    )
    marker = object()
    sample.record = marker  # type: ignore[assignment]
    for offset in range(16, Lease.__basicsize__, 8):
        if ctypes.c_uint64.from_address(id(sample) + offset).value == id(marker):
            doors.set_word(doors.LEASE_RECORD, offset)
            doors.set_word(doors.LEASE_TYPE, id(Lease))
            return
    raise RuntimeError("no slot `record` in a Lease")


_open()
