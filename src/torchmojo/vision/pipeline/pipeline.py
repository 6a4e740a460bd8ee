"""Three stages in a row, over files, images and frames, as a batch or as a stream."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchmojo.bridge.copy.ledger import copies
from torchmojo.errors import ArgumentError
from torchmojo.vision.decode import pixels
from torchmojo.vision.pipeline.flow import ordered
from torchmojo.vision.pipeline.record import Record, Summary
from torchmojo.vision.pipeline.stages import Prepare, as_model, height_and_width
from torchmojo.vision.prepare import Prepared

if TYPE_CHECKING:
    import torch

    from torchmojo.vision.pipeline.results import Results

__all__ = ["Pipeline", "watched"]

KEPT = ("image", "prepared", "outputs")


class Pipeline:
    """Prepare, run a model, decide: three stages that can be replaced, and records between them.

    Files are decoded in threads while the model works; what lies between is bounded, and records
    come out in the order of the input. A picture that cannot be read, or that a stage fails on,
    comes out with its ``error``, and the rest goes on. The memory of the model's input is used
    again for each batch.

    Attributes:
        prepare: The first stage; see ``Prepare``.
        model: The second.
        decide: The third.
        batch: Pictures that go through the stages together, at most.
        summary: What the last run added up to; of a stream, so far.
        settings: A text that changes with what the results depend on; results are done again for
            another one.

    Example:
        >>> import torch
        >>> from torchmojo.vision import Pipeline, Prepare, TopClasses
        >>> brightness = lambda x: x.mean((2, 3))
        >>> pipeline = Pipeline(Prepare(8), brightness, TopClasses(top=1))
        >>> red = torch.zeros(30, 40, 3, dtype=torch.uint8)
        >>> red[..., 0] = 255
        >>> [record.labels for record in pipeline([red])]
        [tensor([0])]
    """

    def __init__(
        self,
        prepare: Any,
        model: Any,
        decide: Callable[[Any], Any],
        *,
        batch: int = 1,
        workers: int = 2,
        ahead: int | None = None,
        keep: Collection[str] = (),
        on_error: str = "record",
        settings: str = "",
    ) -> None:
        """Puts the stages together.

        Args:
            prepare: A ``Prepare``; or a callable that takes a list of images and returns the
                model's input ``[n, ...]``, or a ``Prepared`` where boxes are to be mapped back.
            model: A module (in evaluation mode; it runs without gradients), a ``torchmojo.Model``,
                the folder of one, or any callable that takes the input.
            decide: Takes the outputs; returns ``Detections`` or ``Classes``, or anything with their
                attributes: scores, classes and images, and perhaps boxes and landmarks.
            batch: Pictures together, at most. Pictures whose inputs differ in size are not
                together; those of one batch follow each other.
            workers: Threads that decode; 0 decodes between batches.
            ahead: Pictures that are read and not yet asked for, at most; by default
                ``2 * workers + batch``.
            keep: What records keep: ``image``, ``prepared`` and ``outputs``, in any number.
            on_error: ``record``, or ``raise`` to end with the first error.
            settings: See the attribute.

        Raises:
            ArgumentError: An argument makes no sense.
            ModelError: The prepared model cannot be used.
        """
        if batch < 1 or workers < 0 or (ahead is not None and ahead < 1):
            raise ArgumentError(
                "Pipeline: batch, workers, ahead: wanted 1, 0 and 1 or more, given "
                f"{batch}, {workers} and {ahead}"
            )
        if unknown := set(keep) - set(KEPT):
            raise ArgumentError(
                f"Pipeline: keep: wanted some of {', '.join(KEPT)}, "
                f"given {', '.join(sorted(unknown))}"
            )
        if on_error not in ("record", "raise"):
            raise ArgumentError(f"Pipeline: on_error: wanted record or raise, given {on_error!r}")
        for name, stage in (("prepare", prepare), ("decide", decide)):
            if not callable(stage):
                raise ArgumentError(
                    f"Pipeline: {name}: wanted a callable, given {type(stage).__name__}"
                )
        self.prepare = prepare
        self.model = as_model(model)
        self.decide = decide
        self.batch = batch
        self.workers = workers
        self.ahead = ahead or 2 * workers + batch
        self.keep = frozenset(keep)
        self.on_error = on_error
        self.settings = settings
        self.summary = Summary()
        self._spare: list[torch.Tensor] = []  # memory of inputs that no run uses

    def __call__(
        self, sources: Iterable[Any], *, results: Results | None = None, progress: bool = False
    ) -> list[Record]:
        """Runs all pictures through the stages.

        Args:
            sources: Paths, Pillow images and arrays ``[h, w, c]``, in any mixture.
            results: Where to write results, and which of them lie there already.
            progress: Whether to show a bar on standard error.

        Returns:
            A record for each source, in their order, without its image unless that is kept.
        """
        if isinstance(sources, (str, os.PathLike)):
            raise ArgumentError(
                f"Pipeline: sources: wanted a list of images, given one path; pass [{sources!r}]"
            )
        found = []
        with contextlib.closing(self.stream(sources, results=results)) as stream:
            for record in watched(stream, sources) if progress else stream:
                if "image" not in self.keep:
                    record.image = None
                found.append(record)
        return found

    def stream(
        self, sources: Iterable[Any], *, results: Results | None = None
    ) -> Generator[Record, None, None]:
        """Gives each record as soon as it is there.

        Args:
            sources: As for a call; also an endless one, such as the frames of a camera. It is read
                from a thread, ``ahead`` items ahead, and a frame's memory is used as it lies: a
                camera that writes each frame into the same memory must give copies.
            results: As for a call.

        Returns:
            Records in the order of the sources, with their images. Closing it ends the threads.
        """
        summary = self.summary = Summary()
        memory = self._spare.pop() if self._spare else None
        run = _Run(self, memory)
        start = time.perf_counter()
        numbered = enumerate(sources)
        known = results.holds if results is not None else None
        decoded = ordered(numbered, lambda pair: _read(*pair, known), self.workers, self.ahead)
        try:
            with contextlib.closing(decoded):
                for record in self._inferred(decoded, run):
                    if results is not None:
                        before = time.perf_counter()
                        results.write(record)
                        record.seconds["write"] = time.perf_counter() - before
                    summary.add(record)
                    summary.wall = time.perf_counter() - start
                    if record.error is not None and self.on_error == "raise":
                        raise run.raised or ArgumentError(record.error)
                    yield record
        finally:
            if run.memory is not None:
                self._spare.append(run.memory)

    def _inferred(self, decoded: Iterable[_Read], run: _Run) -> Iterator[Record]:
        """Gathers pictures of one input size into batches; the others wait with them, for order."""
        group: list[Record] = []
        good: list[Record] = []
        size: tuple[int, int] | None = None
        for record, error in decoded:
            run.raised = error or run.raised
            mine = None
            if record.image is not None:
                mine = self._size_of(record, run)
            if mine is not None:
                if good and mine != size:
                    run.infer(good)
                    yield from group
                    group, good = [], []
                good.append(record)
                size = mine
            group.append(record)
            if len(good) == self.batch or not good:
                run.infer(good)
                yield from group
                group, good = [], []
        run.infer(good)
        yield from group

    def _size_of(self, record: Record, run: _Run) -> tuple[int, int] | None:
        """Gives the size of a picture's input; None where it fails."""
        try:
            options = getattr(self.prepare, "options", {})
            record.size = height_and_width(record.image, options)
            if isinstance(self.prepare, Prepare):
                return self.prepare.size_for(*record.size)
            return record.size
        except Exception as error:
            run.fail(record, error)
            return None


