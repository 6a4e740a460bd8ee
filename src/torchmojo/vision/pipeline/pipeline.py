"""Three stages in a row, over files, images and frames, as a batch or as a stream."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Any

from torchmojo.errors import ArgumentError
from torchmojo.vision.pipeline.flow import ordered
from torchmojo.vision.pipeline.record import Record, Summary
from torchmojo.vision.pipeline.run import Read, Run, read
from torchmojo.vision.pipeline.stages import Prepare, as_model, height_and_width

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
        recipe: A function and its arguments that make this pipeline in another process; None to
            send the stages themselves.

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
        self._given = model
        self.decide = decide
        self.batch = batch
        self.workers = workers
        self.ahead = ahead or 2 * workers + batch
        self.keep = frozenset(keep)
        self.on_error = on_error
        self.settings = settings
        self.summary = Summary()
        self.recipe: tuple[Callable[..., Pipeline], dict[str, Any]] | None = None
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
        if isinstance(sources, (str, os.PathLike)):
            raise ArgumentError(
                f"Pipeline: sources: wanted a list of images, given one path; pass [{sources!r}]"
            )
        if results is not None:
            results.adopt(self.settings)
        summary = self.summary = Summary()
        memory = self._spare.pop() if self._spare else None
        run = Run(self, memory)
        start = time.perf_counter()
        numbered = enumerate(sources)
        known = results.holds if results is not None else None
        decoded = ordered(numbered, lambda pair: read(*pair, known), self.workers, self.ahead)
        try:
            with contextlib.closing(decoded):
                for record in self._inferred(decoded, run):
                    if results is not None:
                        before = time.perf_counter()
                        self._write(record, results, run)
                        record.seconds["write"] = time.perf_counter() - before
                    summary.add(record)
                    summary.wall = time.perf_counter() - start
                    if record.error is not None and self.on_error == "raise":
                        raise run.errors[record.index]
                    run.errors.pop(record.index, None)
                    yield record
        finally:
            if run.memory is not None and run.memory.nbytes <= _MOST_SPARE:
                self._spare.append(run.memory)

    def _write(self, record: Record, results: Results, run: Run) -> None:
        """Writes one record; what cannot be drawn or written down is an error of that record."""
        try:
            results.write(record)
        except OSError:  # of the folder, not of the record
            raise
        except Exception as error:
            record.picture = None
            run.fail(record, error)
            results.write(record)

    def map_batches(
        self,
        dataset: Any,
        *,
        column: str = "path",
        workers: int = 2,
        threads: int = 1,
        **options: Any,
    ) -> Any:
        """Runs a data set of Ray Data through the stages, in processes all over a cluster.

        Each process makes the pipeline once. Ready pipelines open their weights there; of one with
        a prepared model the folder's path alone is sent, and all processes of a machine share the
        pages of its weights. Any other module is sent whole. Kernels are compiled once on each
        machine, whose cache has a lock. Results are those of a call in one process.

        Args:
            dataset: A ``ray.data.Dataset``, such as ``ray.data.from_items([{"path": ...}])``.
            column: Where it has paths, which all machines can read, or images.
            workers: Processes.
            threads: Of torch and Mojo, in each.
            **options: Of ``Dataset.map_batches``.

        Returns:
            A data set with the columns of one value a row, and source, error, height, width, boxes,
            scores, labels, landmarks, stamp, seconds (of each of ``STAGES``) and copied.

        Raises:
            ImportError: Ray Data is not installed.
        """
        from torchmojo.vision.pipeline.many import over_dataset

        return over_dataset(
            self, dataset, column=column, workers=workers, threads=threads, **options
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles what the pipeline is made of, neither its memory nor what it ran."""
        if self.recipe is not None:
            return _made, self.recipe
        # A prepared model goes as its path, and is mapped where it arrives.
        model = getattr(self.model, "folder", self._given)
        options = {name: getattr(self, name) for name in _OPTIONS}
        arguments = {"prepare": self.prepare, "model": model, "decide": self.decide}
        return _made, (Pipeline, {**arguments, **options})

    def _inferred(self, decoded: Iterable[Read], run: Run) -> Iterator[Record]:
        """Gathers pictures of one input size into batches; the others wait with them, for order."""
        group: list[Record] = []
        good: list[Record] = []
        size: tuple[int, int] | None = None
        ended: Exception | None = None
        records = iter(decoded)
        while True:
            try:
                record, error = next(records)
            except StopIteration:
                break
            except Exception as raised:  # by the source: what it gave before still comes out
                ended = raised
                break
            if error is not None:
                run.errors[record.index] = error
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
        if ended is not None:
            raise ended

    def _size_of(self, record: Record, run: Run) -> tuple[int, int] | None:
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


_MOST_SPARE = 1 << 28  # bytes of an input that are kept for the next run

_OPTIONS = ("batch", "workers", "ahead", "keep", "on_error", "settings")


def _made(maker: Callable[..., Pipeline], options: dict[str, Any]) -> Pipeline:
    """Makes a pipeline in another process."""
    return maker(**options)


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
