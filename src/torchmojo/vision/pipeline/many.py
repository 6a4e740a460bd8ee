"""The same pipeline over a data set, on the workers of a Ray cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchmojo.errors import ArgumentError
from torchmojo.vision.pipeline.record import STAGES, Record, Summary

if TYPE_CHECKING:
    from torchmojo.vision.pipeline.pipeline import Pipeline
    from torchmojo.vision.pipeline.results import Results

__all__ = ["over_dataset", "over_files"]

BLOCK = 16
"""Pictures that a worker takes at a time."""


def ray_data() -> Any:
    """Imports Ray Data.

    Raises:
        ImportError: It is not installed; the text says how to get it.
    """
    try:
        import ray.data
    except ImportError as error:
        raise ImportError(
            f'map_batches: Ray Data is needed: pip install "torchmojo[ray]" ({error})'
        ) from None
    return ray.data


class Worker:
    """A process of the cluster: the pipeline is made in it once, and its kernels once a machine."""

    def __init__(self, pipeline: Pipeline, column: str, threads: int) -> None:
        """Keeps the pipeline.

        Args:
            pipeline: It was pickled, and so is made anew here.
            column: Where the batches have paths or images.
            threads: For torch and Mojo.
        """
        import torch

        torch.set_num_threads(threads)
        self.pipeline = pipeline
        self.column = column

    def __call__(self, batch: Mapping[str, Any]) -> Any:
        """Runs a batch of the data set through the pipeline.

        Args:
            batch: Columns, as NumPy arrays.

        Returns:
            An Arrow table: the columns of one value a row, and what was found.
        """
        import pyarrow

        if self.column not in batch:
            raise ArgumentError(
                f"map_batches: column: wanted one of {', '.join(batch)}, given {self.column!r}"
            )
        sources = [
            value if hasattr(value, "dtype") and value.ndim else str(value)
            for value in batch[self.column]
        ]
        found = self.pipeline(sources)
        kept = {
            name: pyarrow.array(v) for name, v in batch.items() if v.ndim == 1 and v.dtype != object
        }
        if all(isinstance(source, str) for source in sources):
            kept[self.column] = pyarrow.array(sources)
        return pyarrow.table({**kept, **_columns(found)})


def _columns(records: list[Record]) -> dict[str, Any]:
    """Writes records as columns, whose types do not depend on what was found."""
    import pyarrow as pa

    def lists(name: str) -> list[Any]:
        values = [getattr(record, name) for record in records]
        return [None if value is None else value.tolist() for value in values]

    real, row = pa.float64(), pa.list_(pa.float64())
    sizes = [record.size or (None, None) for record in records]
    return {
        "source": pa.array([r.source for r in records], pa.string()),
        "error": pa.array([r.error for r in records], pa.string()),
        "height": pa.array([size[0] for size in sizes], pa.int64()),
        "width": pa.array([size[1] for size in sizes], pa.int64()),
        "boxes": pa.array(lists("boxes"), pa.list_(row)),
        "scores": pa.array(lists("scores"), pa.list_(real)),
        "labels": pa.array(lists("labels"), pa.list_(pa.int64())),
        "landmarks": pa.array(lists("landmarks"), pa.list_(pa.list_(row))),
        "stamp": pa.array([r.stamp for r in records], pa.list_(pa.int64())),
        "seconds": pa.array([[r.seconds.get(s, 0.0) for s in STAGES] for r in records], row),
        "copied": pa.array([r.copied for r in records], pa.int64()),
    }


def over_dataset(
    pipeline: Pipeline, dataset: Any, *, column: str, workers: int, threads: int, **options: Any
) -> Any:
    """Does the work of ``Pipeline.map_batches``.

    Args:
        pipeline: What each worker runs.
        dataset: A ``ray.data.Dataset``.
        column: Where it has paths or images.
        workers: Processes.
        threads: Of torch and Mojo, in each.
        **options: Of ``Dataset.map_batches``.
    """
    ray_data()
    return dataset.map_batches(
        Worker,
        fn_constructor_kwargs={"pipeline": pipeline, "column": column, "threads": threads},
        batch_format="numpy",
        **{"concurrency": workers, "num_cpus": threads, "batch_size": BLOCK, **options},
    )


def over_files(
    pipeline: Pipeline, files: list[str], results: Results | None, workers: int = 2
) -> Iterator[Record]:
    """Runs files through a pipeline on a cluster: the one of ``RAY_ADDRESS``, or one started here.

    Args:
        pipeline: What each worker runs.
        files: Their paths, which all workers can read.
        results: Where to write results, and which of them lie there already.
        workers: Processes.

    Returns:
        Records in the order of the files, without images.
    """
    data = ray_data()
    import ray

    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)
    summary = pipeline.summary = Summary()
    start = time.perf_counter()
    records = [_stamped(index, file) for index, file in enumerate(files)]
    for record in records:
        record.skipped = results is not None and results.holds(record)
    # Absolute: workers run in other folders.
    wanted = [
        {"path": str(Path(r.source).absolute()), "place": r.index} for r in records if not r.skipped
    ]
    done: dict[int, Record] = {}
    if wanted:
        rows = data.from_items(wanted, override_num_blocks=max(workers, len(wanted) // BLOCK))
        found = over_dataset(pipeline, rows, column="path", workers=workers, threads=1)
        done = {row["place"]: _record(row) for row in found.iter_rows()}
    for record in records:
        if not record.skipped:
            record = _named(done[record.index], record)
        if results is not None:
            results.write(record)
        summary.add(record)
        summary.wall = time.perf_counter() - start
        yield record


def _stamped(index: int, file: str) -> Record:
    record = Record(file, index)
    try:
        facts = Path(file).stat()
    except OSError:
        return record  # the worker says why
    record.stamp = (facts.st_size, facts.st_mtime_ns)
    return record


def _named(record: Record, asked: Record) -> Record:
    record.source, record.index = asked.source, asked.index
    return record


def _record(row: Mapping[str, Any]) -> Record:
    """Makes a record of a row; numbers were float32 before they went on their way."""
    import numpy as np
    import torch

    def tensor(name: str, dtype: Any, *shape: int) -> Any:
        if row[name] is None:
            return None
        value = row[name]
        value = value.tolist() if isinstance(value, np.ndarray) else value
        return torch.tensor(_plain(value), dtype=dtype).reshape(len(value), *shape)

    return Record(
        row["source"],
        row["place"],
        size=None if row["height"] is None else (row["height"], row["width"]),
        boxes=tensor("boxes", torch.float32, 4),
        scores=tensor("scores", torch.float32),
        labels=tensor("labels", torch.int64),
        landmarks=tensor("landmarks", torch.float32, -1, 2)
        if row["landmarks"] is not None and len(row["landmarks"])
        else None,
        error=row["error"],
        stamp=None if row["stamp"] is None else tuple(row["stamp"]),
        seconds=dict(zip(STAGES, row["seconds"], strict=True)),
        copied=row["copied"],
    )


def _plain(value: Any) -> Any:
    """Turns arrays inside of lists into lists."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    return [_plain(v) for v in value] if isinstance(value, list) else value
