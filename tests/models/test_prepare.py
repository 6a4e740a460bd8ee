"""What `prepare` takes and refuses, up to the compiler; and that it leaves nothing half-written."""

import json
import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest
import torch

import torchmojo
from torchmojo.models.prepared import prepare as module
from torchmojo.models.prepared.aligned import write_weights
from torchmojo.models.prepared.compiled import Compiled
from torchmojo.models.prepared.place import put, work_folder
from torchmojo.models.sealed import sealed


class Double(torch.nn.Module):
    def forward(self, x):
        return x * 2


def half_trained():
    """A module in evaluation mode with a part that is not."""
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout()).eval()
    net[1].train()
    return net


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
        (Double(), "wanted one in evaluation mode, given Double in training mode"),
        (half_trained(), r"given Dropout \(1\) in training mode; call model\.eval\(\) first"),
        (
            torch.jit.script(half_trained()),
            r"given Dropout \(1\) in training mode; call model\.eval\(\) first",
        ),
    ],
)
def test_what_is_no_model(model, message, tmp_path):
    with pytest.raises(torchmojo.ArgumentError, match=message):
        torchmojo.prepare(model, torch.zeros(3), tmp_path / "out")


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ((), "wanted a tuple of tensors, as the model is called with, given an empty tuple"),
        (torch.zeros(3).to_sparse(), "given a sparse_coo one"),
        (torch.nested.nested_tensor([torch.zeros(3)], layout=torch.jagged), "given a nested one"),
        (torch._efficientzerotensor(3), "given a Tensor without memory of its own"),
        ({"x": torch.zeros(3)}, "given dict"),
        ((torch.zeros(3), 4), r"example_inputs\[1\]: wanted a tensor on the CPU, given int"),
        (torch.zeros(3, device="meta"), "given one on meta"),
    ],
)
def test_examples_that_are_none(examples, message, tmp_path):
    with pytest.raises(torchmojo.ArgumentError, match=message):
        torchmojo.prepare(Double().eval(), examples, tmp_path / "out")


@pytest.mark.parametrize(
    ("dynamic", "message"),
    [
        ({"y": {0: ("n", 1, 2)}}, "wanted a dictionary with keys among x"),
        ({"x": {0: "n"}}, r'wanted a size as \("n", least, most\) .* given \'n\''),
        ([1], "wanted a dictionary"),
        ({"x": {5: ("n", 1, 2)}}, r"x: wanted a dictionary with axes from 0 to 0, given \{5: "),
        ({"x": {-1: ("n", 1, 2)}}, "x: wanted a dictionary with axes from 0 to 0"),
        ({"x": {True: ("n", 1, 2)}}, "x: wanted a dictionary with axes from 0 to 0"),
        ({"x": [("n", 1, 2)]}, "x: wanted a dictionary with axes from 0 to 0"),
        ({"x": {0: ("n", 0, 8)}}, r"with a least of 1 and more above it, given \('n', 0, 8\)"),
        ({"x": {0: ("n", 3, 2)}}, r"given \('n', 3, 2\)"),
        ({"x": {0: ("n", True, 2)}}, "wanted a size as"),
        ({"x": {0: ("a b", 1, 2)}}, "wanted a size as"),
    ],
)
def test_sizes_that_are_none(dynamic, message, tmp_path):
    with pytest.raises(torchmojo.ArgumentError, match=message):
        torchmojo.prepare(Double().eval(), torch.zeros(3), tmp_path / "out", dynamic=dynamic)


def test_a_name_has_one_range(tmp_path):
    class Add(torch.nn.Module):
        def forward(self, x, y):
            return x + y

    sizes = {"x": {0: ("n", 1, 8)}, "y": {0: ("n", 1, 9)}}
    with pytest.raises(torchmojo.ArgumentError, match=r"one range for n, given 1\.\.8 and 1\.\.9"):
        torchmojo.prepare(Add().eval(), (torch.zeros(3),) * 2, tmp_path / "out", dynamic=sizes)


def test_no_size_of_an_exported_program_is_0(without_compiler, tmp_path):
    """torch compiles for sizes from 1, whatever range the program has."""
    shapes = ({0: torch.export.Dim("n", min=0, max=8)},)
    program = torch.export.export(Double().eval(), (torch.zeros(3),), dynamic_shapes=shapes)
    torchmojo.prepare(program, torch.zeros(3), tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text("utf-8"))
    (size,) = manifest["inputs"][0]["sizes"]
    assert (size["least"], size["most"]) == (1, 8)


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, 2**40])
def test_threads(threads, tmp_path):
    with pytest.raises(torchmojo.ArgumentError, match="threads: wanted 1 or more, up to 1024, giv"):
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


class Remembers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Module()
        self.inner._calls, self.seen, self.ratio = 0, [], float("nan")
        self.cache, self.tensors = None, [torch.zeros(2)]

    def forward(self, x):
        self.inner._calls += 1
        self.seen.append(1)
        return x + self.inner._calls


class Caches(Remembers):
    def forward(self, x):
        self.cache = self.new = 3
        return x + self.cache


