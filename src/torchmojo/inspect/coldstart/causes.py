"""What the time of a cold start went into."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torchmojo.inspect.coldstart.report import Cause

if TYPE_CHECKING:
    from torchmojo.inspect.coldstart.report import Measured, Step

__all__ = ["causes_of"]


def causes_of(
    baseline: Measured,
    answers: Sequence[dict[str, Any]],
    plain: Measured | None = None,
) -> tuple[Cause, ...]:
    """Splits the baseline's time by cause, in the order in which it passes.

    Args:
        baseline: The medians.
        answers: What the processes said.
        plain: The same with TorchScript's optimizer off, if that was measured.
    """
    found = (
        *_before(baseline),
        *_loading(baseline, answers),
        *_first(baseline, answers, plain),
        *_second(baseline),
        *_other(answers),
    )
    return tuple(cause for cause in found if cause.ms > 0)


def _middle(answers: Sequence[dict[str, Any]], key: str, index: int | None = None) -> float | None:
    """Returns the median of what those processes say that say it."""
    values = [a[key] if index is None else a[key][index] for a in answers if a.get(key)]
    return statistics.median(values) if values else None


def _step(baseline: Measured, name: str) -> Step | None:
    return next((step for step in baseline.steps if step.name == name), None)


def _before(baseline: Measured) -> Iterator[Cause]:
    """Yields what comes before the model: Python, torch, the device."""
    yield Cause("Python starts", baseline.start_ms, "start", "interpreter and standard library")
    if step := _step(baseline, "import"):
        detail = f"{step.modules:.0f} modules, {len(step.libraries)} libraries"
        yield Cause("import torch", step.ms, "import", f"{detail}, {_faults(step)}")
    if step := _step(baseline, "context"):
        yield Cause("CUDA context", step.ms, "context", f"{len(step.libraries)} libraries")


def _loading(baseline: Measured, answers: Sequence[dict[str, Any]]) -> Iterator[Cause]:
    """Yields the parts of loading: imports, weights, and the rest."""
    load = _step(baseline, "load")
    if load is None:
        return
    imports = min(load.imports_ms, load.ms)
    yield Cause("imports while loading", imports, "load", f"{load.modules:.0f} modules")
    weights = min(_middle(answers, "weights_ms") or 0.0, load.ms - imports)
    yield Cause("reading weights", weights, "load", "torch's reader over the same records")
    rest = load.ms - imports - weights
    yield Cause("building the model", rest, "load", f"code, graph, library; {_faults(load)}")


def _first(
    baseline: Measured, answers: Sequence[dict[str, Any]], plain: Measured | None
) -> Iterator[Cause]:
    """Yields the parts of the first run that a later one does not have."""
    step = _step(baseline, "first")
    if step is None:
        return
    left = max(step.ms - baseline.steady_ms, 0.0)
    compiled = min(_middle(answers, "compile_ms") or 0.0, left)
    yield Cause("torch.compile", compiled, "first", "compiles when it is called first")
    left -= compiled
    imports = min(step.imports_ms, left) if not compiled else 0.0
    yield Cause("imports in the first run", imports, "first", f"{step.modules:.0f} modules")
    left -= imports
    name = (
        "TorchScript records run 1" if baseline.profiled_runs else "once for each copy of the model"
    )
    if plain is not None:
        own, detail = step.ms - plain.ms("first"), "first run less one with the optimizer off"
    else:
        own = (_middle(answers, "again_ms", 0) or 0.0) - baseline.steady_ms
        detail = "first run of a second copy in the same process, less a steady run"
    own = min(max(own, 0.0), left)
    yield Cause(name, own, "first", detail)
    left -= own
    faults = max(step.minor - (_middle(answers, "steady_minor") or 0.0), 0.0)
    touched = min(faults * (_middle(answers, "fault_ms") or 0.0), left)
    detail = f"about, from {faults:.0f} page faults more than a steady run has"
    yield Cause("memory touched first", touched, "first", detail)
    libraries = ", ".join(step.libraries) or "none new"
    detail = f"kernels set up when first used, caches, threads; libraries: {libraries}"
    yield Cause("other first-time work", left - touched, "first", detail)


def _second(baseline: Measured) -> Iterator[Cause]:
    """Yields what the second run takes more than a steady one."""
    more = baseline.ms("second") - baseline.steady_ms
    name = "TorchScript optimises in run 2" if baseline.profiled_runs else "the second run"
    if more > max(0.1 * baseline.steady_ms, 0.1):  # less is noise
        yield Cause(name, more, "second", "second run less a steady run")


def _other(answers: Sequence[dict[str, Any]]) -> Iterator[Cause]:
    """Yields what another shape costs once."""
    runs = [a["other_ms"] for a in answers if a.get("other_ms")]
    if not runs:
        return
    more = statistics.median(r[0] + r[1] - 2 * statistics.median(r[2:]) for r in runs)
    yield Cause("another shape", more, "then", "first two runs in other sizes, less steady ones")


def _faults(step: Step) -> str:
    disk = f", {step.major:.0f} of them from disk" if step.major else ""
    return f"{step.minor + step.major:.0f} page faults{disk}"
