"""The command-line tool: what it prints, and how it fails."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import torchmojo
from torchmojo import demo
from torchmojo.cli import app, main
from torchmojo.toolchain.cache import Cache

COMMANDS = [
    *("demo", "new", "show", "stub", "build", "include", "weights", "detect", "classify"),
    *("doctor", "coldstart"),
    "cache",
]

SOURCE = Path(__file__).with_name("cli_kernels.mojo")

SHOWN = """\
scale(dst: MutTensor[float32, 1, "n"], src: Tensor[float32, 1, "n"], by: Float32 = 2.0)

Writes src times a number.

Args:
    dst: Result `[n]`.
    src: Values `[n]`.

last(src: Tensor[float32, 1]) -> Float32

Returns the last value.

Args:
    src: Values, at least one.
"""


def run(*words: object, code: int = 0) -> str:
    """Run a command in this process; give what it printed on both streams."""
    done = CliRunner().invoke(app, [str(word) for word in words], prog_name="torchmojo")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.output


def child(*words: str | Path, **environment: str) -> subprocess.CompletedProcess:
    """Run a command in a process of its own."""
    command = [sys.executable, *map(str, words)]
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


@pytest.fixture(autouse=True)
def portable(monkeypatch):
    """Compile for the CPU that the tests of `build` compile for, so that they share a library."""
    if os.uname().machine == "x86_64":
        monkeypatch.setenv("TORCHMOJO_TARGET_CPU", "x86-64-v3")


# --- the tool itself ----------------------------------------------------------------------------


def test_help_lists_every_command():
    text = run("--help")
    listed = [line.split()[0] for line in text.partition("Commands:\n")[2].splitlines()]
    assert listed == COMMANDS
    assert not any(line.endswith("...") for line in text.splitlines()[1:])


@pytest.mark.parametrize(
    "words", [*COMMANDS[:-1], *(f"cache {name}" for name in ("list", "size", "clear", "trim"))]
)
def test_every_help_has_an_example(words):
    text = " ".join(run(*words.split(), "--help").split())
    assert f"Example: torchmojo {words}" in text or "mojo build -I" in text


def test_version():
    assert run("--version") == f"torchmojo {torchmojo.__version__}\n"


def test_no_command_shows_the_help():
    assert "Commands:" in run(code=2)


def test_an_unknown_command_is_a_usage_error(capsys):
    assert main(["nonsense"]) == 2
    assert "No such command 'nonsense'." in capsys.readouterr().err


def test_main_gives_the_exit_status(capsys):
    assert main(["include"]) == 0
    assert main(["show", "nothing.mojo"]) == 1
    streams = capsys.readouterr()
    assert streams.err == "error: no such file or folder: nothing.mojo\n"


def test_a_system_error_is_one_line(tmp_path):
    place = tmp_path / "no" / "kernels.pyi"
    assert (
        run("stub", SOURCE, "-o", place, code=1) == f"error: {place}: No such file or directory\n"
    )


def test_a_wrong_variable_is_one_line(monkeypatch):
    monkeypatch.setenv("TORCHMOJO_CACHE_SIZE", "big")
    assert run("show", SOURCE, code=1) == (
        "error: environment variable TORCHMOJO_CACHE_SIZE: wanted a size such as 500MB, 2GiB or "
        "1073741824, given 'big'; unset it to get the default\n"
    )


def test_a_bug_is_not_hidden(monkeypatch):
    def broken(self):
        raise ValueError("some bug")

    monkeypatch.setattr(Cache, "list", broken)
    with pytest.raises(ValueError, match="some bug"):
        run("cache", "list")


def test_starting_imports_nothing_heavy():
    program = (
        "import sys; from torchmojo.cli import main; code = main(['--help'])\n"
        "heavy = {'torch', 'numpy', 'rich', 'filelock', 'platformdirs', 'torchmojo.toolchain'}\n"
        "print(code, sorted(heavy & set(sys.modules)))"
    )
    assert child("-c", program).stdout.endswith("\n0 []\n")


def test_runs_as_a_module():
    done = child("-m", "torchmojo", "include")
    assert (done.returncode, done.stderr) == (0, "")
    assert (Path(done.stdout.strip()) / "torchmojo" / "__init__.mojo").is_file()


@pytest.mark.parametrize("status", [0, 1])
def test_demo_passes_on_what_it_is_given(monkeypatch, status):
    calls = []
    monkeypatch.setattr(demo, "main", lambda *words: calls.append(words) or status)
    assert run("demo", "--out", "picture.png", "--threads", 3, code=status) == ""
    assert calls == [(Path("picture.png"), 3)]


def test_nobody_reads_the_output():
    """A reader that has gone, such as `head`, is no error worth a traceback."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "torchmojo", "show", str(SOURCE)]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert "Traceback" not in done.stderr


# --- include, show, stub ------------------------------------------------------------------------


def test_include():
    folder = run("include").rstrip("\n")
    assert (Path(folder) / "torchmojo" / "__init__.mojo").is_file()
    assert json.loads(run("include", "--json")) == {"include": folder}


def test_show():
    assert run("show", SOURCE) == SHOWN


