"""What `prepare` takes and refuses, up to the compiler; and that it leaves nothing half-written."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

import torchmojo
from torchmojo.models.prepared import prepare as module
from torchmojo.models.prepared.aligned import write_weights
from torchmojo.models.prepared.compiled import Compiled
from torchmojo.models.sealed import sealed


class Double(torch.nn.Module):
    def forward(self, x):
        return x * 2


@pytest.fixture
def without_compiler(monkeypatch):
    """Leave the compiler out, and give the list of programs that it was asked to compile."""
    asked = []

    def compile_program(program, threads):
        asked.append((program, threads))
        return Compiled(b"library", None, {}, {}, "NONE")

    monkeypatch.setattr(module, "compile_program", compile_program)
    return asked


@pytest.fixture
def scripted(tmp_path):
    torch.jit.save(torch.jit.script(Double().eval()), tmp_path / "double.pt")
    return tmp_path / "double.pt"


@pytest.fixture
def exported(tmp_path):
    program = torch.export.export(Double().eval(), (torch.zeros(3),))
    torch.export.save(program, tmp_path / "double.pt2")
    return tmp_path / "double.pt2"


@pytest.mark.parametrize("kind", ["scripted", "exported"])
def test_files_that_can_carry_code_have_to_be_trusted(kind, request, without_compiler, tmp_path):
    path = request.getfixturevalue(kind)
    with pytest.raises(torchmojo.ModelError, match="can carry code that runs when it is loaded"):
        torchmojo.prepare(path, torch.zeros(3), tmp_path / "out")
    assert without_compiler == [] and not (tmp_path / "out").exists()
    torchmojo.prepare(path, torch.zeros(3), tmp_path / "out", trusted=True)
    ((program, _),) = without_compiler
    assert torch.equal(program.module()(torch.ones(3)), torch.full((3,), 2.0))


def test_an_untrusted_file_is_not_even_read(tmp_path, without_compiler):
    """A TorchScript file whose pickle would run code if anything opened it."""
    path = tmp_path / "evil.pt"
    mark = tmp_path / "ran"
    code = f"cos\nsystem\n(S'touch {mark}'\ntR.".encode()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("evil/constants.pkl", code)
        archive.writestr("evil/data.pkl", code)
        archive.writestr("evil/version", "3\n")
    with pytest.raises(torchmojo.ModelError, match="wanted a trusted file"):
        torchmojo.prepare(path, torch.zeros(3), tmp_path / "out")
    assert not mark.exists()


def test_scripted_modules_and_programs_are_taken(without_compiler, tmp_path):
    torchmojo.prepare(torch.jit.script(Double().eval()), torch.zeros(3), tmp_path / "a")
    program = torch.export.export(Double().eval(), (torch.zeros(3),))
    torchmojo.prepare(program, torch.zeros(3), tmp_path / "b", threads=3)
    assert without_compiler[1] == (program, 3)
    assert without_compiler[0][1] == torch.get_num_threads()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (3, "wanted a module, an exported program or the path of a file, given int"),
        (Double(), "wanted one in evaluation mode, given one in training mode"),
    ],
)
def test_what_is_no_model(model, message, tmp_path):
    with pytest.raises(torchmojo.ArgumentError, match=message):
        torchmojo.prepare(model, torch.zeros(3), tmp_path / "out")


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ((), "wanted a tuple of tensors, as the model is called with, given tuple"),
        ({"x": torch.zeros(3)}, "given dict"),
        ((torch.zeros(3), 4), r"example_inputs\[1\]: wanted a tensor on the CPU, given int"),
        (torch.zeros(3, device="meta"), "given on meta"),
    ],
)
def test_examples_that_are_none(examples, message, tmp_path):
    with pytest.raises(torchmojo.ArgumentError, match=message):
        torchmojo.prepare(Double().eval(), examples, tmp_path / "out")


@pytest.mark.parametrize(
    ("dynamic", "message"),
    [
        ({"y": {0: ("n", 1, 2)}}, "wanted a dictionary with keys among x"),
        ({"x": {0: "n"}}, r'wanted a size as \("n", least, most\), given \'n\''),
        ([1], "wanted a dictionary"),
    ],
)
def test_sizes_that_are_none(dynamic, message, tmp_path):
    with pytest.raises(torchmojo.ArgumentError, match=message):
        torchmojo.prepare(Double().eval(), torch.zeros(3), tmp_path / "out", dynamic=dynamic)


@pytest.mark.parametrize("threads", [0, -1, 1.5])
def test_threads(threads, tmp_path):
    with pytest.raises(torchmojo.ArgumentError, match="threads: wanted 1 or more, given"):
        torchmojo.prepare(Double().eval(), torch.zeros(3), tmp_path / "out", threads=threads)


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return x + self.calls


class Writes(torch.nn.Module):
    def forward(self, x):
        return x.add_(1)


@pytest.mark.parametrize(
    ("model", "what"), [(Counts(), "the buffer calls"), (Writes(), "the input x")]
)
def test_a_forward_that_writes_is_refused(model, what, tmp_path):
    with pytest.raises(torchmojo.ModelError, match=f"given one that writes {what}"):
        torchmojo.prepare(model.eval(), torch.zeros(3), tmp_path / "out")


class Branches(torch.nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def test_what_torch_cannot_export_is_said_in_its_words(tmp_path):
    with pytest.raises(torchmojo.ModelError, match=r"torch cannot export it: .*data-dependent"):
        torchmojo.prepare(Branches().eval(), torch.zeros(3), tmp_path / "out")


@pytest.mark.parametrize(("data", "what"), [(b"text", "no zip archive"), (None, "another archive")])
def test_files_of_another_kind(tmp_path, data, what):
    path = tmp_path / "file"
    if data is None:
        torch.save({"weight": torch.zeros(3)}, path)
    else:
        path.write_bytes(data)
    with pytest.raises(torchmojo.ModelError, match=f"given {what}"):
        torchmojo.prepare(path, torch.zeros(3), tmp_path / "out", trusted=True)


# --- the folder -------------------------------------------------------------------------------


def test_a_folder_with_other_files_stays(without_compiler, tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(FileExistsError, match=r"given one that holds mine\.txt; name another"):
        torchmojo.prepare(Double().eval(), torch.zeros(3), tmp_path)
    with pytest.raises(FileExistsError, match="wanted a folder, given a file"):
        torchmojo.prepare(Double().eval(), torch.zeros(3), tmp_path / "mine.txt")
    assert without_compiler == []


def test_who_may_read_it_is_the_users_choice(without_compiler, tmp_path):
    before = os.umask(0o027)
    try:
        torchmojo.prepare(Double().eval(), torch.zeros(3), tmp_path / "out")
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "out" / "model.so").stat().st_mode & 0o777 == 0o640


def test_an_earlier_model_is_replaced_whole(without_compiler, tmp_path):
    out = tmp_path / "out"
    torchmojo.prepare(Double().eval(), torch.zeros(3), out)
    torchmojo.prepare(Double().eval(), torch.zeros(4), out)
    assert json.loads((out / "manifest.json").read_text())["inputs"][0]["sizes"] == [4]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_failure_leaves_the_earlier_model(without_compiler, tmp_path, monkeypatch):
    out = tmp_path / "out"
    torchmojo.prepare(Double().eval(), torch.zeros(3), out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def fail(*args):
        raise OSError("no space left on device")

    monkeypatch.setattr(module, "flat_text", fail)
    with pytest.raises(OSError, match="no space left"):
        torchmojo.prepare(Double().eval(), torch.zeros(4), out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_without_a_cxx_compiler(tmp_path):
    program = f"""
