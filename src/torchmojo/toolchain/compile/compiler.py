"""Finds the Mojo compiler, tells compilers and CPUs apart for cache keys, and runs it."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from torchmojo import faults
from torchmojo.errors import CompilerNotFoundError
from torchmojo.toolchain.settings import Settings, read_settings

__all__ = ["SUPPORTED", "Compiler", "Completed", "Rejected", "cpu_identity", "find_compiler", "run"]

SUPPORTED = "1.2"
"""The only versions of Mojo that torchmojo takes, 1.2.x: the one place that names them."""

Origin = Literal["TORCHMOJO_MOJO", "wheel", "MODULAR_HOME", "PATH"]

INSTALL = 'To install one: pip install "torchmojo[compiler]"'
_VERSION = re.compile(r"(\d+\.\d+[^\s-]*)")
# "Failed to initialize Crashpad ..." of the compiler, and "file.cc:12] crashpad ..." of its helper.
_NOISE = re.compile(r"^(?:Failed to initialize Crashpad\b.*|.*crashpad/\S*\.cc:?\d*.*)\n?", re.M)


class Rejected(NamedTuple):
    """A place where a compiler was looked for, and why none was taken from there."""

    place: str
    reason: str


@dataclass(frozen=True)
class Compiler:
    """A Mojo compiler that can be started without the script that pip puts before it.

    Attributes:
        path: The real binary.
        lib: Folder of its run-time libraries, which compiled kernels load.
        version: Such as ``"1.2.0"``.
        origin: Where it was found.
        identity: Short text for cache keys; another version, build or place has another one.
        rejected: Places that were tried before, with reasons.
    """

    path: Path
    lib: Path
    version: str
    origin: Origin
    identity: str
    rejected: tuple[Rejected, ...] = field(default=(), compare=False)

    @property
    def linker(self) -> Path | None:
        """The linker that comes with the compiler, where a library can be linked by it alone.

        Elsewhere (macOS) the compiler starts the system's C compiler to link.
        """
        lld = self.path.parent / "lld"
        return lld if sys.platform == "linux" and lld.is_file() else None


@dataclass(frozen=True)
class Completed:
    """What a run of the compiler left behind.

    Attributes:
        returncode: 0 on success, negative for a signal.
        stdout: Standard output.
        stderr: Messages, without the noise of the crash reporter.
        seconds: Time it took.
    """

    returncode: int
    stdout: str
    stderr: str
    seconds: float


# --- finding one ------------------------------------------------------------------------------


def find_compiler(settings: Settings | None = None) -> Compiler:
    """Find a Mojo compiler of a supported version.

    The order is ``TORCHMOJO_MOJO``, the ``mojo-compiler`` package of this Python,
    ``MODULAR_HOME``, ``mojo`` on ``PATH``. A compiler named by ``TORCHMOJO_MOJO`` is taken or
    refused, never replaced. For the package of pip no process is started.

    Args:
        settings: Environment variables, if they have been read already.

    Returns:
        The first compiler that fits, with the places that were tried before it.

    Raises:
        CompilerNotFoundError: None fits; the text has each place with its reason.

    Example:
        After ``pip install "torchmojo[compiler]"``, ``find_compiler().version`` is ``"1.2.0"``.
    """
    if faults.meet("compiler"):
        raise CompilerNotFoundError("mojo: wanted a compiler, given none (injected)")
    settings = read_settings() if settings is None else settings
    rejected: list[Rejected] = []
    for origin, place, path, reason in _places(settings):
        if path is None:
            rejected.append(Rejected(place, reason))
            continue
        try:
            return _inspect(path, origin, settings.any_compiler, tuple(rejected))
        except _UnfitError as unfit:
            rejected.append(Rejected(place, str(unfit)))
    lines = [f"  {place}: {reason}" for place, reason in rejected]
    raise CompilerNotFoundError(
        "\n".join([f"no Mojo compiler of version {SUPPORTED}.x found; tried", *lines, INSTALL])
    )


class _UnfitError(Exception):
    """A candidate is no compiler that we can use; the text says why."""


def _places(settings: Settings) -> Iterator[tuple[Origin, str, Path | None, str]]:
    """Yield origin, place, candidate, and the reason where there is no candidate."""
    if settings.mojo is not None:
        yield "TORCHMOJO_MOJO", f"TORCHMOJO_MOJO={settings.mojo}", settings.mojo, ""
        yield "wheel", "other places", None, "not tried, because TORCHMOJO_MOJO is set"
        return
    yield "TORCHMOJO_MOJO", "TORCHMOJO_MOJO", None, "not set"
    wheel = _from_wheel()
    place = "mojo-compiler package" + (f" ({wheel})" if wheel else "")
    yield "wheel", place, wheel, f"not installed for {sys.executable}"
    if home := os.environ.get("MODULAR_HOME"):
        # conda's MODULAR_HOME is PREFIX/share/max, and its compiler is PREFIX/bin/mojo.
        roots = (Path(home), Path(home, "modular"), Path(home).absolute().parent.parent)
        found = [root / "bin/mojo" for root in roots if (root / "bin/mojo").is_file()]
        yield "MODULAR_HOME", f"MODULAR_HOME={home}", next(iter(found), None), "no bin/mojo in it"
    else:
        yield "MODULAR_HOME", "MODULAR_HOME", None, "not set"
    import shutil

    which = shutil.which("mojo")
    place = f"PATH ({which})" if which else "PATH"
    yield "PATH", place, Path(which).absolute() if which else None, "no program named mojo"


def _from_wheel() -> Path | None:
    """Find the binary of the mojo-compiler package, first beside torchmojo itself."""
    here = Path(__file__).resolve().parents[3]
    # A relative entry ('' is the working folder) must not decide which program is started.
    for folder in (here, *map(Path, sys.path)):
        path = folder / "modular" / "bin" / "mojo"
        if folder.is_absolute() and path.is_file():
            return path
    return None


def _inspect(
    path: Path, origin: Origin, any_version: bool, rejected: tuple[Rejected, ...]
) -> Compiler:
    """Make a Compiler of a file, or say why it is none."""
    try:
        with path.open("rb") as file:
            if file.read(2) == b"#!":
                path = _behind_script(path)
        path = path.resolve()
        status = path.stat()
        lib = path.parent.parent / "lib"
        std = next(lib.joinpath("mojo").glob("std.*")).stat()
    except OSError as error:
        raise _UnfitError(error.strerror or str(error)) from None
    except StopIteration:
        raise _UnfitError(f"no standard library in {lib / 'mojo'}") from None
    if not os.access(path, os.X_OK):
        raise _UnfitError("not executable")
    version = _read_version(path) or _ask_version(path, status.st_size, status.st_mtime_ns)
    if not any_version and not version.startswith(f"{SUPPORTED}."):
        raise _UnfitError(
            f"wanted version {SUPPORTED}.x, given {version} "
            "(TORCHMOJO_ANY_COMPILER=1 takes it all the same)"
        )
    # The path counts too: a compiled library names the compiler's lib folder, and uv gives
    # two environments the very same file (size and time) at two places.
    facts = (str(path), status.st_size, status.st_mtime_ns, std.st_size, std.st_mtime_ns)
    digest = hashlib.sha256(repr(facts).encode()).hexdigest()
    return Compiler(path, lib, version, origin, f"{version}-{digest[:16]}", rejected)


def _behind_script(path: Path) -> Path:
    """Find the binary that the script ``bin/mojo`` of an environment starts."""
    found = sorted(path.parent.parent.glob("lib*/python3*/site-packages/modular/bin/mojo"))
    if not found:
        raise _UnfitError("a script, with no mojo-compiler package behind it")
    return found[0]


def _read_version(path: Path) -> str | None:
    """Read the version from what pip or conda wrote down when they installed the binary."""
    root = path.parent.parent
    for pattern in (
        root.parent.glob("mojo_compiler-*.dist-info") if root.name == "modular" else (),
        root.glob("conda-meta/mojo-compiler-[0-9]*.json"),
    ):
        # Two of them: one is a leftover, and we cannot know which.
        versions = {match[1] for p in pattern if (match := _VERSION.search(p.stem))}
        if len(versions) == 1:
            return versions.pop()
    return None


@functools.lru_cache(maxsize=8)
def _ask_version(path: Path, size: int, mtime_ns: int) -> str:
    """Ask the binary; size and time are there to notice that it was replaced."""
    import subprocess

    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _UnfitError(f"cannot be started ({error})") from None
    match = _VERSION.search(done.stdout)
    if done.returncode or match is None:
        raise _UnfitError("`mojo --version` prints no version")
    return match[1]


# --- running it ---------------------------------------------------------------------------------


def _environment(compiler: Compiler, scratch: Path) -> dict[str, str]:
    """Build the environment that the compiler runs in.

    The variables are those that the script of the wheel sets, but here they win over variables
    of the same name: those may belong to another compiler.
    """
    drop = ("MODULAR_MOJO_MAX_", "MODULAR_MAX_", "MODULAR_DERIVED_PATH", "MODULAR_CACHE_DIR")
    env = {name: value for name, value in os.environ.items() if not name.startswith(drop)}
    # Preloaded libraries, such as a sanitizer's, are meant for Python; the compiler dies of some.
    env.pop("LD_PRELOAD", None)
    if compiler.origin != "MODULAR_HOME":
        env.pop("MODULAR_HOME", None)
    root = str(compiler.lib.parent)
    env |= {
        "MODULAR_MAX_PACKAGE_ROOT": root,
        "MODULAR_MOJO_MAX_PACKAGE_ROOT": root,
        "MODULAR_MOJO_MAX_DRIVER_PATH": str(compiler.path),
        "MODULAR_MOJO_MAX_IMPORT_PATH": str(compiler.lib / "mojo"),
        # A private cache for one run. Mojo's own cache keeps whole modules, so it helps only
        # when nothing at all has changed (measured: one comment changed, 2.6 s as with an empty
        # cache; nothing changed, 0.9 s), and that case ours answers without a compiler. A shared
        # one has failed where concurrent compilers evicted each other's files, and grows.
        "MODULAR_CACHE_DIR": str(scratch / "modular"),
        # A library must not start a crash reporter, nor send anything anywhere.
        "MODULAR_CRASH_REPORTING_ENABLED": "false",
        "TMPDIR": str(scratch),
    }
    env.setdefault("MODULAR_TELEMETRY_ENABLED", "0")
    if compiler.linker is not None:
        # `mojo build` 1.2.0 refuses to start without a C compiler, even for --emit object, which
        # does not use one; with a linker driver named it does not look (test_build).
        env["MODULAR_MOJO_MAX_LINKER_DRIVER"] = str(compiler.linker)
    return env


def run(
    compiler: Compiler,
    args: Sequence[str | Path],
    cwd: Path,
    *,
    scratch: Path | None = None,
    program: Path | None = None,
) -> Completed:
    """Run the compiler and wait for it.

    Its standard input is empty. If the wait is interrupted (Ctrl-C), the compiler and whatever it
    started are killed before the interrupt goes on.

    Args:
        compiler: Compiler to run.
        args: Arguments after the program's name.
        cwd: Working folder; relative paths in messages start there.
        scratch: Existing folder for temporary files, if cwd may be read-only.
        program: Another program of the compiler's package to start, such as its linker.

    Returns:
        Status, texts and time; a failure is not an exception.

    Raises:
        CompilerNotFoundError: The program could not be started.
    """
    import contextlib
    import signal
    import subprocess
    import tempfile
    import time

    start = time.monotonic()
    command = [str(program or compiler.path), *map(str, args)]
    with tempfile.TemporaryDirectory(
        prefix=".mojo-", dir=scratch or cwd, ignore_cleanup_errors=True
    ) as private:
        try:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=_environment(compiler, Path(private)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,  # a group of its own, so that all of it can be killed
            )
        except OSError as error:
            raise CompilerNotFoundError(
                f"{command[0]} cannot be started: {error.strerror}. {INSTALL}"
            ) from error
        with process:
            try:
                stdout, stderr = process.communicate()
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
    seconds = time.monotonic() - start
    return Completed(process.returncode, stdout, _NOISE.sub("", stderr), seconds)


# --- telling CPUs apart -------------------------------------------------------------------------


@functools.lru_cache(maxsize=8)
def cpu_identity(target: str) -> str:
    """Name a target CPU for cache keys.

    Args:
        target: A CPU's name, or ``"native"``.

    Returns:
        The name; for ``"native"`` a hash of this CPU's model and features, because code for one
        machine may die on another that shares the cache (a home folder on a network).

    Example:
        >>> cpu_identity("x86-64-v3")
        'x86-64-v3'
    """
    if target != "native":
        return target
    return "native-" + hashlib.sha256(_cpu_facts().encode()).hexdigest()[:16]


def _cpu_facts() -> str:
    """Describe this CPU."""
    if sys.platform == "darwin":
        return _sysctl("machdep.cpu.brand_string") + _sysctl("hw.cpufamily")
    wanted = ("vendor_id", "cpu family", "model", "model name", "flags")
    wanted_arm = ("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features")
    facts = [os.uname().machine]
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            for line in file:  # stops after the first CPU: a server lists hundreds
                name, _, value = line.partition(":")
                if name.strip() in wanted + wanted_arm:
                    facts.append(f"{name.strip()}={value.strip()}")
                elif not name.strip() and len(facts) > 1:
                    break
    except OSError:
        pass  # no /proc: the machine's kind is all that we know
    return "\n".join(facts)


def _sysctl(name: str) -> str:
    """Read a value from the macOS kernel without starting a process."""
    import ctypes

    size = ctypes.c_size_t(256)
    buffer = ctypes.create_string_buffer(size.value)
    status = ctypes.CDLL(None).sysctlbyname(name.encode(), buffer, ctypes.byref(size), None, 0)
    return "" if status else buffer.raw[: size.value].hex()
