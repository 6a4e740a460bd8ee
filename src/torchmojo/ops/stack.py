"""Reads torch's stack in Python: for words of a refusal, and for what autograd records."""

from __future__ import annotations

import ctypes
from typing import Any

from torchmojo.contract import Argument
from torchmojo.ops import schema
from torchmojo.ops.native import libtorch, tensor_of

__all__ = ["read_value"]


def read_value(argument: Argument, kind: int, word: int) -> Any:
    """Returns the Python value of a word of the stack, which keeps what it owns.

    Args:
        argument: The kernel's argument that it is for.
        kind: Its kind.
        word: The word.
    """
    if kind == schema.TENSOR:
        return tensor_of(word)
    if kind == schema.TENSORS:
        return [tensor_of(item) for item in _items(word)]
    if kind == schema.STRING:
        return _text(word)
    if kind == schema.LIST:
        return [_number(argument.type, item) for item in _items(word)]
    if kind == schema.SCALAR:
        return _number(argument.type, word)
    if word == 0:
        return None
    return read_value(argument, _INSIDE[kind], ctypes.c_int64.from_address(word).value)


_INSIDE = {
    schema.OPTIONAL_TENSOR: schema.TENSOR,
    schema.OPTIONAL_SCALAR: schema.SCALAR,
    schema.OPTIONAL_STRING: schema.STRING,
    schema.OPTIONAL_LIST: schema.LIST,
}


def _number(kind: str, word: int) -> bool | int | float:
    if kind == "Bool":
        return bool(word & 0xFF)
    if kind in ("Float32", "Float64"):
        return ctypes.c_double.from_buffer(ctypes.c_int64(word)).value
    return word


def _items(handle: int) -> list[int]:
    library = libtorch("torch_cpu")
    size, item = ctypes.c_int64(), ctypes.c_int64()
    library.torch_list_size(ctypes.c_int64(handle), ctypes.byref(size))
    found = []
    for i in range(size.value):
        library.torch_list_get_item(ctypes.c_int64(handle), ctypes.c_int64(i), ctypes.byref(item))
        found.append(item.value)
    return found


def _text(handle: int) -> str:
    library = libtorch("torch_cpu")
    size, data = ctypes.c_int64(), ctypes.c_int64()
    library.torch_string_length(ctypes.c_int64(handle), ctypes.byref(size))
    library.torch_string_c_str(ctypes.c_int64(handle), ctypes.byref(data))
    return ctypes.string_at(data.value, size.value).decode("utf-8", "replace")
