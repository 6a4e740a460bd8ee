"""Finds the Mojo files that a kernel file is made of, and hashes them for the cache key.

Imports are found by pattern, not by parsing: a sentence in a doc-string that looks like an import
may name a file too many, which costs a recompilation once in a while. A file too few would run
old code.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

__all__ = ["closure", "digest", "stamps"]

# Statements start a line, or follow `;` or `:` in a one-liner. Backticks may quote a name.
_FROM = re.compile(
    r"(?:^|[;:])[ \t]*from[ \t]+([.\w` \t]+?)[ \t]+import\b[ \t]*(\([^)]*\)|[^\n;]*)", re.M
)
_IMPORT = re.compile(r"(?:^|[;:])[ \t]*import[ \t]+([^\n;(]+)", re.M)
_CONTINUED = re.compile(r"\\\n")
_COMMENT = re.compile(r"#[^\n]*")
_BLANKS = re.compile(r"[\s`]")


def closure(entry: Path, include: Sequence[Path] = ()) -> list[Path]:
    """List the local Mojo files that a kernel file or package is compiled from.

    A module is looked for beside the file that imports it, beside the entry, and in the include
    folders. One that is in none of them (``std``, ``torchmojo``) belongs to the compiler or to
    torchmojo, whose versions are in the cache key already.

    Args:
        entry: A ``.mojo`` file, or a package: a folder with ``__init__.mojo``.
        include: Folders that the compiler gets as ``-I``.

    Returns:
        Absolute paths, each once: the entry first, then in the order of discovery. A package
        counts with all files in it; a precompiled ``.mojoc`` counts as a file.

    Raises:
        OSError: A file vanished or cannot be read; the error names it.

    Example:
        For a ``kernels.mojo`` that has ``from blur import box``,
        ``closure(Path("kernels.mojo"))`` is ``[.../kernels.mojo, .../blur.mojo]``.
    """
    entry = entry.absolute()
    roots = [entry.parent, *(folder.absolute() for folder in include)]
    # The entry must be there: a package without __init__.mojo fails at the read below.
    waiting = [entry / "__init__.mojo", *_members(entry)] if entry.is_dir() else [entry]
    found: dict[Path, None] = {}
    while waiting:
        path = waiting.pop(0)
        if path in found:
            continue
        found[path] = None
        if path.suffix == ".mojo":
            for name in sorted(_imports(_read(path).decode("utf-8", "replace"))):
                waiting += _resolve(name, path, roots)
    return list(found)


def digest(paths: Iterable[Path], roots: Sequence[Path] = ()) -> str:
    """Hash names and contents of files.

    A caller that compiles the files in place can hash them again afterwards: a file that was
    saved meanwhile shows as another digest.

    Args:
        paths: Files to hash, in any order.
        roots: Folders from which names count: the folder of the entry, then include folders. The
            same project in another place has the same digest. By default only the names count.

    Returns:
        64 hexadecimal digits.

    Raises:
        OSError: A file vanished or cannot be read; the error names it.

    Example:
        ``digest(closure(entry, include), [entry.parent, *include])``.
    """
    folders = [root.absolute() for root in roots]
    total = hashlib.sha256()
    for name, path in sorted((_relative(path.absolute(), folders), path) for path in paths):
        data = _read(path)
        # Lengths keep "ab"+"c" and "a"+"bc" apart.
        total.update(f"{len(name)} {name} {len(data)}\n".encode())
        total.update(data)
    return total.hexdigest()


def stamps(paths: Iterable[Path]) -> tuple[tuple[int, int], ...]:
    """List size and time of files, to see cheaply whether one was saved.

    Args:
        paths: The files.

    Returns:
        Bytes and nanoseconds of each file; (0, 0) for one that is gone.
    """
    result = []
    for path in paths:
        try:
            status = path.stat()
            result.append((status.st_size, status.st_mtime_ns))
        except OSError:
            result.append((0, 0))
    return tuple(result)


def _relative(path: Path, folders: Sequence[Path]) -> str:
    """Name a file by the first folder that holds it."""
    for number, folder in enumerate(folders):
        if path.is_relative_to(folder):
            return f"{number}/{path.relative_to(folder).as_posix()}"
    return path.name


def _read(path: Path) -> bytes:
    """Read a file; an error says what was wanted of it."""
    try:
        return path.read_bytes()
    except OSError as error:
        reason = f"cannot read the Mojo source ({error.strerror})"
        raise type(error)(error.errno, reason, str(path)) from None


def _imports(text: str) -> set[str]:
    """Collect the names that a source may import: ``a.b``, ``.c``, ``..d.e``."""
    names: set[str] = set()
    joined = _CONTINUED.sub(" ", text)
    # With and without comments: a `#` may also be part of a string, a `)` part of a comment.
    for source in (joined, _COMMENT.sub("", joined)):
        for module, members in _FROM.findall(source):
            module = _BLANKS.sub("", module)
            names.add(module)
            # What is imported from a package may be a module in it.
            joint = "" if module.endswith(".") else "."
            names |= {f"{module}{joint}{member}" for member in _listed(members)}
        for modules in _IMPORT.findall(source):
            names.update(_listed(modules))
    return names


def _listed(text: str) -> Iterator[str]:
    """Split ``(a, b as c)`` into names."""
    for part in text.strip("() \t\n").split(","):
        words = part.split()
        if words and re.fullmatch(r"[\w.`]+", words[0]):
            yield _BLANKS.sub("", words[0])


def _resolve(name: str, importer: Path, roots: Sequence[Path]) -> list[Path]:
    """List the files that a name stands for: the module and the packages around it."""
    dots = len(name) - len(name.lstrip("."))
    parts = [part for part in name.split(".") if part]
    if not dots:
        starts = dict.fromkeys([importer.parent, *roots])
        return [path for start in starts for path in _below(start, parts)]
    # One dot is the importer's own package, each further one the package around it.
    folder = importer.parent
    for _ in range(dots - 1):
        folder = folder.parent
    return [*_existing(folder / "__init__.mojo"), *_below(folder, parts)]


def _below(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    """Yield the files that a dotted name has from a folder on."""
    for depth, part in enumerate(parts):
        yield from _existing(folder / f"{part}.mojo", folder / f"{part}.mojoc")
        folder = folder / part
        if not folder.is_dir():
            return
        yield from _existing(folder / "__init__.mojo")
        if depth == len(parts) - 1:
            # All of a package counts, for it may hand out any of its modules.
            yield from _members(folder)


def _existing(*paths: Path) -> Iterator[Path]:
    """Yield the files that exist."""
    return (path for path in paths if path.is_file())


def _members(folder: Path) -> Iterator[Path]:
    """Yield the files of a package; of a plain folder, which may be anything, only the topmost."""
    deep = (folder / "__init__.mojo").is_file()
    yield from sorted(folder.rglob("*.mojo") if deep else folder.glob("*.mojo"))
