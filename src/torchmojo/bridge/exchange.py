"""Looks at the table of C functions that a tensor type offers for DLPack."""

from __future__ import annotations

import ctypes
from typing import Any

__all__ = ["exchange_version"]

_ATTRIBUTE = "__dlpack_c_exchange_api__"
_CAPSULE = b"dlpack_exchange_api"


def exchange_version(kind: type[Any]) -> tuple[int, int] | None:
    """Returns the DLPack version of a type's exchange table.

    Args:
        kind: Such as ``torch.Tensor``.

    Returns:
        Major and minor version, or None for a type without such a table.
    """
    capsule = getattr(kind, _ATTRIBUTE, None)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    try:
        address = get(capsule, _CAPSULE)
    except ValueError:  # no capsule, or one of another name
        return None
    # DLPackExchangeAPIHeader begins with DLPackVersion {uint32_t major, minor}.
    version = (ctypes.c_uint32 * 2).from_address(address)
    return version[0], version[1]
