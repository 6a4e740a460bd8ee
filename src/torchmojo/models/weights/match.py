"""Compares names, dtypes and shapes, and shows all that differ in one table."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from typing import Any, NamedTuple

from torchmojo.dtypes import BY_NAME
from torchmojo.errors import ArgumentError

__all__ = ["Difference", "differences", "outline_of", "table"]

_NONE = "–"
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


def outline_of(thing: Any) -> Outline:
    """Reads dtype and shape of a tensor, of something like one, or of a pair.

    Args:
        thing: Has ``dtype`` and ``shape``, or is ``(dtype, shape)``.

    Raises:
        ArgumentError: It is neither, or the dtype is none that is known.
    """
    if hasattr(thing, "dtype") and hasattr(thing, "shape"):
        thing = (thing.dtype, thing.shape)
    if isinstance(thing, (tuple, list)) and len(thing) == 2:
        name = getattr(thing[0], "__name__", None) or str(thing[0])
        name = name.removeprefix("torch.")
        if name in BY_NAME and all(isinstance(n, int) for n in thing[1]):
            return name, tuple(thing[1])
    raise ArgumentError(
        f"open_weights: signature: wanted a tensor or (dtype, shape) for each name, given {thing!r}"
    )


def _show(outline: Outline | None) -> str:
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
            found.append(Difference(name, _show(outline), _NONE, "missing"))
        elif outline is not None and has != outline:
            why = "wrong shape" if has[1] != outline[1] else "wrong dtype"
            found.append(Difference(name, _show(outline), _show(has), why))
    more = (name for name in given if name not in wanted)
    found += [Difference(name, _NONE, _show(given[name]), "unexpected") for name in more]
    return found


def table(found: list[Difference]) -> str:
    """Writes differences as the lines of a table.

    Args:
        found: Differences.
    """
    from rich.console import Console
    from rich.table import Table

    made = Table(box=None, pad_edge=False)
    for title in ("name", "wanted", "given", ""):
        made.add_column(title, no_wrap=True)
    for difference in found:
        made.add_row(*difference)
    width = 3 * max(len(part) for difference in found for part in difference) + 80
    out = StringIO()
    Console(file=out, width=width, markup=False, highlight=False, emoji=False).print(made)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
