"""Writes the part of the glue that turns Python numbers, text and lists into Mojo values."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace

from torchmojo.contract import Argument

__all__ = ["mojo_type", "read_list", "read_scalar"]

# Bits of each integer type; most are narrower than what CPython gives us.
_INT_BITS = {"Int": 64, "Int8": 8, "Int16": 16, "Int32": 32, "Int64": 64}
_FLOAT32_END = "3.4028235677973366e38"  # halfway from the greatest float32 to the next power of 2
_UINT_BITS = {"UInt": 64, "UInt8": 8, "UInt16": 16, "UInt32": 32, "UInt64": 64}


def mojo_type(argument: Argument) -> str:
    """Returns the Mojo type of a number, text or list.

    Args:
        argument: No tensor.
    """
    text = f"List[{argument.type}]" if argument.kind == "list" else argument.type
    return f"Optional[{text}]" if argument.optional else text


def read_scalar(i: int, argument: Argument) -> Iterator[str]:
    """Yields the lines that read ``slots[i]`` into a variable ``x<i>``.

    Args:
        i: Number of the argument.
        argument: A number or text.
    """
    yield f"var x{i}: {mojo_type(argument)} = {_literal(argument)}"
    guard = ""
    if argument.optional:
        guard = f"if not frame.is_none(slots[{i}]):"
        if argument.default is not None:  # None passed is not the same as nothing passed
            yield f"if slots[{i}]:"
            yield f"    x{i} = None"
    elif not argument.required:
        guard = f"if slots[{i}]:"
    indent = "    " if guard else ""
    if guard:
        yield guard
    for line in _convert(f"slots[{i}]", f"x{i}", argument, f"w{i}"):
        yield indent + line
    yield "if code != Code.OK:"
    yield f"    return frame.refuse(code, {i})"


def read_list(i: int, argument: Argument) -> Iterator[str]:
    """Yields the lines that read ``slots[i]`` into a variable ``x<i>``.

    Args:
        i: Number of the argument.
        argument: A list of numbers.
    """
    yield f"var x{i}: {mojo_type(argument)} = {_literal(argument)}"
    indent = ""
    if argument.optional:
        yield f"if not frame.is_none(slots[{i}]):"
        indent = "    "
    elif not argument.required:
        yield f"if slots[{i}]:"
        indent = "    "
    zero = "False" if argument.type == "Bool" else "0"
    element = _convert(f"frame.item(slots[{i}], k)", f"e{i}", argument, f"w{i}")
    for line in (
        f"var c{i} = frame.length(slots[{i}])",
        f"if c{i} < 0:",
        f"    return frame.refuse(Code.SCALAR, {i}, -1)",
        f"var l{i} = List[{argument.type}](capacity=c{i})",
        f"for k in range(c{i}):",
        f"    var e{i}: {argument.type} = {zero}",
        *(f"    {line}" for line in element),
        "    if code != Code.OK:",
        f"        return frame.refuse(code, {i}, k)",
        f"    l{i}.append(e{i})",
        f"x{i} = l{i}^",
    ):
        yield indent + line


def _convert(slot: str, target: str, argument: Argument, wide: str) -> Iterator[str]:
    """Yields the lines that read one object into ``target``, by way of the widest type."""
    kind = argument.type
    if kind == "Bool":
        yield f"var {wide} = False"
        yield f"code = read_bool(frame.doors, {slot}, {wide})"
    elif kind in ("Float32", "Float64"):
        yield f"var {wide} = Float64(0)"
        yield f"code = read_float(frame.doors, {slot}, {wide})"
        if kind == "Float32":  # a number that would become infinite is out of range
            yield f"if code == Code.OK and not (abs({wide}) < {_FLOAT32_END}):"
            yield f"    if abs({wide}) <= Float64.MAX_FINITE:"
            yield "        code = Code.RANGE"
    elif kind in _INT_BITS:
        top = 2 ** (_INT_BITS[kind] - 1)
        low = "Int64.MIN" if top == 2**63 else str(-top)
        high = "Int64.MAX" if top == 2**63 else str(top - 1)
        yield f"var {wide} = Int64(0)"
        yield f"code = read_int(frame.doors, {slot}, {wide}, {low}, {high})"
    elif kind in _UINT_BITS:
        high = "UInt64.MAX" if _UINT_BITS[kind] == 64 else str(2 ** _UINT_BITS[kind] - 1)
        yield f"var {wide} = UInt64(0)"
        yield f"code = read_uint(frame.doors, {slot}, {wide}, {high})"
    else:
        yield f'var {wide} = StaticString("")'
        yield f"code = read_string(frame.doors, {slot}, {wide})"
    yield f"{target} = {kind}({wide})"


def _literal(argument: Argument) -> str:
    """Returns the default as Mojo source; zero where there is none."""
    value = argument.default
    if isinstance(value, tuple):
        items = (_literal(replace(argument, kind="scalar", default=item)) for item in value)
        return f"[{', '.join(items)}]"
    if value is None:
        if argument.optional:
            return "None"
        if argument.kind == "list":
            return "[]"
        return {"Bool": "False", "String": '""', "StaticString": '""'}.get(argument.type, "0")
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if value in (math.inf, -math.inf):  # how a default of 1e400 is printed
        return f"{argument.type}({'-' if value < 0 else ''}1e999)"
    return f"{argument.type}({value!r})" if argument.optional else repr(value)
