"""What broke pipelines once: each test keeps the right value."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from torchmojo.cli import app
from torchmojo.errors import AliasError, ArgumentError
from torchmojo.vision import Classes, Detections, Pipeline, Prepare, Record, Results, prepare


def zeros(n):
    return torch.zeros(n, dtype=torch.int64)


def box(value):
    """Give a decision: one box with four equal corners."""
    return lambda x: Detections(torch.full((1, 4), value), torch.ones(1), zeros(1), zeros(1))


def pipeline(decide, **options):
    return Pipeline(Prepare(8, scale=1.0), torch.nn.Identity(), decide, **options)


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / "photo.png"
    Image.new("RGB", (8, 8), (10, 20, 30)).save(path)
    return path


def test_results_do_not_lie_in_the_memory_of_the_input():
    frames = [torch.full((8, 8, 3), value, dtype=torch.uint8) for value in (10, 20, 30)]
    records = pipeline(lambda x: Classes(x.flatten()[:2], zeros(2), zeros(2)))(frames)
    assert [r.scores.tolist() for r in records] == [[10, 10], [20, 20], [30, 30]]


def test_an_output_over_its_images():
    memory = torch.randint(0, 256, (2, 32, 32, 3), dtype=torch.uint8)
    options = {"dtype": torch.uint8, "layout": "nhwc"}
    with pytest.raises(AliasError) as caught:
        prepare([memory[1], memory[0]], 32, out=memory, **options)
    assert str(caught.value).startswith("prepare: out: wanted memory apart from ")
    pair = [memory.numpy()[1], memory.numpy()[0]]
    with pytest.raises(AliasError):
        prepare(pair, 32, out=memory, **options)
    with pytest.raises(AliasError) as caught:
        prepare([memory[0], memory[1]], 32, out=torch.empty(1, 3, 32, 32).expand(2, 3, 32, 32))
    assert "wanted memory of its own for each number" in str(caught.value)
    wide = torch.zeros(2, 32, 64, 3, dtype=torch.uint8)
    halves = [wide[0, :, ::2], wide[1, :, ::2]]
    made = prepare(halves, 32, out=wide[:, :, 1::2], **options)  # between them
    assert made.tensor.sum() == 0


def test_nobodys_picture_is_overwritten(tmp_path, photo):
    folder = tmp_path / "found"
    folder.mkdir()
    (folder / "photo.jpg").write_bytes(b"mine")
    for _ in range(2):
        with Results(folder) as results:
            [record] = pipeline(box(1.0))([photo], results=results)
        assert record.picture == "photo-2.jpg"
    assert (folder / "photo.jpg").read_bytes() == b"mine"
    with Results(folder, settings="other") as results:
        [record] = pipeline(box(2.0))([photo], results=results)
    assert (record.picture, record.skipped) == ("photo-2.jpg", False)


def test_the_settings_of_a_pipeline_count(tmp_path, photo):
    done = []
    for settings in ("a", "a", "b", "b"):
        with Results(tmp_path / "found") as results:
            [record] = pipeline(box(1.0), settings=settings)([photo], results=results)
            done.append(record.skipped)
            assert len(results.lines()) == 1
    assert done == [False, True, False, True]


def test_results_apart_from_the_pictures(tmp_path, photo):
    folder = tmp_path / "photos"
    folder.mkdir()
    shutil.copy(photo, folder / "photo.jpg")
    before = (folder / "photo.jpg").read_bytes()
    done = CliRunner().invoke(app, ["detect", str(folder), "--out", str(folder)])
    assert done.exit_code == 1
    assert "--out: wanted a folder apart from the pictures" in done.output + str(done.stderr)
    assert (folder / "photo.jpg").read_bytes() == before


def test_two_runs_into_one_folder(tmp_path):
    first = Results(tmp_path, pictures=False)
    first.write(Record("a.png", 0))
    with pytest.raises(ArgumentError) as caught:
        Results(tmp_path, pictures=False)
    assert str(caught.value) == (
        f"Results: folder: wanted a folder that nobody writes into, given {tmp_path}, which "
        "another run has open; wait for it, or take another folder"
    )
    first.close()
    with Results(tmp_path, pictures=False) as second:
        second.write(Record("b.png", 0))
        assert [line["source"] for line in second.lines()] == ["a.png", "b.png"]


def test_a_link_stays_a_link(tmp_path):
    target = tmp_path / "elsewhere.jsonl"
    target.write_text(json.dumps({"source": "gone.png", "error": "x"}) + "\n")
    folder = tmp_path / "found"
    folder.mkdir()
    (folder / "results.jsonl").symlink_to(target)
    with Results(folder, pictures=False) as results:
        results.write(Record("a.png", 0))
    assert (folder / "results.jsonl").is_symlink()
    assert [json.loads(line)["source"] for line in target.read_text().splitlines()] == ["a.png"]


@pytest.mark.parametrize(
    "decide",
    [
        box(1e30),
        box(float("nan")),
        lambda x: Classes(0.5, 3, 0),
        lambda x: Classes(torch.ones(1), torch.tensor([7]), zeros(1)),
    ],
)
def test_what_cannot_be_drawn_is_an_error_of_its_record(tmp_path, photo, decide):
    with Results(tmp_path / "found", names=["one"]) as results:
        records = pipeline(decide)([photo, photo], results=results)
        lines = results.lines()
    assert len(records) == len(lines) == 2
    for record, line in zip(records, lines, strict=True):
        if record.error is not None:
            assert line["error"] == record.error
            assert "picture" not in line


def test_a_source_that_raises_gives_what_it_gave():
    def frames():
        for _ in range(2):
            yield torch.zeros(8, 8, 3, dtype=torch.uint8)
        raise RuntimeError("no camera")

    seen = []
    with pytest.raises(RuntimeError, match="no camera"):
        seen.extend(r.source for r in _watch(pipeline(box(1.0), batch=8).stream(frames()), seen))
    assert seen == ["frame 0", "frame 1"]


def _watch(stream, seen):
    for record in stream:
        seen.append(record.source)
    return []


def test_a_middle_larger_than_the_input():
    stage = Pipeline(Prepare(8, centre=10), torch.nn.Identity(), box(0.0))
    [record] = stage([torch.zeros(8, 8, 3, dtype=torch.uint8)])
    assert record.error == (
        "ArgumentError: Prepare: centre: wanted at most 8, the shorter side of the input of 8 x 8, "
        "given 10"
    )


def test_an_input_without_end():
    from torchmojo.vision import short_side

    stage = Pipeline(Prepare(short_side(256), centre=224), torch.nn.Identity(), box(0.0))
    [record] = stage([np.zeros((1, 60000, 3), np.uint8)])
    assert "wanted an input of at most 67108864 pixels, given 256 x 15360000" in record.error


def test_a_pipe_is_no_picture(tmp_path):
    pipe = tmp_path / "pipe.png"
    os.mkfifo(pipe)
    code = (
        "import sys, torch; from torchmojo.vision import *\n"
        "p = Pipeline(Prepare(8), torch.nn.Identity(), lambda x: None)\n"
        "print(p([sys.argv[1]])[0].error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, pipe], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == f"ArgumentError: image: wanted a regular file, given {pipe}"
