"""Importing torchmojo is cheap, and its public names are the ones that it promises."""

import importlib
import json
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import torchmojo

# Slow, optional, or needed by one command only: whoever needs one imports it in the function.
FORBIDDEN = {
    "asyncio",
    "click",
    "concurrent",
    "cv2",
    "filelock",
    "http",
    "logging",
    "multiprocessing",
    "numpy",
    "PIL",
    "platformdirs",
    "rich",
    "subprocess",
    "torch",
    "typer",
    "unittest",
}

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(torchmojo.__path__, "torchmojo.")
    if not module.name.endswith("__main__")
)


def loaded_by(statement: str) -> list[str]:
    """Give the modules that a statement adds in a fresh interpreter."""
    program = (
        "import json, sys; before = set(sys.modules)\n"
        f"{statement}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_import_loads_nothing_heavy():
    loaded = loaded_by("import torchmojo")
    heavy = [name for name in loaded if name.partition(".")[0] in FORBIDDEN]
    assert heavy == []


def test_star_import_gives_exactly_the_public_names():
    namespace = {}
    exec("from torchmojo import *", namespace)
    assert sorted(set(namespace) - {"__builtins__"}) == sorted(torchmojo.__all__)


def test_nothing_else_is_public():
    names = {name for name in dir(torchmojo) if not name.startswith("_")} - {"annotations"}
    assert set(torchmojo.__all__) <= names | {"__version__"}
    parts = {name for name in names if isinstance(getattr(torchmojo, name), ModuleType)}
    assert all(getattr(torchmojo, name).__name__ == f"torchmojo.{name}" for name in parts)
    assert names - parts <= set(torchmojo.__all__)


@pytest.mark.parametrize("name", MODULES)
def test_every_module_imports(name):
    importlib.import_module(name)
