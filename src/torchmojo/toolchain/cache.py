"""The cache of compiled kernels: a folder of folders, each named by the hash of its inputs.

Layout: ``ROOT/ab/abcdef.../`` is an entry, complete from the moment it is there, because it is
built in ``ROOT/tmp/`` and renamed. ``entry.json`` in it lists the files with their sizes; the
time of that file is the entry's last use, to the day. ``ROOT/locks/KEY`` is locked with flock
while an entry is built or removed; the system drops a lock when its holder dies.

A cached library is code that runs with the user's rights. So the folder belongs to the user alone
(mode 0700), and one that others could have filled is not used.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from torchmojo.errors import TorchmojoWarning
from torchmojo.toolchain.settings import Settings, read_settings

__all__ = ["Cache", "Entry", "default_root", "open_cache"]

YOUNG = 60.0
"""Seconds for which nothing removes an entry: its builder may be about to load it."""

_MARKER = "entry.json"
_DAY = 86_400.0
_HOUR = 3_600.0


class Entry(NamedTuple):
    """One entry, as ``torchmojo cache list`` shows it; times are seconds since 1970."""

    key: str
    name: str
    bytes: int
    created: float
    used: float
    path: Path


class Cache:
    """Compiled kernels on disk, shared by all processes of a user.

    Args:
        root: Folder of the cache; created when something is built.
        limit: Upper size in bytes, kept by removing what was not used for longest after each
            build; None for no limit.

    Example:
        ``Cache(root).build(key, lambda folder: compile_into(folder))`` returns the folder that
        ``compile_into`` filled, now or in an earlier process.
    """

    def __init__(self, root: Path, limit: int | None = None) -> None:
        self.root = root.absolute()
        self.limit = limit
        self._mutex = threading.RLock()  # one build may need another
        self._substitute: Path | None = None  # a folder for this process, if root cannot be used

    # --- looking up and building --------------------------------------------------------------

    def entry(self, key: str) -> Path | None:
        """Look an entry up; nothing is created, and files are written once a day at most.

        A file may be removed between this call and its use, by a user or another process: who
        cannot open it calls `build`, which makes it again.

        Args:
            key: Hash of all inputs, in hexadecimal digits.

        Returns:
            The entry's folder, or None where there is none, or a damaged one.
        """
        # A cache that is read-only, as in a container's image, serves what it has.
        for root in filter(None, (self._substitute, self.root)):
            path = root / key[:2] / key
            marker = path / _MARKER
            with contextlib.suppress(OSError):
                used = marker.stat().st_mtime
                if _distrust(root) or not _intact(path):
                    continue
                if time.time() - used > _DAY:
                    with contextlib.suppress(OSError):
                        os.utime(marker)
                return path
        return None

    def build(self, key: str, make: Callable[[Path], None], name: str = "") -> Path:
        """Return an entry, building it if need be; one process builds, the others wait for it.

        If `make` raises, nothing is left behind and the error goes on. If the cache folder cannot
        be used, a folder that lives as long as this process takes its place, with one warning.

        Args:
            key: Hash of all inputs, in hexadecimal digits.
            make: Fills the empty folder that it is given.
            name: What to show in lists, such as the name of the kernel file.

        Returns:
            The entry's folder.

        Raises:
            OSError: The disk is full, or failed while the entry was written.
            ValueError: The key is not made of hexadecimal digits.
        """
        if not key.isalnum():
            raise ValueError(f"a cache key has hexadecimal digits only, given {key!r}")
        with contextlib.ExitStack() as stack:
            if self._substitute is None:
                try:
                    self._prepare()
                    stack.enter_context(_locked(self.root / "locks" / key))
                except OSError as error:
                    self._give_up(error)
            if self._substitute is not None:
                stack.enter_context(self._mutex)
            found = self.entry(key)
            if found is None:
                found = self._make(key, make, name)
        if self.limit is not None and self._substitute is None:
            self.trim(self.limit)
        return found

    def _make(self, key: str, make: Callable[[Path], None], name: str) -> Path:
        """Build an entry; the caller holds its lock."""
        import tempfile

        root = self._substitute or self.root
        _sweep(root, key)
        final = root / key[:2] / key
        work = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=root / "tmp"))
        try:
            make(work)
            files = [path for path in sorted(work.rglob("*")) if path.is_file()]
            sizes = {path.relative_to(work).as_posix(): path.stat().st_size for path in files}
            marker = work / _MARKER
            facts = {"name": name, "created": time.time(), "files": sizes}
            marker.write_text(json.dumps(facts), encoding="utf-8")
            # To disk before the rename: after a power cut the entry is whole or not there.
            for path in (*files, marker, *(p for p in work.rglob("*") if p.is_dir()), work):
                _sync(path)
            final.parent.mkdir(mode=0o700, exist_ok=True)
            _bury(root, final)  # a damaged one; whoever has it loaded keeps it
            work.rename(final)
            _sync(final.parent)
        except BaseException:
            _remove(work)
            # No entry, so nobody would ever remove its lock's file. Who waits for it notices.
            with contextlib.suppress(OSError):
                (root / "locks" / key).unlink()
            raise
        return final

    # --- the folder itself ----------------------------------------------------------------------

    def _prepare(self) -> None:
        """Create the cache folder, or raise OSError where it cannot or must not be used."""
        if not self.root.exists():
            self.root.parent.mkdir(parents=True, exist_ok=True)
            self.root.mkdir(mode=0o700, exist_ok=True)
        if reason := _distrust(self.root):
            raise PermissionError(0, reason, str(self.root))
        for name in ("locks", "tmp"):
            (self.root / name).mkdir(mode=0o700, exist_ok=True)
        if not os.access(self.root, os.W_OK | os.X_OK):
            raise PermissionError(0, "not writable", str(self.root))

    def _give_up(self, error: OSError) -> None:
        """Use a folder for this process instead, and say so."""
        import atexit
        import tempfile
        import warnings

        with self._mutex:
            if self._substitute is not None:
                return
            folder = Path(tempfile.mkdtemp(prefix="torchmojo-"))
            for name in ("locks", "tmp"):
                (folder / name).mkdir()
            atexit.register(_remove_own, folder, os.getpid())
            self._substitute = folder
        reason = error.strerror or str(error)
        if error.filename not in (None, str(self.root)):
            reason = f"{error.filename}: {reason}"
        warnings.warn(
            f"kernels are compiled again in each process: the cache folder {self.root} cannot be "
            f"used ({reason}); set TORCHMOJO_CACHE_DIR to a folder of your own",
            TorchmojoWarning,
            stacklevel=3,
        )

    # --- looking after it -----------------------------------------------------------------------

    def list(self) -> list[Entry]:
        """List the entries, the one that was not used for longest first."""
        return sorted(self._entries(), key=lambda entry: entry.used)

    def size(self) -> int:
        """Add up the sizes of all entries, in bytes."""
        return sum(entry.bytes for entry in self._entries())

    def clear(self) -> int:
        """Remove all entries but those that are being built; loaded libraries stay loaded.

        Returns:
            Number of bytes that were freed.
        """
        return self._shrink(0, youngest=0.0)

    def trim(self, limit: int) -> int:
        """Remove entries until the rest fits, beginning with those not used for longest.

        Entries younger than a minute, or locked by a process that works on them, stay.

        Args:
            limit: Size to come down to, in bytes.

        Returns:
            Number of bytes that were freed.
        """
        return self._shrink(limit, youngest=YOUNG)

    def _shrink(self, limit: int, youngest: float) -> int:
        """Remove entries, then what killed builders left."""
        entries = self.list()
        total = sum(entry.bytes for entry in entries)
        freed = 0
        root = self._substitute or self.root
        for entry in entries:
            if total - freed <= limit:
                break
            if time.time() - max(entry.created, entry.used) < youngest:
                continue
            lock = root / "locks" / entry.key
            with contextlib.suppress(OSError), _locked(lock, wait=False):
                _bury(root, entry.path)
                lock.unlink()
                freed += entry.bytes
        _sweep(root)
        return freed

    def _entries(self) -> Iterator[Entry]:
        """Read all entries; those that another process removes meanwhile are left out."""
        root = self._substitute or self.root
        for marker in root.glob(f"??/*/{_MARKER}"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                facts = json.loads(marker.read_text(encoding="utf-8"))
                size = sum(facts["files"].values()) + marker.stat().st_size
                yield Entry(
                    key=marker.parent.name,
                    name=str(facts["name"]),
                    bytes=size,
                    created=float(facts["created"]),
                    used=marker.stat().st_mtime,
                    path=marker.parent,
                )


def default_root() -> Path:
    """Name the folder for the cache where no variable names one: the user's cache folder."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("torchmojo", appauthor=False))


