"""What the demo found out, as data and as a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchmojo.demo.faces import Faces, show_faces

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Report", "Row", "Sight", "show"]


@dataclass(frozen=True, slots=True)
class Sight:
    """Where both sides see one tensor.

    Attributes:
        name: The kernel's argument.
        torch: Address by ``data_ptr()``.
        mojo: Address that a kernel returned.
    """

    name: str
    torch: int
    mojo: int

    def __str__(self) -> str:
        """Give one address where they are equal, else both."""
        if self.torch == self.mojo:
            return f"{self.name} {self.torch:#x}"
        return f"{self.name} [red]torch {self.torch:#x}, Mojo {self.mojo:#x}[/red]"


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel's results.

    Attributes:
        kernel: Its name.
        sights: Its output and its input, each seen from both sides.
        copied: Bytes of tensors that came into being during a call.
        difference: Largest difference to plain torch in float64.
        tolerance: Largest difference that rounding explains.
        mojo_ms: Median time of a call, in milliseconds.
        torch_ms: Median time of the same in plain torch, on as many threads.
    """

    kernel: str
    sights: tuple[Sight, ...]
    copied: int
    difference: float
    tolerance: float
    mojo_ms: float
    torch_ms: float

    @property
    def ok(self) -> bool:
        """Whether the numbers are right and both sides saw the same memory."""
        same = all(sight.torch == sight.mojo for sight in self.sights)
        return self.difference <= self.tolerance and same and self.copied == 0


@dataclass(frozen=True, slots=True)
class Report:
    """All that a run of the demo found out.

    Attributes:
        picture: What the picture is.
        note: Why it is not the photograph; empty where it is.
        size: Height and width of the picture.
        threads: Threads that torch and Mojo worked on.
        first_load: Seconds that ``torchmojo.load`` took.
        next_load: Seconds that it takes in a new process from now on.
        rows: One for each kernel, in the order in which they ran.
        output: The picture that was written: gray, blurred, edges.
        faces: What the face detector found in the picture.
    """

    picture: str
    note: str
    size: tuple[int, int]
    threads: int
    first_load: float
    next_load: float
    rows: tuple[Row, ...]
    output: Path
    faces: Faces

    @property
    def compiled(self) -> bool:
        """Whether the compiler ran, which takes seconds, or the kernels were in the cache."""
        return self.first_load > 10 * self.next_load

    @property
    def ok(self) -> bool:
        """Whether every kernel was right."""
        return all(row.ok for row in self.rows)


def show(report: Report, console: Console) -> None:
    """Print a report.

    Args:
        report: What to print.
        console: Where to.
    """
    from rich import box
    from rich.table import Table

    height, width = report.size
    console.print(f"[bold]Picture[/bold]  {report.picture}, {height} x {width}", highlight=False)
    if report.note:
        console.print(f"[yellow]  note:[/yellow] {report.note}", highlight=False, soft_wrap=True)
    how = "compiled" if report.compiled else "from the cache"
    console.print(
        f"[bold]Kernels[/bold]  loaded in {report.first_load:.2f} s ({how}); "
        f"next process: {report.next_load:.2f} s",
        highlight=False,
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("Kernel", no_wrap=True)
    table.add_column("Same memory\nin torch and Mojo", no_wrap=True)
    table.add_column("Copied", justify="right")
    table.add_column("Error\n(allowed)", justify="right", no_wrap=True)
    table.add_column("Mojo\nms", justify="right")
    table.add_column("torch\nms", justify="right")
    table.add_column("Speed", justify="right")
    for row in report.rows:
        right = row.difference <= row.tolerance
        table.add_row(
            row.kernel,
            "\n".join(map(str, row.sights)),
            f"{row.copied} B",
            f"[{'green' if right else 'red'}]{row.difference:.1e}[/]\n({row.tolerance:.0e})",
            f"{row.mojo_ms:.3f}",
            f"{row.torch_ms:.3f}",
            f"{row.torch_ms / row.mojo_ms:.1f} x",
        )
    console.print(table)
    threads = "1 thread" if report.threads == 1 else f"{report.threads} threads"
    console.print(
        f"Medians on {threads}, calls in turn. Error: to plain torch in float64.",
        highlight=False,
    )
    console.print(
        f"[bold]Written[/bold]  {report.output} (gray | blurred | edges)",
        highlight=False,
        soft_wrap=True,
    )
    show_faces(report.faces, console)
    if not report.ok:
        console.print("[bold red]FAILED[/bold red]  see the figures in the table")
