"""Writes the folder that ``torchmojo build`` leaves: kernels that need no compiler any more."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torchmojo._version import __version__
from torchmojo.contract import Contract
from torchmojo.errors import LibraryError
from torchmojo.toolchain.compile.compiler import Compiler, find_compiler
from torchmojo.toolchain.core import build_core
from torchmojo.toolchain.describe.stub import write_stub
from torchmojo.toolchain.export.elf import read_dynamic, set_runpath
from torchmojo.toolchain.export.manifest import Manifest, digest, own_names, platform
from torchmojo.toolchain.export.target import resolve
from torchmojo.toolchain.library import Built, Options, build
from torchmojo.toolchain.operators import build_operators
from torchmojo.toolchain.settings import read_settings

__all__ = ["Exported", "export", "umask"]

_INIT = '''\
"""Kernels of {name}, compiled by torchmojo {version}; no Mojo compiler is needed to call them."""

from pathlib import Path

import torchmojo

_library = torchmojo.load(Path(__file__).parent)
__all__ = [kernel.__name__ for kernel in _library]
globals().update({{kernel.__name__: kernel for kernel in _library}})
'''

_NOTICE = """\
This folder was written by torchmojo {version}. {library} was compiled from
{sources} by Mojo {mojo}.

{runtime}"""

_OWN = """\
It needs no library of Mojo's. The Mojo standard library, of which parts may be compiled into it,
is under the Apache License 2.0 with LLVM exceptions.
"""

_COPIED = """\
These files are run-time libraries of Mojo, copied unchanged from the package mojo-compiler {mojo}:

{files}

