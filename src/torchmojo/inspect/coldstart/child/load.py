"""How a model of each kind is loaded, as it is or with a remedy."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torchmojo.models.mode import training_part

if TYPE_CHECKING:
    from torchmojo.inspect.coldstart.child.steps import Recorder

__all__ = ["LOADERS", "SWITCHES", "Function", "example_of", "public"]

Function = Callable[..., Any]


def _script(job: Mapping[str, Any], steps: Recorder) -> Function:
    """Loads a TorchScript file, and freezes it if asked."""
    import torch

    with steps.step("load"):
        model: Function = torch.jit.load(job["artefact"] or job["path"], map_location=job["device"])
        _evaluate(model, steps)
        if "freeze" in job["options"]:
            model = torch.jit.freeze(model)
    return model


def _evaluate(model: Any, steps: Recorder) -> None:
    """Sets evaluation mode, and notes which part of the model lacked it."""
    steps.training = training_part(model) or ""
    if steps.training:
        model.eval()


def _exported(job: Mapping[str, Any], steps: Recorder) -> Function:
    """Loads an exported program."""
    import torch

    with steps.step("load"):
        model: Function = torch.export.load(job["path"]).module()
        if job["device"] != "cpu":
            model.to(job["device"])  # type: ignore[attr-defined]
    return model


def _package(job: Mapping[str, Any], steps: Recorder) -> Function:
    """Loads an AOTInductor package by torch's Python function, or by the C++ class under it."""
    import torch

    with steps.step("load"):
        if "direct" not in job["options"]:
            package: Function = torch._inductor.aoti_load_package(job["path"])
            return package
        loader = torch._C._aoti.AOTIModelPackageLoader(job["path"], "model", False, 1, -1)
    return lambda *args: loader.run(list(args))


def _prepared(job: Mapping[str, Any], steps: Recorder) -> Function:
    """Opens a prepared folder."""
    with steps.step("load"):
        options = {"verify": False} if "unverified" in job["options"] else {}
        model: Function = public("Model")(job["artefact"] or job["path"], **options)
    return model


def _factory(job: Mapping[str, Any], steps: Recorder) -> Function:
    """Calls a Python function that makes the model; with its weights, or for mapped ones."""
    import torch

    mapped = "mapped" in job["options"]
    with steps.step("load"):
        if mapped:
            with torch.device("meta"):
                model = _made(job["path"])[0]
        else:
            model = _made(job["path"])[0].to(job["device"])
        _evaluate(model, steps)
    if mapped:
        with steps.step("weights"):
            state = torch.load(job["artefact"], mmap=True, weights_only=True)
            model.load_state_dict(state, assign=True)
            left = [n for n, t in _tensors(model) if t.is_meta]
            if left:
                raise ValueError(f"not in the checkpoint: {', '.join(left)}")
            model.to(job["device"])
    return model  # type: ignore[no-any-return]


def _tensors(model: Any) -> list[tuple[str, Any]]:
    return [*model.named_parameters(), *model.named_buffers()]


def _made(path: str) -> tuple[Any, Any]:
    """Calls ``module:factory``; returns the model and its example inputs, if it gives some."""
    module, _, name = path.partition(":")
    made = getattr(importlib.import_module(module), name)
    made = made() if not hasattr(made, "parameters") or isinstance(made, type) else made
    return made if isinstance(made, tuple) else (made, None)


LOADERS: dict[str, Callable[[Mapping[str, Any], Any], Function]] = {
    "script": _script,
    "exported": _exported,
    "package": _package,
    "prepared": _prepared,
    "factory": _factory,
}


def _profiling_off(torch: Any) -> None:
    torch._C._jit_set_profiling_executor(False)


def _no_profiled_runs(torch: Any) -> None:
    torch._C._jit_set_num_profiled_runs(0)


def _optimizer_off(torch: Any) -> None:
    torch._C._set_graph_executor_optimize(False)


SWITCHES: dict[str, Callable[[Any], None]] = {
    "profiling off": _profiling_off,
    "no profiled runs": _no_profiled_runs,
    "optimizer off": _optimizer_off,
}
"""Switches of the whole process, by the option that sets each; they take torch."""


def example_of(job: Mapping[str, Any]) -> list[Any] | None:
    """Returns the outlines of a model's own example inputs, where it has some: sizes and dtype.

    Args:
        job: The job; its model is loaded once more.
    """
    import torch

    values: Any = None
    if job["kind"] == "exported":
        program = torch.export.load(job["path"])
        names = set(program.graph_signature.user_inputs)
        nodes = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in names]
        values = [node.meta["val"] for node in nodes]
    elif job["kind"] == "factory":
        values = _made(job["path"])[1]
    elif job["kind"] == "prepared":
        entries = public("Model")(job["path"]).manifest["inputs"]
        return [[list(entry["sizes"]), entry["dtype"]] for entry in entries]
    if values is None:
        return None
    values = [values] if torch.is_tensor(values) else values
    return [[list(v.shape), str(v.dtype).removeprefix("torch.")] for v in values]


def public(name: str) -> Any:
    """Returns a public name of torchmojo, which stands above this part.

    Args:
        name: The name.
    """
    return getattr(importlib.import_module("torchmojo"), name)
