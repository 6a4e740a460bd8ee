"""How the commands print."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["console", "print_json", "size"]


def print_json(data: Any) -> None:
    """Prints data for a program that reads it.

    Args:
        data: What ``json.dumps`` takes.
    """
    print(json.dumps(data, indent=2))


def console() -> Console:
    """Returns a console that prints text as it is and colours it on a terminal."""
    from rich.console import Console

    # Without soft wrap, rich would break paths at 80 columns where the output goes into a file.
    return Console(file=sys.stdout, highlight=False, soft_wrap=True, markup=False, emoji=False)


def size(count: float) -> str:
    """Writes a number of bytes for people, such as ``1.4 MB``.

    Args:
        count: Number of bytes.
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
