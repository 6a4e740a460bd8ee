"""`torchmojo new`: a project that passes its own tests at once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import torchmojo
from torchmojo.cli import app, template

FILES = [
    "README.md",
    "fast/__init__.py",
    "fast/kernels.mojo",
    "pyproject.toml",
    "tests/test_kernels.py",
]


def run(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words], prog_name="torchmojo")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("new")
    run("new", "fast", "--dir", folder)
    return folder / "fast"


def test_its_tests_pass(project):
    source = Path(torchmojo.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout.splitlines()[-1]


def test_its_style_is_good(project):
    ruff = Path(sys.executable).with_name("ruff")
    if not ruff.is_file():
        pytest.skip("ruff is not installed")
    for words in (["check", "--select=E,F,W,I,D,B,UP", "--ignore=D"], ["format", "--check"]):
        command = [ruff, *words, "--isolated", "--no-cache", "--line-length=100", "."]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_what_it_prints(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = run("new", "fast").splitlines()
    assert sorted(lines[:-2]) == [f"fast/{name}" for name in FILES]
    assert lines[-2:] == ["", "next: cd fast && python -m pytest"]


def test_no_placeholder_is_left(project):
    made = [path for path in project.rglob("*") if path.is_file()]
    assert sorted(path.relative_to(project).as_posix() for path in made) == FILES
    assert not [path for path in made if "@" in path.read_text().replace("@pytest", "")]


def test_it_overwrites_nothing(tmp_path):
    (tmp_path / "fast").write_text("mine")
    assert run("new", "fast", "--dir", tmp_path, code=1) == (
        f"error: {tmp_path / 'fast'} exists already; choose another name or --dir\n"
    )
    assert (tmp_path / "fast").read_text() == "mine"


def test_a_failure_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(template, "_write", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    assert run("new", "fast", "--dir", tmp_path, code=1) == "error: full\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("fast-math", "fast_math"),
        ("3d", "kernels_3d"),
        ("a.b/c", "a_b_c"),
        ("lambda", "lambda_kernels"),
        ("torch", "torch_kernels"),
        ("json", "json_kernels"),
        ("_private", "private"),
        ("größe", "gr_e"),
        ("", "kernels"),
        ("..", "kernels"),
    ],
)
def test_a_name_that_cannot_be_imported(tmp_path, name, better):
    text = run("new", name, "--dir", tmp_path, code=2)
    assert text.splitlines()[-1] == (
        f"Error: Invalid value for NAME: wanted a Python identifier such as {better}, "
        f"given {name!r}"
    )
    assert template.suggest(better) == ""
    assert list(tmp_path.iterdir()) == []
