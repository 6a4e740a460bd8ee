"""The commands detect and classify, on photographs and on what is none."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from torchmojo.cli import main
from torchmojo.cli.vision import _files
from torchmojo.vision import Classes, Pipeline, Prepare
from torchmojo.vision.ready.centerface import WEIGHTS


@pytest.fixture
def brightness(monkeypatch):
    """Put a model of one line in the place of the ready ones; keeps what they are called with."""
    called = {}

    def ready(**options):
        called.update(options)
        decide = lambda x: Classes(  # noqa: E731
            x.amax(1), torch.zeros(len(x), dtype=torch.int64), torch.arange(len(x))
        )
        return Pipeline(Prepare(8), lambda x: x.mean((2, 3)), decide, batch=options["batch"])

    for name in ("centerface", "mobilenet_v2"):
        monkeypatch.setattr(f"torchmojo.vision.{name}", ready, raising=False)
    return called


@pytest.fixture
def photos(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    (tmp_path / "in" / "more").mkdir(parents=True)
    for place, level in ((("a.png"), 255), ("more/b.JPG", 0)):
        Image.new("RGB", (9, 7), (level,) * 3).save(tmp_path / "in" / place)
    (tmp_path / "in" / "notes.txt").write_text("not looked at")
    return tmp_path / "in"


def test_lines_on_standard_output(photos, brightness, capsys):
    assert main(["classify", str(photos), "--jsonl", "--batch", "2", "--top", "3"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["source"] for line in lines] == [str(photos / p) for p in ("a.png", "more/b.JPG")]
    assert [line["found"] for line in lines] == [
        [{"label": 0, "score": 1.0}],
        [{"label": 0, "score": 0.0}],
    ]
    assert brightness == {"top": 3, "batch": 2}


def test_one_document(photos, brightness, capsys):
    assert main(["detect", str(photos), "--json", "--threshold", "0.25"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert len(shown["records"]) == 2
    summary = shown["summary"]
    assert (summary["pictures"], summary["failed"], summary["skipped"]) == (2, 0, 0)
    assert summary["copied_bytes"] == 2 * 9 * 7 * 3
    assert brightness["threshold"] == 0.25


def test_a_bad_file_is_named_and_gives_exit_code_1(photos, brightness, capsys, tmp_path):
    (photos / "b.png").write_text("no picture")
    out = tmp_path / "out"
    assert main(["detect", str(photos), "--out", str(out)]) == 1
    shown = capsys.readouterr()
    assert shown.err.count("error:") == 1
    assert f"error: {photos / 'b.png'}: ImageError: " in shown.err
    assert "3 pictures, 1 failed, 0 done before, 2 found in" in shown.out
    assert str(out) in shown.out
    assert sorted(p.name for p in out.iterdir()) == ["a.jpg", "b.jpg", "results.jsonl"]
    (photos / "b.png").unlink()
    assert main(["detect", str(photos), "--out", str(out)]) == 0
    assert "2 pictures, 0 failed, 2 done before, 0 found" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["detect", "x.png", "--model", "yolo"], "wanted centerface or mtcnn or blazeface"),
        (["classify", "x.png", "--model", "mtcnn"], "wanted mobilenet_v2"),
        (["detect", "x.png", "--engine", "spark"], "wanted local or ray"),
        (["detect", "x.png", "--json", "--jsonl"], "wanted --json or --jsonl"),
        (
            ["detect", "x.png", "--model", "mtcnn", "--prepared", "m"],
            "wanted centerface or mobilenet_v2",
        ),
        (["detect", "x.png", "--batch", "0"], "--batch"),
        (["detect"], "Missing argument"),
    ],
)
def test_commands_that_are_written_wrongly(words, message, capsys):
    assert main(words) == 2
    shown = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert message in shown


def test_no_picture(tmp_path, brightness, capsys):
    assert main(["detect", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path}: no picture in it\n"


def test_a_folder_that_cannot_be_written(photos, brightness, capsys, tmp_path):
    (tmp_path / "taken").touch()
    assert main(["detect", str(photos), "--out", str(tmp_path / "taken")]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path / 'taken'}: File exists\n"


def test_a_file_that_is_given_twice_is_looked_at_once(photos):
    assert _files([photos, photos / "a.png"]) == [str(photos / "a.png"), str(photos / "more/b.JPG")]


def test_names_that_are_no_text_are_printed(tmp_path, brightness):
    Image = pytest.importorskip("PIL.Image")
    with open(os.path.join(os.fsencode(tmp_path), b"\xff.png"), "wb") as file:  # noqa: PTH118, PTH123
        Image.fromarray(np.zeros((3, 3, 3), np.uint8)).save(file, "png")
    program = (
        "import sys, torchmojo.vision as v, torch\n"
        "from torchmojo.cli import main\n"
        "v.mobilenet_v2 = lambda top, batch: v.Pipeline("
        "v.Prepare(8), lambda x: x.mean((2, 3)), v.TopClasses(1))\n"
        "sys.exit(main(['classify', sys.argv[1]]))"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "\\udcff.png: 1" in done.stdout


@pytest.mark.slow
def test_faces_by_the_command(asset, astronaut, tmp_path):
    asset(WEIGHTS.package, WEIGHTS.file, WEIGHTS.sha256)
    pytest.importorskip("onnx")
    command = [sys.executable, "-m", "torchmojo", "detect", astronaut, "--out", tmp_path / "faces"]
    done = subprocess.run([*command, "--threads", "1"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "0.9291" in done.stdout
    assert (tmp_path / "faces" / "astronaut.jpg").is_file()
