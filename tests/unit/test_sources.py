"""Which files a kernel is made of, and their hash."""

from pathlib import Path

import pytest

from torchmojo.toolchain.compile.sources import closure, digest


@pytest.fixture
def write(tmp_path):
    def write(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return write


def names(paths: list[Path], root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in paths]


@pytest.mark.parametrize(
    "statement",
    [
        "from helper import f",
        "import helper",
        "import helper as h",
        "import std.math, helper as h",
        "from std.math import sqrt; from helper import f",
        "def g():\n    from helper import f",
        "def g(): from helper import f",
        "from helper import (\n    f,  # one )\n    g as k,\n)",
        "from helper import *",
        "from helper \\\n    import f",
        "from `helper` import f",
        '"""Text."""\n\nfrom\thelper  import\tf',
        'var s = "#"; from helper import f',
    ],
)
def test_finds_each_way_to_import(write, statement):
    root = write({"kernels.mojo": statement + "\n", "helper.mojo": "", "other.mojo": ""})
    assert names(closure(root / "kernels.mojo"), root) == ["kernels.mojo", "helper.mojo"]


def test_ignores_what_is_not_local(write):
    root = write({"kernels.mojo": "from std.math import sqrt\nfrom torchmojo import Tensor\n"})
    assert names(closure(root / "kernels.mojo"), root) == ["kernels.mojo"]


def test_follows_imports_and_cycles(write):
    root = write(
        {
            "kernels.mojo": "from a import f",
            "a.mojo": "from b import f\nfrom kernels import g",
            "b.mojo": "import a",
        }
    )
    assert names(closure(root / "kernels.mojo"), root) == ["kernels.mojo", "a.mojo", "b.mojo"]


def test_packages_relative_imports_and_plain_folders(write):
    root = write(
        {
            "kernels.mojo": "from pkg.deep.leaf import f\nfrom plain.one import g\n",
            "pkg/__init__.mojo": "from .first import f",
            "pkg/first.mojo": "from . import second\nfrom .third import (x, y)",
            "pkg/second.mojo": "",
            "pkg/third.mojo": "",
            "pkg/deep/__init__.mojo": "",
            "pkg/deep/leaf.mojo": "from ..fourth import z",
            "pkg/fourth.mojo": "",
            "plain/one.mojo": "",
            "plain/far/away.mojo": "",
            "unrelated.mojo": "",
        }
    )
    assert sorted(names(closure(root / "kernels.mojo"), root)) == [
        "kernels.mojo",
        "pkg/__init__.mojo",
        "pkg/deep/__init__.mojo",
        "pkg/deep/leaf.mojo",
        "pkg/first.mojo",
        "pkg/fourth.mojo",
        "pkg/second.mojo",
        "pkg/third.mojo",
        "plain/one.mojo",
    ]


def test_member_of_a_package_may_be_a_module(write):
    root = write(
        {
            "kernels.mojo": "from plain import one",
            "plain/one.mojo": "",
            "plain/two.mojo": "",
        }
    )
    # `plain` has no __init__.mojo; all files that lie in it directly count.
    assert names(closure(root / "kernels.mojo"), root) == [
        "kernels.mojo",
        "plain/one.mojo",
        "plain/two.mojo",
    ]


def test_package_as_entry_has_all_its_files(write):
    root = write(
        {
            "pkg/__init__.mojo": "from .a import f",
            "pkg/a.mojo": "from beside import g",
            "pkg/unused/b.mojo": "",
            "beside.mojo": "",
        }
    )
    assert names(closure(root / "pkg"), root) == [
        "pkg/__init__.mojo",
        "pkg/a.mojo",
        "pkg/unused/b.mojo",
        "beside.mojo",
    ]


def test_include_folders_and_precompiled_packages(write):
    root = write(
        {
            "src/kernels.mojo": "from lib import f\nfrom ready import g",
            "include/lib.mojo": "from lib2 import g",
            "include/lib2.mojo": "",
            "include/ready.mojoc": "\0binary",
        }
    )
    assert sorted(names(closure(root / "src/kernels.mojo", [root / "include"]), root)) == [
        "include/lib.mojo",
        "include/lib2.mojo",
        "include/ready.mojoc",
        "src/kernels.mojo",
    ]
    assert names(closure(root / "src/kernels.mojo"), root) == ["src/kernels.mojo"]


def test_paths_are_absolute(write, monkeypatch):
    root = write({"kernels.mojo": "import helper", "helper.mojo": ""})
    monkeypatch.chdir(root)
    assert closure(Path("kernels.mojo")) == [root / "kernels.mojo", root / "helper.mojo"]


def test_missing_entry_is_named(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        closure(tmp_path / "kernels.mojo")
    assert str(caught.value) == (
        "[Errno 2] cannot read the Mojo source (No such file or directory): "
        f"'{tmp_path}/kernels.mojo'"
    )


def test_folder_that_is_no_package_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"cannot read the Mojo source.*/__init__\.mojo'"):
        closure(tmp_path)


def test_file_that_vanishes_is_named(write):
    root = write({"kernels.mojo": "import helper", "helper.mojo": ""})
    files = closure(root / "kernels.mojo")
    (root / "helper.mojo").unlink()
    with pytest.raises(FileNotFoundError, match=r"cannot read the Mojo source.*/helper\.mojo'"):
        digest(files)


def test_unreadable_file_is_named(write, monkeypatch):
    root = write({"kernels.mojo": ""})

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)  # root may read everything
    with pytest.raises(PermissionError) as caught:
        closure(root / "kernels.mojo")
    assert str(caught.value) == (
        f"[Errno 13] cannot read the Mojo source (Permission denied): '{root}/kernels.mojo'"
    )


def test_source_that_is_not_utf8(tmp_path):
    path = tmp_path / "kernels.mojo"
    path.write_bytes(b"# caf\xe9\nfrom helper import f\n")
    (tmp_path / "helper.mojo").write_bytes(b"")
    assert names(closure(path), tmp_path) == ["kernels.mojo", "helper.mojo"]


def test_digest_depends_on_names_and_contents_not_on_place_or_order(write, tmp_path):
    root = write({"one/a.mojo": "x", "one/b.mojo": "y", "two/a.mojo": "x", "two/b.mojo": "y"})
    one, two = root / "one", root / "two"
    first = digest([one / "a.mojo", one / "b.mojo"], [one])
    assert len(first) == 64
    assert first == digest([two / "b.mojo", two / "a.mojo"], [two])
    (two / "b.mojo").write_text("z")
    assert first != digest([two / "a.mojo", two / "b.mojo"], [two])
    (two / "b.mojo").write_text("y")
    (two / "b.mojo").rename(two / "c.mojo")
    assert first != digest([two / "a.mojo", two / "c.mojo"], [two])


def test_digest_tells_shifted_contents_apart(write):
    root = write({"one/a.mojo": "xy", "one/b.mojo": "", "two/a.mojo": "x", "two/b.mojo": "y"})
    one, two = root / "one", root / "two"
    assert digest(sorted(one.iterdir()), [one]) != digest(sorted(two.iterdir()), [two])


def test_digest_tells_folders_apart(write):
    root = write({"src/a.mojo": "x", "include/a.mojo": "x"})
    roots = [root / "src", root / "include"]
    assert digest([root / "src/a.mojo"], roots) != digest([root / "include/a.mojo"], roots)
