"""The bridge to Modular's ``layout`` package, in an environment that has it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# `layout` comes with the max wheels, 330 MB that nothing else here needs.
WHEELS = ("mojo-compiler==1.2.0", "max-core==26.7.0", "max-mojo-libs==26.7.0")

KERNELS = """
from torchmojo import MutTensor, Tensor
from torchmojo_tile import as_tile

def total(x: Tensor[DType.float32, 3]) -> Float32:
    var tile = as_tile(x)
    var sum = Float32(0)
    for i in range(x.dim(0)):
        for j in range(x.dim(1)):
            for k in range(x.dim(2)):
                sum += tile[i, j, k]
    return sum

def mark(x: MutTensor[DType.float32, 2]):
    as_tile(x)[1, 2] = 5
"""

PROGRAM = """
import torch, torchmojo
kernels = torchmojo.load("tiles.mojo")
x = torch.arange(24.0).reshape(2, 3, 4).transpose(0, 2)[::2]
assert kernels.total(x) == float(x.sum())
y = torch.zeros(6, 8)
kernels.mark(y[::2, ::2])
assert y[2, 4] == 5 and float(y.sum()) == 5
print("tiles right")
"""


@pytest.mark.slow
def test_a_view_is_a_tile(tmp_path: Path) -> None:
    """Sizes and strides of a transposed, sliced view arrive in the tile; writes too."""
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", *WHEELS], check=True)
    compiler = next(home.glob("lib/python*/site-packages/modular/bin/mojo"))
    (tmp_path / "tiles.mojo").write_text(textwrap.dedent(KERNELS))
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "TORCHMOJO_MOJO": str(compiler)},
        capture_output=True,
        text=True,
    )
    assert run.stdout.strip() == "tiles right", run.stderr
