"""`torchmojo doctor`: what it looks at, and what it says of each thing that is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import torchmojo
from torchmojo.bridge import aten
from torchmojo.bridge.exchange import exchange_version
from torchmojo.cli import app
from torchmojo.inspect import doctor, process
from torchmojo.toolchain.compile.compiler import find_compiler


def run(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["doctor", *words], prog_name="torchmojo")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.output


def problems() -> list[tuple[str, str]]:
    return [(finding.what, finding.do) for finding in doctor.examine().problems]


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("TORCHMOJO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_all_good(cache):
    lines = run().splitlines()
    assert lines[-1] == "all good"
    said = {line[:10].strip(): line[11:] for line in lines if line[:1] not in ("", " ")}
    assert said["torchmojo"] == torchmojo.__version__
    assert said["torch"] == torch.__version__
    assert said["Mojo"].endswith(str(find_compiler().path))
    assert said["Cache"] == f"{cache}: 0 libraries, 0 B of 2.1 GB, writable"
    assert said["Fast door"] == "open"
    assert f"           TORCHMOJO_CACHE_DIR={cache}" in lines
    assert not cache.exists()


def test_json_in_a_process_of_its_own(cache):
    command = [sys.executable, "-m", "torchmojo", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    data = json.loads(done.stdout)
    assert data["ok"] is True and data["problems"] == []
    assert data["python"]["version"] == sys.version.split()[0]
    assert data["python"]["main_interpreter"] is True
    assert data["compiler"]["rejected"][0] == "TORCHMOJO_MOJO: not set"
    assert data["settings"] == {"TORCHMOJO_CACHE_DIR": str(cache)}
    assert data["torch"]["fast_door"] is True
    assert data["torch"]["symbols"] and all(data["torch"]["symbols"].values())
    assert data["threads"]["torch"] >= 1


def test_the_exchange_table():
    version = exchange_version(torch.Tensor)
    assert version is None or version >= (1, 2)
    assert exchange_version(int) is None


def test_no_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHMOJO_MOJO", str(tmp_path / "mojo"))
    text = run(code=1)
    assert "Mojo       not found\n" in text
    assert text.endswith(
        "\nproblem: no Mojo compiler of version 1.2.x found\n"
        '  to do: pip install "torchmojo[compiler]"; folders of `torchmojo build` need none\n'
        "\n1 problem\n"
    )
    assert json.loads(run("--json", code=1))["compiler"]["found"] is False


def test_a_wrong_variable(monkeypatch):
    monkeypatch.setenv("TORCHMOJO_CACHE_SIZE", "big")
    assert problems() == [
        (
            "environment variable TORCHMOJO_CACHE_SIZE: wanted a size such as 500MB, 2GiB or "
            "1073741824, given 'big'",
            "correct or unset it",
        )
    ]


def test_a_cache_that_others_can_write(cache):
    cache.mkdir()
    cache.chmod(0o777)
    assert problems() == [
        (
            f"the cache folder {cache} cannot be used: everybody may write into it",
            "set TORCHMOJO_CACHE_DIR to a folder of your own; else each process compiles again",
        )
    ]
    assert "NOT writable" in run(code=1)


def test_a_cache_in_a_file(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCHMOJO_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert problems()[0][0] == (
        f"the cache folder {tmp_path / 'file' / 'cache'} cannot be used: {tmp_path / 'file'} is "
        "not writable"
    )


def test_a_shut_door(monkeypatch):
    shut = aten.AtenDoor()
    shut.reason = "missing: aoti_torch_get_dim"
    found = {**aten.symbols(), "aoti_torch_get_dim": 0}
    monkeypatch.setattr(aten, "open_door", lambda: shut)
    monkeypatch.setattr(aten, "symbols", lambda: found)
    text = run(code=1)
    assert "Fast door  SHUT: missing: aoti_torch_get_dim\n" in text
    assert f"           {len(found) - 1} of {len(found)} C functions of torch found\n" in text
    assert "           missing: aoti_torch_get_dim\n" in text
    assert "problem: the fast door is shut: missing: aoti_torch_get_dim\n" in text


def test_without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    report = doctor.examine()
    assert report.ok and report.facts["torch"] == {"version": None}
    assert report.notes[0].do == 'to use tensors: pip install "torchmojo[torch]"'
    assert "torch      not installed\n" in run()


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"free_threaded": True}, "this is a free-threaded build of CPython (no GIL)"),
        ({"main_interpreter": False}, "this is a sub-interpreter"),
        ({"implementation": "pypy"}, "pypy"),
    ],
)
def test_an_interpreter_that_is_not_supported(monkeypatch, changed, what):
    facts = {**process.python_facts(), **changed}
    monkeypatch.setattr(doctor, "python_facts", lambda: facts)
    ((found, advice),) = problems()
    assert found.startswith(what) and "not supported" in found and advice


def test_a_version_of_python_that_is_not_supported(monkeypatch):
    monkeypatch.setattr(doctor.sys, "version_info", (3, 14, 0))
    assert problems()[0][1] == "use CPython 3.10 to 3.13"


def test_two_openmp_run_times(monkeypatch, tmp_path):
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r-xp 0 fd:00 1 /usr/lib/libgomp.so.1\n"
        "7f01-7f02 r--p 0 fd:00 1 /usr/lib/libgomp.so.1\n"
        "7f02-7f03 r-xp 0 fd:00 2 /opt/a b/libiomp5.so\n"
        "7f03-7f04 r-xp 0 fd:00 3 /opt/libompstub.so\n"
        "7f04-7f05 rw-p 0 00:00 0\n"
    )
    found = process.openmp_libraries(maps)
    assert found == ["/opt/a b/libiomp5.so", "/usr/lib/libgomp.so.1"]
    assert process.openmp_libraries(tmp_path / "none") == []
    monkeypatch.setattr(doctor, "openmp_libraries", lambda: found)
    text = run()
    assert (
        "note: 2 OpenMP run-times are loaded, each with its own threads: libiomp5.so, libgomp.so.1"
    ) in text
    assert text.endswith("all good\n")


SUB_INTERPRETER = """
import os, sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
number = interpreters.create()
interpreters.run_string(number, f"import sys; sys.path.insert(0, {sys.argv[1]!r})\\n"
    "from torchmojo.inspect.process import python_facts\\n"
    "import os; os.write(1, str(python_facts()['main_interpreter']).encode())")
interpreters.destroy(number)
"""


def test_a_sub_interpreter_knows_itself():
    # In a process of its own: the first sub-interpreter switches off CPython's own check of who
    # holds the GIL, and torch's autograd engine refuses to run after that.
    source = str(Path(torchmojo.__file__).parents[1])
    command = [sys.executable, "-c", SUB_INTERPRETER, source]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "False"


def test_cpus():
    assert 1 <= process.cpus() <= (os.cpu_count() or 1)
