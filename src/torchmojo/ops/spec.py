"""The words that tell an overload's glue how torch's stack becomes the kernel's arguments."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from torchmojo.ops import schema
from torchmojo.ops.rule import Like, Rule
from torchmojo.ops.schema import Signature

__all__ = ["Spec", "make_spec"]

_LIKE, _SIZES = 0, 1  # forms of `torchmojo_ops/allocation.mojo`
_HEAD = 8


class Spec(NamedTuple):
    """A spec, wherever it is going to lie.

    Attributes:
        words: As `Spec` in `torchmojo_ops/table.mojo`; 0 where an address belongs.
        data: What these addresses point to, by the word's number.
    """

    words: list[int]
    data: dict[int, bytes]


def make_spec(signature: Signature, number: int, rules: tuple[Rule, ...]) -> Spec:
    """Makes the spec of an overload.

    Args:
        signature: The overload's.
        number: Which of the library's operators it is.
        rules: How each result is made.
    """
    names = "".join(f"{place.argument.name}\0" for place in signature.places)
    words = [
        number,
        len(signature.places),
        len(signature.takes),
        len(signature.outputs),
        0,
        0,
        int(bool(signature.writes)),
        0,
    ]
    data = {
        4: signature.name.encode() + b"\0",
        5: signature.overload.encode() + b"\0",
        7: names.encode() + b"\0",
    }
    for i, place in enumerate(signature.places):
        words += [place.kind, place.position]
        if place.kind == schema.OUTPUT:
            row = _allocation(rules[place.position], signature)
            words[-1] = 0
            data[_HEAD + 2 * i + 1] = struct.pack(f"={len(row)}q", *row)
    return Spec(words, data)


def _allocation(rule: Rule, signature: Any) -> list[int]:
    at = signature.takes.index
    if isinstance(rule, Like):
        return [_LIKE, at(rule.source)]
    from torchmojo.dtypes import BY_NAME

    if isinstance(rule.dtype, str):
        source, dtype = at(rule.dtype), 0
    else:
        source, dtype = -1, BY_NAME[str(rule.dtype).removeprefix("torch.")].code
    row = [_SIZES, len(rule.sizes), source, dtype]
    for size in rule.sizes:
        row += [-1, size] if isinstance(size, int) else [at(size[0]), size[1]]
    return row
