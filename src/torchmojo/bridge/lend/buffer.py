"""Borrows through the buffer protocol (PEP 3118), with a reason where that cannot be."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pickle import PickleBuffer

from torchmojo.bridge.lend.lease import Lease, contiguous
from torchmojo.dtypes import BY_CODE, BY_NAME, DTypeInfo
from torchmojo.errors import LayoutError

__all__ = ["NATIVE", "from_buffer", "has_buffer"]


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


_check_buffer = ctypes.pythonapi.PyObject_CheckBuffer
_check_buffer.argtypes = (ctypes.py_object,)
_buffer_of = ctypes.pythonapi.PyPickleBuffer_GetBuffer
_buffer_of.argtypes, _buffer_of.restype = (ctypes.py_object,), ctypes.c_void_p

_BY_FORMAT = {letter: info for info in BY_CODE.values() for letter in info.formats}
_BY_FORMAT |= {"Zf": BY_NAME["complex64"], "Zd": BY_NAME["complex128"]}  # NumPy's complex formats
NATIVE = "<" if sys.byteorder == "little" else ">"


_VARYING = ("l", "L", "n", "N")  # C's long and ssize_t: their width is the platform's


def _format(text: str, itemsize: int) -> tuple[DTypeInfo | None, bool]:
    """Returns the dtype of a format string, and whether its bytes are in foreign order."""
    order, letter = (text[0], text[1:]) if text[:1] in tuple("@=<>!") else ("@", text)
    info = _BY_FORMAT.get(letter)
    if info is not None and info.width != itemsize and letter not in _VARYING:
        # A union or a packed structure of ctypes: format `B`, and elements that are no bytes.
        return None, False
    if info is not None and info.width != itemsize:
        # `l` is 4 bytes in standard sizes and 8 in native ones.
        info = next(
            (i for i in BY_CODE.values() if i.kind == info.kind and i.width == itemsize), None
        )
    foreign = order not in ("@", "=", NATIVE) and not (order == "!" and NATIVE == ">")
    return info, foreign and itemsize > 1


def has_buffer(thing: object) -> bool:
    """Returns whether an object exports a buffer.

    Args:
        thing: Any object.
    """
    return bool(_check_buffer(thing))


def from_buffer(thing: object, what: str) -> Lease | None:
    """Borrows a buffer.

    Args:
        thing: Any object.
        what: Operation and argument for messages.

    Returns:
        A lease that holds the export, or None where another protocol has to be tried.

    Raises:
        LayoutError: The memory is indirect.
    """
    if not has_buffer(thing):
        return None
    try:
        # It holds a Py_buffer where the collector sees what it refers to. One of our own would hide
        # that, and an exporter that refers to a handle on itself would never be freed.
        held = PickleBuffer(thing)  # type: ignore[arg-type]
    except (BufferError, ValueError):
        # An exporter may refuse a format it cannot name (NumPy and ml_dtypes): another door.
        return None
    lease = None
    try:
        view = _PyBuffer.from_address(_buffer_of(held))
        lease = _read_buffer(thing, view, held.release, what)
    finally:
        if lease is None:
            held.release()
    return lease


def _read_buffer(
    thing: object, view: _PyBuffer, give_back: Callable[[], None], what: str
) -> Lease | None:
    text = (view.format or b"B").decode("latin-1")
    dtype, foreign = _format(text, view.itemsize)
    if dtype is None and hasattr(thing, "__dlpack__"):
        return None
    count = view.ndim
    if view.shape or count == 0:
        shape = tuple(view.shape[i] for i in range(count))
    else:
        shape = (view.len // max(view.itemsize, 1),)
    if view.suboffsets and any(view.suboffsets[i] >= 0 for i in range(count)):
        raise LayoutError(
            f"{what}: wanted strided memory, given an indirect buffer (suboffsets); "
            "make a NumPy array of it first"
        )
    if view.strides:
        steps = tuple(view.strides[i] for i in range(count))
    else:
        steps = contiguous(shape, view.itemsize)
    return Lease(
        thing,
        give_back,
        data=view.buf or 0,
        shape=shape,
        steps=steps,
        dtype=dtype,
        type_name=dtype.short if dtype else f"format {text!r}",
        read_only=bool(view.readonly),
        swapped=foreign,
        itemsize=max(view.itemsize, 1),
    )
