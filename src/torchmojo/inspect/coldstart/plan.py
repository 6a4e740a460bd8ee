"""What will be measured: the model, its kind, and the remedies that fit it."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchmojo.errors import ArgumentError, ModelError
from torchmojo.models.example import Example, read_examples

__all__ = ["KINDS", "Plan", "Remedy", "plan"]

KINDS = {
    "script": "TorchScript file",
    "exported": "exported program",
    "package": "AOTInductor package",
    "prepared": "prepared folder",
    "factory": "Python function that makes the model",
}
_CODE = (
    "a file of this kind can carry code that runs when it is loaded; pass trusted=True (--trusted) "
    "if you know where it comes from"
)


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that may shorten the start.

    Attributes:
        name: Its name in tables.
        does: What to write in one's own program.
        options: What the process does other than load and run.
        artefact: What must be made first: ``frozen``, ``state`` or ``prepared``.
        kind: The kind of model that is loaded then; by default the same.
    """

    name: str
    does: str
    options: tuple[str, ...] = ()
    artefact: str = ""
    kind: str = ""


AS_IT_IS = Remedy("as it is", "nothing")
_PREPARED = Remedy(
    "prepared",
    "torchmojo.prepare(model, example, folder) once, then torchmojo.Model(folder)",
    artefact="prepared",
    kind="prepared",
)
_WARM = Remedy(
    "warm-up",
    "torchmojo.warm(model, inputs=[...]) before the first request",
    ("warm",),
)
_FREEZE = "torch.jit.freeze(model.eval())"
_OFF = "torch._C._set_graph_executor_optimize(False) in each thread that calls the model"
_REMEDIES = {
    "script": (
        Remedy("freeze at load", f"model = {_FREEZE} after torch.jit.load", ("freeze",)),
        Remedy("saved frozen", f"{_FREEZE}.save(file) once, load that file", (), "frozen"),
        Remedy(
            "profiling executor off",
            "torch._C._jit_set_profiling_executor(False) before the first call",
            ("profiling off",),
        ),
        Remedy(
            "no profiled runs",
            "torch._C._jit_set_num_profiled_runs(0) before the first call",
            ("no profiled runs",),
        ),
        Remedy("optimizer off", _OFF, ("optimizer off",)),
        Remedy(
            "saved frozen, optimizer off",
            f"{_FREEZE}.save(file) once, load that file, and {_OFF}",
            ("optimizer off",),
            "frozen",
        ),
        _PREPARED,
        _WARM,
    ),
    "exported": (_PREPARED, _WARM),
    "package": (
        Remedy(
            "C++ loader directly",
            "torch._C._aoti.AOTIModelPackageLoader(file, 'model', False, 1, -1).run([...])",
            ("direct",),
        ),
        _WARM,
    ),
    "prepared": (
        Remedy("digests off", "torchmojo.Model(folder, verify=False)", ("unverified",)),
        _WARM,
    ),
    "factory": (
        Remedy(
            "mapped weights",
            "with torch.device('meta'): model = make(); then model.load_state_dict("
            "torch.load(file, mmap=True, weights_only=True), assign=True)",
            ("mapped",),
            "state",
        ),
        _PREPARED,
        _WARM,
    ),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure.

    Attributes:
        model: Path, or ``module:factory``.
        kind: A key of ``KINDS``.
        inputs: Outlines of the inputs; None for those that the model brings along.
        other: Outlines of the same inputs in other sizes, or nothing.
        remedies: Those to measure.
        runs: Fresh processes for each.
        forwards: Calls in each process.
        threads: Threads of torch.
        device: ``cpu`` or a CUDA device.
    """

    model: str
    kind: str
    inputs: tuple[Example, ...] | None
    other: tuple[Example, ...] | None
    remedies: tuple[Remedy, ...]
    runs: int
    forwards: int
    threads: int
    device: str


def plan(
    model: Any,
    folder: Path,
    *,
    input: Any,
    then: Any,
    runs: int,
    forwards: int,
    threads: int,
    remedies: bool | Sequence[str],
    prepare: bool,
    device: str,
    trusted: bool,
) -> Plan:
    """Checks what was asked for; runs nothing of the model.

    Args:
        model: See `torchmojo.coldstart`, as the rest; a scripted module is saved first.
        folder: An empty folder for that.
        input: Sizes and dtypes of the inputs.
        then: Other sizes.
        runs: Fresh processes for each remedy.
        forwards: Calls in each.
        threads: Threads of torch.
        remedies: All, none, or the names of some.
        prepare: Whether to measure a prepared folder as well.
        device: Where the model runs.
        trusted: Whether files may carry code.

    Raises:
        ArgumentError: An argument means nothing.
        FileNotFoundError: There is no such file.
        ModelError: The file is not trusted, or no model.
    """
    counts: tuple[tuple[str, Any, int], ...] = (
        ("runs", runs, 1),
        ("forwards", forwards, 5),
        ("threads", threads, 1),
    )
    for name, value, least in counts:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ArgumentError(f"coldstart: {name}: wanted {least} or more, given {value!r}")
    if device.partition(":")[0] not in ("cpu", "cuda"):
        raise ArgumentError(f"coldstart: device: wanted cpu, cuda or cuda:N, given {device!r}")
    name, kind = _model(model, folder, trusted)
    return Plan(
        name,
        kind,
        None if input is None else read_examples(input, "coldstart", "input"),
        None if then is None else read_examples(then, "coldstart", "then"),
        _chosen(kind, remedies, prepare),
        runs,
        forwards,
        threads,
        device,
    )


def _chosen(kind: str, remedies: bool | Sequence[str], prepare: bool) -> tuple[Remedy, ...]:
    """Returns the remedies to measure."""
    fitting = {remedy.name: remedy for remedy in _REMEDIES[kind]}
    if isinstance(remedies, bool):
        wanted = set(fitting) - {"prepared"} if remedies else set()
        if prepare and "prepared" in fitting:
            wanted.add("prepared")
    else:
        wanted = {remedies} if isinstance(remedies, str) else set(remedies)
        if unknown := sorted(wanted - set(fitting)):
            raise ArgumentError(
                f"coldstart: remedies: wanted some of {', '.join(fitting)} for a {KINDS[kind]}, "
                f"given {unknown[0]!r}"
            )
    return tuple(remedy for name, remedy in fitting.items() if name in wanted)


def _model(model: Any, folder: Path, trusted: bool) -> tuple[str, str]:
    """Returns where a model is found, and its kind."""
    if not isinstance(model, (str, Path)):
        if not hasattr(model, "_c") or not hasattr(model, "save"):
            raise ArgumentError(
                "coldstart: model: wanted a file, a prepared folder, 'module:factory' or a "
                f"scripted module, given {type(model).__name__}; each process loads it afresh: "
                "write the function that makes it into a module"
            )
        path = folder / "model.pt"
        model.save(str(path))  # its code is in this process already
        return str(path), "script"
    path = Path(model).absolute()
    if path.exists():
        kind = _kind(path)
        if kind != "prepared" and not trusted:
            raise ModelError(f"coldstart: {model}: wanted a trusted file: {_CODE}")
        return str(path), kind
    module, colon, name = str(model).partition(":")
    if colon and name.isidentifier() and all(w.isidentifier() for w in module.split(".")):
        return str(model), "factory"
    raise FileNotFoundError(
        f"coldstart: {model}: wanted a file, a prepared folder or module:factory, given neither"
    )


def _kind(path: Path) -> str:
    """Returns the kind of a file or folder; reads names only."""
    if path.is_dir():
        if (path / "manifest.json").is_file():
            return "prepared"
        raise ModelError(
            f"coldstart: {path}: wanted a folder that torchmojo.prepare wrote, given one without "
            "manifest.json"
        )
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.partition("/")[2] for name in archive.namelist()}
    except zipfile.BadZipFile:
        raise ModelError(
            f"coldstart: {path}: wanted a TorchScript file, an exported program or a package, "
            "given no zip archive; for a file of weights, name the function that makes the model: "
            "module:factory"
        ) from None
    if "constants.pkl" in names:
        return "script"
    if any(name.startswith("data/aotinductor/") for name in names):
        return "package"
    if any(name.startswith("models/") for name in names):
        return "exported"
    what = "a file of weights" if "data.pkl" in names else "another archive"
    raise ModelError(
        f"coldstart: {path}: wanted a TorchScript file, an exported program or a package, given "
        f"{what}; name the function that makes the model: module:factory"
    )
