"""From a user's source to a compiled library in the cache: the whole toolchain in one function."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torchmojo.contract import FORMAT, Contract, KernelContract
from torchmojo.errors import CompileError
from torchmojo.toolchain.compile import sources
from torchmojo.toolchain.compile.build import BuildFlags
from torchmojo.toolchain.compile.compiler import Compiler, find_compiler
from torchmojo.toolchain.settings import read_settings

__all__ = [
    "MOJO_PACKAGE",
    "Built",
    "Options",
    "build",
    "build_key",
    "flags_of",
    "open_folder",
    "shares_of",
    "shown_names",
]

MOJO_PACKAGE = Path(__file__).parent.parent / "mojo"
"""The folder for ``mojo build -I``: it holds the Mojo package ``torchmojo``."""

_LIBRARY = "library.so"
_CONTRACT = "contract.json"
_MAX_PARTS = 4  # a compiler takes 250 MB


@dataclass(frozen=True, slots=True)
class Options:
    """How to compile; a part of the cache key.

    Attributes:
        dtypes: Dtypes for parameters, see ``torchmojo.load``.
        fast_math: Let the compiler fuse multiply and add.
        bounds: Check every index in kernels.
        include: Folders in which imports are looked up, besides the source's own.
        target_cpu: A CPU name, or ``native``; None for the setting.
        shown: What messages call the source instead of its path.
    """

    dtypes: Mapping[str, Sequence[str]] | Sequence[str] | None = None
    fast_math: bool = False
    bounds: bool = False
    include: tuple[Path, ...] = ()
    target_cpu: str | None = None
    shown: str | None = None


@dataclass(frozen=True, slots=True)
class Built:
    """A library on disk.

    Attributes:
        folder: Where it lies.
        library: The shared library.
        contract: Its kernels.
        sources: The files that went into it; empty for a built folder.
        stamps: Their sizes and times from before they were read.
    """

    folder: Path
    library: Path
    contract: Contract
    sources: tuple[Path, ...] = ()
    stamps: tuple[tuple[int, int], ...] = ()


def open_folder(folder: Path) -> Built:
    """Opens a folder that ``torchmojo build`` or the cache wrote; needs no compiler.

    Args:
        folder: It holds the library and its contract.

    Raises:
        FileNotFoundError: One of them is missing.
        ValueError: The contract was written by another version of torchmojo.
        LibraryError: `torchmojo build` wrote it, and it is damaged or not for this machine.
    """
    if (folder / "manifest.json").is_file():
        from torchmojo.toolchain.export.manifest import check

        check(folder)
        from torchmojo.toolchain.core import shipped

        shipped(folder)
    contract = Contract.from_json(json.loads((folder / _CONTRACT).read_text("utf-8")))
    return Built(folder, folder / _LIBRARY, contract)


def is_built(folder: Path) -> bool:
    """Returns whether a folder holds a compiled library.

    Args:
        folder: Any folder.
    """
    return (folder / _CONTRACT).is_file() and (folder / _LIBRARY).is_file()


def build(source: Path, options: Options) -> Built:
    """Compiles a file or package, or finds it in the cache.

    Args:
        source: A ``.mojo`` file, or a package folder with ``__init__.mojo``.
        options: How to compile.

    Returns:
        The library; the second time for the same content nothing is compiled.

    Raises:
        CompilerNotFoundError: There is no compiler.
        CompileError: The compiler refuses the source; the text is about the user's lines only.
        SignatureError: A kernel cannot be called from Python.
    """
    from torchmojo.toolchain.cache import open_cache

    settings = read_settings()
    compiler = find_compiler(settings)
    target = options.target_cpu or settings.target_cpu
    cache = open_cache(settings)
    while True:
        files = tuple(sources.closure(source, options.include))
        stamps = sources.stamps(files)
        key = build_key(compiler, source, files, options, target)
        try:
            entry = cache.entry(key) or cache.build(
                key,
                partial(_make, compiler, source, files, options, target, key),
                source.stem,
            )
        except _Saved:
            continue
        return replace(open_folder(entry), sources=files, stamps=stamps)


class _Saved(Exception):
    """A source was saved while it was compiled, so that the entry does not fit its key."""


def build_key(
    compiler: Compiler, source: Path, files: Sequence[Path], options: Options, target: str
) -> str:
    """Returns the cache key: everything that decides what the library does.

    Args:
        compiler: Its identity is the version and the binary's size and time.
        source: The user's file or package.
        files: It and all that it imports.
        options: How to compile.
        target: A CPU name or ``native``.
    """
    others = {"torchmojo_core", "torchmojo_ops"}
    own = sorted(p for p in MOJO_PACKAGE.rglob("*.mojo") if not others & {*p.parts})
    facts = {
        "format": FORMAT,
        "torchmojo": sources.digest(own, [MOJO_PACKAGE]),
        "glue": hashlib.sha256(
            b"".join(
                path.read_bytes()
                for path in sorted((Path(__file__).parent / "describe").glob("*.py"))
                if path.name != "operators.py"
            )
        ).hexdigest(),
        "compiler": compiler.identity,
        "flags": flags_of(options, target).key(),
        "name": source.name,
        "sources": sources.digest(files, [source.parent, *options.include]),
        "dtypes": _plain(options.dtypes),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:40]


def flags_of(options: Options, target: str) -> BuildFlags:
    """Returns the flags that options mean.

    Args:
        options: How to compile.
        target: A CPU name or ``native``.
    """
    from torchmojo.toolchain.compile.sanitizer import chosen

    return BuildFlags(
        fast_math=options.fast_math, bounds=options.bounds, target_cpu=target, sanitize=chosen()
    )


def _plain(dtypes: Any) -> Any:
    if isinstance(dtypes, Mapping):
        return {name: list(value) for name, value in dtypes.items()}
    return None if dtypes is None else list(dtypes)


def _make(
    compiler: Compiler,
    source: Path,
    files: Sequence[Path],
    options: Options,
    target: str,
    key: str,
    folder: Path,
) -> None:
    """Fills a cache entry; raises ``_Saved`` where the sources are no longer those of the key."""
    from torchmojo.toolchain.compile.build import document
    from torchmojo.toolchain.describe.signature import Choices, read_contract

    include = (MOJO_PACKAGE, source.parent, *options.include)
    shown = shown_names(source, files, options)
    described = document(compiler, source, include, shown)
    wheres = _wheres(source, files)
    name = options.shown or source.name
    contract = read_contract(described, name, Choices(options.dtypes), wheres)
    contract = _compile(compiler, contract, source, include, options, target, shown, folder)
    if build_key(compiler, source, files, options, target) != key:
        raise _Saved
    (folder / _CONTRACT).write_text(json.dumps(contract.to_json(), indent=1), "utf-8")


def _wheres(source: Path, files: Sequence[Path]) -> dict[tuple[str, str], str]:
    """Returns the ``where`` clauses of the source's functions, by module and function."""
    from torchmojo.toolchain.describe.constraint import clauses

    found = {}
    for file in files:
        if source.is_dir() and file.is_relative_to(source):
            parts = file.relative_to(source).with_suffix("").parts
            module = ".".join(part for part in parts if part != "__init__")
        elif file == files[0]:
            module = ""
        else:
            continue  # a helper's functions are no kernels
        for function, clause in clauses(file.read_text("utf-8", "replace")).items():
            found[module, function] = clause
    return found