_Read = tuple[Record, "Exception | None"]


def _read(index: int, source: Any, known: Callable[[Record], bool] | None) -> _Read:
    """Decodes a file or Pillow image; arrays are taken as they lie."""
    record = Record(f"frame {index}", index)
    start = time.perf_counter()
    try:
        if isinstance(source, (str, os.PathLike)):
            record.source = os.fspath(source)
            facts = Path(source).stat()
            record.stamp = (facts.st_size, facts.st_mtime_ns)
            if known is not None and known(record):
                record.skipped = True
                return record, None
        if hasattr(source, "dtype") and hasattr(source, "shape"):
            record.image = source
        else:
            image = pixels(source, record.source, "rgb", "last")[0]
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


class _Run:
    """One run of a pipeline: its memory, and the stages after decoding."""

    def __init__(self, pipeline: Pipeline, memory: torch.Tensor | None) -> None:
        self.pipeline = pipeline
        self.memory = memory
        self.raised: Exception | None = None

    def fail(self, record: Record, error: Exception) -> None:
        """Notes an error of a stage."""
        self.raised = error
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
        return [whole]
    chosen = [found.images == place for place in range(count)]
    return [tuple(None if x is None else x[mask] for x in whole) for mask in chosen]


def _one(outputs: Any, place: int) -> Any:
    """Takes the outputs of one picture, with a batch axis of 1."""
    from torch.utils._pytree import tree_map

    return tree_map(lambda x: x[place : place + 1] if hasattr(x, "shape") else x, outputs)


def _copied() -> int:
    """Gives the bytes that torchmojo has copied in this process."""
    return sum(entry.nbytes for entry in copies())


def watched(records: Iterable[Record], sources: Iterable[Any]) -> Iterator[Record]:
    """Shows a bar of the records that came, on standard error, and gives them on.

    Args:
        records: Of a stream.
        sources: What the stream reads; its length, where it has one, is that of the bar.
    """
    from rich.console import Console
    from rich.progress import Progress

    total = len(sources) if isinstance(sources, Sized) else None
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("pictures", total=total)
        for record in records:
            progress.advance(task)
            yield record
