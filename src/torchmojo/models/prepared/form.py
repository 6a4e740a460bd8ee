"""The form of a manifest: every field that is read later has the type that is read.

The schema beside this module says the same to other programs. This is what runs before a model is
opened, without a package for schemas.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from torchmojo.dtypes import BY_NAME

__all__ = ["FormError", "check_form"]

_MOST = 2**63 - 1  # of what torch counts with
_MOST_AXES = 64  # of a tensor in torch


class FormError(Exception):
    """A field is missing or of another kind; the text says which, what was wanted and given."""


def check_form(manifest: Any) -> None:
    """Checks types, lengths and ranges of a manifest.

    Args:
        manifest: What the file holds, as JSON.

    Raises:
        FormError: It is no manifest.
    """
    _object(manifest, "the manifest", _MANIFEST)
    for index, spec in enumerate(manifest["inputs"]):
        rank, place = len(spec["sizes"]), f"inputs.{index}"
        if sorted(spec["order"]) != list(range(rank)):
            raise _wrong(f"{place}.order", f"each of {rank} axes once", spec["order"])
        if len(spec["strides"]) != rank:
            raise _wrong(f"{place}.strides", f"{rank} of them", spec["strides"])
        fixed = [size for size in spec["sizes"] if isinstance(size, int)]
        if math.prod(max(size, 1) for size in fixed) * 16 > _MOST:
            raise _wrong(f"{place}.sizes", "a tensor that memory can hold", spec["sizes"])
    for name, entry in manifest["weights"].items():
        if len(entry["sizes"]) != len(entry["strides"]):
            raise _wrong(f"weights.{name}.strides", "one for each size", entry["strides"])


def _wrong(place: str, wanted: str, given: Any) -> FormError:
    shown = repr(given)
    return FormError(f"{place}: wanted {wanted}, given {shown[:57] + '...' * (len(shown) > 57)}")


_Check = Callable[[Any, str], None]


def _object(value: Any, place: str, fields: Mapping[str, _Check]) -> None:
    if not isinstance(value, dict):
        raise _wrong(place, "an object", value)
    if value.keys() != fields.keys():
        lacking, more = sorted(fields.keys() - value.keys()), sorted(value.keys() - fields.keys())
        raise FormError(f"{place}: lacks {lacking}, has {more} too much")
    for name, check in fields.items():
        check(value[name], name if fields is _MANIFEST else f"{place}.{name}")


def _fields(**fields: _Check) -> _Check:
    return lambda value, place: _object(value, place, fields)


def _text(pattern: str, wanted: str) -> _Check:
    compiled = re.compile(pattern, re.DOTALL)

    def check(value: Any, place: str) -> None:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise _wrong(place, wanted, value)

    return check


def _number(least: int) -> _Check:
    def check(value: Any, place: str) -> None:
        if type(value) is not int or not least <= value <= _MOST:
            raise _wrong(place, f"a whole number from {least}", value)

    return check


def _list(item: _Check, most: int | None = None) -> _Check:
    def check(value: Any, place: str) -> None:
        if not isinstance(value, list):
            raise _wrong(place, "a list", value)
        if most is not None and len(value) > most:
            raise _wrong(place, f"at most {most} of them", value)
        for index, one in enumerate(value):
            item(one, f"{place}.{index}")

    return check


def _map(item: _Check) -> _Check:
    def check(value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise _wrong(place, "an object", value)
        for name, one in value.items():
            item(one, f"{place}.{name}")

    return check


def _dtype(value: Any, place: str) -> None:
    if not isinstance(value, str) or value not in BY_NAME:
        raise _wrong(place, "the name of a dtype", value)


def _size(value: Any, place: str) -> None:
    if not isinstance(value, dict):
        return _number(0)(value, place)
    _object(value, place, _RANGE)
    if value["least"] > value["most"]:
        raise _wrong(place, "least up to most", value)


def _stride(value: Any, place: str) -> None:
    if value is not None:
        _number(0)(value, place)


_ANY = _text(".*", "a text")
_NAME = _text(r"\S+", "a name")
_AXES = _list(_number(0), _MOST_AXES)
_SIZES, _STRIDES = _list(_size, _MOST_AXES), _list(_stride, _MOST_AXES)
_RANGE: dict[str, _Check] = {"name": _ANY, "least": _number(0), "most": _number(0)}
_TENSORS = _list(_fields(name=_ANY, dtype=_ANY, sizes=_list(_size)))
_MANIFEST: dict[str, _Check] = {
    "made_by": _ANY,
    "format": _number(1),
    "versions": _fields(torchmojo=_ANY, torch=_text(r"\d+\..+", "a version")),
    "platform": _ANY,
    "cpu": _fields(isa=_ANY, features=_list(_ANY)),
    "threads": _number(1),
    "inputs": _list(_fields(name=_NAME, dtype=_dtype, sizes=_SIZES, order=_AXES, strides=_STRIDES)),
    "outputs": _list(_fields(name=_NAME, dtype=_dtype, sizes=_SIZES, strides=_STRIDES)),
    "result": _ANY,
    "operators": _list(_fields(name=_ANY, target=_ANY, inputs=_TENSORS, outputs=_TENSORS)),
    "calls": _list(_text(r"(torch\.ops\.)?\w+(\.|::)\w+(\.\w+)?", "an operator")),
    "weights": _map(
        _fields(
            constant=_NAME,
            tensor=_ANY,
            dtype=_dtype,
            offset=_number(0),
            nbytes=_number(0),
            sizes=_AXES,
            strides=_AXES,
        )
    ),
    "files": _map(_fields(sha256=_text(r"[0-9a-f]{64}", "64 hex digits"), nbytes=_number(0))),
}
