"""Operators in Mojo inside a prepared model: called through torch's dispatcher, found by name."""

import json
import subprocess
import sys

import pytest
import torch

import torchmojo

pytestmark = pytest.mark.slow  # two compilers

SOURCE = """
from torchmojo import MutTensor, Tensor

def halve(dst: MutTensor[DType.float32, 2, "n m"], x: Tensor[DType.float32, 2, "n m"]) raises:
    if x.dim(0) > 1 and x[0, 0] > 1000:
        raise Error("too large to halve")
    for i in range(x.dim(0)):
        for j in range(x.dim(1)):
            dst[i, j] = x[i, j] / 2
"""


class Halves(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.ops.prepared_test.halve(torch.relu(self.layer(x))) + 1


@pytest.fixture(scope="module")
def operator(tmp_path_factory):
    path = tmp_path_factory.mktemp("operator") / "halve.mojo"
    path.write_text(SOURCE)
    kernels = torchmojo.load(path)

    @torchmojo.op("prepared_test::halve", kernels.halve)
    def halve(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    return halve


@pytest.fixture(scope="module")
def prepared(operator, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "halves"
    module = Halves().eval().requires_grad_(False)
    return torchmojo.prepare(module, torch.zeros(3, 4), folder, threads=1), module


def test_the_operator_runs_inside(prepared):
    folder, module = prepared
    model = torchmojo.Model(folder)
    for seed in range(8):
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(model(x), module(x), rtol=1e-6, atol=1e-6)


def test_it_is_named_and_pinned(prepared):
    folder, _ = prepared
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    assert manifest["calls"] == ["prepared_test::halve"]
    assert "model.json" in manifest["files"]
    assert "\ncalls prepared_test::halve\n" in (folder / "model.flat").read_text("utf-8")
    assert any(o["target"].startswith("prepared_test.halve") for o in manifest["operators"])


def test_an_error_of_the_operator_arrives(prepared):
    folder, _ = prepared
    model = torchmojo.Model(folder)
    with pytest.raises(torchmojo.ModelError, match="too large to halve"):
        model(torch.full((3, 4), 1e6) * torch.sign(model.weights["layer.weight"][:3]))


def test_a_process_without_it_is_told(prepared):
    folder, _ = prepared
    program = f"import torchmojo; torchmojo.Model({str(folder)!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "wanted the operator prepared_test::halve, which the model calls" in done.stderr
