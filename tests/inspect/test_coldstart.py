"""The diagnosis of a cold start: real processes where it matters, made-up answers elsewhere."""

import json
import mmap
import subprocess
import sys
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import torchmojo
from torchmojo.cli import app
from torchmojo.inspect.coldstart import picture, rounds
from torchmojo.inspect.coldstart.child.load import LOADERS
from torchmojo.inspect.coldstart.child.steps import Recorder, fault_ms

MAKERS = '''
import os, time, torch


def partial():
    """Has a buffer that no checkpoint holds."""
    model = torch.nn.Linear(3, 2)
    model.register_buffer("extra", torch.ones(2), persistent=False)
    return model, torch.ones(1, 3)


def whole():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Dropout())


def dies():
    os._exit(7)


def hangs():
    time.sleep(600)


def shouts():
    raise ValueError("\\x1b[31mred\\x07")


def half():
    net = whole().eval()
    net[1].train()
    return net
'''


class Deep(torch.nn.Module):
    """A23: 24 layers of which TorchScript records the first run, and optimises in the second."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(32, 32) for _ in range(24)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x)) * torch.sigmoid(x) + x * 0.5
        return x


@pytest.fixture(scope="module")
def deep(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("deep") / "deep.pt"
    torch.jit.script(Deep().eval()).save(str(path))
    return path


@pytest.fixture
def makers(tmp_path, monkeypatch) -> Path:
    """Work in a folder that has a module of functions that make models."""
    (tmp_path / "cold_makers.py").write_text(MAKERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("cold_makers", None)


def run(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["coldstart", *map(str, words)], prog_name="torchmojo")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.output


# --- real processes -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found(deep):
    """Give a diagnosis of A23, by the scripted module itself: four processes."""
    return torchmojo.coldstart(
        torch.jit.load(deep),
        input=(4, 32),
        then="3,32:float32",
        runs=1,
        remedies=["saved frozen, optimizer off", "warm-up"],
    )


def test_a23_the_second_run_is_warm_up_too(found):
    assert found.profiled_runs == 1 and found.warm_up_runs == 2
    assert "runs 1 to 2 are warm-up, no measure" in str(found)
    names = [cause.name for cause in found.causes]
    assert "TorchScript records run 1" in names and "TorchScript optimises in run 2" in names
    steps = [step.name for step in found.baseline.steps]
    assert steps == ["import", "load", "first", "second", "third"]


def test_a23_each_remedy_is_in_force(found):
    profiled = {measured.name: measured.profiled_runs for measured in found.remedies}
    assert profiled == {"saved frozen, optimizer off": 0, "warm-up": 0}
    warm = found.remedies[1]
    assert warm.warm_runs >= 5 and warm.ms("warm") > 0


def test_what_is_said_of_the_processes(found):
    assert found.model == "RecursiveScriptModule" and found.kind == "script"
    assert found.inputs == ("f32[4,32]",) and found.torch == torch.__version__
    load, imported = found.baseline.steps[1], found.baseline.steps[0]
    assert imported.modules > 500 and imported.minor > 1000
    assert any(name.startswith("libtorch_cpu") for name in imported.libraries)
    assert load.minor > 0
    base = found.baseline
    assert base.first_result_ms == pytest.approx(base.load_ms + base.ms("first"))
    assert base.total_ms > base.ms("import") + base.first_result_ms > base.first_result_ms
    assert base.spread_ms == pytest.approx((base.first_result_ms, base.first_result_ms))


def test_there_and_back_through_json(found):
    data = json.loads(json.dumps(found.to_json()))
    assert torchmojo.ColdStart.from_json(data) == found
    assert data["warm_up_runs"] == 2 and data["advice"] == found.advice
    assert data["baseline"]["total_ms"] == found.baseline.total_ms


@pytest.fixture(scope="module")
def page(found, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    found.save(path)
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]
    return path.read_text(encoding="utf-8")


def test_the_page_is_whole_and_needs_nothing_else(page, found):
    class Reader(HTMLParser):
        def __init__(self):
            super().__init__()
            self.tags, self.open, self.outside = [], [], []

        def handle_starttag(self, tag, attrs):
            self.tags.append(tag)
            if tag != "meta":
                self.open.append(tag)
            self.outside += [v for k, v in attrs if k in ("src", "href")]

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

        def handle_startendtag(self, tag, attrs):
            self.tags.append(tag)

    reader = Reader()
    reader.feed(page)
    assert reader.open == [] and reader.outside == []
    parts = sum(
        measured.ms(*steps) > 0
        for measured in (found.baseline, *found.remedies)
        for _, steps, _ in picture._PARTS
    )
    assert reader.tags.count("rect") == len(picture._PARTS) + parts
    for measured in found.remedies:
        assert measured.name in page


def test_the_picture_is_a_png(found, tmp_path):
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    from PIL import Image

    found.save(tmp_path / "bars.PNG")
    with Image.open(tmp_path / "bars.PNG") as image:
        image.load()
        assert image.format == "PNG" and image.width > 500


def test_a_report_is_not_written_in_part(found, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("before")

    def replace(*_):
        raise OSError("disk full")

    monkeypatch.setattr(picture.Path, "replace", replace)
    with pytest.raises(OSError, match="disk full"):
        found.save(path)
    assert path.read_text() == "before" and [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_the_command(makers):
    """Measure a function's model, a remedy of which fails: three processes."""
    words = ("cold_makers:partial", "--runs", 1, "--remedy", "mapped weights", "--forwards", 5)
    done = subprocess.run(
        [sys.executable, "-m", "torchmojo", "coldstart", *map(str, words), "--out", "r.html"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == (
        "cold_makers:partial (Python function that makes the model), f32[1,3], cpu, 1 thread"
    )
    reason = "not measured: mapped weights: ValueError: not in the checkpoint: extra"
    assert reason in lines
    advice = " ".join(done.stdout.split())
    assert "No remedy was measured. The model came with Linear in training mode" in advice
    assert Path("r.html").read_text().rstrip().endswith("</html>")


def test_an_input_that_the_model_refuses(makers):
    with pytest.raises(torchmojo.ArgumentError) as caught:
        torchmojo.coldstart("cold_makers:whole", input=(1, 4))
    assert str(caught.value) == (
        "coldstart: input: wanted what the model takes, given f32[1,4]; it raises: RuntimeError: "
        "mat1 and mat2 shapes cannot be multiplied (1x4 and 3x5)"
    )


def test_a_model_without_an_example(makers):
    assert run("cold_makers:whole", code=1).strip() == (
        "error: coldstart: input: wanted sizes of the model's input, given none, and the model has "
        "no example with fixed sizes; write input=(1, 3, 224, 224) (--input 1,3,224,224)"
    )


def test_a_process_that_dies(makers):
    with pytest.raises(torchmojo.ModelError) as caught:
        torchmojo.coldstart("cold_makers:dies", input=(1, 3))
    assert str(caught.value) == (
        "coldstart: cold_makers:dies: wanted a model that loads and runs, given one whose process "
        "ended with status 7; it says: nothing"
    )


def test_a_process_that_hangs(makers):
    with pytest.raises(torchmojo.ModelError, match=r"process was not done after 3 s, and"):
        torchmojo.coldstart("cold_makers:hangs", input=(1, 3), timeout=3)


@pytest.mark.parametrize("timeout", [0, -1, True, "5", float("nan")])
def test_a_time_that_is_none(timeout):
    with pytest.raises(torchmojo.ArgumentError, match="timeout: wanted seconds, more than 0"):
        torchmojo.coldstart("cold_makers:hangs", input=(1, 3), timeout=timeout)


def test_words_of_others_reach_no_terminal_raw(makers):
    with pytest.raises(torchmojo.ModelError) as caught:
        torchmojo.coldstart("cold_makers:shouts", input=(1, 3))
    assert str(caught.value).endswith(r"it says: ValueError: \x1b[31mred\x07")


def test_a_part_in_training_mode_is_named(makers):
    found = torchmojo.coldstart("cold_makers:half", input=(1, 3), runs=1, remedies=False)
    assert found.training == "Dropout (1)"
    assert found.advice.endswith(
        "The model came with Dropout (1) in training mode, and was measured after model.eval(): "
        "call that first, as warm and prepare ask for it."
    )
    assert type(found).from_json(found.to_json()) == found


# --- made-up answers ------------------------------------------------------------------------


def answer(*ms: float, load: float = 100.0, steady: float = 10.0, **more) -> dict:
    """Make what a process says: milliseconds of the first three runs and the rest."""
    names = ("import", "load", "first", "second", "third")
    steps = [
        {
            "name": name,
            "ms": value,
            "minor": {"first": 1000, "load": 5}.get(name, 0),
            "major": 0,
            "imports_ms": {"load": 30.0, "first": 1.5}.get(name, 0.0),
            "modules": 4,
            "libraries": ["libx.so"],
        }
        for name, value in zip(names, (1000.0, load, *ms), strict=True)
    ]
    return {
        "start_ms": 20.0,
        "steps": steps,
        "steady_ms": steady,
        "steady_minor": 200,
        "profiled_runs": 0,
        "compile_ms": 0.0,
        **more,
    }


@pytest.fixture
def asked(monkeypatch):
    """Answer for the processes; gives what each was asked."""
    answers, log = {}, []

    def ask(self, what, remedy, **more):
        log.append(what if what == "make" else remedy.name)
        if what == "make":
            return {"torch": "2.x", "inputs": [[[1, 3], "float32"]], "failed": answers["failed"]}
        given = answers[remedy.name]
        said = given.pop(0) if isinstance(given, list) else given
        if isinstance(said, str):
            raise torchmojo.ModelError(f"coldstart: m: wanted; it says: {said}")
        return said

    monkeypatch.setattr(rounds._Rounds, "_ask", ask)
    answers["failed"] = {}
    return answers, log


SCRIPT = {"profiled_runs": 1, "fault_ms": 0.01, "weights_ms": 50.0, "again_ms": [30.0, 50.0]}


def test_medians_causes_and_advice(asked, deep):
    answers, log = asked
    answers["as it is"] = [
        answer(90, 55, 10, **SCRIPT, other_ms=[25, 12, 10, 10, 10]),
        answer(80, 50, 11, **SCRIPT, other_ms=[25, 12, 10, 10, 10]),
        answer(70, 45, 12, **SCRIPT, other_ms=[35, 12, 10, 10, 10]),
    ]
    answers["optimizer off"] = answer(40, 10, 10, load=90)
    answers["warm-up"] = answer(10.2, 10, 10, warm_runs=5)
    answers["freeze at load"] = "RuntimeError: no"
    names = ["freeze at load", "optimizer off", "warm-up"]
    found = torchmojo.coldstart(deep, input=(1, 3), runs=3, remedies=names, trusted=True)
    # Interleaved; each round begins with another; what failed once is not tried again.
    first, second = ("optimizer off", "warm-up", "as it is"), ("warm-up", "as it is")
    assert log == ["make", "as it is", *names, *first, *second, "optimizer off"]
    assert found.baseline.ms("first") == 80 and found.baseline.first_result_ms == 180
    assert found.baseline.spread_ms == (170, 190) and found.baseline.steady_ms == 10
    assert found.remedies[0].failed == "RuntimeError: no"
    assert [(c.name, round(c.ms, 6), c.where) for c in found.causes] == [
        ("Python starts", 20, "start"),
        ("import torch", 1000, "import"),
        ("imports while loading", 30, "load"),
        ("reading weights", 50, "load"),
        ("building the model", 20, "load"),
        ("imports in the first run", 1.5, "first"),
        ("TorchScript records run 1", 40, "first"),  # 80 less 40 with the optimizer off
        ("memory touched first", 8, "first"),  # 800 faults
        ("other first-time work", 20.5, "first"),
        ("TorchScript optimises in run 2", 40, "second"),
        ("another shape", 17, "then"),
    ]
    assert found.advice == (
        "Take 'optimizer off': the first result comes after 130 ms instead of 180, and the first "
        "two runs take 80.0 ms less. It is: torch._C._set_graph_executor_optimize(False) in each "
        "thread that calls the model. Where the process starts before its first request, warm up, "
        "which is: torchmojo.warm(model, inputs=[...]) before the first request. It took 0.00 ms "
        "and 5 runs; the first request then took 10.2 ms instead of 80.0 (steady: 10.0)."
    )
    assert "not measured: freeze at load: RuntimeError: no" in str(found).splitlines()


def test_without_remedies_a_second_copy_tells_the_part_of_torchscript(asked, deep):
    answers, _ = asked
    answers["as it is"] = answer(80, 50, 11, **SCRIPT)
    found = torchmojo.coldstart(deep, input=(1, 3), runs=2, remedies=False, trusted=True)
    causes = {cause.name: cause.ms for cause in found.causes}
    assert causes["TorchScript records run 1"] == 20  # 30 of the copy less 10
    assert sum(c.ms for c in found.causes if c.where == "first") == pytest.approx(70)
    assert sum(c.ms for c in found.causes if c.where == "load") == pytest.approx(100)
    assert found.advice == (
        "No remedy was measured. The first 2 runs are warm-up: do them before the first request."
    )


@pytest.mark.parametrize(
    "better",
    [
        answer(79, 50, 11, load=99),  # as quick as the model as it is sometimes was
        answer(20, 20, 20, load=20, steady=20.0),  # every later run is slower
    ],
)
def test_no_remedy_is_better_than_noise(asked, deep, better):
    answers, _ = asked
    answers["as it is"] = [answer(80, 50, 11, **SCRIPT), answer(70, 50, 11, **SCRIPT)]
    answers["optimizer off"] = better
    words = {"runs": 2, "remedies": ["optimizer off"], "trusted": True}
    found = torchmojo.coldstart(deep, input=(1, 3), **words)
    assert found.advice == (
        "No change of the program buys more than the noise (170 to 180 ms without one)."
    )
    note = "Steady runs took 10.0 to 20.0 ms: the machine was busy with something else"
    assert (note in str(found)) == (better["steady_ms"] == 20)


def test_compiling_is_a_cause_of_its_own(asked):
    answers, _ = asked
    answers["as it is"] = answer(800, 10, 10, compile_ms=700.0)
    answers["warm-up"] = answer(10, 10, 10, warm_runs=4)
    found = torchmojo.coldstart("m:f", runs=1, remedies="warm-up")
    causes = {cause.name: cause.ms for cause in found.causes if cause.where == "first"}
    assert causes == {"torch.compile": 700, "other first-time work": 90}
    assert found.warm_up_runs == 1


def test_a_remedy_whose_file_could_not_be_made(asked):
    answers, log = asked
    answers["failed"]["state"] = "OSError: disk full\nmore"
    answers["as it is"] = answer(10, 10, 10)
    found = torchmojo.coldstart("m:f", runs=1, remedies=["mapped weights"])
    assert log == ["make", "as it is"] and found.remedies[0].failed == "OSError: disk full"


def test_the_tool_prints_json_and_shows_progress(asked, tmp_path):
    answers, _ = asked
    answers["as it is"] = answer(80, 50, 11)
    words = ("m:f", "--remedy", "none", "--json", "--out", tmp_path / "r.html")
    data = json.loads(run(*words).partition("{")[2].join(["{", ""]))
    assert data["model"] == "m:f" and data["remedies"] == []
    assert (tmp_path / "r.html").stat().st_size > 1000


# --- parts of a process ---------------------------------------------------------------------


def test_steps_count_faults_imports_and_libraries(makers):
    (makers / "cold_imported.py").write_text("import cold_inner")
    (makers / "cold_inner.py").write_text("x = 1")
    steps = Recorder()
    with steps.step("one"):
        import cold_imported

        # Pages of its own: torch might be given memory that was touched before.
        memory = torch.frombuffer(mmap.mmap(-1, 12_000_000), dtype=torch.float32).fill_(1)
    with steps.step("two"):
        import cold_imported  # noqa: F401
    one, two = steps.steps
    assert memory.sum() == 3_000_000
    assert (one["name"], one["modules"], two["modules"]) == ("one", 2, 0)
    assert 0 < one["imports_ms"] <= one["ms"] and two["imports_ms"] == 0
    assert one["minor"] > 0 and one["libraries"] == []
    assert 0 < fault_ms(256) < 1
    for name in ("cold_imported", "cold_inner"):
        del sys.modules[name]


def job(kind: str, path: object, *options: str, artefact: object = "") -> dict:
    words = {"kind": kind, "path": str(path), "artefact": str(artefact)}
    return {**words, "options": options, "device": "cpu"}


def test_mapped_weights_are_the_same(makers):
    plain = LOADERS["factory"](job("factory", "cold_makers:whole"), Recorder())
    torch.save(plain.state_dict(), "state.pt")
    steps = Recorder()
    mapped = LOADERS["factory"](
        job("factory", "cold_makers:whole", "mapped", artefact="state.pt"), steps
    )
    assert [step["name"] for step in steps.steps] == ["load", "weights"]
    assert not mapped.training and not mapped[1].training
    x = torch.rand(2, 3)
    assert torch.equal(mapped(x), plain(x)) and not any(p.is_meta for p in mapped.parameters())
    assert "state.pt" in Path("/proc/self/maps").read_text()


def test_freezing_at_load_changes_no_result(deep):
    plain, frozen = (
        LOADERS["script"](job("script", deep, *options), Recorder())
        for options in ((), ("freeze",))
    )
    x = torch.rand(4, 32)
    assert torch.allclose(plain(x), frozen(x), atol=1e-6)
    assert list(plain.parameters()) and not list(frozen.parameters())


# --- what means nothing ---------------------------------------------------------------------

TRUST = (
    "a file of this kind can carry code that runs when it is loaded; pass trusted=True (--trusted) "
    "if you know where it comes from"
)


def archive(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name in names:
            file.writestr(f"x/{name}", b"")
    return path


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("constants.pkl", "script"),
        ("data/aotinductor/model/a.so", "package"),
        ("models/model.json", "exported"),
    ],
)
def test_files_with_code_need_trust(tmp_path, asked, name, kind):
    path = archive(tmp_path / "m.pt", "data.pkl", name)
    with pytest.raises(torchmojo.ModelError) as caught:
        torchmojo.coldstart(path, input=(1, 3))
    assert str(caught.value) == f"coldstart: {path}: wanted a trusted file: {TRUST}"
    assert f"error: coldstart: {path}: wanted a trusted file" in run(path, code=1)
    asked[0]["as it is"] = answer(80, 50, 11)
    assert torchmojo.coldstart(path, remedies=False, trusted=True).kind == kind


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda p: p.write_bytes(b"no archive"),
            "wanted a TorchScript file, an exported program or a package, given no zip archive; "
            "for a file of weights, name the function that makes the model: module:factory",
        ),
        (
            lambda p: archive(p, "data.pkl", "data/0"),
            "wanted a TorchScript file, an exported program or a package, given a file of weights; "
            "name the function that makes the model: module:factory",
        ),
        (
            Path.mkdir,
            "wanted a folder that torchmojo.prepare wrote, given one without manifest.json",
        ),
    ],
)
def test_what_is_no_model(tmp_path, make, text):
    path = tmp_path / "m.pt"
    make(path)
    with pytest.raises(torchmojo.ModelError) as caught:
        torchmojo.coldstart(path, input=(1, 3), trusted=True)
    assert str(caught.value) == f"coldstart: {path}: {text}"


