"""Reads the default of an argument, as the compiler prints it, into a Python value."""

from __future__ import annotations

import re

from torchmojo.contract import Default

__all__ = ["read_default", "split"]

_WRAPPER = re.compile(r"^(?:Bool|Int|UInt|U?Int\d+|Float\d+|SIMD|String|StringSpan)\((.*)\)$")
_LIST = re.compile(r"^List\((?:(.*), )?__list_literal__=NoneType\(None\)\)$|^List\(\)$")
_ESCAPE = re.compile(rb"\\(?:([0-9A-F]{2})|(.))")
_ESCAPED = dict(zip(b"abfnrtv", b"\a\b\f\n\r\t\v", strict=True))
_WORDS: dict[str, bool | None] = {"True": True, "False": False, "None": None}


def read_default(kind: str, text: str) -> Default:
    r"""Returns a default as a Python value.

    Args:
        kind: Mojo type of the argument, or of the list's elements.
        text: What ``mojo doc`` prints, such as ``Int(3)``, ``"a\22b"`` or
            ``List(Int(1), __list_literal__=NoneType(None))``.

    Raises:
        ValueError: It is no plain number or text; it may be a constant that has a name.

    Example:
        >>> read_default("Float64", 'Float64("1")'), read_default("String", r'"a\22\n\\"')
        (1.0, 'a"\n\\')
    """
    items = _LIST.match(text)
    if items:
        return tuple(_plain(kind, item) for item in (split(items[1]) if items[1] else ()))
    return _plain(kind, text)


def _plain(kind: str, text: str) -> bool | int | float | str | None:
    bare = _WRAPPER.sub(r"\1", text)
    if bare in _WORDS:
        return _WORDS[bare]
    quoted = len(bare) >= 2 and bare[0] == bare[-1] == '"'
    if quoted:
        raw = _ESCAPE.sub(
            lambda m: bytes([int(m[1], 16) if m[1] else _ESCAPED.get(m[2][0], m[2][0])]),
            bare[1:-1].encode(),
        )
        bare = raw.decode("utf-8", "replace")
    if kind not in ("String", "StaticString"):  # Float64(1) is printed as Float64("1")
        return float(bare) if kind.startswith("Float") else int(bare)
    if not quoted:
        raise ValueError(text)
    return bare


def split(inside: str) -> list[str]:
    """Splits what stands in brackets at the commas outside inner brackets and quotes.

    Args:
        inside: As the compiler prints it, which never has a bare quote in a text.
    """
    parts, depth, quoted, start = [], 0, False, 0
    for i, c in enumerate(inside):
        if c == '"':
            quoted = not quoted
        elif not quoted and c in "[(":
            depth += 1
        elif not quoted and c in ")]":
            depth -= 1
        elif not quoted and depth == 0 and c == ",":
            parts.append(inside[start:i].strip())
            start = i + 1
    return [*parts, inside[start:].strip()]
