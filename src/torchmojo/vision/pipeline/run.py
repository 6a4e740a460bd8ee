"""One run of a pipeline: how a source is read, and what the stages do with a batch."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchmojo.bridge.copy.ledger import copies
from torchmojo.errors import ArgumentError
from torchmojo.vision.decode import pixels
from torchmojo.vision.pipeline.record import Record
from torchmojo.vision.pipeline.stages import Prepare, height_and_width
from torchmojo.vision.prepare import Prepared

if TYPE_CHECKING:
    import torch

    from torchmojo.vision.pipeline.pipeline import Pipeline

__all__ = ["Read", "Run", "read"]

Read = tuple[Record, "Exception | None"]


def read(index: int, source: Any, known: Callable[[Record], bool] | None) -> Read:
    """Decodes a file or Pillow image; arrays are taken as they lie."""
    record = Record(f"frame {index}", index)
    start = time.perf_counter()
    try:
        if isinstance(source, (str, os.PathLike)):
            record.source = os.fspath(source)
            facts = Path(source).stat()
            if not (stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode)):
                raise ArgumentError(f"image: wanted a regular file, given {record.source}")
            record.stamp = (facts.st_size, facts.st_mtime_ns)
            if known is not None and known(record):
                record.skipped = True
                return record, None
        if hasattr(source, "dtype") and hasattr(source, "shape"):
            record.image = source
        else:
            image = pixels(source, "image", "rgb", "last")[0]
            record.image, record.copied = image, image.nbytes  # out of Pillow's memory
    except Exception as error:  # whatever a reader of damaged files raises
        _note(record, error)
        return record, error
    finally:
        record.seconds["decode"] = time.perf_counter() - start
    return record, None


def _note(record: Record, error: Exception) -> None:
    """Says why a picture has no result."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror
    record.error = f"{type(error).__name__}: {text}"
    record.image = record.prepared = record.geometry = record.outputs = None
    record.boxes = record.scores = record.labels = record.landmarks = None


class Run:
    """One run of a pipeline: its memory, and the stages after decoding."""

    def __init__(self, pipeline: Pipeline, memory: torch.Tensor | None) -> None:
        self.pipeline = pipeline
        self.memory = memory
        self.errors: dict[int, Exception] = {}  # of records that have not come out

    def fail(self, record: Record, error: Exception) -> None:
        """Notes an error of a stage."""
        self.errors[record.index] = error
        _note(record, error)

    def infer(self, records: list[Record]) -> None:
        """Runs the stages over one batch; where that fails, over each picture of it."""
        if not records:
            return
        try:
            self._stages(records)
        except Exception as error:
            if len(records) == 1:
                self.fail(records[0], error)
                return
            for record in records:
                self.infer([record])

    def _stages(self, records: list[Record]) -> None:
        import torch

        pipeline, clock, before = self.pipeline, time.perf_counter, _copied()
        times = [clock()]
        made = self._prepare([record.image for record in records])
        prepared, places = (
            (made.tensor, made.geometry) if isinstance(made, Prepared) else (made, None)
        )
        times.append(clock())
        with torch.no_grad():
            outputs = pipeline.model(prepared)
            times.append(clock())
            found = pipeline.decide(outputs)
        parts = _split(found, len(records))
        for place, (record, part) in enumerate(zip(records, parts, strict=True)):
            record.boxes, record.scores, record.labels, record.landmarks = part
            if places is not None:
                record.geometry = places[place]
                if record.boxes is not None:
                    record.boxes = record.geometry.back(record.boxes)
                if record.landmarks is not None:
                    record.landmarks = record.geometry.back(record.landmarks)
            if "prepared" in pipeline.keep:
                record.prepared = prepared[place : place + 1]
            if "outputs" in pipeline.keep:
                record.outputs = _one(outputs, place)
        times.append(clock())
        copied = _copied() - before
        for record in records:
            record.copied += copied // len(records)
            for name, start, end in zip(
                ("prepare", "model", "decide"), times, times[1:], strict=False
            ):
                record.seconds[name] = (end - start) / len(records)

    def _prepare(self, images: list[Any]) -> Any:
        """Prepares into the memory of the batch before, unless records keep that."""
        stage = self.pipeline.prepare
        if not isinstance(stage, Prepare) or {"prepared", "outputs"} & self.pipeline.keep:
            return stage(images)
        size = stage.size_for(*height_and_width(images[0], stage.options))
        out = stage.memory_for(len(images), *size, memory=self.memory)
        if self.memory is None or out.data_ptr() != self.memory.data_ptr():
            self.memory = (
                out.permute(0, 2, 3, 1).flatten() if stage.channels_last else out.flatten()
            )
        return stage(images, out=out)


Part = tuple["torch.Tensor | None", ...]


def _split(found: Any, count: int) -> list[Part]:
    """Takes a batch's result apart: boxes, scores, labels and landmarks of each picture."""
    whole = (
        getattr(found, "boxes", None),
        found.scores,
        found.classes,
        getattr(found, "landmarks", None),
    )
    if count == 1:
        # Copies, as the masks below make: what was decided may lie in the input's memory, which
        # the next picture is written into.
        return [tuple(x if x is None or not hasattr(x, "clone") else x.clone() for x in whole)]
    chosen = [found.images == place for place in range(count)]
    return [tuple(None if x is None else x[mask] for x in whole) for mask in chosen]


def _one(outputs: Any, place: int) -> Any:
    """Takes the outputs of one picture, with a batch axis of 1."""
    from torch.utils._pytree import tree_map

    return tree_map(lambda x: x[place : place + 1] if hasattr(x, "shape") else x, outputs)


def _copied() -> int:
    """Gives the bytes that torchmojo has copied in this process."""
    return sum(entry.nbytes for entry in copies())
