"""The same model from a Mojo program without Python: answers, refusals, threads, memory."""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torchmojo.toolchain.library import MOJO_PACKAGE

TORCH = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Give the compiled `small.mojo`."""
    # The script of the wheel: a program is linked by the system's C compiler, a library is not.
    mojo = shutil.which("mojo", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if mojo is None:
        pytest.skip("no mojo that links programs")
    made = tmp_path_factory.mktemp("program") / "small"
    command = [
        mojo,
        "build",
        "-I",
        MOJO_PACKAGE,
        "-o",
        made,
        Path(__file__).with_name("small.mojo"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture
def call(program, tmp_path):
    """Give `call(folder, what, x, rest)`: what the program prints."""

    def call(folder, what, x=None, rest=None, torch_path=TORCH, **environment):
        x = torch.zeros(2, 4) if x is None else x
        rest = torch.zeros(70, 3) if rest is None else rest
        (tmp_path / "x").write_bytes(x.contiguous().numpy().tobytes())
        (tmp_path / "y").write_bytes(rest.contiguous().numpy().tobytes())
        words = [program, folder, torch_path, what, str(len(x)), tmp_path / "x", tmp_path / "y"]
        done = subprocess.run(
            words, capture_output=True, text=True, env={**os.environ, **environment}
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return call


def image_of(rest):
    """Give y and the image that `small.mojo` lays over the same numbers."""
    image = rest.reshape(-1).as_strided((2, 3, 7, 5), (105, 1, 15, 3))
    return rest[0], image


@pytest.mark.parametrize("n", [1, 5, 9])
def test_gives_what_the_module_gives(call, small, small_module, n):
    torch.manual_seed(n)
    x, rest = torch.randn(n, 4), torch.randn(70, 3)
    lines = call(small, "show", x, rest).splitlines()
    wanted = list(small_module(x, *image_of(rest)).values())
    assert len(lines) == sum(value.numel() for value in wanted)
    for line in lines:
        index, i, j, value = line.split()
        assert float(value) == pytest.approx(
            wanted[int(index)][int(i), int(j)].item(), rel=1e-5, abs=1e-5
        )


def test_there_is_no_python_in_the_process(call, small):
    assert call(small, "python").split() == ["True", "-1", "-1"]


def test_several_threads_call_one_model(call, small):
    assert call(small, "threads", OMP_NUM_THREADS="4").strip() == "right: 1280"


def test_refusals_say_what_was_wanted(call, small):
    assert call(small, "refuse").splitlines() == [
        "error: Model: wanted 3 inputs, given 1",
        "error: Model: x: wanted 2 axes, given 1",
        "error: Model: image: axis 2: wanted 7 to 7, given 5",
        "error: Model: image: wanted 4 axes, given 1",
        "error: Model: x: wanted torch's dtype 6, given dtype 7",
        "error: Model: x: axis 1: wanted the stride 1, given 2; copy the input first",
        "error: Outputs: 0: wanted int64, given a tensor of torch's dtype 6",
        "error: Outputs: 1: wanted 3 axes, given 2",
        "error: Outputs: wanted one of 3 tensors, given 3",
        "2 5",
    ]


def test_a_size_outside_its_range(call, small):
    text = call(small, "show", torch.zeros(10, 4))
    assert text == "error: Model: x: axis 0: wanted 1 to 9, given 10\n"


def test_memory_stays_where_it_was(call, small):
    """Five thousand calls allocate fifteen thousand tensors, of which each is freed."""
    assert call(small, "soak").strip() == "soaked"
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert call(small, "soak").strip() == "soaked"
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss <= peak * 1.05


def test_libtorch_is_found_in_the_folder_or_the_environment(call, small, tmp_path):
    assert "error" not in call(small, "show", torch_path="")
    text = call(small, "show", torch_path="", TORCHMOJO_TORCH_LIB=str(tmp_path / "none.so"))
    assert text.startswith("error: Model: wanted a library that loads, given ")
    assert "none.so" in text and "cannot open shared object file" in text


# --- damaged folders --------------------------------------------------------------------------


@pytest.fixture
def copy(small, tmp_path):
    return Path(shutil.copytree(small, tmp_path / "copy"))


@pytest.mark.parametrize("name", ["model.flat", "model.so", "weights.safetensors"])
def test_a_missing_file_is_named(call, copy, name):
    (copy / name).unlink()
    wanted = f"error: Model: wanted the file {copy}/{name}, given none that can be read\n"
    assert call(copy, "show") == wanted


@pytest.mark.parametrize("name", ["model.so", "weights.safetensors"])
def test_a_file_that_was_cut_off_is_noticed(call, copy, name):
    data = (copy / name).read_bytes()
    (copy / name).write_bytes(data[:-64])
    assert f"wanted {name} of {len(data)} bytes, given {len(data) - 64}" in call(copy, "show")


def edited(folder, pattern, text, count=1):
    path = folder / "model.flat"
    changed, times = re.subn(pattern, text, path.read_text("utf-8"), count=count, flags=re.M)
    assert times
    path.write_text(changed, "utf-8")
    return folder


@pytest.mark.parametrize(
    ("pattern", "text", "message"),
    [
        ("^torchmojo-model 1", "torchmojo-model 2", "wanted a model of format 1, given 2"),
        ("^torchmojo-model 1", "hello", "wanted a folder that torchmojo.prepare wrote"),
        (r"^end \d+", "end 3", "given one that was cut off"),
        (r"^end \d+\n", "", "given one that was cut off"),
        (r"^(cpu .*)$", "cpu avx1024", "given one that needs avx1024; prepare it on this machine"),
        (r"^(threads .*)$", r"\1\ncalls my::op", "given one that calls my::op by name"),
        (r"^(file model\.so) \d+", r"\1 -5", "given the line 'file model.so -5'"),
        (r"^(input x 6) 2", r"\1 3", "given the line 'input x 6 3"),
        (r"^(input x 6) 2", r"\1 99999999999", "given the line 'input x"),
        (r"^(input y 6 1 3) 0", r"\1 1", "given the line 'input y 6 1 3 1'"),
        (r"^(constant first_bias 6) \d+", r"\1 9223372036854775807", "wanted one inside a file"),
        (r"^(constant first_bias 6 \d+) \d+", r"\1 9223372036854775807", "wanted one inside"),
        (r"^(constant first_bias 6) \d+", r"\1 99999999999999999999", "given the line 'constant"),
        (r"^(constant first_bias 6 \d+ \d+ 1) 8", r"\1 9000000000000000000", "wanted sizes within"),
        (r"^(constant first_bias .*) 1$", r"\1 9000000000000000000", "wanted sizes within 32 byt"),
        (r"^constant first_bias .*\n", "constant other 6 64 4 0\n", "cannot bind the weights"),
        (r"^output .*\n", "", "was cut off"),
        (r"^output .*\n", "cpu sse2\n", "wanted an index of 3 outputs, given one of 2"),
        (r"^input y .*\n", "cpu sse2\n", "wanted an index of 3 inputs, given one of 2"),
    ],
)
def test_a_damaged_index_is_refused(call, copy, pattern, text, message):
    lines = call(edited(copy, pattern, text), "show").splitlines()
    extra = edited(copy, r"^end \d+", f"end {count_of(copy)}") if "calls" in text else None
    if extra is not None:
        lines = call(extra, "show").splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: Model: ") and message in lines[0]


def count_of(folder):
    return len((folder / "model.flat").read_text("utf-8").splitlines()) - 1


def test_the_index_and_the_manifest_agree_on_calls(small):
    manifest = json.loads((small / "manifest.json").read_text("utf-8"))
    assert manifest["calls"] == []
    assert "\ncalls " not in (small / "model.flat").read_text("utf-8")
