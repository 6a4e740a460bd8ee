"""Commands to begin with: demo, new."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["demo", "new"]


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="PNG file to write.")] = Path(
        "torchmojo-demo.png"
    ),
    threads: Annotated[
        int, typer.Option(metavar="N", min=1, help="Threads of torch and Mojo.")
    ] = 1,
) -> None:
    """Filter a picture in Mojo and compare with torch.

    Example: torchmojo demo --out picture.png
    """
    from torchmojo.demo import main

    if status := main(out, threads):
        raise typer.Exit(status)


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the Python package.")],
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Folder to make the project in.")
    ] = Path(),
) -> None:
    """Make a small project with a kernel and its tests.

    Example: torchmojo new fastmath && cd fastmath && pytest
    """
    from torchmojo.cli.template import create, suggest

    if suggestion := suggest(name):
        raise typer.BadParameter(
            f"wanted a Python identifier such as {suggestion}, given {name!r}", param_hint="NAME"
        )
    files = create(name, folder)
    for path in files:
        print(path)
    print(f"\nnext: cd {folder / name} && python -m pytest")
