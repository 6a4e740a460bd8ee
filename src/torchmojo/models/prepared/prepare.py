"""Turns a model into a folder that Python and Mojo programs run without torch's compiler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torchmojo._version import __version__
from torchmojo.errors import ArgumentError
from torchmojo.models.prepared import manifest as names
from torchmojo.models.prepared.aligned import Stored, write_weights
from torchmojo.models.prepared.compiled import Compiled, compile_program
from torchmojo.models.prepared.describe import inputs_of, operators_of, outputs_of
from torchmojo.models.prepared.flat import flat_text
from torchmojo.models.prepared.place import check_place, put, resolve, work_folder
from torchmojo.models.prepared.program import example_tensors, program_of
from torchmojo.toolchain.export.folder import umask
from torchmojo.toolchain.export.manifest import digest, platform
from torchmojo.toolchain.export.target import code_flags

__all__ = ["prepare"]

_MOST_THREADS = 1024  # torch would start them all


def prepare(
    model_or_file: Any,
    example_inputs: Any,
    out_dir: str | Path,
    dynamic: Any = None,
    threads: int | None = None,
    trusted: bool = False,
) -> Path:
    """Compiles a model into a folder that `torchmojo.Model` and Mojo's `Model` run.

    It takes 10 to 90 seconds and a C++ compiler, which torch writes the model's code for; running
    the folder needs neither. The folder appears whole or not at all, and holds the library
    (``model.so``), the weights (``weights.safetensors``, aligned to 64 bytes, to be mapped), a
    description (``manifest.json``) and the same for Mojo (``model.flat``).

    Args:
        model_or_file: A ``torch.nn.Module`` or scripted module in evaluation mode, an
            ``ExportedProgram``, or the path of a TorchScript or ``.pt2`` file.
        example_inputs: The tensors that ``forward`` is called with, by position: their dtypes,
            sizes and the order of their strides become those of the model's inputs.
        out_dir: Folder to write. One that an earlier ``prepare`` wrote, and that holds no other
            files, is replaced; programs that have it loaded keep what they have.
        dynamic: Sizes that vary, by argument and axis: ``{"x": {0: ("n", 1, 8)}}`` for 1 to 8 of
            them; equal names are one size, and none is 0. Not for scripted and exported models.
        threads: Threads that loops are split for; by default ``torch.get_num_threads()``. A library
            for two threads can take twice as long on one: prepare for what will be used.
        trusted: TorchScript and ``.pt2`` files **can carry code that runs when they are loaded**.
            They are refused unless this is True. Say so only of files whose origin you know.

    Returns:
        The folder.

    Raises:
        ArgumentError: The model or a part of it is in training mode, or it is none of these, or an
            example is no dense tensor.
        CompilerNotFoundError: There is no C++ compiler.
        FileExistsError: The folder holds something that no `prepare` wrote, or is the current
            directory or a mount point. This is found out before anything is compiled.
        ModelError: A file is not trusted or not a model; or torch can not export or compile the
            model; or it writes its buffers, inputs or attributes; or the folder cannot be written.

    Example:
        >>> import torch, torchmojo
        >>> folder = torchmojo.prepare(
        ...     torch.nn.Linear(4, 2).eval(), torch.zeros(1, 4), "linear"
        ... )  # doctest: +SKIP
        >>> torchmojo.Model(folder)(torch.zeros(1, 4)).shape  # doctest: +SKIP
        torch.Size([1, 2])
    """
    import torch

    folder = resolve(out_dir)
    check_place(folder)
    count = torch.get_num_threads() if threads is None else threads
    if type(count) is not int or not 1 <= count <= _MOST_THREADS:
        raise ArgumentError(
            f"prepare: threads: wanted 1 or more, up to {_MOST_THREADS}, given {threads!r}"
        )
    inputs = example_tensors(example_inputs)
    program = program_of(model_or_file, inputs, dynamic, trusted)
    manifest = {
        "made_by": names.MADE_BY,
        "format": names.FORMAT,
        "versions": {"torchmojo": __version__, "torch": str(torch.__version__)},
        "platform": platform(),
        "threads": count,
        "inputs": inputs_of(program),
        "outputs": outputs_of(program),
        "result": torch.utils._pytree.treespec_dumps(program.call_spec.out_spec),
        "operators": operators_of(program),
    }
    compiled = compile_program(program, count)
    with work_folder(folder) as work:
        _write(work, manifest, compiled)
        work.chmod(0o755 & ~umask())
        put(work, folder)
    return folder


def _write(work: Path, manifest: dict[str, Any], compiled: Compiled) -> None:
    """Writes the files, the manifest last: it holds the digests of the others."""
    weights = {name: compiled.weights[name] for name in compiled.constants.values()}
    stored = write_weights(work / names.WEIGHTS, weights)
    (work / names.LIBRARY).write_bytes(compiled.library)
    if compiled.calls is not None:
        (work / names.CALLS).write_bytes(compiled.calls)
    manifest["cpu"] = {"isa": compiled.isa, "features": list(code_flags())}
    manifest["calls"] = _called(compiled.calls)
    manifest["weights"] = {
        name: _entry(own, stored[name]) for own, name in compiled.constants.items()
    }
    lengths = {name: (work / name).stat().st_size for name in (names.LIBRARY, names.WEIGHTS)}
    text = flat_text(manifest, lengths, _libtorch())
    (work / names.FLAT).write_text(text, "utf-8")
    manifest["files"] = {
        path.name: {"sha256": digest(path), "nbytes": path.stat().st_size}
        for path in sorted(work.iterdir())
    }
    (work / names.MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")


def _libtorch() -> Path:
    """Returns the library that this process runs."""
    import torch

    return Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"


def _called(calls: bytes | None) -> list[str]:
    """Returns the operators that torch's list of calls names."""
    if calls is None:
        return []
    nodes = json.loads(calls)["nodes"]
    return sorted({node["node"]["target"] for node in nodes})


def _entry(constant: str, stored: Stored) -> dict[str, Any]:
    return {
        "constant": constant,
        "tensor": stored.tensor,
        "dtype": stored.dtype,
        "offset": stored.offset,
        "nbytes": stored.nbytes,
        "sizes": list(stored.sizes),
        "strides": list(stored.strides),
    }
