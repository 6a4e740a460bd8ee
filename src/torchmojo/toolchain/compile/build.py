"""What torchmojo has the compiler do: build a library, describe a file, precompile a package.

The working folder of each run is a private one. The compiler looks for modules there before it
looks into the folders of ``-I``, so a folder of the user's that happens to be called like a module
would be taken for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchmojo.errors import CompileError
from torchmojo.toolchain.compile.compiler import Compiler, Completed, cpu_identity, run
from torchmojo.toolchain.settings import Sanitize, Settings, read_settings

if TYPE_CHECKING:
    from torchmojo.toolchain.compile.sanitizer import Part

__all__ = ["BuildFlags", "compile_library", "document", "precompile"]

GLUE_NAME = "_torchmojo_glue.mojo"  # no module of a user's has this name

# Hidden or non-standard options of the compiler, for messages: name the dtypes for which a kernel
# failed, and follow a chain of calls to its end (10 notes by default).
_DIAGNOSTICS = ("--elaboration-error-verbose=all-params", "--max-notes-per-diagnostic", "200")

# Soft-float helpers of old libgcc_s, old libdl: linked only where something uses them.
_SYSTEM = ("libc.so.6", "libm.so.6", "libdl.so.2", "libgcc_s.so.1")
_RUNTIME = ("libKGEN*.so", "libAsyncRT*.so", "libMSupport*.so")


@dataclass(frozen=True)
class BuildFlags:
    """How kernels are compiled.

    Attributes:
        fast_math: Let the compiler fuse ``a + b * c`` into one rounding; off, results are
            bit-equal to those of torch.
        bounds: Check each index; for debugging.
        target_cpu: CPU to compile for, ``"native"`` for this one.
        optimize: Optimization level, 0 to 3.
        sanitize: Sanitizer to build in, ``"address"`` or ``"thread"``; ``"none"`` for none.
    """

    fast_math: bool = False
    bounds: bool = False
    target_cpu: str = "native"
    optimize: int = 3
    sanitize: Sanitize = "none"

    def arguments(self) -> list[str]:
        """Write the flags as the compiler takes them."""
        words = [f"-O{self.optimize}"]
        if not self.fast_math:
            words += ["--fp-mode", "contract=off"]
        if self.target_cpu != "native":
            words += ["--target-cpu", self.target_cpu]
        if self.bounds:
            words += ["-D", "TORCHMOJO_BOUNDS=1"]
        if self.sanitize != "none":
            # The lines are for the sanitizer's report.
            words += ["--sanitize", self.sanitize, "--debug-level", "line-tables"]
        return words

    def key(self) -> str:
        """Write what the flags mean on this machine, for cache keys.

        Example:
            >>> BuildFlags(target_cpu="x86-64-v3", bounds=True).key().split(" libc=")[0]
            'O3 contract=off bounds=1 cpu=x86-64-v3'
        """
        # A library asks for the symbol versions of the C library that it was linked with, and a
        # home folder on a network is shared by machines with older ones.
        with contextlib.suppress(ValueError, OSError, AttributeError):
            libc = (os.confstr("CS_GNU_LIBC_VERSION") or "").replace(" ", "-")
            return f"{self._key()} libc={libc}"
        return self._key()

    def _key(self) -> str:
        return (
            f"O{self.optimize} contract={'fast' if self.fast_math else 'off'} "
            f"bounds={self.bounds:d} cpu={cpu_identity(self.target_cpu)}"
            + ("" if self.sanitize == "none" else f" sanitize={self.sanitize}")
        )


def compile_library(
    compiler: Compiler,
    glue_sources: Sequence[str],
    *,
    include: Sequence[Path],
    out: Path,
    flags: BuildFlags,
    user_files: Mapping[Path, str],
    progress_label: str | None = None,
    settings: Settings | None = None,
    data: Mapping[str, bytes] | None = None,
) -> None:
    """Compile glue, and the user's modules that it imports, into a shared library.

    On Linux the library is linked by the linker of the compiler's own package. ``mojo build``
    would start the system's C compiler for that, which many machines do not have. The library
    finds the compiler's run-time libraries beside itself, or where the compiler has them.

    Args:
        compiler: Compiler to use.
        glue_sources: Texts of the generated files. Each is compiled by a process of its own, side
            by side; all are linked into one library. One text where ``compiler.linker`` is None.
        include: Folders to look for modules in: the user's, and the one that holds torchmojo's
            Mojo package.
        out: Library to write. Its folder exists and is private to this build; the glue stays
            there beside the library.
        flags: How to compile.
        user_files: The user's files as the compiler sees them, each with the name to show.
        progress_label: What is compiled, such as ``"kernels.mojo (3 kernels)"``; None for no
            progress line.
        settings: Environment variables, if they have been read already.
        data: Writable data in the library, `_binary_NAME_start` to its code: Mojo has no global
            variables. Linux only.

    Raises:
        CompileError: The compiler refused a file; the text shows the user's line.
        CompilerNotFoundError: The compiler could not be started.
    """
    from concurrent.futures import ThreadPoolExecutor

    linker = compiler.linker
    words = ["build", "--emit", "shared-lib" if linker is None else "object"]
    words += [*flags.arguments(), *_DIAGNOSTICS]
    folders = _include(include)
    sources = list(glue_sources)
    extra = None
    if flags.sanitize != "none" and linker is not None:
        from torchmojo.toolchain.compile.sanitizer import PARTS

        extra = PARTS[flags.sanitize]
        sources.append(extra.source)
    if len(sources) > 1:
        words += ["-j", "1"]  # one thread each: on more the compiler spends a third more in all

    def compile_part(number: int, source: str) -> Path:
        # A folder for each: the compiler looks for modules beside the file first.
        folder = out.parent / f"part{number}"
        folder.mkdir()
        glue = folder / GLUE_NAME
        glue.write_text(source, encoding="utf-8")
        target = out if linker is None else folder / "kernels.o"
        args: list[str | Path] = [*words, *folders, "-o", target, glue]
        _check(run(compiler, args, folder), user_files, glue)
        return target

    with _progress(progress_label, settings), ThreadPoolExecutor(len(sources)) as pool:
        # In the order of the source: of several errors the first one is shown.
        objects = list(pool.map(compile_part, range(len(sources)), sources))
        if linker is not None:
            _link(compiler, linker, objects, out, data or {}, extra)
            for target in objects:
                target.unlink()


def document(
    compiler: Compiler,
    path: Path,
    include: Sequence[Path] = (),
    user_files: Mapping[Path, str] | None = None,
) -> dict[str, Any]:
    """Read the signatures and doc-strings of a file or package, as ``mojo doc`` writes them.

    Args:
        compiler: Compiler to use.
        path: A ``.mojo`` file, or the folder of a package.
        include: Folders to look for modules in, before the one of `path`.
        user_files: The user's files, each with the name to show; by default `path` by its name.

    Returns:
        The parsed JSON: ``decl`` holds the functions, ``version`` is the compiler's.

    Raises:
        CompileError: The compiler refused the file, which it also does for errors in bodies; the
            text shows the user's line.
        CompilerNotFoundError: The compiler could not be started.
    """
    import tempfile

    path = path.absolute()
    names = {path: path.name} if user_files is None else user_files
    with tempfile.TemporaryDirectory(prefix="torchmojo-") as folder:
        result = Path(folder, "doc.json")
        folders = _include([*include, path.parent])  # unlike build, doc does not look beside it
        args: list[str | Path] = [
            "doc",
            "--max-notes-per-diagnostic",
            "200",
            *folders,
            "-o",
            result,
            path,
        ]
        _check(run(compiler, args, Path(folder)), names, None)
        parsed: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return parsed


def precompile(compiler: Compiler, package: Path, out: Path) -> None:
    """Precompile a package, so that builds need not parse it.

    The result fits this very compiler and no other: its identity belongs into the cache key.

    Args:
        compiler: Compiler to use.
        package: Folder of the package.
        out: The ``.mojoc`` file to write, named like the package; its folder exists.

    Raises:
        CompileError: The compiler refused the package.
        CompilerNotFoundError: The compiler could not be started.
    """
    # From the folder above, messages name files as `torchmojo/view.mojo`, wherever it lies. That
    # folder may be read-only, hence the place for temporary files.
    package, out = package.absolute(), out.absolute()
    args: list[str | Path] = ["precompile", "-o", out, package.name]
    _check(run(compiler, args, package.parent, scratch=out.parent), {}, None)


def _include(folders: Sequence[Path]) -> list[str | Path]:
    """Write folders as options, each once; absolute, so that messages have absolute paths."""
    unique = dict.fromkeys(folder.absolute() for folder in folders)
    return [word for folder in unique for word in ("-I", folder)]


def _check(done: Completed, user_files: Mapping[Path, str], glue: Path | None) -> None:
    """Raise CompileError if a run failed."""
    if done.returncode == 0:
        return
    from torchmojo.toolchain.compile.diagnostics import explain_failure

    text = done.stderr.strip() or f"no message, exit status {done.returncode}"
    if done.returncode < 0:
        import signal

        text += f"\nthe compiler was killed by {signal.Signals(-done.returncode).name}"
    raise CompileError(explain_failure(text, user_files, glue))


# --- linking --------------------------------------------------------------------------------------


def _link(
    compiler: Compiler,
    linker: Path,
    objects: Sequence[Path],
    out: Path,
    data: Mapping[str, bytes],
    extra: Part | None,
) -> None:
    """Link objects into a library, with what the compiler's own command would pass."""
    runtime = [path for name in _RUNTIME for path in sorted(compiler.lib.glob(name))]
    # Without the frame headers, an error that torch throws cannot pass through Mojo frames.
    words = ["-flavor", "gnu", "-shared", "--gc-sections", "--eh-frame-hdr", "--hash-style=gnu"]
    words += ["-rpath", "$ORIGIN", "-rpath", str(compiler.lib), "-o", str(out), *map(str, objects)]
    if extra is not None:
        words += extra.link
        runtime = runtime if extra.with_runtime else []
    for name, content in data.items():
        # Its symbols are called after the path as it is given: relative to the folder.
        (out.parent / name).write_bytes(content)
        words += ["--format=binary", name, "--format=elf"]
    args = [*words, "--as-needed", *map(str, runtime), *_system_libraries()]
    done = run(compiler, args, out.parent, program=linker)
    _check(done, {}, None)


