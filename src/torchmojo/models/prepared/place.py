"""The place of a prepared folder: looked at before anything is compiled, changed by a rename."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torchmojo.errors import ArgumentError, ModelError
from torchmojo.models.prepared import manifest as names

__all__ = ["check_place", "put", "resolve", "work_folder"]

_OURS = {names.MANIFEST, names.LIBRARY, names.WEIGHTS, names.FLAT, names.CALLS}
_TRIES = 50  # of processes that write one folder at the same time
_MET = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT)


def resolve(out_dir: Any) -> Path:
    """Returns where a folder will lie, with links followed.

    Args:
        out_dir: What the user wrote.

    Raises:
        ArgumentError: It is no path.
        ModelError: It leads round in links, or has a zero in it.
    """
    try:
        return Path(out_dir).resolve()
    except TypeError:
        raise ArgumentError(
            f"prepare: out_dir: wanted the path of a folder, given {out_dir!r}"
        ) from None
    except (OSError, ValueError, RuntimeError) as error:  # which of them differs by Python
        raise _cannot(out_dir, error) from None


def check_place(folder: Path) -> None:
    """Refuses a place that cannot be written, or that something else has.

    Args:
        folder: Where the model shall lie.

    Raises:
        FileExistsError: It is a file, holds what no `prepare` wrote, is the current directory or a
            mount point.
        ModelError: The system does not let it be written.
    """
    with _said(folder):
        _check(folder)


def _check(folder: Path) -> None:
    try:
        found = os.lstat(folder)
    except FileNotFoundError:
        parent = next(place for place in folder.parents if os.path.lexists(place))
        for part in folder.relative_to(parent).parts:  # a name that is too long
            with contextlib.suppress(FileNotFoundError):
                os.lstat(parent / part)
    else:
        _refuse_others(folder, found)
        parent = folder.parent
        if not os.access(folder, os.W_OK | os.X_OK):
            os.lstat(folder)  # it may be gone
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    Path(tempfile.mkdtemp(prefix=".torchmojo-", dir=parent)).rmdir()


def _refuse_others(folder: Path, found: os.stat_result) -> None:
    """Refuses a place with something else in it."""
    if not stat.S_ISDIR(found.st_mode):
        raise FileExistsError(f"prepare: {folder}: wanted a folder, given a file; name another")
    here = Path.cwd()
    if folder in (here, *here.parents):
        raise FileExistsError(
            f"prepare: {folder}: wanted a folder of its own, given the current directory or one "
            "around it, which cannot be replaced; name a folder in it"
        )
    if os.path.ismount(folder):
        raise FileExistsError(
            f"prepare: {folder}: wanted a folder that can be replaced, given a mount point; name a "
            "folder in it"
        )
    others = _others(folder)
    if others and not os.path.samestat(found, os.lstat(folder)):  # what was listed is gone
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    if others:
        listed = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        raise FileExistsError(
            f"prepare: {folder}: wanted a new or empty folder, or an earlier model, given one that "
            f"holds {listed}; name another"
        )


def _others(folder: Path) -> list[str]:
    """Returns the names in a folder that no `prepare` wrote, whatever its manifest says."""
    entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    everything = [entry.name for entry in entries]
    ours = {e.name for e in entries if e.name in _OURS and e.is_file(follow_symlinks=False)}
    if names.MANIFEST not in ours:
        return everything
    try:
        if json.loads((folder / names.MANIFEST).read_bytes())["made_by"] != names.MADE_BY:
            return everything
    except (ValueError, KeyError, TypeError, RecursionError):
        return everything
    return [name for name in everything if name not in ours]


@contextlib.contextmanager
def work_folder(folder: Path) -> Iterator[Path]:
    """Lends a folder beside a place, so that the rename stays on one disk; empties it at the end.

    Args:
        folder: The place; folders around it are made.

    Raises:
        ModelError: The system does not let it be written, now or inside.
    """
    with _said(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        # A short name: the place's own may have all bytes that a name can have.
        work = Path(tempfile.mkdtemp(prefix=".torchmojo-", dir=folder.parent))
        try:
            yield work
        finally:
            _remove(work)


def put(work: Path, folder: Path) -> None:
    """Moves a finished folder to its place, by renames.

    Args:
        work: The folder.
        folder: The place; an earlier model in it is replaced.

    Raises:
        FileExistsError: See `check_place`.
        OSError: The system refuses.
    """
    for _ in range(_TRIES):
        if _met(lambda: _move(work, folder)):
            return
    raise OSError(errno.EBUSY, "other processes write it at the same time")


def _met(move: Callable[[], object]) -> bool:
    """Returns whether a move went well; not, where another process was there first."""
    try:
        move()
    except OSError as error:
        if error.errno not in _MET:  # ours have no number
            raise
        return False
    return True


def _move(work: Path, folder: Path) -> None:
    _check(folder)  # compiling took a while
    if not folder.is_dir():
        work.rename(folder)
        return
    # A rename cannot replace a folder with files in it.
    aside = Path(tempfile.mkdtemp(prefix=".torchmojo-", dir=folder.parent))
    old = aside / "old"
    try:
        folder.rename(old)
        try:
            work.rename(folder)
        except OSError:
            _met(lambda: old.rename(folder))
            raise
    finally:
        _remove(old)
        _remove(aside)


def _remove(folder: Path) -> None:
    """Removes a folder with our files; one with others in it stays."""
    for name in _OURS:
        with contextlib.suppress(OSError):
            (folder / name).unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()


@contextlib.contextmanager
def _said(folder: Any) -> Iterator[None]:
    """Says what the system refuses in our words."""
    try:
        yield
    except FileExistsError as error:
        if error.errno is None:  # ours
            raise
        raise _cannot(folder, error) from error
    except OSError as error:
        raise _cannot(folder, error) from error


def _cannot(folder: Any, error: Exception) -> ModelError:
    why = getattr(error, "strerror", None) or error
    return ModelError(
        f"prepare: {folder}: wanted a place that can be written, given one where the system says: "
        f"{why}; name another"
    )
