"""Compares names, dtypes and shapes, and shows all that differ in one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from io import StringIO
from typing import Any, NamedTuple

from torchmojo.dtypes import BY_NAME
from torchmojo.errors import ArgumentError
from torchmojo.models.text import brief

__all__ = ["Difference", "Outline", "agreement", "differences", "outline_of", "show", "table"]

_NONE = "–"
_MOST_ROWS = 40
Outline = tuple[str, tuple[int, ...]]


class Difference(NamedTuple):
    """One name that does not fit.

    Attributes:
        name: The name.
        wanted: What was wanted under it, compact, or a dash.
        given: What the file has.
        why: ``missing``, ``unexpected``, ``wrong shape``, ``wrong dtype``.
    """

    name: str
    wanted: str
    given: str
    why: str


def agreement(what: str, signature: Any) -> dict[str, tuple[Outline, tuple[int, ...]]]:
    """Reads a signature: dtype and shape of each name, and the strides that are meant.

    Args:
        what: The operation, for messages.
        signature: Maps names to tensors, or to ``(dtype, shape)``, which means row by row.

    Raises:
        ArgumentError: It is none.
    """
    if not isinstance(signature, Mapping):
        raise ArgumentError(
            f"{what}: signature: wanted a mapping of names to tensors or (dtype, shape), given "
            f"{brief(repr(signature), 200)}; state_dict() of the model is one"
        )
    found = {}
    for name, thing in signature.items():
        outline = outline_of(what, thing)
        strides, step = [], 1
        for n in reversed(outline[1]):
            strides.append(step)
            step *= n if n else 1
        told = thing.stride() if callable(getattr(thing, "stride", None)) else strides[::-1]
        found[name] = outline, tuple(told)
    return found


def outline_of(what: str, thing: Any) -> Outline:
    """Reads dtype and shape of a tensor, of something like one, or of a pair.

    Args:
        what: The operation, for messages.
        thing: Has ``dtype`` and ``shape``, or is ``(dtype, shape)``.

    Raises:
        ArgumentError: It is neither, or the dtype is none that is known.
    """
    if hasattr(thing, "dtype") and hasattr(thing, "shape"):
        thing = (thing.dtype, thing.shape)
    if isinstance(thing, (tuple, list)) and len(thing) == 2:
        name = getattr(thing[0], "__name__", None) or str(thing[0])
        name = name.removeprefix("torch.")
        sizes = tuple(thing[1]) if isinstance(thing[1], Iterable) else (None,)
        if name in BY_NAME and all(isinstance(n, int) for n in sizes):
            return name, sizes
    raise ArgumentError(
        f"{what}: signature: wanted a tensor or (dtype, shape) for each name, given "
        f"{brief(repr(thing), 200)}"
    )


def show(outline: Outline | None) -> str:
    """Writes dtype and shape as ``f32[2,3]``, or nothing.

    Args:
        outline: Both, or None.
    """
    if outline is None:
        return ""
    short = BY_NAME[outline[0]].short if outline[0] in BY_NAME else outline[0]
    return f"{short}[{','.join(map(str, outline[1]))}]"


def differences(
    wanted: Mapping[str, Outline | None], given: Mapping[str, Outline]
) -> list[Difference]:
    """Lists what does not fit: those that are wanted in their order, then the unexpected.

    Args:
        wanted: Dtype and shape by name; None where anything does.
        given: What the file has.
    """
    found = []
    for name, outline in wanted.items():
        has = given.get(name)
        if has is None:
            found.append(Difference(name, show(outline), _NONE, "missing"))
        elif outline is not None and has != outline:
            why = "wrong shape" if has[1] != outline[1] else "wrong dtype"
            found.append(Difference(name, show(outline), show(has), why))
    more = (name for name in given if name not in wanted)
    found += [Difference(name, _NONE, show(given[name]), "unexpected") for name in more]
    return found


def table(found: list[Difference]) -> str:
    """Writes differences as the lines of a table: the first forty.

    Args:
        found: Differences.
    """
    from rich.console import Console
    from rich.table import Table

    made = Table(box=None, pad_edge=False)
    for title in ("name", "wanted", "given", ""):
        made.add_column(title, no_wrap=True)
    rows = [[brief(part) for part in difference] for difference in found[:_MOST_ROWS]]
    for row in rows:
        made.add_row(*row)
    if len(found) > _MOST_ROWS:
        made.add_row(f"and {len(found) - _MOST_ROWS} more")
    width = 3 * max(len(part) for row in rows for part in row) + 80
    out = StringIO()
    Console(file=out, width=width, markup=False, highlight=False, emoji=False).print(made)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
