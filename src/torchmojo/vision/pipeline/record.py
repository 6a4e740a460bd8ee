"""What passes between the stages of a pipeline, and what a run adds up to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

    from torchmojo.vision.geometry import Geometry

__all__ = ["STAGES", "Classes", "Record", "Summary"]

STAGES = ("decode", "prepare", "model", "decide", "write")
"""The stages whose times are taken, in the order in which a picture meets them."""


class Classes(NamedTuple):
    """What a classifier's ``decide`` returns of a batch.

    Attributes:
        scores: ``[k]``, greatest first for each picture.
        classes: int64 ``[k]``.
        images: int64 ``[k]``: place of the picture in the batch.
    """

    scores: torch.Tensor
    classes: torch.Tensor
    images: torch.Tensor


@dataclass(slots=True)
class Record:
    """One picture on its way through a pipeline.

    Attributes:
        source: Path of the file as it was given; ``frame 7`` for the eighth array or frame.
        index: Place in the input, from 0.
        image: Decoded pixels uint8 ``[h, w, c]``, the upright ones, or the array that was given; it
            shares that array's memory. A batch call drops it unless it is asked to keep it.
        size: Height and width of the image.
        prepared: The model's input ``[1, c, h, w]``; only where it is kept.
        geometry: Where the image lies in that input; None where the stage does not say.
        outputs: The model's outputs for this picture; only where they are kept.
        boxes: ``[n, 4]``, x0 y0 x1 y1 in the upright image's pixels, best first; None of a
            classifier and of a picture that failed or was skipped.
        scores: ``[n]``.
        labels: int64 ``[n]``: classes.
        landmarks: ``[n, p, 2]`` in the image's pixels, or None.
        error: Why there is no result, beginning with the class of the error; else None.
        skipped: The results that lie there already are of this file, unchanged.
        seconds: Time of each stage, of a batch its equal share.
        copied: Bytes of pixels that were copied from one memory to another on the way.
        stamp: Bytes and time of change of the file that was read, to know it again.
        picture: Name of the annotated picture, where one was written.
    """

    source: str
    index: int
    image: Any = None
    size: tuple[int, int] | None = None
    prepared: torch.Tensor | None = None
    geometry: Geometry | None = None
    outputs: Any = None
    boxes: torch.Tensor | None = None
    scores: torch.Tensor | None = None
    labels: torch.Tensor | None = None
    landmarks: torch.Tensor | None = None
    error: str | None = None
    skipped: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    copied: int = 0
    stamp: tuple[int, int] | None = None
    picture: str | None = None

    @property
    def count(self) -> int:
        """How many boxes or classes were found."""
        return 0 if self.scores is None else len(self.scores)

    def as_dict(self) -> dict[str, Any]:
        """Gives what a JSON Lines file says of the picture: plain numbers, lists and texts.

        Example:
            >>> import torch
            >>> from torchmojo.vision import Record
            >>> found = {"scores": torch.tensor([0.5]), "labels": torch.tensor([967])}
            >>> Record("coffee.png", 0, size=(400, 600), **found).as_dict()["found"]
            [{'label': 967, 'score': 0.5}]
        """
        made: dict[str, Any] = {"source": self.source}
        if self.size is not None:
            made["height"], made["width"] = self.size
        if self.error is not None:
            made["error"] = self.error
        else:
            made["found"] = self._found()
        if self.picture is not None:
            made["picture"] = self.picture
        return made

    def _found(self) -> list[dict[str, Any]]:
        if self.scores is None or self.labels is None:
            return []
        scores, labels = self.scores.tolist(), self.labels.tolist()
        rows = [
            {"label": label, "score": score} for label, score in zip(labels, scores, strict=True)
        ]
        for name, values in (("box", self.boxes), ("landmarks", self.landmarks)):
            if values is not None:
                for row, value in zip(rows, values.tolist(), strict=True):
                    row[name] = value
        return rows


@dataclass(slots=True)
class Summary:
    """What a run adds up to.

    Attributes:
        pictures: Pictures that came out, the failed and the skipped ones among them.
        failed: Pictures with an error.
        skipped: Pictures whose results lay there already.
        found: Boxes or classes of all pictures.
        seconds: Time of each stage; decoding overlaps the others, so that their sum can exceed
            `wall`.
        wall: Seconds from the first picture that was asked for to the last that came out.
        copied: Bytes of pixels that were copied from one memory to another.
    """

    pictures: int = 0
    failed: int = 0
    skipped: int = 0
    found: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    wall: float = 0.0
    copied: int = 0

    def add(self, record: Record) -> None:
        """Counts a record.

        Args:
            record: One that came out of the pipeline.
        """
        self.pictures += 1
        self.failed += record.error is not None
        self.skipped += record.skipped
        self.found += record.count
        self.copied += record.copied
        for stage, taken in record.seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + taken

    def as_dict(self) -> dict[str, Any]:
        """Gives the same as plain numbers."""
        return {
            "pictures": self.pictures,
            "failed": self.failed,
            "skipped": self.skipped,
            "found": self.found,
            "wall_s": self.wall,
            "seconds": {stage: self.seconds.get(stage, 0.0) for stage in STAGES},
            "copied_bytes": self.copied,
        }