def shown_names(source: Path, files: Sequence[Path], options: Options) -> dict[Path, str]:
    """Maps each file to the name that messages show: as the user wrote it, or ``<inline>``.

    Args:
        source: The user's file or package.
        files: It and all that it imports.
        options: How to compile.
    """
    if options.shown:
        return {files[0]: options.shown}
    here = Path.cwd()
    return {
        file: str(file.relative_to(here)) if file.is_relative_to(here) else str(file)
        for file in files
    }


def _compile(
    compiler: Compiler,
    contract: Contract,
    source: Path,
    include: Sequence[Path],
    options: Options,
    target: str,
    shown: Mapping[Path, str],
    folder: Path,
) -> Contract:
    """Compiles the library; where ``bool`` was only assumed, with it or without it.

    A kernel that says nothing takes every common dtype, but arithmetic does not compile for
    ``bool``. Whether it does only the compiler knows, so both are compiled side by side.
    """
    from concurrent.futures import ThreadPoolExecutor

    from torchmojo.toolchain.compile.build import compile_library
    from torchmojo.toolchain.describe.glue import write_glue

    flags = flags_of(options, target)

    def attempt(candidate: Contract, name: str, quiet: bool = False) -> Contract:
        work = folder / name
        work.mkdir()
        # The quiet attempt runs beside another one: it takes one processor, not all.
        parts = 1 if quiet or compiler.linker is None else os.cpu_count() or 1
        compile_library(
            compiler,
            [write_glue(share, source.stem) for share in shares_of(candidate, parts)],
            include=include,
            out=work / _LIBRARY,
            flags=flags,
            user_files=shown,
            progress_label=None if quiet else f"{contract.name} ({len(contract.kernels)} kernels)",
        )
        return candidate

    def keep(name: str) -> None:
        (folder / name / _LIBRARY).rename(folder / _LIBRARY)
        for rest in folder.iterdir():
            if rest.is_dir():
                shutil.rmtree(rest)

    assumed = {kernel.name for kernel in contract.kernels if _assumes_bool(kernel)}
    if not assumed:
        attempt(contract, "only")
        keep("only")
        return contract
    plain = _without_bool(contract, assumed)
    with ThreadPoolExecutor(1) as pool:
        full = pool.submit(attempt, contract, "full", True)
        try:
            attempt(plain, "plain")
        except CompileError:
            full.exception()
            raise
    error = full.exception()
    if error is None:
        keep("full")
        return contract
    if not isinstance(error, CompileError):
        raise error
    failing = {
        kernel.name
        for kernel in contract.kernels
        if re.search(rf"\b{kernel.name}\b", str(error)) and kernel.name in assumed
    }
    if failing and failing != assumed:
        some = _without_bool(contract, failing)
        try:
            attempt(some, "some")
        except CompileError:
            pass
        else:
            keep("some")
            return some
    keep("plain")
    return plain


