"""Borrows through DLPack 1.x and the legacy form of it."""

from __future__ import annotations

import ctypes
import datetime
from typing import Any

from torchmojo.bridge.fork import generation
from torchmojo.bridge.lend.buffer import has_buffer
from torchmojo.bridge.lend.lease import Lease, contiguous, reach
from torchmojo.dtypes import BY_DLPACK
from torchmojo.errors import DeviceError, DTypeError, NoDataError

__all__ = [
    "IS_COPIED",
    "READ_ONLY",
    "consume",
    "from_dlpack",
    "is_capsule",
    "look",
    "request",
    "set_flags",
]

_INT64_MAX = 2**63 - 1


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


class _Legacy(ctypes.Structure):
    _fields_ = (
        ("tensor", _DLTensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


_HOST_DEVICES = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost (dlpack.h)
READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY
IS_COPIED = 2  # DLPACK_FLAG_BITMASK_IS_COPIED
_Capsule = type(datetime.datetime_CAPI)
"""``types.CapsuleType``, which has a name of its own from CPython 3.13 on."""
_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.argtypes, _capsule_name.restype = (ctypes.py_object,), ctypes.c_char_p
_set_capsule_name = ctypes.pythonapi.PyCapsule_SetName
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_capsule_pointer.restype = ctypes.c_void_p
_set_capsule_name.argtypes = (ctypes.py_object, ctypes.c_char_p)
# The GIL is kept: a deleter that takes it itself can, and an old one that does not may rely on it.
_Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
# A capsule keeps the address of its name; what a consumer has taken is called so.
_USED = {b"dltensor": b"used_dltensor", b"dltensor_versioned": b"used_dltensor_versioned"}


def from_dlpack(thing: Any, what: str) -> Lease:
    """Borrows through ``__dlpack__``.

    Args:
        thing: A producer.
        what: Operation and argument for messages.

    Returns:
        A lease that holds the capsule, which stays unused and frees itself.

    Raises:
        DeviceError: The memory is not the CPU's; its address has not been touched.
        NoDataError: The producer refuses, or describes memory that cannot be.
    """
    # The capsule is only read, never consumed: it stays the owner, and dropping it gives back.
    return look(request(thing, what), what)


def request(thing: Any, what: str) -> object:
    """Asks a producer for a capsule, in the newest form that it knows.

    Args:
        thing: A producer.
        what: Operation and argument for messages.

    Raises:
        DeviceError: The memory is not the CPU's; its address has not been touched.
        NoDataError: The producer refuses.
    """
    if hasattr(thing, "__dlpack_device__"):
        device = int(thing.__dlpack_device__()[0])
        if device not in _HOST_DEVICES:
            raise DeviceError(
                f"{what}: wanted CPU memory, given DLPack device type {device}; "
                "move it to the CPU first"
            )
    try:
        try:
            return thing.__dlpack__(max_version=(1, 0))
        except TypeError:  # a producer of DLPack before 1.0 takes no such keyword
            return thing.__dlpack__()
    except Exception as error:
        if has_buffer(thing) and hasattr(thing, "dtype"):  # an array whose dtype nothing carries
            raise DTypeError(
                f"{what}: wanted a dtype that the buffer protocol or DLPack carries, given "
                f"{thing.dtype}"
            ) from None
        raise NoDataError(
            f"{what}: wanted memory through DLPack, given a refusal: {_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def is_capsule(thing: object) -> bool:
    """Returns whether an object is a PyCapsule.

    Args:
        thing: Any object.
    """
    return type(thing) is _Capsule


def consume(capsule: object, what: str) -> Lease:
    """Takes memory over from a capsule, which is used up.

    Args:
        capsule: A DLPack capsule.
        what: Operation and argument for messages.

    Returns:
        A lease that owns the memory: releasing it runs the producer's deleter, once. A forked child
        never runs it, since what it frees may be shared with the parent.

    Raises:
        DeviceError: The memory is not the CPU's; the capsule is left as it was.
        NoDataError: It is used already, or describes memory that cannot be.
    """
    # Two threads may come with one capsule: `setdefault` is one step, and lets one of them in.
    if _taking.setdefault(id(capsule), me := object()) is not me:
        raise NoDataError(
            f"{what}: wanted an unused DLPack capsule, given one that another thread is taking"
        )
    try:
        lease = look(capsule, what)
        name = _capsule_name(capsule)
        managed = _capsule_pointer(capsule, name)
        if name == b"dltensor_versioned":
            deleter = _Versioned.from_address(managed).deleter
        else:
            deleter = _Legacy.from_address(managed).deleter
        _set_capsule_name(capsule, _USED[name])
    finally:
        del _taking[id(capsule)]
    made = generation()

    def give_back() -> None:
        if deleter and made == generation():
            _Deleter(deleter)(managed)

    lease.own(give_back)
    return lease


def set_flags(capsule: object, flags: int) -> bool:
    """Adds flags to a capsule that nobody has taken yet.

    Args:
        capsule: From ``__dlpack__``.
        flags: ``READ_ONLY``, ``IS_COPIED`` or both.

    Returns:
        False for the legacy form, which has none.
    """
    if _capsule_name(capsule) != b"dltensor_versioned":
        return False
    pointer = _capsule_pointer(capsule, b"dltensor_versioned")
    _Versioned.from_address(pointer).flags |= flags
    return True


_taking: dict[int, object] = {}


def look(capsule: object, what: str) -> Lease:
    """Describes a capsule's memory without consuming it; the lease holds the capsule.

    Args:
        capsule: A DLPack capsule.
        what: Operation and argument for messages.

    Raises:
        DeviceError: The memory is not the CPU's.
        NoDataError: It is used already, or describes memory that cannot be.
    """
    try:
        name = _capsule_name(capsule)
    except ValueError:
        raise NoDataError(
            f"{what}: wanted a capsule from __dlpack__, given a {type(capsule).__name__}"
        ) from None
    if name == b"dltensor_versioned":
        managed = _Versioned.from_address(_capsule_pointer(capsule, name))
        if managed.major != 1:
            raise NoDataError(
                f"{what}: wanted DLPack 1, given DLPack {managed.major}.{managed.minor}"
            )
        # What is written into a producer's copy would be lost.
        read_only = bool(managed.flags & (READ_ONLY | IS_COPIED))
        return _read_dlpack(capsule, managed.tensor, read_only, what)
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
        strides = contiguous(shape, 1)
    dtype = BY_DLPACK.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    name = f"DLPack type {tensor.code} with {tensor.bits} bits, {tensor.lanes} lanes"
    width = dtype.width if dtype else max(-(-tensor.bits * tensor.lanes // 8), 1)
    numel = 1
    for n in shape:
        numel *= n
    data = (tensor.data or 0) + tensor.byte_offset
    steps = tuple(s * width for s in strides)
    low, high = reach(data, shape, steps, width)
    if numel > _INT64_MAX or low < 0 or high > _INT64_MAX:
        raise NoDataError(
            f"{what}: wanted memory below 2^63 bytes, given DLPack shape {shape} strides {strides}"
        )
    if numel and not tensor.data:
        raise NoDataError(f"{what}: wanted memory, given a DLPack tensor {shape} without data")
    return Lease(
        capsule,
        None,
        data=data,
        shape=shape,
        steps=steps,
        dtype=dtype,
        type_name=dtype.short if dtype else name,
        read_only=read_only,
        itemsize=width,
    )
