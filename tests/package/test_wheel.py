"""The wheel that users install: built from the sdist, installed in clean environments, and used.

Each supported CPython that is found here gets an environment of its own, with torchmojo[compiler]
from the wheel and nothing of the repository. The README's first kernel then runs there:

- on tensors, for the Python that runs these tests, with the torch that these tests use;
- on NumPy arrays for the other Pythons, unless torch is there already. torch is several hundred
  megabytes to gigabytes for each, and what depends on the Python's version is reached without it.
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
THIS_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

# The README's kernel on NumPy arrays; its outcome is computed here a second time.
ON_ARRAYS = """
import numpy, torchmojo
kernels = torchmojo.load("kernels.mojo")
a, b = numpy.linspace(0, 1, 1000, dtype="float32"), numpy.ones(1000, dtype="float32")
out = numpy.empty_like(a)
kernels.scaled_add(out, a, b, 0.5)
numpy.testing.assert_allclose(out, a + 0.5 * b, rtol=1e-6)
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command away from the repository; fail with all that it printed."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TORCHMOJO"))}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**kept, "PYTHONSAFEPATH": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}"
    return done.stdout


def interpreter(minor: str) -> Path:
    """Find a CPython of a minor version: this one, one of pyenv's, or one on PATH."""
    if minor == THIS_PYTHON:
        return Path(sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [*pyenv.glob(f"{minor}.*/bin/python"), shutil.which(f"python{minor}")]
    for candidate in filter(None, candidates):
        # A name on PATH may be a shim that stands for nothing.
        if subprocess.run([candidate, "-c", ""], check=False, capture_output=True).returncode == 0:
            return Path(candidate)
    pytest.skip(f"no Python {minor} here")


def readme_blocks(language: str) -> list[str]:
    """Give the fenced blocks of one language in README.md, in order."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Build the sdist, and the wheel out of the sdist, as a release does."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return next(folder.glob("*.whl"))


def test_wheel_holds_every_source_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = ROOT / "src" / "torchmojo"
    sources = {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.suffix in {".py", ".mojo", ".in"} or path.name == "py.typed"
    }
    assert packed == sources
    assert "torchmojo/py.typed" in packed
    assert any(name.startswith("torchmojo/mojo/torchmojo/") for name in packed)


@pytest.fixture(params=PYTHONS)
def clean_python(request, wheel, tmp_path):
    """Give the Python of a new environment that holds the wheel and the compiler."""
    base = interpreter(request.param)
    folder = tmp_path / "venv"
    run(base, "-m", "venv", folder, cwd=tmp_path)
    python = folder / "bin" / "python"
    wanted = [f"torchmojo[compiler] @ {wheel.as_uri()}", "numpy"]
    if request.param == THIS_PYTHON:
        wanted.append(f"torch=={version('torch').partition('+')[0]}")
    run(python, "-m", "pip", "install", "--quiet", *wanted, cwd=tmp_path)
    yield python
    shutil.rmtree(folder)  # a gigabyte each


def test_readme_example_runs_from_the_wheel(clean_python, tmp_path):
    kernels, *_ = readme_blocks("mojo")
    (tmp_path / "kernels.mojo").write_text(kernels, encoding="utf-8")
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    has_torch = "import importlib.util as u; print(u.find_spec('torch') is not None)"
    if run(clean_python, "-c", has_torch, cwd=tmp_path).strip() == "True":
        example, *_ = readme_blocks("python")
        run(clean_python, "-c", example, cwd=tmp_path, **cache)
    run(clean_python, "-c", ON_ARRAYS, cwd=tmp_path, **cache)
    shown = run(clean_python, "-m", "torchmojo", "--help", cwd=tmp_path, **cache)
    assert "demo" in shown
