"""The command `torchmojo weights`."""

import json
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from torchmojo.cli import app, main

from . import hostile


@pytest.fixture
def path(tmp_path):
    w = torch.zeros(2, 3)
    return hostile.saved(tmp_path / "m.pt", {"w": w, "row": w[1], "half": torch.zeros(4).half()})


def test_table(path):
    done = CliRunner().invoke(app, ["weights", str(path)], prog_name="torchmojo")
    assert done.exit_code == 0
    head, *rows, last = done.output.splitlines()
    assert head.split() == "name dtype shape size aligned shares memory with".split()
    assert last == f"{path}: torch, 3 tensors, 32 B"
    aligned = [row.split()[-2 if "row" in row else -1] for row in rows]
    assert all(int(number) % 64 == 0 for number in aligned)
    words = [row.replace(number, "n").split() for row, number in zip(rows, aligned, strict=True)]
    assert words == [
        ["w", "float32", "2,", "3", "24", "B", "n"],
        ["row", "float32", "3", "12", "B", "n", "w"],
        ["half", "float16", "4", "8", "B", "n"],
    ]


def test_json(path):
    words = ["weights", str(path), "--json", "--crc"]
    done = CliRunner().invoke(app, words, prog_name="torchmojo")
    said = json.loads(done.output)
    assert said["bytes"] == 32 and said["format"] == "torch" and said["sha256"] is None
    assert [row["name"] for row in said["tensors"]] == ["w", "row", "half"]
    assert said["tensors"][1] | {"alignment": 0} == {
        "name": "row", "dtype": "float32", "shape": [3], "strides": [1], "offset": 3, "nbytes": 12,
        "alignment": 0, "copied": False, "shares": "w",
    }  # fmt: skip


def test_a_file_that_is_refused(path, capsys):
    assert main(["weights", str(path), "--sha256", "0" * 64]) == 1
    assert f"error: open_weights: {path}: wanted sha256 " in capsys.readouterr().err
    assert main(["weights", str(path), "--key", "none"]) == 1
    assert "key: wanted one of half, row, w, given 'none'" in capsys.readouterr().err
    assert main(["weights", "none.pt"]) == 1


def test_it_imports_no_torch(path):
    program = (
        "import sys; from torchmojo.cli import main; main(sys.argv[1:]); "
        "assert 'torch' not in sys.modules"
    )
    words = [sys.executable, "-c", program, "weights", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "3 tensors" in done.stdout
