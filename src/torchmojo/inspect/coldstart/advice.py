"""Which remedy to take."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchmojo.inspect.coldstart.report import ColdStart, Measured

__all__ = ["advise", "bought_by", "show"]

_WORTH = 0.05  # less than this part of the time is not worth a change
_SLOWER = 1.15  # a remedy that makes every later run this much slower is none


def advise(found: ColdStart) -> str:
    """Returns the advice that a diagnosis comes to.

    Args:
        found: The diagnosis.
    """
    usable = [m for m in found.remedies if not m.failed]
    if not usable:
        return "No remedy was measured." + _runs(found) + _mode(found)
    parts = [_change(found.baseline, [m for m in usable if not m.warm_runs])]
    parts += [_warm(found.baseline, m) for m in usable if m.warm_runs]
    return " ".join(part for part in parts if part) + _mode(found)


def _mode(found: ColdStart) -> str:
    """Tells what `warm` and `prepare` would refuse."""
    if not found.training:
        return ""
    return (
        f" The model came with {found.training} in training mode, and was measured after "
        "model.eval(): call that first, as warm and prepare ask for it."
    )


def _runs(found: ColdStart) -> str:
    """Tells how many runs to do before times mean something."""
    count = found.warm_up_runs
    if count < 2:
        return ""
    return f" The first {count} runs are warm-up: do them before the first request."


def _change(baseline: Measured, remedies: list[Measured]) -> str:
    """Names the remedy with the earliest first result, if it is more than noise."""
    if not remedies:
        return ""
    low, high = baseline.spread_ms
    before = baseline.first_result_ms
    kept = [m for m in remedies if m.steady_ms <= _SLOWER * baseline.steady_ms]
    best = min(kept, key=lambda m: m.first_result_ms, default=None)
    if best is None or best.first_result_ms > min(low, (1 - _WORTH) * before):
        noise = f"{show(low)} to {show(high)} ms without one"
        return f"No change of the program buys more than the noise ({noise})."
    runs = bought_by(baseline, best)[1]
    return (
        f"Take '{best.name}': the first result comes after {show(best.first_result_ms)} ms instead "
        f"of {show(before)}, and the first two runs take {show(abs(runs))} ms "
        f"{'less' if runs >= 0 else 'more'}. It is: {best.does}."
    )


def _warm(baseline: Measured, warm: Measured) -> str:
    """Says what a warm-up is worth."""
    first, steady = baseline.ms("first"), baseline.steady_ms
    if first <= (1 + _WORTH) * steady:
        return "A warm-up is not needed: the first run is as quick as later ones."
    return (
        "Where the process starts before its first request, warm up, which is: "
        f"{warm.does}. It took {show(warm.ms('warm'))} ms and {warm.warm_runs} runs; the first "
        f"request then took {show(warm.ms('first'))} ms instead of {show(first)} (steady: "
        f"{show(warm.steady_ms)})."
    )


def bought_by(baseline: Measured, remedy: Measured) -> tuple[float, float]:
    """Returns what a remedy saves: of the first result, and of the first and second run.

    Args:
        baseline: The model as it is.
        remedy: The same with a remedy.
    """
    runs = baseline.ms("first", "second") - remedy.ms("first", "second")
    return baseline.first_result_ms - remedy.first_result_ms, runs


def show(ms: float) -> str:
    """Prints milliseconds: whole ones from 100 on, else with a fraction.

    Args:
        ms: The number.
    """
    return f"{ms:.0f}" if abs(ms) >= 99.95 else f"{ms:.1f}" if abs(ms) >= 0.995 else f"{ms:.2f}"
