"""The demo's last step: faces in the photograph, by a real model between two Mojo stages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchmojo.errors import ModelError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Faces", "find_faces", "show_faces"]


@dataclass(frozen=True, slots=True)
class Faces:
    """What was found.

    Attributes:
        boxes: x0, y0, x1, y1 of each face in pixels, and its score; best first.
        times: Milliseconds of each stage, in their order.
        output: The photograph with the boxes drawn; None where there is none.
        note: Why nothing was looked for, and how to change that; empty where it was.
    """

    boxes: tuple[tuple[float, ...], ...] = ()
    times: tuple[tuple[str, float], ...] = ()
    output: Path | None = None
    note: str = ""


def find_faces(path: Path | None, output: Path) -> Faces:
    """Detects faces in a picture, and draws them.

    Args:
        path: The picture; None where there is no photograph.
        output: PNG file to write.
    """
    from torchmojo.vision import centerface
    from torchmojo.vision.pipeline.draw import annotate

    if path is None:
        return Faces(note="no photograph to find faces in")
    try:
        pipeline = centerface(keep=["image"], on_error="raise", workers=0)
    except (ModelError, ImportError) as error:
        return Faces(note=str(error))
    pipeline([path])  # kernels are opened, and pages of the weights are read
    [record] = pipeline([path])
    annotate(record).save(output)
    assert record.boxes is not None and record.scores is not None
    boxes = zip(record.boxes.tolist(), record.scores.tolist(), strict=True)
    return Faces(
        boxes=tuple((*corners, score) for corners, score in boxes),
        times=tuple((name, taken * 1e3) for name, taken in record.seconds.items()),
        output=output.absolute(),
    )


def show_faces(faces: Faces, console: Console) -> None:
    """Prints what was found.

    Args:
        faces: What to print.
        console: Where to.
    """
    if faces.note:
        console.print("[bold]Faces[/bold]", f"not looked for: {faces.note}", soft_wrap=True)
        return
    times = ", ".join(f"{name} {taken:.1f}" for name, taken in faces.times)
    console.print(f"[bold]Faces[/bold]  by CenterFace, in ms: {times}", highlight=False)
    for *corners, score in faces.boxes:
        where = " ".join(f"{corner:.1f}" for corner in corners)
        console.print(f"  score {score:.4f}  box {where}", highlight=False)
    console.print(f"[bold]Written[/bold]  {faces.output}", highlight=False, soft_wrap=True)
