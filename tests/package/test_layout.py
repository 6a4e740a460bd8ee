"""The parts of the package lean on each other one way only, and stay small."""

import ast
import graphlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "torchmojo"
MAX_LINES = 400

# Each part may import those before it; __init__ is the public package, which only programs use.
ORDER = (
    "_version",
    "errors",
    "dtypes",
    "contract",
    "spelling",
    "faults",
    "toolchain",
    "bridge",
    "library",
    "testing",
    "ops",
    "models",
    "vision",
    "inspect",
    "__init__",
    "demo",
    "cli",
    "__main__",
)
MODULES = sorted(PACKAGE.rglob("*.py"))
SOURCES = sorted(
    [
        *MODULES,
        *PACKAGE.rglob("*.mojo"),
        *(path for name in ("examples", "tests") for path in (ROOT / name).rglob("*.mojo")),
    ]
)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def part_of(path: Path) -> str:
    """Name the part that a module belongs to: its first folder, or itself at the top."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(path: Path) -> set[str]:
    """Give the parts that a module imports, at any depth of its code, but not for types alone.

    A public name is taken from `__init__`, whatever part it comes from.
    """
    package = ["torchmojo", *path.relative_to(PACKAGE).parts[:-1]]
    found = set()
    for node in walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {part_named(alias.name.split(".")) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = [*above, *(node.module.split(".") if node.module else [])]
            found |= {part_named([*base, alias.name]) for alias in node.names}
    return found - {None}


def walk(node: ast.AST):
    """Walk a syntax tree, leaving out `if TYPE_CHECKING:` blocks."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        yield child
        yield from walk(child)


def part_named(words: list[str]) -> str | None:
    """Turn the words of an imported name into a part; None when it is not ours."""
    if words[0] != "torchmojo":
        return None
    if len(words) > 1 and ((PACKAGE / words[1]).is_dir() or (PACKAGE / f"{words[1]}.py").is_file()):
        return words[1]
    return "__init__"


def edges() -> dict[str, set[str]]:
    """Give what each part imports from the other parts."""
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        part = part_of(path)
        graph.setdefault(part, set()).update(imports(path) - {part})
    return graph


def test_no_cycle_between_parts():
    try:
        graphlib.TopologicalSorter(edges()).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"parts import each other in a cycle: {' -> '.join(error.args[1])}")


def test_parts_lean_only_on_the_parts_before_them():
    graph = edges()
    assert set(graph) <= set(ORDER), "a new part: give it its place in ORDER"
    wrong = [
        f"{part} -> {target}"
        for part, targets in graph.items()
        for target in sorted(targets)
        if target not in ORDER[: ORDER.index(part)]
    ]
    assert wrong == []


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_a_module_is_short(path):
    assert path.read_text(encoding="utf-8").count("\n") <= MAX_LINES


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torchmojo.bridge.borrow", {"bridge"}),
        ("from torchmojo import errors, load", {"errors", "__init__"}),
        ("from ..bridge import borrow", {"bridge"}),
        ("from . import cache", {"toolchain"}),
        ("from .. import errors", {"errors"}),
        ("def f():\n    from torchmojo.cli import main", {"cli"}),
        ("if TYPE_CHECKING:\n    from torchmojo.cli import main", set()),
        ("import torch, os", set()),
    ],
)
def test_the_reader_of_imports(tmp_path, monkeypatch, source, expected):
    for name in ("toolchain", "bridge"):
        (tmp_path / name).mkdir()
    for name in ("errors", "cli"):
        (tmp_path / f"{name}.py").touch()
    path = tmp_path / "toolchain" / "module.py"
    path.write_text(source)
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    assert imports(path) == expected
