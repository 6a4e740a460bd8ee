"""Runs the tests that are written in Mojo."""

import re
from pathlib import Path

import pytest

from torchmojo.errors import CompilerNotFoundError
from torchmojo.toolchain.compile.compiler import find_compiler, run
from torchmojo.toolchain.library import MOJO_PACKAGE

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("test_*.mojo"))


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_file(file, tmp_path):
    try:
        compiler = find_compiler()
    except CompilerNotFoundError as error:
        pytest.skip(str(error))
    done = run(compiler, ["run", "-I", MOJO_PACKAGE, file], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    count = len(re.findall(r"^def test_", file.read_text(encoding="utf-8"), re.M))
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    assert re.search(rf"\b{count} tests run: {count} passed\b", plain), plain