def test_show_prints_what_print_prints():
    library = torchmojo.load(SOURCE)
    assert "\n\n".join(map(str, library)) + "\n" == SHOWN


def test_show_json():
    data = json.loads(run("show", SOURCE, "--json"))
    assert [kernel["name"] for kernel in data["kernels"]] == ["scale", "last"]
    assert data["doc"] == "Two kernels for the tests of the command-line tool."


def test_show_imports_no_torch():
    program = (
        "import sys; from torchmojo.cli import main; code = main(['show', sys.argv[1]])\n"
        "print(code, sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    assert child("-c", program, SOURCE).stdout == f"{SHOWN}0 []\n"


def test_show_refuses_a_folder_without_kernels(tmp_path):
    assert run("show", tmp_path, code=1) == (
        f"error: {tmp_path}: wanted a .mojo file or a folder with __init__.mojo\n"
    )


def test_show_says_what_the_compiler_says(tmp_path):
    path = tmp_path / "broken.mojo"
    path.write_text("def f(:\n")
    text = run("show", path, code=1)
    assert text.startswith("error: ") and "broken.mojo:1:7" in text and "Traceback" not in text


def test_stub(tmp_path):
    text = run("stub", SOURCE)
    assert "def last(src: Tensor) -> float:" in text
    assert run("stub", SOURCE, "-o", tmp_path / "kernels.pyi") == ""
    assert (tmp_path / "kernels.pyi").read_text() == text


@pytest.mark.parametrize("given", ["=float32", "float32,,float16", "scale=", ""])
def test_dtypes_written_wrongly(given):
    text = run("show", SOURCE, "--dtypes", given, code=2)
    assert text.splitlines()[-1] == (
        "Error: Invalid value for --dtypes: wanted NAMES or KERNEL=NAMES, such as float32,float16, "
        f"given {given!r}"
    )


# --- cache --------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path, monkeypatch) -> Cache:
    """Give a cache with two entries of 1000 and 2000 bytes."""
    root = tmp_path / "cache"
    monkeypatch.setenv("TORCHMOJO_CACHE_DIR", str(root))
    monkeypatch.setenv("TORCHMOJO_CACHE_SIZE", "1MB")
    made = Cache(root)
    for i, name in enumerate(("first", "second")):
        path = made.build(
            f"{i}{'0' * 39}", lambda folder, i=i: filled(folder, 1000 * (i + 1)), name
        )
        os.utime(path / "entry.json", (1000 + i, 1000 + i))
    return made


def filled(folder: Path, size: int) -> None:
    (folder / "library.so").write_bytes(bytes(size))


def test_cache_list(store):
    lines = run("cache", "list").splitlines()
    assert lines[0].split() == ["name", "size", "compiled", "last", "used", "key"]
    assert [line.split()[0] for line in lines[1:]] == ["first", "second"]
    assert lines[1].split()[-1] == "0" * 12


def test_cache_list_json(store):
    listed = json.loads(run("cache", "list", "--json"))
    assert [entry["name"] for entry in listed] == ["first", "second"]
    assert sorted(listed[0]) == ["bytes", "created", "key", "name", "path", "used"]


def test_an_empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHMOJO_CACHE_DIR", str(tmp_path / "none"))
    assert run("cache", "list") == f"{tmp_path / 'none'}: empty\n"
    assert run("cache", "list", "--json") == "[]\n"
    assert run("cache", "size") == f"{tmp_path / 'none'}: 0 libraries, 0 B of 2.1 GB\n"
    assert run("cache", "clear") == f"{tmp_path / 'none'}: freed 0 B, 0 B left\n"
    assert not (tmp_path / "none").exists()


def test_cache_size(store):
    assert run("cache", "size") == f"{store.root}: 2 libraries, 3.2 kB of 1.0 MB\n"
    data = json.loads(run("cache", "size", "--json"))
    assert data == {
        "folder": str(store.root),
        "entries": 2,
        "bytes": store.size(),
        "limit": 1000000,
    }


def test_cache_clear(store):
    before = store.size()
    assert json.loads(run("cache", "clear", "--json")) == {
        "folder": str(store.root),
        "freed": before,
        "bytes": 0,
    }
    assert store.list() == []


def test_cache_trim_spares_what_is_young(store):
    assert run("cache", "trim", "0") == f"{store.root}: freed 0 B, 3.2 kB left\n"


def test_cache_trim(store):
    for marker in store.root.glob("??/*/entry.json"):
        facts = json.loads(marker.read_text())
        marker.write_text(json.dumps({**facts, "created": 1000.0}))
        os.utime(marker, (1000 + facts["files"]["library.so"],) * 2)
    assert run("cache", "trim", "2.5kB") == f"{store.root}: freed 1.1 kB, 2.1 kB left\n"
    assert [entry.name for entry in store.list()] == ["second"]


def test_cache_trim_needs_a_size(store):
    assert run("cache", "trim", "much", code=2).splitlines()[-1] == (
        "Error: Invalid value for SIZE: wanted a size such as 500MB, 2GiB or 1000000, given 'much'"
    )