def open_cache(settings: Settings | None = None) -> Cache:
    """Give the cache that the settings name, the same object for the same folder.

    Args:
        settings: Environment variables, if they have been read already.

    Returns:
        The cache; nothing is created on disk yet.
    """
    settings = read_settings() if settings is None else settings
    return _open(settings.cache_dir or default_root(), settings.cache_size)


@functools.lru_cache(maxsize=8)
def _open(root: Path, limit: int) -> Cache:
    return Cache(root, limit)


def _distrust(root: Path) -> str:
    """Say why code in a folder must not be run; empty if it may."""
    # Both the folder and, if the path is a link, the link: its owner decides where it leads.
    for status in (root.lstat(), root.stat()):
        if status.st_uid not in (os.geteuid(), 0):
            return f"it belongs to another user, uid {status.st_uid}"
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a folder"
    if status.st_mode & stat.S_IWOTH:
        return "everybody may write into it"
    return ""


def _intact(path: Path) -> bool:
    """Tell whether an entry has all its files, in full: a cut-off library would crash us."""
    trusted = (os.geteuid(), 0)
    try:
        files = json.loads((path / _MARKER).read_text(encoding="utf-8"))["files"].items()
        found = [((path / name).stat(), size) for name, size in files]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return all(status.st_size == size and status.st_uid in trusted for status, size in found)