def _system_libraries() -> list[str]:
    """List the C library and its companions as this process has them.

    Linking against the files themselves gives symbols their versions, without the packages for
    developers (``libc6-dev``) that a C compiler needs.
    """
    import ctypes

    for name in _SYSTEM:
        with contextlib.suppress(OSError):
            ctypes.CDLL(name)  # most are there already
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    # "7f..-7f.. r-xp 00000000 fd:00 123  /lib/x86_64-linux-gnu/libc.so.6"
    fields = (line.split(maxsplit=5) for line in maps.splitlines())
    paths = dict.fromkeys(parts[5] for parts in fields if len(parts) == 6)
    return [path for name in _SYSTEM for path in paths if path.endswith(f"/{name}")][:8]


# --- progress -------------------------------------------------------------------------------------


@contextlib.contextmanager
def _progress(label: str | None, settings: Settings | None) -> Iterator[None]:
    """Show on standard error what is compiled and for how long, where someone is looking."""
    wish = (read_settings() if settings is None else settings).progress
    terminal = sys.stderr is not None and sys.stderr.isatty()
    if not label or wish == "0" or (wish == "auto" and not terminal):
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description} … {task.elapsed:.1f} s", markup=False),
        console=Console(stderr=True, force_terminal=True),
        transient=True,
        # What other threads print is none of our business.
        redirect_stdout=False,
        redirect_stderr=False,
    ) as progress:
        progress.add_task(f"compiling {label}", total=None)
        yield
