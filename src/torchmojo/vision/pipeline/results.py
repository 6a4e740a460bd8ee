"""A folder of results: one line of JSON for each picture, and pictures with boxes drawn."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from filelock import FileLock, Timeout

from torchmojo.errors import ArgumentError
from torchmojo.vision.pipeline.draw import annotate
from torchmojo.vision.pipeline.record import Record

__all__ = ["Results"]

FILE = "results.jsonl"


class Results:
    """A folder that a pipeline writes into, and that says what need not be done again.

    ``results.jsonl`` has a line for each picture, written whole when the picture is done. A line
    whose file has the same size and time of change, made with the same settings and without an
    error, is
    done: a run that was interrupted goes on where it was. Pictures are written beside it under a
    name that no other has, and appear whole or not at all.

    Attributes:
        folder: The folder.

    Example:
        >>> from torchmojo.vision import Record, Results
        >>> with Results("faces", pictures=False) as results:
        ...     results.write(Record("a.png", 0, error="ImageError: unknown format"))
        ...     results.lines()
        [{'source': 'a.png', 'error': 'ImageError: unknown format'}]
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        pictures: bool = True,
        settings: str | None = None,
        names: Sequence[str] | None = None,
        source: str = "rgb",
        channels: str = "last",
    ) -> None:
        """Opens a folder, or makes it.

        Args:
            folder: The folder; its parents are made too.
            pictures: Whether to draw what was found, and write the pictures.
            settings: Lines of others are done again; None for those of the first pipeline that
                writes here.
            names: Of classes, to write beside boxes.
            source: Colours of arrays, as of ``prepare``, to draw them.
            channels: Where arrays have them, as of ``prepare``.

        Raises:
            ArgumentError: The folder's ``results.jsonl`` is something else.
            OSError: It cannot be written.
        """
        self.folder = Path(folder)
        self._pictures = pictures
        self._settings = settings
        self._draw: dict[str, Any] = {"names": names, "source": source, "channels": channels}
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / FILE
        self._lock = FileLock(_lock_of(self.folder))
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise ArgumentError(
                f"Results: folder: wanted a folder that nobody writes into, given {self.folder}, "
                "which another run has open; wait for it, or take another folder"
            ) from None
        try:
            self._open(path)
        except BaseException:
            self._lock.release()
            raise

    def _open(self, path: Path) -> None:
        """Reads the lines that count, and goes on behind them."""
        self._lines = dict(_read(path))
        self._taken = {
            line["picture"]: source for source, line in self._lines.items() if "picture" in line
        }
        # Boxes of before are done again: their lines would stand there twice.
        kept = {source: line for source, line in self._lines.items() if self._is_ours(line)}
        lines = "".join(json.dumps(line) + "\n" for line in kept.values()).encode()
        if path.exists() and lines != path.read_bytes():
            with _replacing(path.resolve()) as temporary:  # a link stays a link
                temporary.write_bytes(lines)
        self._lines = kept
        # One write a line, straight to the file: whoever reads it sees whole lines.
        self._file: IO[bytes] = path.open("ab", buffering=0)

    def _is_ours(self, line: dict[str, Any]) -> bool:
        """Whether a line still counts: of these settings, no error, its picture in its place."""
        if "error" in line or self._settings not in (None, line.get("settings", "")):
            return False
        if self._pictures and (
            "picture" not in line or not (self.folder / line["picture"]).is_file()
        ):
            return False
        try:
            return bool(_stamp(line["source"]) == line.get("stamp"))
        except OSError:
            return True  # the file has gone, what was found stays true

    def adopt(self, settings: str) -> None:
        """Takes a pipeline's settings, unless there are some already.

        Args:
            settings: Of the pipeline that is going to write here.
        """
        if self._settings is None:
            self._settings = settings
            self._file.close()
            self._open(self.folder / FILE)

    def holds(self, record: Record) -> bool:
        """Tells whether a file's results lie here already.

        Args:
            record: With source and stamp.
        """
        line = self._lines.get(record.source)
        return line is not None and record.stamp is not None and line["stamp"] == [*record.stamp]

    def write(self, record: Record) -> None:
        """Writes a picture's results, and the picture.

        Args:
            record: One that came out of a pipeline. Its ``picture`` is set.

        Raises:
            OSError: They cannot be written.
        """
        if record.skipped:
            record.picture = self._lines[record.source].get("picture")
            return
        if self._pictures and record.error is None and record.image is not None:
            record.picture = self._name(record)
            with _replacing(self.folder / record.picture) as temporary:
                annotate(record, **self._draw).save(temporary, quality=90)
        line = record.as_dict()
        if record.stamp is not None:
            line["stamp"] = [*record.stamp]
        if self._settings:
            line["settings"] = self._settings
        rest = memoryview((json.dumps(line, allow_nan=False) + "\n").encode())
        while rest:  # a full disk takes a part, and refuses the next
            rest = rest[self._file.write(rest) :]

    def lines(self) -> list[dict[str, Any]]:
        """Gives all lines that lie here, those of earlier runs too, in the order of the file."""
        return [line for _, line in _read(self.folder / FILE)]

    def _name(self, record: Record) -> str:
        """Gives the picture a name that no other source has."""
        stem = Path(record.source).stem or "picture"
        # As long as systems take, with what is added to it.
        stem = os.fsdecode(os.fsencode(stem)[:200])
        for suffix in itertools.chain([""], (f"-{number}" for number in itertools.count(2))):
            name = f"{stem}{suffix}.jpg"
            if name not in self._taken and os.path.lexists(self.folder / name):
                continue  # somebody else's, or the photograph itself
            if self._taken.setdefault(name, record.source) == record.source:
                break
        return name

    def close(self) -> None:
        """Closes the file, and lets others write into the folder."""
        self._file.close()
        self._lock.release()

    def __enter__(self) -> Results:
        """Gives itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the file."""
        self.close()


def _lock_of(folder: Path) -> Path:
    """Gives this user's lock of a folder, which shall hold results alone."""
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:32]
    return Path(tempfile.gettempdir()) / f"torchmojo-results-{os.getuid()}-{name}.lock"


def _stamp(source: str) -> list[int]:
    facts = Path(source).stat()
    return [facts.st_size, facts.st_mtime_ns]


def _read(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Gives the lines of a file; a last one that is not whole was never finished."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    *lines, _ = data.split(b"\n")
    for number, text in enumerate(lines, start=1):
        try:
            line = json.loads(text)
            source = line["source"]
        except (ValueError, TypeError, KeyError):
            raise ArgumentError(
                f"Results: folder: wanted lines with a source in {path}, given line {number}: "
                f"{text[:40]!r}; move the file away or take another folder"
            ) from None
        yield source, line


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Gives a file beside a path that takes its place when all went well."""
    # Not by tempfile, which lets nobody else read what a user asked for.
    temporary = path.with_name(f".part-{uuid.uuid4().hex}{path.suffix}")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
