"""The door table: addresses that compiled glue reads on every call.

One table a process, never freed, laid out as ``Slot`` in ``mojo/torchmojo/_glue/table.mojo``. It
starts with what CPython itself has; ``aten`` adds torch, ``lease`` adds borrowed foreign objects.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torchmojo.dtypes import BY_CODE

__all__ = ["TENSOR_TYPES", "add_tensor_type", "doors", "is_shut", "set_word", "shut", "word"]

# Word numbers (offset / 8) of the table.
_CPYTHON: tuple[object, ...] = (None, float, int, True, False, str, list, tuple)
LEASE_TYPE = 8
LEASE_RECORD = 9
TENSOR_OFFSET = 10
FUNCTIONS = 11
TENSOR_TYPES = 28
TENSOR_TYPE_COUNT = 16
WIDTHS = TENSOR_TYPES + TENSOR_TYPE_COUNT
HANDLE_TYPE = WIDTHS + 8
HANDLE_SLOTS = HANDLE_TYPE + 1
EXPORTS = HANDLE_SLOTS + 5

COUNT = EXPORTS + 1

_table = (ctypes.c_uint64 * COUNT)()
_kept: list[object] = []
_state = {"shut": False}


def set_word(index: int, value: int) -> None:
    """Writes one word of the table.

    Args:
        index: Word number.
        value: An address or an offset.
    """
    _table[index] = value


def word(index: int) -> int:
    """Reads one word of the table.

    Args:
        index: Word number.
    """
    return int(_table[index])


def add_tensor_type(kind: type[Any]) -> bool:
    """Lets objects of one more type through the fast door.

    Args:
        kind: A type whose objects hold a plain tensor. The table keeps it alive: a type that were
            freed could leave its address to another.

    Returns:
        False where the table is full or shut; such objects then pass through Python on every call.
    """
    if _state["shut"]:
        return False
    for i in range(TENSOR_TYPES, TENSOR_TYPES + TENSOR_TYPE_COUNT):
        if _table[i] == id(kind):
            return True
        if _table[i] == 0:
            _kept.append(kind)
            _table[i] = id(kind)
            return True
    return False


@contextmanager
def shut() -> Iterator[None]:
    """Forgets every tensor type for a while, as where torch could not be proved."""
    types = list(range(TENSOR_TYPES, TENSOR_TYPES + TENSOR_TYPE_COUNT))
    before = [_table[i] for i in types]
    for i in types:
        _table[i] = 0
    _state["shut"] = True
    try:
        yield
    finally:
        _state["shut"] = False
        for i, value in zip(types, before, strict=True):
            _table[i] = value


def is_shut() -> bool:
    """Returns whether ``shut`` is in force."""
    return _state["shut"]


def doors() -> int:
    """Returns the address of the table, the same for the whole process."""
    return ctypes.addressof(_table)


def _fill() -> None:
    for i, thing in enumerate(_CPYTHON):
        _table[i] = id(thing)
    widths = (ctypes.c_uint8 * 64).from_buffer(_table, WIDTHS * 8)
    for code, info in BY_CODE.items():
        widths[code] = info.width


_fill()