@pytest.mark.parametrize("word", ["missing.pt", "a b:c", ":f", "m:", "m:f g", ""])
def test_what_is_nowhere(word, makers):
    if not word:
        word = "nothing/at/all"
    with pytest.raises(FileNotFoundError) as caught:
        torchmojo.coldstart(word)
    assert str(caught.value) == (
        f"coldstart: {word}: wanted a file, a prepared folder or module:factory, given neither"
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"runs": 0}, "coldstart: runs: wanted 1 or more, given 0"),
        ({"forwards": 4}, "coldstart: forwards: wanted 5 or more, given 4"),
        ({"threads": "2"}, "coldstart: threads: wanted 1 or more, given '2'"),
        ({"device": "mps"}, "coldstart: device: wanted cpu, cuda or cuda:N, given 'mps'"),
        (
            {"input": "1,a"},
            'coldstart: input: wanted sizes such as (1, 3, 224, 224) or "1,3,224,224:float32", '
            "given '1,a'",
        ),
        (
            {"remedies": ["freeze at load"]},
            "coldstart: remedies: wanted some of mapped weights, prepared, warm-up for a Python "
            "function that makes the model, given 'freeze at load'",
        ),
    ],
)
def test_wrong_arguments(words, text):
    with pytest.raises(torchmojo.ArgumentError) as caught:
        torchmojo.coldstart("m:f", **words)
    assert str(caught.value) == text


