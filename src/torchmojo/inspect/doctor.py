"""Examines this machine: whether kernels can be compiled, kept and called, and how fast."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torchmojo._version import __version__
from torchmojo.errors import CompilerNotFoundError
from torchmojo.inspect.process import cpus, openmp_libraries, python_facts
from torchmojo.toolchain.settings import VARIABLES, Settings, read_settings

__all__ = ["Finding", "Report", "examine"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, or worth knowing.

    Attributes:
        what: What was found.
        do: What to do about it.
    """

    what: str
    do: str


@dataclass(slots=True)
class Report:
    """What an examination found.

    Attributes:
        facts: Facts by subject: ``python``, ``versions``, ``compiler``, ``cache``, ``settings``,
            ``torch``, ``openmp``, ``threads``.
        problems: What keeps kernels from being compiled, kept or called at full speed.
        notes: What works, but may not be meant.
    """

    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """Returns plain data for ``json.dumps``."""
        return {
            "ok": self.ok,
            **self.facts,
            "problems": [asdict(finding) for finding in self.problems],
            "notes": [asdict(finding) for finding in self.notes],
        }


def examine() -> Report:
    """Examines this process and machine; imports torch, compiles nothing, writes nothing.

    Returns:
        Facts and problems.
    """
    report = Report()
    _python(report)
    report.facts["versions"] = {"torchmojo": __version__, "numpy": _version("numpy")}
    try:
        settings = read_settings()
    except ValueError as error:
        report.problems.append(Finding(str(error).partition(";")[0], "correct or unset it"))
        settings = Settings()
    known = {variable.name: os.environ.get(variable.name) for variable in VARIABLES}
    report.facts["settings"] = {name: value for name, value in known.items() if value}
    _compiler(report, settings)
    _cache(report, settings)
    _torch(report)
    _threads(report)
    return report


def _version(name: str) -> str | None:
    """Returns the version of an installed package, which is not imported."""
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _python(report: Report) -> None:
    facts = report.facts["python"] = python_facts()
    if facts["implementation"] != "cpython":
        what = f"{facts['implementation']} is not supported: kernels are called as CPython calls C"
        report.problems.append(Finding(what, "use CPython 3.10 to 3.13"))
    elif not (3, 10) <= sys.version_info[:2] <= (3, 13):
        what = f"Python {facts['version']} is not supported"
        report.problems.append(Finding(what, "use CPython 3.10 to 3.13"))
    if facts["free_threaded"]:
        what = "this is a free-threaded build of CPython (no GIL), which is not supported"
        report.problems.append(Finding(what, "use the usual build: python3.13, not python3.13t"))
    if not facts["main_interpreter"]:
        what = "this is a sub-interpreter, which is not supported"
        report.problems.append(Finding(what, "call kernels from the main interpreter"))


def _compiler(report: Report, settings: Settings) -> None:
    from torchmojo.toolchain.compile.compiler import INSTALL, find_compiler

    try:
        compiler = find_compiler(settings)
    except CompilerNotFoundError as error:
        what, *rejected = str(error).splitlines()
        tried = [line.strip() for line in rejected if line.startswith("  ")]
        report.facts["compiler"] = {"found": False, "rejected": tried}
        command = INSTALL.removeprefix("To install one: ")
        advice = f"{command}; folders of `torchmojo build` need none"
        report.problems.append(Finding(what.removesuffix("; tried"), advice))
        return
    report.facts["compiler"] = {
        "found": True,
        "version": compiler.version,
        "path": str(compiler.path),
        "origin": compiler.origin,
        "rejected": [f"{place}: {reason}" for place, reason in compiler.rejected],
    }


def _cache(report: Report, settings: Settings) -> None:
    from torchmojo.toolchain.cache import _distrust, open_cache

    cache = open_cache(settings)
    there = cache.root.exists()
    place = next((p for p in (cache.root, *cache.root.parents) if p.exists()), cache.root)
    reason = _distrust(cache.root) if there else ""
    if not reason and not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        reason = "it is not writable" if there else f"{place} is not writable"
    entries = cache.list() if there else []
    report.facts["cache"] = {
        "folder": str(cache.root),
        "entries": len(entries),
        "bytes": sum(entry.bytes for entry in entries),
        "limit": cache.limit,
        "writable": not reason,
    }
    if reason:
        what = f"the cache folder {cache.root} cannot be used: {reason}"
        advice = "set TORCHMOJO_CACHE_DIR to a folder of your own; else each process compiles again"
        report.problems.append(Finding(what, advice))


def _torch(report: Report) -> None:
    from torchmojo.bridge.aten import open_door, symbols
    from torchmojo.bridge.exchange import exchange_version

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say is said below
        try:
            import torch
        except ImportError as error:
            report.facts["torch"] = {"version": None}
            what = f"torch cannot be imported ({error}); kernels run on NumPy arrays"
            report.notes.append(Finding(what, 'to use tensors: pip install "torchmojo[torch]"'))
            return
        door = open_door()
        try:
            found = symbols()
        except OSError:
            found = {}
    dlpack = exchange_version(torch.Tensor)
    report.facts["torch"] = {
        "version": str(torch.__version__),
        "fast_door": door.open,
        "reason": door.reason,
        "symbols": {name: bool(address) for name, address in found.items()},
        "dlpack_exchange": None if dlpack is None else f"{dlpack[0]}.{dlpack[1]}",
    }
    if not door.open:
        what = f"the fast door is shut: {door.reason}"
        advice = (
            "install torch 2.10 or newer, of a version that torchmojo knows; until then tensors "
            "pass through DLPack, with the same results and slower calls"
        )
        report.problems.append(Finding(what, advice))


def _threads(report: Report, environ: Mapping[str, str] = os.environ) -> None:
    libraries = openmp_libraries()
    report.facts["openmp"] = {"libraries": libraries}
    torch = sys.modules.get("torch")
    report.facts["threads"] = {
        "torch": torch.get_num_threads() if torch else None,
        "cpus": cpus(),
        "OMP_NUM_THREADS": environ.get("OMP_NUM_THREADS"),
    }
    if len(libraries) > 1:
        names = ", ".join(Path(path).name for path in libraries)
        what = f"{len(libraries)} OpenMP run-times are loaded, each with its own threads: {names}"
        advice = (
            "import torch before the other library, or set OMP_WAIT_POLICY=passive: threads that "
            "wait by spinning slow the others down"
        )
        report.notes.append(Finding(what, advice))