@contextlib.contextmanager
def _locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold a lock between processes and threads.

    Raises:
        BlockingIOError: Someone else holds it, and wait is False.
        OSError: The file system cannot lock.
    """
    from filelock import FileLock, Timeout

    # A lock belongs to who enters this block, not to a thread: two threads exclude each other too.
    lock = FileLock(str(path), timeout=-1 if wait else 0, mode=0o600, thread_local=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise BlockingIOError(errno.EAGAIN, "locked by another process", str(path)) from error
    except NotImplementedError as error:  # how filelock reports a file system without flock
        raise OSError(errno.ENOLCK, "the file system cannot lock", str(path)) from error
    try:
        yield
    finally:
        lock.release(force=True)


def _sync(path: Path) -> None:
    """Write a file or folder through to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system without fsync
            raise
    finally:
        os.close(descriptor)


def _bury(root: Path, path: Path) -> None:
    """Take an entry away in one step, then remove it."""
    import tempfile

    if not path.exists():
        return
    grave = Path(tempfile.mkdtemp(prefix="dead.", dir=root / "tmp"))
    path.rename(grave / "entry")
    _remove(grave)


def _remove(folder: Path) -> None:
    """Remove a folder as far as possible; what stays is swept another time."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _remove_own(folder: Path, pid: int) -> None:
    """Remove a folder of this process; a forked child ends too, and it is not the child's."""
    if os.getpid() == pid:
        _remove(folder)


def _sweep(root: Path, key: str | None = None) -> None:
    """Remove what killed builders left: of a key whose lock we hold, and all that is old."""
    paths = [*root.glob("tmp/*"), *root.glob("locks/*")]
    for path in paths:
        with contextlib.suppress(OSError):
            owner = path.name.split(".")[0]
            folder = path.is_dir()
            if folder and owner == key:
                _remove(path)
            elif time.time() - path.stat().st_mtime > _HOUR and (
                folder or not (root / owner[:2] / owner).exists()
            ):
                with _locked(root / "locks" / owner, wait=False):
                    _remove(path)
                    (root / "locks" / owner).unlink()
