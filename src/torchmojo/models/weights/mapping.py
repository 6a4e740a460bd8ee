"""A file that is opened once, mapped privately, and compared with itself later."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import stat
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from torchmojo.errors import ArgumentError, WeightsError
from torchmojo.models.text import brief, plain

__all__ = ["FileMapping", "fail"]

_CHUNK = 8 << 20
_LONG = 256 << 20  # a file that takes so long to hash that somebody wants to see it go on
# Else a file larger than memory and swap is refused by the kernel, as its pages could be written.
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


def fail(path: object, text: str) -> WeightsError:
    """Returns the error for a file that is refused; the caller raises it.

    Args:
        path: The file.
        text: What was wanted, what was given, what to do.
    """
    return WeightsError(f"open_weights: {plain(str(path))}: {brief(text)}")


class FileMapping:
    """The bytes of one file, in memory that starts at a page.

    The descriptor is opened once, and everything is read through it. Pages are private and
    copy-on-write: a write through a tensor lands in memory of this process, never in the file, and
    never ends the process as a write to a read-only page would. Whoever makes a view of ``memory``
    keeps it mapped; ``close`` gives up only the descriptor and this reference.

    Attributes:
        path: The file, absolute.
        size: Its bytes.
        memory: The bytes, as a buffer.
        copied: Whether they were copied, so that the file no longer matters.
    """

    _fd = -1  # of the class: what ends in __init__ is deleted too

    def __init__(self, path: str | os.PathLike[str], copy: bool) -> None:
        """Opens and maps, or reads, a file."""
        self.copied = copy
        try:
            self.path = Path(path).absolute()
            # Without waiting: a named pipe would block here, before it can be refused.
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (TypeError, ValueError):  # bytes and numbers; NUL, and half of a pair
            raise ArgumentError(
                f"open_weights: path: wanted a path of text without NUL, given "
                f"{brief(repr(path), 200)}"
            ) from None
        try:
            found = os.fstat(self._fd)
            if not stat.S_ISREG(found.st_mode):
                raise fail(path, "wanted a regular file, given a folder, device or pipe")
            self.size = found.st_size
            if not self.size:
                raise fail(path, "wanted a file of weights, given an empty one; get it again")
            self._stamp = _stamp(found)
            self.memory = self._read() if copy else self._map()
        except (OSError, MemoryError, OverflowError) as error:
            self.close()
            what, do = "mapped", "it needs a system that allows as much"
            if copy:
                what, do = "copied", "leave out copy=True"
            elif getattr(error, "errno", 0) == errno.ENODEV:  # of sysfs and the like
                do = "write copy=True"
            given = f"one of {found.st_size} bytes that cannot be ({error})"
            raise fail(path, f"wanted a file that can be {what}, given {given}; {do}") from None
        except BaseException:
            self.close()
            raise

    def _map(self) -> mmap.mmap:
        flags, prot = mmap.MAP_PRIVATE | _NO_RESERVE, mmap.PROT_READ | mmap.PROT_WRITE
        return mmap.mmap(self._fd, self.size, flags=flags, prot=prot)

    def _read(self) -> mmap.mmap:
        most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if self.size > most:  # a system that lends what it has not would end the process later
            raise MemoryError(f"the memory has {most} bytes")
        memory = mmap.mmap(-1, self.size)
        done = 0
        with memoryview(memory) as view:
            while done < self.size:
                got = os.preadv(self._fd, [view[done : done + _CHUNK]], done)
                if not got:
                    break
                done += got
        if done < self.size or _stamp(os.fstat(self._fd)) != self._stamp:
            raise fail(self.path, "wanted a file that stays as it is, given one that changed "
                                  "while it was copied; open it again")  # fmt: skip
        return memory

    def sha256(self, progress: bool | None) -> str:
        """Returns the digest of the bytes in memory, which are the ones that are used.

        Args:
            progress: Whether to show a bar; None for large files on a terminal.
        """
        if progress is None:
            progress = self.size >= _LONG and sys.stderr.isatty()
        digest = hashlib.sha256()
        bar = _bar(self.path.name, self.size) if progress else nullcontext(None)
        with bar as shown, memoryview(self.memory) as view:
            for start in range(0, self.size, _CHUNK):
                part = view[start : start + _CHUNK]
                digest.update(part)
                if shown is not None:
                    shown.advance(shown.task_ids[0], len(part))
        return digest.hexdigest()

    def changed(self) -> str | None:
        """Tells what happened to the file since it was opened; None where it is as it was.

        A file that was removed leaves its bytes to those who have it open, and is as it was.
        """
        if self.copied or self._fd < 0:
            return None
        now = os.fstat(self._fd)
        if now.st_size != self.size:
            return f"one whose size went from {self.size} to {now.st_size} bytes"
        if _stamp(now) != self._stamp:
            return "one that was edited in place"
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return None
        return None if _stamp(there)[:2] == self._stamp[:2] else "another file in its place"

    def close(self) -> None:
        """Closes the descriptor; the memory stays as long as something looks at it."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        """Closes the descriptor."""
        self.close()


def _stamp(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _bar(name: str, size: int) -> Any:
    """Returns a progress bar in bytes, on standard error, with its task added."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("sha256 {task.description}", markup=False), BarColumn())
    more = (DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    bar = Progress(*columns, *more, console=console, transient=console.is_terminal)
    bar.add_task(name, total=size)
    return bar
