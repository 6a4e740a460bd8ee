"""From a module or a file to the `ExportedProgram` that is compiled."""

from __future__ import annotations

import contextlib
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchmojo.errors import ArgumentError, ModelError
from torchmojo.models.said import said

__all__ = ["example_tensors", "program_of", "quiet"]

_TRUSTED = (
    "a file of this kind can carry code that runs when it is loaded; pass trusted=True if you know "
    "where it comes from"
)


def example_tensors(example_inputs: Any) -> tuple[Any, ...]:
    """Returns example inputs as torch lays them out for a compiled model: dense, without gradient.

    Args:
        example_inputs: A tensor, or a tuple or list of them.

    Raises:
        ArgumentError: One of them is no tensor with memory on the CPU.
    """
    import torch

    given = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else example_inputs
    if not isinstance(given, (tuple, list)) or not given:
        raise ArgumentError(
            "prepare: example_inputs: wanted a tuple of tensors, as the model is called with, "
            f"given {type(example_inputs).__name__}"
        )
    for place, value in enumerate(given):
        if not isinstance(value, torch.Tensor) or not value.is_cpu:
            kind = f"on {value.device}" if isinstance(value, torch.Tensor) else type(value).__name__
            raise ArgumentError(
                f"prepare: example_inputs[{place}]: wanted a tensor on the CPU, given {kind}; "
                "put constants into the module"
            )
    return tuple(_dense(value.detach()) for value in given)


def _dense(tensor: Any) -> Any:
    """Returns a tensor without gaps or repetitions, in the order of its axes in memory."""
    import torch

    resolved = tensor.resolve_conj().resolve_neg()
    return torch.clone(resolved, memory_format=torch.preserve_format)


def program_of(model: Any, inputs: tuple[Any, ...], dynamic: Any, trusted: bool) -> Any:
    """Returns the exported program of whatever `torchmojo.prepare` takes.

    Args:
        model: A module, a scripted module, an exported program, or the path of a file.
        inputs: Example inputs.
        dynamic: See `torchmojo.prepare`.
        trusted: Whether files that can carry code may be loaded.

    Raises:
        ArgumentError: It is none of these, or in training mode.
        ModelError: It cannot be exported, or writes its buffers or inputs.
    """
    import torch

    if isinstance(model, (str, Path)):
        model = _load(Path(model), trusted)
    if isinstance(model, torch.export.ExportedProgram):
        if dynamic is not None:
            raise ArgumentError(
                "prepare: dynamic: wanted None for an exported program, whose sizes are fixed, "
                "given sizes; give them to torch.export.export"
            )
        program = model
    elif isinstance(model, torch.nn.Module):
        program = _export(model, inputs, dynamic)
    else:
        raise ArgumentError(
            "prepare: model: wanted a module, an exported program or the path of a file, given "
            f"{type(model).__name__}"
        )
    _refuse_writes(program)
    return program


def _load(path: Path, trusted: bool) -> Any:
    """Loads a file that is one of two kinds of zip archive."""
    import torch

    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.partition("/")[2] for name in archive.namelist()}
    except zipfile.BadZipFile:
        raise ModelError(
            f"prepare: {path}: wanted a TorchScript or .pt2 file, given no zip archive; for a file "
            "of weights, put them into a module and prepare that"
        ) from None
    scripted = "constants.pkl" in names
    exported = any(name.startswith("models/") for name in names)
    if not scripted and not exported:
        compiled = any("aotinductor" in name for name in names)
        what = "a compiled package" if compiled else "another archive"
        raise ModelError(f"prepare: {path}: wanted a TorchScript or .pt2 file, given {what}")
    if not trusted:
        raise ModelError(f"prepare: {path}: wanted a trusted file: {_TRUSTED}")
    with quiet():
        if scripted:
            return torch.jit.load(str(path), map_location="cpu")
        return torch.export.load(str(path))


def _export(model: Any, inputs: tuple[Any, ...], dynamic: Any) -> Any:
    """Exports a module, or converts a scripted one."""
    import torch

    if getattr(model, "training", False):  # a frozen script has no such mode
        raise ArgumentError(
            "prepare: model: wanted one in evaluation mode, given one in training mode; call "
            "model.eval() first"
        )
    with quiet(), torch.no_grad():
        try:
            if isinstance(model, torch.jit.ScriptModule):
                return _convert(model, inputs, dynamic)
            shapes = _dynamic_shapes(dynamic, model, inputs)
            return torch.export.export(model, inputs, dynamic_shapes=shapes)
        except (ArgumentError, ModelError):
            raise
        except Exception as error:  # whatever torch.export meets in a user's code
            raise ModelError(f"prepare: model: torch cannot export it: {said(error, 4)}") from error


def _convert(model: Any, inputs: tuple[Any, ...], dynamic: Any) -> Any:
    import torch
    from torch._export.converter import TS2EPConverter

    if dynamic is not None:
        raise ArgumentError(
            "prepare: dynamic: wanted None for a scripted model, whose sizes become those of "
            "example_inputs, given sizes"
        )
    # The converter lets sizes vary as it sees fit: they become those of the examples.
    return torch.export.export(TS2EPConverter(model, inputs).convert().module(), inputs)


def _dynamic_shapes(dynamic: Any, model: Any, inputs: tuple[Any, ...]) -> Any:
    """Turns ``{"x": {0: ("n", 1, 8)}}`` into torch's own words; equal names are one size."""
    if dynamic is None:
        return None
    from inspect import signature

    from torch.export import Dim

    names = list(signature(model.forward).parameters)[: len(inputs)]
    if not isinstance(dynamic, Mapping) or not set(dynamic) <= set(names):
        raise ArgumentError(
            f"prepare: dynamic: wanted a dictionary with keys among {', '.join(names)}, given "
            f"{dynamic!r}"
        )
    made: dict[Any, Any] = {}

    def one(what: Any) -> Any:
        if isinstance(what, Sequence) and not isinstance(what, str) and len(what) == 3:
            name, low, high = what
            if isinstance(name, str) and isinstance(low, int) and isinstance(high, int):
                return made.setdefault(name, Dim(name, min=low, max=high))
        raise ArgumentError(
            'prepare: dynamic: wanted a size as ("n", least, most), given ' + repr(what)
        )

    return tuple(
        {axis: one(what) for axis, what in dynamic.get(name, {}).items()} or None for name in names
    )


def _refuse_writes(program: Any) -> None:
    """Refuses a forward that leaves something behind: it could not run in several threads."""
    # In the exported graph a write is an operator as others are; in this form it is an output.
    with quiet():
        signature = program.run_decompositions({}).graph_signature
    for writes, what in (
        (signature.buffers_to_mutate, "buffer"),
        (signature.user_inputs_to_mutate, "input"),
    ):
        if writes:
            names = ", ".join(map(str, writes.values()))
            raise ModelError(
                f"prepare: model: wanted a forward that writes none of its buffers and inputs, "
                f"given one that writes the {what} {names}; take state as an input and return it"
            )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps torch's own notices of its own plans to itself."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        yield
