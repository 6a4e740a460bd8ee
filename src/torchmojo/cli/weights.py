"""The command weights: what a file of weights holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchmojo.cli.output import console, print_json, size

if TYPE_CHECKING:
    from torchmojo.models.weights.weights import Weights

__all__ = ["weights"]


def weights(
    path: Annotated[Path, typer.Argument(help="A .pt, .pth, .safetensors or TorchScript file.")],
    sha256: Annotated[str | None, typer.Option(help="The digest that it must have.")] = None,
    key: Annotated[str | None, typer.Option(help="Take only what is below this name.")] = None,
    trusted: Annotated[bool, typer.Option(help="Take TorchScript, which carries code.")] = False,
    crc: Annotated[bool, typer.Option(help="Compare all checksums of the archive.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a file of weights and list its tensors.

    Nothing of it is run.

    Example: torchmojo weights model.pt
    """
    from torchmojo.models.weights.open import open_weights

    with open_weights(
        path,
        sha256=sha256,
        key=key,
        trusted=trusted,
        verify="crc" if crc else "structure",
    ) as opened:
        if as_json:
            _print_json(opened)
        else:
            _print_table(opened)


def _print_json(opened: Weights) -> None:
    print_json(
        {
            "path": str(opened.path),
            "format": opened.format,
            "sha256": opened.sha256,
            "bytes": opened.nbytes,
            "metadata": opened.metadata,
            "tensors": [row._asdict() for row in opened.info()],
        }
    )


def _print_table(opened: Weights) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("name", "dtype", "shape", "size", "aligned", "shares memory with"):
        right = title in ("size", "aligned")
        table.add_column(title, no_wrap=True, justify="right" if right else "left")
    for row in opened.info():
        shape = ", ".join(map(str, row.shape))
        aligned = f"{row.alignment}, copied" if row.copied else str(row.alignment)
        table.add_row(row.name, row.dtype, shape, size(row.nbytes), aligned, row.shares or "")
    out = console()
    longest = max((len(name) for name in opened), default=0)
    out.print(table, width=max(out.width, 2 * longest + 80))  # names and shapes stay whole
    checked = "" if opened.sha256 is None else ", sha256 as wanted"
    count = "1 tensor" if len(opened) == 1 else f"{len(opened)} tensors"
    print(f"{opened.path}: {opened.format}, {count}, {size(opened.nbytes)}{checked}")