import torch, torchmojo
try:
    torchmojo.prepare(torch.nn.ReLU().eval(), torch.zeros(3, 5), {str(tmp_path / "out")!r})
except torchmojo.CompilerNotFoundError as error:
    print(error)
"""
    environment = {"PATH": "", "HOME": str(tmp_path), "CXX": "no-such-compiler"}
    environment["PYTHONPATH"] = ":".join(sys.path)
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path / "cache")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert "prepare: wanted a C++ compiler" in done.stdout, done.stderr
    assert not (tmp_path / "out").exists()


# --- its parts --------------------------------------------------------------------------------


def test_equal_views_are_stored_once_and_others_as_they_lie(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    base = torch.arange(40, dtype=torch.float64).reshape(5, 8)
    weights = {
        "a": base,
        "tie": base,
        "slice": base[1:3, ::2],
        "turned": base.t(),
        "wide": torch.tensor([3.0]).expand(6),
        "none": torch.empty(0, 3),
        "number": torch.tensor(5, dtype=torch.int8),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "flags": torch.tensor([True, False, True]),
    }
    path = tmp_path / "w.safetensors"
    stored = write_weights(path, weights)
    assert stored["tie"].tensor == "a" and stored["tie"].offset == stored["a"].offset
    data = bytearray(path.read_bytes())
    for name, weight in weights.items():
        entry = stored[name]
        assert entry.offset % 64 == 0
        assert (entry.sizes, entry.strides) == (tuple(weight.shape), weight.stride())
        if not weight.numel():
            continue
        flat = torch.frombuffer(
            data, dtype=weight.dtype, count=entry.nbytes // weight.itemsize, offset=entry.offset
        )
        assert torch.equal(flat.as_strided(entry.sizes, entry.strides, 0), weight)
    found = safetensors.load_file(path)
    assert torch.equal(found["a"], base) and torch.equal(found["flags"], weights["flags"])
    assert "tie" not in found and found["wide"].shape == (1,)


def test_a_dtype_without_a_name_is_refused(tmp_path):
    with pytest.raises(
        torchmojo.ModelError, match=r"weight w: wanted a dense tensor .* complex128"
    ):
        write_weights(tmp_path / "w", {"w": torch.zeros(2, dtype=torch.complex128)})


def test_sealed_bytes_cannot_be_changed():
    with sealed(b"code", b"{}") as path:
        place = Path(path)
        assert place.read_bytes() == b"code"
        assert place.with_suffix(".json").read_bytes() == b"{}"
        if sys.platform == "linux":
            with pytest.raises(PermissionError), place.open("r+b") as file:
                file.write(b"evil")
    assert not place.exists()