def test_a_module_cannot_be_sent_to_other_processes():
    with pytest.raises(torchmojo.ArgumentError) as caught:
        torchmojo.coldstart(torch.nn.Linear(2, 2))
    assert str(caught.value) == (
        "coldstart: model: wanted a file, a prepared folder, 'module:factory' or a scripted "
        "module, given Linear; each process loads it afresh: write the function that makes it into "
        "a module"
    )


@pytest.mark.parametrize(
    ("out", "text"),
    [
        ("r.pdf", "coldstart: out: wanted a .html or .png file, given 'r.pdf'"),
        ("no/r.html", "coldstart: out: wanted a folder to write into, given no/r.html"),
        (
            "r.png",
            "coldstart: out: wanted Matplotlib for a .png file, given 'r.png' and an environment "
            'without it; write a .html file, or pip install "torchmojo[plot]"',
        ),
    ],
)
def test_a_picture_that_cannot_be_written_is_refused_at_once(makers, monkeypatch, out, text):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run("cold_makers:dies", "--out", out, code=1).strip() == f"error: {text}"
    assert not Path(out).exists()


# --- slow -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_remedy_of_torchscript(deep):
    found = torchmojo.coldstart(deep, input=(4, 32), runs=1, trusted=True)
    assert [m.name for m in found.remedies if m.failed] == []
    profiled = {m.name: m.profiled_runs for m in found.remedies}
    assert profiled == {
        "freeze at load": 1,
        "saved frozen": 1,
        "profiling executor off": 0,
        "no profiled runs": 0,
        "optimizer off": 0,
        "saved frozen, optimizer off": 0,
        "warm-up": 0,
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's own, of its trees
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_exported_program_and_its_package(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU()).eval()
    x = torch.rand(1, 3)
    program = torch.export.export(model, (x,))
    torch.export.save(program, tmp_path / "m.pt2")
    found = torchmojo.coldstart(tmp_path / "m.pt2", runs=1, trusted=True)
    assert found.kind == "exported" and found.inputs == ("f32[1,3]",)
    assert [m.name for m in found.remedies if not m.failed] == ["warm-up"]
    causes = [cause.name for cause in found.causes]
    assert "imports while loading" in causes
    package = tmp_path / "compiled.pt2"
    torch._inductor.aoti_compile_and_package(program, package_path=str(package))
    loads = [LOADERS["package"](job("package", package, *o), Recorder()) for o in ((), ("direct",))]
    assert torch.allclose(loads[0](x), model(x), atol=1e-6)
    assert torch.equal(loads[1](x)[0], loads[0](x))
