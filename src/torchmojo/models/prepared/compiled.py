"""Compiles an exported program into a library without weights, and lists what it asks for."""

from __future__ import annotations

import ctypes
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchmojo.errors import CompilerNotFoundError, ModelError
from torchmojo.models.prepared.program import quiet
from torchmojo.models.said import said

__all__ = ["Compiled", "compile_program"]

_RUNNABLE = "AOTInductorModelContainerUpdateUserManagedConstantBufferPairs"


@dataclass(frozen=True, slots=True)
class Compiled:
    """What torch's compiler made.

    Attributes:
        library: Bytes of a shared library.
        calls: Operators that the library calls through the dispatcher, as torch's JSON; or None.
        constants: Weights that it wants: its own name for each, and the program's.
        weights: Their values, by the program's names.
        isa: Vector instructions that it was written for, in torch's words.
    """

    library: bytes
    calls: bytes | None
    constants: dict[str, str]
    weights: dict[str, Any]
    isa: str


def compile_program(program: Any, threads: int) -> Compiled:
    """Compiles a program for this machine's CPU; takes 10 to 90 seconds.

    Args:
        program: An exported program.
        threads: Threads that its loops are split for.

    Raises:
        CompilerNotFoundError: There is no C++ compiler.
        ModelError: torch cannot compile it.
    """
    import torch
    from torch._inductor import aot_compile
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        raise CompilerNotFoundError(
            "prepare: wanted a C++ compiler, which torch turns a model into a library with, given "
            "none; install g++, or set CXX. Running a prepared model needs none"
        ) from None
    arguments, keywords = program.example_inputs
    try:
        with quiet(), torch.no_grad():
            files = aot_compile(
                program.module(check_guards=False), arguments, keywords, options=_options(threads)
            )
        return _sort(files)
    except ModelError:
        raise
    except Exception as error:  # whatever torch's compiler meets
        raise ModelError(f"prepare: model: torch cannot compile it: {said(error, 4)}") from error


def _options(threads: int) -> dict[str, Any]:
    return {
        "aot_inductor.package": True,
        "aot_inductor.package_constants_in_so": False,
        "aot_inductor.enable_line_tables": False,
        "aot_inductor.package_constants_on_disk_format": "pickle_weights",  # we take the tensors
        # Else small weights become numbers in the code, which nobody can bind.
        "always_keep_tensor_constants": True,
        "cpp.threads": threads,
    }


def _sort(files: list[Any]) -> Compiled:
    """Sorts out what the compiler left: paths, and a dictionary of weights."""
    weights = {
        name: value for part in files if isinstance(part, dict) for name, value in part.items()
    }
    paths = [Path(part) for part in files if isinstance(part, str)]
    libraries = [path for path in paths if path.suffix == ".so"]
    if len(libraries) != 1:
        raise ModelError(
            f"prepare: wanted one library from torch's compiler, given {len(libraries)}"
        )
    library = libraries[0]
    calls = library.with_suffix(".json")
    about = json.loads(library.with_name(f"{library.stem}_metadata.json").read_text("utf-8"))
    return Compiled(
        library.read_bytes(),
        calls.read_bytes() if calls in paths else None,
        _constants(library),
        {name: tensor.detach() for name, (tensor, _) in weights.items()},
        about.get("AOTI_CPU_ISA", ""),
    )


def _constants(path: Path) -> dict[str, str]:
    """Asks a library for the names of its weights."""
    library = ctypes.CDLL(str(path))
    if not hasattr(library, _RUNNABLE):
        raise ModelError(
            "prepare: wanted a torch whose compiled models take weights from a list (2.13 or "
            f"newer), given one without {_RUNNABLE}"
        )
    from torch._C._aoti import AOTIModelContainerRunnerCpu

    found: dict[str, str] = AOTIModelContainerRunnerCpu(
        str(path), 1
    ).get_constant_names_to_original_fqns()
    return dict(sorted(found.items(), key=lambda item: item[1]))
