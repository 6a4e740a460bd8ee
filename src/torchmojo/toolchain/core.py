"""Compiles torchmojo's own native code, which Python needs for copies and for lending memory.

It is compiled once a machine, when the first copy or export asks for it, and lies in the same cache
as users' kernels. A built folder of ``torchmojo build`` brings it along.
"""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path

from torchmojo.toolchain.compile import sources
from torchmojo.toolchain.compile.build import BuildFlags
from torchmojo.toolchain.compile.compiler import Compiler
from torchmojo.toolchain.library import MOJO_PACKAGE
from torchmojo.toolchain.settings import read_settings

__all__ = ["build_core", "shipped"]

_PACKAGE = MOJO_PACKAGE / "torchmojo_core"
_shipped: dict[str, Path] = {}


def build_core(name: str, target_cpu: str | None = None) -> Path:
    """Returns a library of torchmojo's own, compiled if this machine has not seen it yet.

    Args:
        name: ``memory`` (copies, lending) or ``convert`` (dtypes).
        target_cpu: A CPU name, for a folder that goes to other machines; None for this process,
            which also takes what a built folder brought along.

    Returns:
        The shared library.

    Raises:
        CompilerNotFoundError: There is no compiler, and no built folder brought the library.
        CompileError: The compiler fails.
    """
    from torchmojo.toolchain.cache import open_cache
    from torchmojo.toolchain.compile.compiler import find_compiler

    if name in _shipped and target_cpu is None:
        return _shipped[name]
    settings = read_settings()
    compiler = find_compiler(settings)
    flags = BuildFlags(target_cpu=target_cpu or settings.target_cpu)
    key = _key(compiler, flags, name)
    cache = open_cache(settings)
    entry = cache.entry(key) or cache.build(
        key, partial(compile_core, compiler, flags, name), f"torchmojo-{name}"
    )
    return entry / f"{name}.so"


def compile_core(compiler: Compiler, flags: BuildFlags, name: str, folder: Path) -> None:
    """Compiles one of the libraries.

    Args:
        compiler: Compiler to use.
        flags: How to compile.
        name: ``memory`` or ``convert``.
        folder: Gets ``NAME.so``.

    Raises:
        CompileError: The compiler fails.
    """
    from torchmojo.toolchain.compile.build import compile_library

    work = folder / name
    work.mkdir()
    compile_library(
        compiler,
        [(_PACKAGE / f"{name}.mojo").read_text("utf-8")],
        include=(MOJO_PACKAGE,),
        out=work / f"{name}.so",
        flags=flags,
        user_files={},
        progress_label=f"torchmojo's own {name} library (once on this machine)",
    )
    (work / f"{name}.so").rename(folder / f"{name}.so")


def shipped(folder: Path) -> None:
    """Takes libraries that a built folder brought along, for machines without a compiler.

    Args:
        folder: A folder that ``torchmojo build`` wrote, its digests checked.
    """
    if (folder / "memory.so").is_file():
        _shipped.setdefault("memory", folder / "memory.so")


def _key(compiler: Compiler, flags: BuildFlags, name: str) -> str:
    facts = {
        "core": name,
        "sources": sources.digest(sorted(MOJO_PACKAGE.rglob("*.mojo")), [MOJO_PACKAGE]),
        "compiler": compiler.identity,
        "flags": flags.key(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:40]
