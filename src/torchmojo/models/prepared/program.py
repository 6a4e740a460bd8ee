"""From a module or a file to the `ExportedProgram` that is compiled."""

from __future__ import annotations

import contextlib
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchmojo.bridge.refuse.facts import is_plain_tensor
from torchmojo.errors import ArgumentError, ModelError
from torchmojo.models.memory import has_memory, torch_wraps
from torchmojo.models.mode import training_part
from torchmojo.models.prepared.written import watch_attributes
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
        kind = type(example_inputs).__name__
        raise ArgumentError(
            "prepare: example_inputs: wanted a tuple of tensors, as the model is called with, "
            f"given {kind if given else f'an empty {kind}'}"
        )
    for place, value in enumerate(given):
        if kind := _unlike(value):
            raise ArgumentError(
                f"prepare: example_inputs[{place}]: wanted a tensor on the CPU, given {kind}; "
                "put constants into the module"
            )
    return tuple(_dense(value.detach()) for value in given)


def _unlike(value: Any) -> str:
    """Returns what keeps a value from being an example; nothing for a good one."""
    import torch

    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    if not value.is_cpu:
        return f"one on {value.device}"
    if value.layout != torch.strided or value.is_nested:
        return f"a {'nested' if value.is_nested else str(value.layout)[6:]} one"
    if not is_plain_tensor(type(value)) or torch_wraps(value) or not has_memory(value):
        return f"a {type(value).__name__} without memory of its own"
    return ""


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

    if part := training_part(model):
        raise ArgumentError(
            f"prepare: model: wanted one in evaluation mode, given {part} in training mode; call "
            "model.eval() first"
        )
    with quiet(), torch.no_grad():
        try:
            if isinstance(model, torch.jit.ScriptModule):
                return _convert(model, inputs, dynamic)
            shapes = _dynamic_shapes(dynamic, model, inputs)
            with watch_attributes(model):
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
    if len(names) != len(inputs):
        raise ArgumentError(
            f"prepare: dynamic: wanted a forward with {len(inputs)} named arguments, given "
            f"({', '.join(names)})"
        )
    if not isinstance(dynamic, Mapping) or not set(dynamic) <= set(names):
        raise ArgumentError(
            f"prepare: dynamic: wanted a dictionary with keys among {', '.join(names)}, given "
            f"{dynamic!r}"
        )
    made: dict[str, tuple[Any, tuple[int, int]]] = {}

    def one(what: Any) -> Any:
        name, low, high = _range(what)
        dim, span = made.setdefault(name, (Dim(name, min=low, max=high), (low, high)))
        if span != (low, high):
            raise ArgumentError(
                f"prepare: dynamic: wanted one range for {name}, given {span[0]}..{span[1]} and "
                f"{low}..{high}"
            )
        return dim

    def axes(name: str, value: Any) -> Any:
        given = dynamic.get(name) or {}
        rank = value.dim()
        if not isinstance(given, Mapping) or any(
            type(axis) is not int or not 0 <= axis < rank for axis in given
        ):
            raise ArgumentError(
                f"prepare: dynamic: {name}: wanted a dictionary with axes from 0 to {rank - 1}, "
                f"given {given!r}"
            )
        return {axis: one(what) for axis, what in given.items()} or None

    return tuple(axes(name, value) for name, value in zip(names, inputs, strict=True))


def _range(what: Any) -> tuple[str, int, int]:
    """Reads a size that varies."""
    if isinstance(what, Sequence) and not isinstance(what, str) and len(what) == 3:
        name, low, high = what
        # torch compiles for sizes of 1 and more, and its library gives nonsense for 0.
        fits = type(low) is int and type(high) is int and 1 <= low < high
        if fits and isinstance(name, str) and name.isidentifier():
            return name, low, high
    raise ArgumentError(
        'prepare: dynamic: wanted a size as ("n", least, most) with a least of 1 and more above '
        f"it, given {what!r}"
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
