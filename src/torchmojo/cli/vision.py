"""The commands detect and classify: a folder of pictures through a ready pipeline."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchmojo.cli.output import console, print_json, size
from torchmojo.errors import ArgumentError

if TYPE_CHECKING:
    from torchmojo.vision.pipeline.pipeline import Pipeline
    from torchmojo.vision.pipeline.record import Record, Summary

__all__ = ["classify", "detect"]

DETECTORS = ("centerface", "mtcnn", "blazeface")
CLASSIFIERS = ("mobilenet_v2",)
ENDINGS = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}

Paths = Annotated[
    list[Path], typer.Argument(metavar="PATHS", help="Pictures, and folders of them.")
]
Model = Annotated[str, typer.Option(metavar="NAME", help="The model.")]
Prepared = Annotated[
    Path | None, typer.Option(metavar="DIR", help="The model's prepared folder, to run that.")
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Write results and pictures there.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
AsLines = Annotated[bool, typer.Option("--jsonl", help="Print a line of JSON for each picture.")]
Batch = Annotated[int, typer.Option(metavar="N", min=1, help="Pictures together, at most.")]
Threads = Annotated[int | None, typer.Option(metavar="N", min=1, help="Threads of torch and Mojo.")]
Engine = Annotated[str, typer.Option(metavar="local|ray", help="Here, or on a Ray cluster.")]


def detect(
    paths: Paths,
    model: Model = "centerface",
    prepared: Prepared = None,
    threshold: Annotated[
        float | None, typer.Option(metavar="SHARE", min=0, max=1, help="Least score of a box.")
    ] = None,
    out: Out = None,
    as_json: AsJson = False,
    as_lines: AsLines = False,
    batch: Batch = 1,
    threads: Threads = None,
    engine: Engine = "local",
) -> None:
    """Find faces in pictures.

    Example: torchmojo detect photos/ --out faces
    """
    _choose("--model", model, DETECTORS)
    options: dict[str, Any] = {}
    if threshold is not None:
        cascade = model == "mtcnn"
        options = {"thresholds": (0.6, 0.7, threshold)} if cascade else {"threshold": threshold}
    _run(paths, model, prepared, options, out, as_json, as_lines, batch, threads, engine)


def classify(
    paths: Paths,
    model: Model = "mobilenet_v2",
    prepared: Prepared = None,
    top: Annotated[int, typer.Option(metavar="N", min=1, help="Classes a picture.")] = 5,
    out: Out = None,
    as_json: AsJson = False,
    as_lines: AsLines = False,
    batch: Batch = 1,
    threads: Threads = None,
    engine: Engine = "local",
) -> None:
    """Tell which of ImageNet's classes pictures show.

    Example: torchmojo classify photos/ --jsonl
    """
    _choose("--model", model, CLASSIFIERS)
    options = {"top": top}
    _run(paths, model, prepared, options, out, as_json, as_lines, batch, threads, engine)


def _choose(option: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise typer.BadParameter(f"wanted {' or '.join(known)}, given {given!r}", param_hint=option)


def _run(
    paths: list[Path],
    model: str,
    prepared: Path | None,
    options: dict[str, Any],
    out: Path | None,
    as_json: bool,
    as_lines: bool,
    batch: int,
    threads: int | None,
    engine: str,
) -> None:
    """Runs a ready pipeline and prints what it finds; fails if a picture did."""
    _choose("--engine", engine, ("local", "ray"))
    if as_json and as_lines:
        raise typer.BadParameter("wanted --json or --jsonl, given both", param_hint="--json")
    if prepared is not None:
        if model in ("mtcnn", "blazeface"):
            raise typer.BadParameter(f"wanted centerface or mobilenet_v2, given {model!r}")
        options["prepared"] = prepared
    files = _files(paths, out)
    import torch

    import torchmojo.vision

    if threads is not None:
        torch.set_num_threads(threads)
    pipeline = getattr(torchmojo.vision, model)(batch=batch, **options)
    shown: list[dict[str, Any]] = []
    show = _printer(as_json, as_lines, shown)
    summary = _go(pipeline, files, out, engine, show, not (as_json or as_lines))
    if as_json:
        print_json({"records": shown, "summary": summary.as_dict()})
    elif not as_lines:
        _print_summary(summary, out)
    if summary.failed:
        raise typer.Exit(1)


def _go(
    pipeline: Pipeline, files: list[str], out: Path | None, engine: str, show: Any, bar: bool
) -> Summary:
    """Runs the pipeline, here or on a cluster, into a folder or none."""
    import contextlib

    from torchmojo.vision.pipeline.results import Results

    with contextlib.ExitStack() as stack:
        results = None
        if out is not None:
            results = Results(out, settings=pipeline.settings, pictures=engine == "local")
            stack.enter_context(results)
        if engine == "ray":
            from torchmojo.vision.pipeline.many import over_files

            records: Iterator[Record] = over_files(pipeline, files, results)
        else:
            records = pipeline.stream(files, results=results)
        if bar and sys.stderr.isatty():
            from torchmojo.vision.pipeline.pipeline import watched

            records = watched(records, files)
        for record in records:
            show(record)
    return pipeline.summary


def _files(paths: list[Path], out: Path | None = None) -> list[str]:
    """Lists the pictures: files as they are given, those of folders by their endings, in order.

    What lies in the folder of results was drawn by an earlier run, unless it is asked for itself.
    """
    found: list[str] = []
    drawn = None if out is None else out.resolve()
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in ENDINGS)
            if drawn == path.resolve():
                raise ArgumentError(f"--out: wanted a folder apart from the pictures, given {out}")
            found += [
                str(p)
                for p in inside
                if p.is_file() and (drawn is None or not p.resolve().is_relative_to(drawn))
            ]
        else:
            found.append(str(path))
    if not found:
        raise FileNotFoundError(2, "no picture in it", str(paths[0]))
    return list(dict.fromkeys(found))


def _printer(as_json: bool, as_lines: bool, shown: list[dict[str, Any]]) -> Any:
    """Gives what shows one record."""
    import json

    def show(record: Record) -> None:
        if record.error is not None:
            print(f"error: {_plain(record.source)}: {_plain(record.error)}", file=sys.stderr)
        line = record.as_dict()
        if record.skipped:
            line = {"source": record.source, "skipped": True}
        if as_json:
            shown.append(line)
        elif as_lines:
            print(json.dumps(line), flush=True)
        else:
            for text in _texts(record):
                print(text)

    return show


def _texts(record: Record) -> Iterator[str]:
    """Writes what was found for people."""
    name = _plain(record.source)
    if record.skipped:
        yield f"{name}: done before"
    elif record.error is None:
        found = record.as_dict()["found"]
        yield f"{name}: {'nothing found' if not found else len(found)}"
        for row in found:
            box = " ".join(f"{corner:8.1f}" for corner in row.get("box", ()))
            label = "" if box else f"class {row['label']}"
            yield f"  {row['score']:.4f}  {box}{label}"


def _plain(text: str) -> str:
    """Makes a name printable on every terminal, those with bytes that are no text too."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _print_summary(summary: Summary, out: Path | None) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("stage", "seconds", "ms a picture"):
        table.add_column(title, justify="left" if title == "stage" else "right")
    done = max(1, summary.pictures - summary.failed - summary.skipped)
    for stage, taken in summary.as_dict()["seconds"].items():
        table.add_row(stage, f"{taken:.3f}", f"{taken / done * 1e3:.2f}")
    console().print(table)
    where = "" if out is None else f", written to {out}"
    print(
        f"{summary.pictures} pictures, {summary.failed} failed, {summary.skipped} done before, "
        f"{summary.found} found in {summary.wall:.2f} s; {size(summary.copied)} copied{where}"
    )