def test_a_forward_that_writes_attributes_is_refused(tmp_path, without_compiler):
    model = Remembers().eval()
    with pytest.raises(torchmojo.ModelError, match=r"one that writes seen, inner\._calls; take"):
        torchmojo.prepare(model, torch.zeros(3), tmp_path / "out")
    assert model.inner._calls == 0 and not model._forward_hooks
    torchmojo.prepare(Caches().eval(), torch.zeros(3), tmp_path / "out")


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


@pytest.fixture
def never(monkeypatch):
    """Fail if the compiler is asked: a place is looked at before."""

    def compile_program(program, threads):
        raise AssertionError("compiled first")

    monkeypatch.setattr(module, "compile_program", compile_program)


def test_the_current_directory_stays(never, tmp_path, monkeypatch):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    for place in (".", inner, "..", "../../a/b/."):
        message = "given the current directory or one around it"
        with pytest.raises(FileExistsError, match=message):
            torchmojo.prepare(Double().eval(), torch.zeros(3), place)
    assert Path.cwd() == inner


def test_a_mount_point_stays(never, tmp_path, monkeypatch):
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == tmp_path)
    with pytest.raises(FileExistsError, match="given a mount point; name a folder in it"):
        torchmojo.prepare(Double().eval(), torch.zeros(3), tmp_path)


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("/proc/x/y", "No such file or directory|not permitted|denied"),
        ("/dev/null/x", "Not a directory"),
        ("y" * 256, "File name too long"),
        ("new/" + "y" * 256, "File name too long"),
        ("a\0b", "null"),
    ],
)
def test_a_place_that_cannot_be_written(never, tmp_path, place, why):
    with pytest.raises(torchmojo.ModelError, match=f"can be written, given .*({why})"):
        torchmojo.prepare(Double().eval(), torch.zeros(3), tmp_path / place)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_no_path(never):
    with pytest.raises(torchmojo.ArgumentError, match="out_dir: wanted the path of a folder"):
        torchmojo.prepare(Double().eval(), torch.zeros(3), 3)


def test_names_may_have_all_bytes_there_are(without_compiler, tmp_path):
    out = tmp_path / ("ü" * 127 + "x")
    for _ in range(2):
        torchmojo.prepare(Double().eval(), torch.zeros(3), out)
    assert list(tmp_path.iterdir()) == [out]


def test_files_that_a_manifest_lists_are_not_ours(without_compiler, tmp_path):
    out = tmp_path / "out"
    torchmojo.prepare(Double().eval(), torch.zeros(3), out)
    (out / "precious.txt").write_text("mine")
    manifest = json.loads((out / "manifest.json").read_text("utf-8"))
    manifest["files"]["precious.txt"] = {}
    (out / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    with pytest.raises(FileExistsError, match=r"given one that holds precious\.txt; name another"):
        torchmojo.prepare(Double().eval(), torch.zeros(3), out)
    assert (out / "precious.txt").read_text() == "mine"


@pytest.mark.parametrize("text", ["[" * 200_000, "{}", '{"made_by": "me"}', "3"])
def test_a_manifest_of_others_stays(never, tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(FileExistsError, match=r"given one that holds manifest\.json; name another"):
        torchmojo.prepare(Double().eval(), torch.zeros(3), tmp_path)


def test_a_folder_or_link_named_as_a_file_is_not_ours(without_compiler, tmp_path):
    out = tmp_path / "out"
    torchmojo.prepare(Double().eval(), torch.zeros(3), out)
    (out / "model.so").unlink()
    (out / "model.so").mkdir()
    (out / "model.so" / "mine").write_text("mine")
    (out / "model.json").symlink_to(tmp_path)
    with pytest.raises(FileExistsError, match=r"one that holds model\.json, model\.so; name"):
        torchmojo.prepare(Double().eval(), torch.zeros(3), out)
    assert (out / "model.so" / "mine").read_text() == "mine"


def test_a_file_that_came_while_it_was_compiled_stays(tmp_path, monkeypatch):
    out = tmp_path / "out"

    def compile_program(program, threads):
        out.mkdir()
        (out / "mine").write_text("mine")
        return Compiled(b"library", None, {}, {}, "NONE")

    monkeypatch.setattr(module, "compile_program", compile_program)
    with pytest.raises(FileExistsError, match="given one that holds mine; name another"):
        torchmojo.prepare(Double().eval(), torch.zeros(3), out)
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "mine"]


def test_processes_may_write_one_folder(without_compiler, tmp_path):
    out, models = tmp_path / "out", []

    def work(turn):
        for _ in range(20):
            with work_folder(out) as folder:
                (folder / "manifest.json").write_text('{"made_by": "torchmojo prepare"}')
                (folder / "model.so").write_text(f"{turn}")
                put(folder, out)
        models.append(turn)

    threads = [threading.Thread(target=work, args=(turn,)) for turn in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(models) >= 1 and list(tmp_path.iterdir()) == [out]
    assert sorted(path.name for path in out.iterdir()) == ["manifest.json", "model.so"]


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
    message = "wanted a place that can be written, given .*no space left on device; name another"
    with pytest.raises(torchmojo.ModelError, match=message):
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
