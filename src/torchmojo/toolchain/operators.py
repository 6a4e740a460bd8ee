"""Compiles the glue of torch operators, when the first operator of a library is made.

It holds the same kernels as the library for direct calls, called by torch's dispatcher instead of
by Python, so that programs that make no operators do not wait for it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from functools import partial
from pathlib import Path

from torchmojo.errors import LibraryError
from torchmojo.toolchain.compile import sources
from torchmojo.toolchain.compile.build import compile_library
from torchmojo.toolchain.compile.compiler import Compiler, find_compiler
from torchmojo.toolchain.describe.operators import SLOTS, table_size, write_operators
from torchmojo.toolchain.library import (
    MOJO_PACKAGE,
    Built,
    Options,
    build_key,
    flags_of,
    shares_of,
    shown_names,
)
from torchmojo.toolchain.settings import read_settings

__all__ = ["SLOTS", "build_operators", "table_size"]

_NAME = "operators.so"


def build_operators(
    source: Path, options: Options | None, built: Built, registry: bytes = bytes(8)
) -> Path:
    """Returns the library of operators of a file's kernels.

    Args:
        source: The user's file or package, or a built folder.
        options: How the kernels were compiled; None for a built folder.
        built: The library for direct calls, whose contract it shares.
        registry: What it registers in a program without Python; zeroes for nothing.

    Raises:
        CompilerNotFoundError: It is not compiled yet, and there is no compiler.
        CompileError: It does not compile.
        LibraryError: A built folder came without it.
    """
    from torchmojo.toolchain.cache import open_cache

    if options is None:
        path = built.folder / _NAME
        if not path.is_file():
            raise LibraryError(
                f"op: {source}: wanted kernels with their source, or a folder built with "
                "operators, given one without; build it with `torchmojo build --ops NAMESPACE`"
            )
        return path
    settings = read_settings()
    compiler = find_compiler(settings)
    target = options.target_cpu or settings.target_cpu
    own = sorted((MOJO_PACKAGE / "torchmojo_ops").glob("*.mojo"))
    facts = {
        "library": build_key(compiler, source, built.sources, options, target),
        "operators": sources.digest(own, [MOJO_PACKAGE]),
        "glue": hashlib.sha256(
            (Path(__file__).parent / "describe" / "operators.py").read_bytes()
        ).hexdigest(),
        "contract": built.contract.to_json(),
        "registry": hashlib.sha256(registry).hexdigest(),
    }
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:40]
    cache = open_cache(settings)
    entry = cache.entry(key) or cache.build(
        key,
        partial(_compile, compiler, source, options, target, built, registry),
        f"{source.stem}-ops",
    )
    return entry / _NAME


def _compile(
    compiler: Compiler,
    source: Path,
    options: Options,
    target: str,
    built: Built,
    registry: bytes,
    folder: Path,
) -> None:
    if compiler.linker is None:
        raise LibraryError("op: wanted Linux, whose linker comes with the compiler, given another")
    work = folder / "work"
    work.mkdir()
    contract = built.contract
    compile_library(
        compiler,
        [
            write_operators(contract, source.stem, part, number == 0)
            for number, part in enumerate(shares_of(contract, os.cpu_count() or 1))
        ],
        include=(MOJO_PACKAGE, source.parent, *options.include),
        out=work / _NAME,
        flags=flags_of(options, target),
        user_files=shown_names(source, built.sources, options),
        progress_label=f"{contract.name} (operators)",
        data={
            "torchmojo_table": bytes(table_size(contract)),
            "torchmojo_registry": registry,
        },
    )
    (work / _NAME).rename(folder / _NAME)
    shutil.rmtree(work)
