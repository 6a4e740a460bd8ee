"""A diagnosis as a picture: one bar for each remedy, one colour for each step."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from torchmojo.errors import ArgumentError
from torchmojo.inspect.coldstart.advice import show
from torchmojo.inspect.coldstart.table import html, title

if TYPE_CHECKING:
    from torchmojo.inspect.coldstart.report import ColdStart, Measured

__all__ = ["check", "save"]

# Colours that stay apart in print and for the colour-blind (Okabe and Ito).
_PARTS = (
    ("load", ("context", "load", "weights"), "#0072B2"),
    ("warm-up", ("warm",), "#56B4E9"),
    ("first run", ("first",), "#D55E00"),
    ("second run", ("second",), "#E69F00"),
    ("third run", ("third",), "#009E73"),
)
_NAMES, _WIDE, _ROW, _TOP = 210, 620, 30, 40

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title>
<style>body {{ font-family: sans-serif; margin: 2em; }} pre {{ font-size: 13px; }}</style></head>
<body>
<h1>{title}</h1>
{picture}
{tables}
</body>
</html>
"""


def check(path: str | Path) -> None:
    """Refuses a file that `save` could not write, before anything is measured.

    Args:
        path: The file.

    Raises:
        ArgumentError: Another ending than ``.html`` and ``.png``, or there is no Matplotlib.
    """
    ending = Path(path).suffix.lower()
    if ending not in (".html", ".png"):
        raise ArgumentError(f"coldstart: out: wanted a .html or .png file, given {str(path)!r}")
    if ending == ".png":
        try:
            import matplotlib.figure  # noqa: F401
        except ImportError:
            raise ArgumentError(
                f"coldstart: out: wanted Matplotlib for a .png file, given {str(path)!r} and an "
                'environment without it; write a .html file, or pip install "torchmojo[plot]"'
            ) from None


def save(found: ColdStart, path: str | Path) -> None:
    """Writes a report: whole, or not at all.

    Args:
        found: The diagnosis.
        path: A ``.html`` or ``.png`` file.
    """
    check(path)
    path = Path(path)
    data = _png(found) if path.suffix.lower() == ".png" else _page(found).encode()
    # Beside its place, so that the rename stays on one disk.
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.absolute().parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _rows(found: ColdStart) -> list[Measured]:
    return [found.baseline, *(m for m in found.remedies if not m.failed)]


def _page(found: ColdStart) -> str:
    """Returns a page that needs no other file."""
    return _PAGE.format(title=escape(title(found)), picture=_svg(found), tables=html(found))


def _svg(found: ColdStart) -> str:
    """Returns the bars as SVG."""
    rows = _rows(found)
    longest = max(sum(row.ms(*names) for _, names, _ in _PARTS) for row in rows) or 1.0
    scale = _WIDE / longest
    width, height = _NAMES + _WIDE + 80, _TOP + _ROW * len(rows) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13" role="img">',
        *_legend(),
    ]
    for number, row in enumerate(rows):
        lines += _bar(row, _TOP + _ROW * number, scale)
    return "\n".join([*lines, "</svg>"])


def _legend() -> Iterator[str]:
    for number, (label, _, colour) in enumerate(_PARTS):
        x = _NAMES + 115 * number
        yield f'<rect x="{x}" y="10" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{x + 17}" y="21">{label}</text>'


def _bar(row: Measured, top: int, scale: float) -> Iterator[str]:
    """Yields one bar: its name, its parts, its sum."""
    middle = top + _ROW // 2 + 4
    yield f'<text x="{_NAMES - 10}" y="{middle}" text-anchor="end">{escape(row.name)}</text>'
    x, sum_ms = float(_NAMES), 0.0
    for label, names, colour in _PARTS:
        ms = row.ms(*names)
        if ms:
            yield (
                f'<rect x="{x:.1f}" y="{top + 4}" width="{ms * scale:.1f}" height="{_ROW - 8}" '
                f'fill="{colour}"><title>{label}: {show(ms)} ms</title></rect>'
            )
        x, sum_ms = x + ms * scale, sum_ms + ms
    yield f'<text x="{x + 6:.1f}" y="{middle}">{show(sum_ms)} ms</text>'


def _png(found: ColdStart) -> bytes:
    """Returns the bars as PNG, drawn by Matplotlib without a window."""
    from matplotlib.figure import Figure

    rows = _rows(found)
    figure = Figure(figsize=(9, 1.4 + 0.4 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    names = [row.name for row in rows]
    begin = [0.0] * len(rows)
    for label, steps, colour in _PARTS:
        widths = [row.ms(*steps) for row in rows]
        if any(widths):
            axes.barh(names, widths, left=begin, label=label, color=colour)
        begin = [left + more for left, more in zip(begin, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("ms after import torch")
    axes.set_title(title(found), fontsize=9)
    figure.legend(loc="outside lower center", ncols=len(_PARTS), fontsize=8)
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=120)
    return data.getvalue()
