"""Steps on the way to the first result, each with its time and what happened in it."""

from __future__ import annotations

import builtins
import contextlib
import mmap
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["Recorder", "fault_ms"]


class Recorder:
    """Takes the time of steps, and counts their page faults, imports and new libraries.

    Attributes:
        steps: What was measured, as plain data for JSON.
        training: Part of the model that came in training mode, or nothing.
        sync: Waits until a device has finished; called inside each step.
    """

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self.sync: Callable[[], None] = lambda: None
        self.training = ""
        self._imports = _Imports()

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measures what runs inside.

        Args:
            name: Its name, such as ``load``.
        """
        modules, libraries = set(sys.modules), _libraries()
        with self._imports:
            before = resource.getrusage(resource.RUSAGE_SELF)
            start = time.perf_counter()
            yield
            self.sync()
            ms = (time.perf_counter() - start) * 1e3
            after = resource.getrusage(resource.RUSAGE_SELF)
        self.steps.append(
            {
                "name": name,
                "ms": ms,
                "minor": after.ru_minflt - before.ru_minflt,
                "major": after.ru_majflt - before.ru_majflt,
                "imports_ms": self._imports.ms,
                "modules": len(set(sys.modules) - modules),
                "libraries": sorted(_libraries() - libraries),
            }
        )


class _Imports:
    """Takes the time of import statements that load something, the outermost only."""

    def __init__(self) -> None:
        self.ms = 0.0

    def __enter__(self) -> None:
        self.ms, depth = 0.0, 0
        original = self._original = builtins.__import__

        def timed(*args: Any, **words: Any) -> Any:
            nonlocal depth
            if depth:
                return original(*args, **words)
            known, start, depth = len(sys.modules), time.perf_counter(), 1
            try:
                return original(*args, **words)
            finally:
                depth = 0
                if len(sys.modules) > known:
                    self.ms += (time.perf_counter() - start) * 1e3

        builtins.__import__ = timed

    def __exit__(self, *error: object) -> None:
        builtins.__import__ = self._original


def _libraries() -> set[str]:
    """Returns the names of the shared libraries in this process; none where there is no list."""
    try:
        text = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return set()
    paths = (line.split(maxsplit=5)[-1] for line in text.splitlines() if " r-xp " in line)
    return {Path(path).name for path in paths if ".so" in Path(path).name}


def fault_ms(pages: int = 2048) -> float:
    """Returns what the first touch of a page of fresh memory costs here, in milliseconds.

    Args:
        pages: Number of pages to touch.
    """
    size = mmap.PAGESIZE
    with mmap.mmap(-1, pages * size) as memory:
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            with contextlib.suppress(OSError):
                memory.madvise(mmap.MADV_NOHUGEPAGE)
        place = range(0, pages * size, size)
        costs = []
        for _ in range(2):  # the second time, only the loop itself
            start = time.perf_counter()
            for at in place:
                memory[at] = 1
            costs.append(time.perf_counter() - start)
    return max(costs[0] - costs[1], 0.0) * 1e3 / pages
