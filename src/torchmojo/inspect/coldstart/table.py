"""A diagnosis as tables for people."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from torchmojo.inspect.coldstart.advice import bought_by, show
from torchmojo.inspect.coldstart.plan import KINDS

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from torchmojo.inspect.coldstart.report import ColdStart, Measured

__all__ = ["WIDTH", "html", "print_report", "text", "title"]

WIDTH = 116  # holds all columns with a long name; a narrower terminal folds the names

_UNEVEN = 1.25  # a greater ratio of steady times is said
_WORDS = ("ms", "cause", "in", "how it is known")  # columns of text


def title(found: ColdStart) -> str:
    """Returns one line that says what was measured.

    Args:
        found: The diagnosis.
    """
    threads = f"{found.threads} thread{'s' * (found.threads != 1)}"
    inputs = ", ".join(found.inputs)
    return f"{found.model} ({KINDS[found.kind]}), {inputs}, {found.device}, {threads}"


def print_report(found: ColdStart, console: Console) -> None:
    """Prints tables, what they mean, and the advice.

    Args:
        found: The diagnosis.
        console: Where to.
    """
    for part in _parts(found):
        console.print(part)


def text(found: ColdStart) -> str:
    """Returns the same as plain text.

    Args:
        found: The diagnosis.
    """
    from rich.console import Console

    console = Console(file=io.StringIO(), width=WIDTH, highlight=False, markup=False, emoji=False)
    print_report(found, console)
    return console.file.getvalue().rstrip()  # type: ignore[attr-defined, no-any-return]


def html(found: ColdStart) -> str:
    """Returns the same as a piece of HTML.

    Args:
        found: The diagnosis.
    """
    from rich.console import Console

    console = Console(
        file=io.StringIO(), width=WIDTH, record=True, highlight=False, markup=False, emoji=False
    )
    print_report(found, console)
    return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def _parts(found: ColdStart) -> list[RenderableType]:
    base = found.baseline
    before = base.start_ms + base.ms("import")
    parts: list[RenderableType] = [
        title(found),
        f"torch {found.torch}, medians of {found.runs} fresh processes, load average "
        f"{found.load[0]:.1f} to {found.load[1]:.1f}; before loading: Python {show(base.start_ms)} "
        f"ms, import torch {show(base.ms('import'))} ms",
        _remedies(found),
        _causes(found),
    ]
    failed = [m for m in found.remedies if m.failed]
    parts += [f"not measured: {m.name}: {m.failed}" for m in failed]
    if found.profiled_runs:
        parts.append(
            f"TorchScript recorded {found.profiled_runs} run{'s' * (found.profiled_runs != 1)} and "
            f"optimised in the next: runs 1 to {found.warm_up_runs} are warm-up, no measure."
        )
    parts.append(
        f"From nothing to the first result: {show(base.total_ms)} ms, {show(before)} of them "
        "before the model."
    )
    parts.append(found.advice)
    if note := _busy(found):
        parts.append(note)
    return parts


def _busy(found: ColdStart) -> str:
    """Says so where later runs, which most remedies leave alone, took different times."""
    steady = [m.steady_ms for m in (found.baseline, *found.remedies) if not m.failed]
    if max(steady) <= _UNEVEN * min(steady) or max(steady) < 1:
        return ""
    return (
        f"Steady runs took {show(min(steady))} to {show(max(steady))} ms: the machine was busy "
        "with something else, or a remedy changes them; measure again before you decide."
    )


def _table(*columns: str) -> Table:
    """Returns an empty table; texts are folded where it is narrow, numbers never."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in columns:
        words = name in _WORDS
        table.add_column(name, justify="left" if words else "right", no_wrap=not words)
    return table


def _remedies(found: ColdStart) -> Table:
    times = ("load", "warm-up", "run 1", "run 2", "run 3", "steady", "result")
    table = _table("ms", *times, "saves", "of runs 1+2")
    table.add_row(*_row(found.baseline), "", "")
    for measured in found.remedies:
        if not measured.failed:
            saved = (show(ms) for ms in bought_by(found.baseline, measured))
            table.add_row(*_row(measured), *saved)
    return table


def _row(measured: Measured) -> list[str]:
    warm = show(measured.ms("warm")) if measured.warm_runs else ""
    runs = [show(measured.ms(name)) for name in ("first", "second", "third")]
    ends = [show(measured.steady_ms), show(measured.first_result_ms)]
    return [measured.name, show(measured.load_ms), warm, *runs, *ends]


def _causes(found: ColdStart) -> Table:
    table = _table("cause", "time", "in", "how it is known")
    for cause in found.causes:
        table.add_row(cause.name, show(cause.ms), cause.where, cause.detail)
    return table
