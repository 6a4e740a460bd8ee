"""The count of copies: where, of what, why, how often, how many bytes."""

from __future__ import annotations

import sys
import threading
import warnings
from dataclasses import dataclass
from enum import Enum
from types import FrameType
from typing import Any, NamedTuple

from torchmojo.errors import CopyWarning

__all__ = ["Copied", "CopyReason", "Place", "copies", "count", "place_of_caller"]


class CopyReason(str, Enum):
    """Why something is copied; equal to its text."""

    LAYOUT = "layout"
    NEGATIVE_STRIDE = "negative stride"
    BYTE_ORDER = "byte order"
    ALIGNMENT = "alignment"
    STEP = "step"
    NEG_BIT = "neg bit"
    CONJ_BIT = "conj bit"
    DTYPE = "dtype"
    DEVICE = "device"
    ASKED = "asked"

    def __str__(self) -> str:
        """Prints the text."""
        return self.value


@dataclass(frozen=True, slots=True)
class Copied:
    """Copies of one argument at one place for one reason.

    Attributes:
        place: ``file:line`` of the caller.
        kernel: Name of the kernel, or ``__dlpack__``.
        argument: Name of the argument.
        reason: The first reason; further ones may apply.
        count: How many copies.
        nbytes: Bytes of all of them; an output is copied in and back, and counted once.
    """

    place: str
    kernel: str
    argument: str
    reason: CopyReason
    count: int
    nbytes: int


class Place(NamedTuple):
    """A line of the caller's.

    Attributes:
        file: Its file.
        line: Its line.
        frame: Its frame, for the registry of warnings; not kept.
    """

    file: str
    line: int
    frame: FrameType | None


_lock = threading.Lock()
_counts: dict[tuple[str, int, str, str, CopyReason], list[int]] = {}
_announced: set[tuple[str, int, str, str, CopyReason]] = set()


def copies(reset: bool = False) -> list[Copied]:
    """Returns what was copied in this process since it started or since the last reset.

    Args:
        reset: Start again from nothing; places then warn again too.

    Returns:
        One entry per place, argument and reason, the most bytes first. Counting is always on.

    Example:
        >>> import torchmojo
        >>> _ = torchmojo.copies(reset=True)
        >>> torchmojo.copies()
        []
    """
    with _lock:
        found = [
            Copied(f"{file}:{line}", kernel, argument, reason, times, nbytes)
            for (file, line, kernel, argument, reason), (times, nbytes) in _counts.items()
        ]
        if reset:
            _counts.clear()
            _announced.clear()
    return sorted(found, key=lambda entry: -entry.nbytes)


# A consumer's from_dlpack stands between an export and who asked for it.
_BETWEEN = (
    "torchmojo.bridge.",
    "torchmojo.library",
    "torchmojo.ops.",
    "torchmojo.models.",
    "torch.",
    "numpy",
    "jax",
)


def place_of_caller() -> Place:
    """Returns the innermost line that is neither torchmojo's own nor a consumer's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_between(frame):
        frame = frame.f_back
    if frame is None:
        return Place("<unknown>", 0, None)
    return Place(frame.f_code.co_filename, frame.f_lineno, frame)


def _is_between(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__", "")
    return isinstance(name, str) and name.startswith(_BETWEEN)


def announce(kernel: str, argument: str, reason: CopyReason, text: str, place: Place) -> None:
    """Warns of a copy, the first time at a place.

    Args:
        kernel: Name of the kernel.
        argument: Name of the argument.
        reason: Why.
        text: The warning.
        place: The caller.

    Raises:
        CopyWarning: Where a filter makes an error of it; nothing has been copied.
    """
    key = (place.file, place.line, kernel, argument, reason)
    if key in _announced:
        return
    registry: dict[Any, Any] = {}
    module = None
    if place.frame is not None:
        registry = place.frame.f_globals.setdefault("__warningregistry__", {})
        module = place.frame.f_globals.get("__name__")
    warnings.warn_explicit(text, CopyWarning, place.file, place.line, module, registry)
    _announced.add(key)


def count(kernel: str, argument: str, reason: CopyReason, nbytes: int, place: Place) -> None:
    """Adds a copy to the count.

    Args:
        kernel: Name of the kernel.
        argument: Name of the argument.
        reason: Why.
        nbytes: Bytes copied.
        place: The caller.
    """
    with _lock:
        entry = _counts.setdefault((place.file, place.line, kernel, argument, reason), [0, 0])
        entry[0] += 1
        entry[1] += nbytes
