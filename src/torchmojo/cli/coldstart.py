"""The command coldstart: where the time to the first result goes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from torchmojo.cli.output import console, print_json
from torchmojo.errors import ArgumentError

__all__ = ["coldstart"]


def coldstart(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A TorchScript file, a .pt2 file, an AOTInductor package, a prepared folder, or "
            "module:factory, a Python function that returns the model.",
        ),
    ],
    input: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="SIZES[:DTYPE]",
            help="Sizes of an input, such as 1,3,224,224:float32; once for each input.",
        ),
    ] = None,
    then: Annotated[
        list[str] | None,
        typer.Option(
            "--then",
            metavar="SIZES[:DTYPE]",
            help="Other sizes of the inputs: what a second shape costs.",
        ),
    ] = None,
    threads: Annotated[int, typer.Option(metavar="N", help="Threads of torch.")] = 1,
    runs: Annotated[int, typer.Option(metavar="N", help="Processes for each remedy.")] = 5,
    forwards: Annotated[int, typer.Option(metavar="N", help="Runs in each process.")] = 10,
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda or cuda:N.")] = "cpu",
    remedy: Annotated[
        list[str] | None,
        typer.Option(
            "--remedy",
            metavar="NAME",
            help="Measure this remedy only, such as 'warm-up', or none; may be repeated.",
        ),
    ] = None,
    prepare: Annotated[
        bool,
        typer.Option(
            "--prepare", help="Measure torchmojo.prepare too: a minute and a C++ compiler."
        ),
    ] = False,
    trusted: Annotated[
        bool,
        typer.Option("--trusted", help="Load a file that can carry code: you know its origin."),
    ] = False,
    timeout: Annotated[
        float, typer.Option(metavar="S", help="Seconds that a process may take.")
    ] = 600.0,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write a picture: .html or .png."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say why a model's first call is slow, and what helps.

    Example: torchmojo coldstart model.pt --input 1,3,224,224 --trusted
    """
    from torchmojo.inspect.coldstart.picture import check
    from torchmojo.inspect.coldstart.rounds import coldstart as diagnose
    from torchmojo.inspect.coldstart.table import WIDTH, print_report

    if out is not None:
        check(out)  # not after minutes
        if not out.absolute().parent.is_dir():
            raise ArgumentError(f"coldstart: out: wanted a folder to write into, given {out}")
    with _progress() as progress:
        found = diagnose(
            model,
            input=input,
            then=then,
            runs=runs,
            forwards=forwards,
            threads=threads,
            remedies=_remedies(remedy),
            prepare=prepare,
            device=device,
            trusted=trusted,
            timeout=timeout,
            progress=progress,
        )
    if out is not None:
        found.save(out)
    if as_json:
        print_json(found.to_json())
    else:
        screen = console()
        screen.soft_wrap = False  # tables and sentences fit the terminal
        if not screen.is_terminal:
            screen.width = WIDTH
        print_report(found, screen)


def _remedies(names: list[str] | None) -> bool | list[str]:
    """Reads ``--remedy``: all without one, nothing for ``none``."""
    if not names:
        return True
    return False if names == ["none"] else names


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int, str], object]]:
    """Shows on standard error how many processes have run."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, name: bar.update(
            task, completed=done, total=total, description=name
        )
