"""The command doctor: whether everything is in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchmojo.cli.output import console, print_json, size

if TYPE_CHECKING:
    from torchmojo.inspect.doctor import Report

__all__ = ["doctor"]


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say whether everything is in place, and what to do where not.

    Example: torchmojo doctor
    """
    from torchmojo.inspect.doctor import examine

    report = examine()
    if as_json:
        print_json(report.to_json())
    else:
        _print_report(report)
    if report.problems:
        raise typer.Exit(1)


def _print_report(report: Report) -> None:
    out = console()
    for name, text in _lines(report.facts):
        out.print(f"{name:<10} {text}")
    for title, style, findings in (
        ("note", "yellow", report.notes),
        ("problem", "bold red", report.problems),
    ):
        for finding in findings:
            out.print(f"\n{title}: {finding.what}", style=style)
            out.print(f"  to do: {finding.do}")
    if report.ok:
        out.print("\nall good", style="bold green")
    else:
        count = len(report.problems)
        out.print(f"\n{count} problem{'s' * (count > 1)}", style="bold red")


def _lines(facts: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yields the lines of the report for people."""
    python, cache = facts["python"], facts["cache"]
    yield "Python", f"{python['version']} ({python['executable']}), {python['platform']}"
    yield "torchmojo", facts["versions"]["torchmojo"]
    yield "torch", facts["torch"]["version"] or "not installed"
    yield "NumPy", facts["versions"]["numpy"] or "not installed"
    compiler = facts["compiler"]
    if compiler["found"]:
        yield "Mojo", f"{compiler['version']} by {compiler['origin']}: {compiler['path']}"
    else:
        yield "Mojo", "not found"
    for line in compiler["rejected"]:
        yield "", f"not taken: {line}"
    for name, value in facts["settings"].items():
        yield "", f"{name}={value}"
    limit = "" if cache["limit"] is None else f" of {size(cache['limit'])}"
    state = "writable" if cache["writable"] else "NOT writable"
    count = f"{cache['entries']} libraries, {size(cache['bytes'])}{limit}"
    yield "Cache", f"{cache['folder']}: {count}, {state}"
    torch = facts["torch"]
    if torch["version"]:
        yield "Fast door", "open" if torch["fast_door"] else f"SHUT: {torch['reason']}"
        found = sum(torch["symbols"].values())
        yield "", f"{found} of {len(torch['symbols'])} C functions of torch found"
        for name, there in torch["symbols"].items():
            if not there:
                yield "", f"missing: {name}"
        yield "DLPack", f"exchange table {torch['dlpack_exchange'] or 'absent'}"
    libraries = facts["openmp"]["libraries"]
    yield "OpenMP", ", ".join(libraries) or "none loaded"
    threads = facts["threads"]
    words = [f"{threads['cpus']} CPUs"]
    if threads["torch"]:
        words.insert(0, f"{threads['torch']} in torch")
    if threads["OMP_NUM_THREADS"]:
        words.append(f"OMP_NUM_THREADS={threads['OMP_NUM_THREADS']}")
    yield "Threads", ", ".join(words)
