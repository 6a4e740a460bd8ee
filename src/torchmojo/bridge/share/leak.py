"""Finds what is still held, and what was freed twice."""

from __future__ import annotations

import gc
import sys
import weakref
from types import TracebackType
from typing import NamedTuple

from torchmojo.bridge import core, doors
from torchmojo.bridge.lend import open_leases
from torchmojo.bridge.share.handle import Handle, live_handles
from torchmojo.errors import LeakError

__all__ = ["LeakCheck", "Tally", "leak_check", "tally"]


class Tally(NamedTuple):
    """What is held at one moment.

    Attributes:
        handles: Handles that are not released.
        leases: Buffer exports and hand-overs that handles hold.
        buffers: Buffer exports that running calls hold.
        exports: DLPack exports that consumers hold; those that torch makes itself are torch's.
        deleters: Deleters of such exports that have run.
        twice: Deleters that were run a second time.
    """

    handles: int
    leases: int
    buffers: int
    exports: int
    deleters: int
    twice: int


def tally() -> Tally:
    """Counts what is held now."""
    alive, deleted, twice = core.counters()
    return Tally(
        len(live_handles()), open_leases(), doors.word(doors.EXPORTS), alive, deleted, twice
    )


class LeakCheck:
    """What ``torchmojo.leak_check`` returns.

    Attributes:
        before: What was held at the start.
        after: What was held at the end; None until then.
    """

    def __init__(self, objects: tuple[object, ...]) -> None:
        """Watches the reference counts of some objects besides."""
        self._objects = objects
        self.before = tally()
        self.after: Tally | None = None

    def __enter__(self) -> LeakCheck:
        """Starts."""
        self._handles = weakref.WeakSet(live_handles())  # an address may be used again
        if self._objects:
            gc.collect()  # what garbage refers to is not counted: it may go at any time
        self._counts = self._references()
        self.before = tally()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Compares, unless the block raised: then its own error is the news."""
        if kind is not None:
            self.after = tally()
            return
        if self._faults():
            gc.collect()  # what only a circle of references holds is no leak
        faults = self._faults()
        self.after = tally()
        if faults:
            raise LeakError("leak_check: wanted nothing held, given " + "; ".join(faults))

    def _faults(self) -> list[str]:
        counts = self._references()  # first: what follows holds handles
        now, was = tally(), self.before
        old = [h for h in live_handles() if h in self._handles]
        new = [h for h in live_handles() if h not in self._handles]
        faults = [repr(h) for h in new]
        named = _leases(new) - _leases(old)  # said with their handles already
        for more, text in (
            (now.leases - was.leases - len(named), "buffer export# or hand-over# of handles"),
            (now.buffers - was.buffers, "buffer export# of calls"),
            (now.exports - was.exports, "DLPack export#"),
        ):
            if more > 0:
                faults.append(f"{_count(more, text)} more than before")
        if now.twice > was.twice:
            text = "DLPack export# freed twice by a consumer"
            faults.append(_count(now.twice - was.twice, text))
        for i, count in enumerate(counts):
            more = count - self._counts[i]
            if more:
                kind = type(self._objects[i]).__qualname__
                way = "more" if more > 0 else "fewer"
                faults.append(f"a {kind} with {_count(abs(more), 'reference#')} {way} than before")
        return faults

    def _references(self) -> list[int]:
        """Counts references in one way always: a loop over pairs would hold one more."""
        return [sys.getrefcount(thing) for thing in self._objects]


def _leases(handles: list[Handle]) -> set[int]:
    """Returns which leases handles hold that have something to give back."""
    held = (handle._lease for handle in handles)
    return {id(lease) for lease in held if lease is not None and lease._giver is not None}


def _count(number: int, text: str) -> str:
    return f"{number} {text.replace('#', '' if number == 1 else 's')}"


def leak_check(*objects: object) -> LeakCheck:
    """Checks at the end of a ``with`` that nothing is held that was not held at its start.

    Counts handles, buffer exports, DLPack exports and their deleters, and the reference counts of
    the objects given. ``torchmojo.testing.plugin`` has it as a pytest fixture.

    Args:
        objects: Objects whose reference counts must be the same at the end.

    Returns:
        Something to use in a ``with``; its ``before`` and ``after`` hold the counts.

    Raises:
        LeakError: At the end of the block; it names the line that made each handle.

    Example:
        >>> import torchmojo
        >>> data = bytearray(8)
        >>> with torchmojo.leak_check(data):
        ...     with torchmojo.share(data) as handle:
        ...         pass
    """
    return LeakCheck(objects)
