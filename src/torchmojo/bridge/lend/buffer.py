"""Borrows through the buffer protocol (PEP 3118), with a reason where that cannot be."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

from torchmojo.bridge.lend.lease import Lease, contiguous, in_elements
from torchmojo.dtypes import BY_CODE, BY_NAME, DTypeInfo
from torchmojo.errors import DTypeError, LayoutError

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


_RECORDS_RO = 0x1C  # PyBUF_RECORDS_RO: strides and format, writable or not (object.h)
_check_buffer = ctypes.pythonapi.PyObject_CheckBuffer
_check_buffer.argtypes = (ctypes.py_object,)
_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_PyBuffer),)
_release_buffer.restype = None

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
        DTypeError: The byte order is foreign.
        LayoutError: The memory is indirect, or a stride is no multiple of the element size.
    """
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
    if view.shape or count == 0:
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
        steps = contiguous(shape, view.itemsize)
    strides = in_elements(steps, shape, view.itemsize, what)
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