They are proprietary software of Modular Inc., under what the package's metadata calls
LicenseRef-MAX-Platform-Software-License. The package holds no text of it; the one that comes with
MAX 26.7 ("Modular MAX Community License") permits in section 1.2 to redistribute components in
object code form as part of an application that has material additional functionality, under terms
consistent with its own, and as its documentation permits. Read the terms before you give this
folder to others. Kernels that do not raise, do not allocate and do not convert Float64 to half
precision need none of these files.
"""


class Exported(NamedTuple):
    """What was written.

    Attributes:
        folder: Where it lies.
        manifest: What it says of itself.
        contract: The kernels.
    """

    folder: Path
    manifest: Manifest
    contract: Contract


def export(
    source: Path,
    folder: Path,
    options: Options,
    *,
    force: bool = False,
    registry: Callable[[Contract], bytes] | None = None,
) -> Exported:
    """Compiles a file or package into a folder that works without a compiler.

    The folder appears whole or not at all. An older build in its place is replaced; programs that
    have it loaded keep what they have.

    Args:
        source: A ``.mojo`` file, or a package folder with ``__init__.mojo``.
        folder: Folder to write.
        options: How to compile.
        force: Write into a folder that holds other files too, over files of the same names.
        registry: Writes what a library of operators registers; without it there is none.

    Returns:
        What was written.

    Raises:
        FileExistsError: The folder holds something else than a build, and `force` is off.
        LibraryError: This is not Linux.
        TorchmojoError: It does not compile, or not for that CPU; see `torchmojo.load`.
    """
    if sys.platform != "linux":
        raise LibraryError(
            f"build: wanted Linux, given {sys.platform}; use torchmojo.load, which keeps what it "
            "compiles in its cache"
        )
    folder = folder.resolve()  # behind a link: the link itself stays
    _refuse_others(folder, force)
    settings = read_settings()
    compiler = find_compiler(settings)
    wanted = options.target_cpu or settings.target_cpu
    target = resolve(compiler, wanted)
    built = build(source, options)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place, so that the rename stays on one disk.
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        libraries = [built.library]
        if registry is not None:
            words = registry(built.contract)
            libraries.append(build_operators(source, options, built, words))
        runtime = _copy_libraries(libraries, compiler, work)
        # For copies and exports on machines without a compiler; it needs no library of Mojo's.
        shutil.copyfile(build_core("memory", wanted), work / "memory.so")
        set_runpath(work / "memory.so", "$ORIGIN")  # not the builder's folders
        _write_texts(built, compiler, runtime, work)
        manifest = Manifest(
            name=built.contract.name,
            sources=tuple(sorted({file.name for file in built.sources})),
            platform=platform(),
            target_cpu=target.cpu,
            cpu_features=target.features,
            libc=_libc(),
            torchmojo=__version__,
            mojo=compiler.version,
            options={
                "dtypes": _plain(options.dtypes),
                "fast_math": options.fast_math,
                "bounds": options.bounds,
            },
            files={path.name: digest(path) for path in sorted(work.iterdir())},
        )
        manifest.write(work)
        mask = umask()
        for path in work.iterdir():
            path.chmod(0o644 & ~mask)
        work.chmod(0o755 & ~mask)
        _put(work, folder, force)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return Exported(folder, manifest, built.contract)


def _plain(dtypes: Any) -> Any:
    """Returns the choice of dtypes as JSON can hold it."""
    if isinstance(dtypes, Mapping):
        return {name: list(value) for name, value in dtypes.items()}
    return None if dtypes is None else list(dtypes)


def _copy_libraries(libraries: Sequence[Path], compiler: Compiler, work: Path) -> list[str]:
    """Copies libraries and those of Mojo's run time that they need; returns the latter's names."""
    todo = []
    for library in libraries:
        own = Path(shutil.copyfile(library, work / library.name))
        set_runpath(own, "$ORIGIN")
        todo.append(own)
    copied: list[str] = []
    while todo:
        for name in read_dynamic(todo.pop()).needed:
            path = compiler.lib / name
            if path.is_file() and name not in copied:
                copied.append(name)
                todo.append(Path(shutil.copyfile(path, work / name)))
    return sorted(copied)


def _write_texts(built: Built, compiler: Compiler, runtime: list[str], work: Path) -> None:
    """Writes the contract, the Python files and the notice."""
    contract = built.contract
    shutil.copyfile(built.folder / "contract.json", work / "contract.json")
    init = _INIT.format(name=contract.name, version=__version__)
    (work / "__init__.py").write_text(init, "utf-8")
    (work / "__init__.pyi").write_text(write_stub(contract), "utf-8")
    (work / "py.typed").touch()
    files = "\n".join(f"    {name}" for name in runtime)
    about = _COPIED.format(mojo=compiler.version, files=files) if runtime else _OWN
    notice = _NOTICE.format(
        version=__version__,
        library=built.library.name,
        sources=", ".join(sorted({file.name for file in built.sources})),
        mojo=compiler.version,
        runtime=about,
    )
    (work / "NOTICE").write_text(notice, "utf-8")


# --- putting it in its place ------------------------------------------------------------------


def _refuse_others(folder: Path, force: bool) -> None:
    """Refuses a place with files that are not of a build."""
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise FileExistsError(f"build: {folder}: wanted a folder, given a file; name another place")
    if force:
        return
    others = sorted({path.name for path in folder.iterdir()} - own_names(folder))
    if others:
        names = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        raise FileExistsError(
            f"build: {folder}: wanted a new or empty folder, or an earlier build, given one that "
            f"holds {names}; name another, or write into this one with --force"
        )


def _put(work: Path, folder: Path, force: bool) -> None:
    """Moves a finished folder to its place."""
    if force and folder.is_dir():
        for path in work.iterdir():
            path.replace(folder / path.name)
        return
    _refuse_others(folder, force)  # compiling took a while
    if folder.is_dir() and any(folder.iterdir()):
        # A rename cannot replace a folder with files in it.
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        folder.rename(aside / "old")
        try:
            work.rename(folder)
        except OSError:
            (aside / "old").rename(folder)
            aside.rmdir()
            raise
        shutil.rmtree(aside, ignore_errors=True)
    else:
        work.rename(folder)


def umask() -> int:
    """Returns the mask for new files; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _libc() -> str:
    with contextlib.suppress(ValueError, OSError, AttributeError):
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    return ""