def shares_of(contract: Contract, most: int) -> list[Contract]:
    """Deals kernels out to compilers that run side by side, by the number of their instances.

    Args:
        contract: The kernels.
        most: How many compilers there may be.
    """
    weights = {k.name: math.prod(len(p.choices) for p in k.parameters) for k in contract.kernels}
    count = min(most, _MAX_PARTS, len(contract.kernels))
    shares: list[list[KernelContract]] = [[] for _ in range(count)]
    for kernel in sorted(contract.kernels, key=lambda k: -weights[k.name]):
        min(shares, key=lambda share: sum(weights[k.name] for k in share)).append(kernel)
    return [replace(contract, kernels=tuple(share)) for share in shares]


def _assumes_bool(kernel: KernelContract) -> bool:
    return any(p.assumed and "bool" in p.choices for p in kernel.parameters)


def _without_bool(contract: Contract, names: set[str]) -> Contract:
    """Returns a contract in which some kernels do not take ``bool`` any more."""
    return replace(
        contract,
        kernels=tuple(
            replace(
                kernel,
                parameters=tuple(
                    replace(p, choices=tuple(c for c in p.choices if c != "bool"))
                    if p.assumed
                    else p
                    for p in kernel.parameters
                ),
            )
            if kernel.name in names
            else kernel
            for kernel in contract.kernels
        ),
    )
