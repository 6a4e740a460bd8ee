"""TORCHMOJO_CHECK_OPS: results are compared with what the fake function says."""

import pytest
import torch

import torchmojo
from torchmojo.errors import SignatureError

from .conftest import close

X = torch.arange(6, dtype=torch.float64)


@pytest.fixture
def checking(monkeypatch):
    monkeypatch.setenv("TORCHMOJO_CHECK_OPS", "1")


@pytest.fixture
def powers(kernels, ns, checking):
    @torchmojo.op(f"{ns}::powers", kernels.powers)
    def powers(x):
        return torch.empty_like(x), x.new_empty(x.shape[0])

    yield powers
    powers.unregister()


def test_right_results_pass(powers):
    for x in X, X[::2], X[:0], X[1:2], X.flip(0).requires_grad_():
        square, cube = powers(x)
        close(square.detach(), x.detach() ** 2)
        close(cube.detach(), x.detach() ** 3)
    assert set(torch.library.opcheck(powers.overload, (X,)).values()) == {"SUCCESS"}


@pytest.mark.parametrize(
    ("fake", "index", "wanted"),
    [
        (lambda x: (x.new_empty(7), x.new_empty(6)), 0, "f64[7] cpu strides(1)"),
        (lambda x: (x.new_empty(6), x.new_empty(6, dtype=torch.int32)), 1, "i32[6] cpu strides(1)"),
        (lambda x: (x.new_empty(6), x.new_empty(12)[::2]), 1, "f64[6] cpu strides(2)"),
        (lambda x: (x.new_empty(1, 6), x.new_empty(6)), 0, "f64[1,6] cpu strides(6,1)"),
    ],
)
def test_wrong_fake_function(powers, fake, index, wanted):
    powers.function = fake
    with pytest.raises(SignatureError) as caught:
        powers(X)
    given = "f64[6] cpu strides(1)"
    assert str(caught.value) == (
        f"{powers.name}: result {index}: wanted {wanted} as the function says, given {given} from "
        "the kernel; let the function make what the kernel makes"
    )


def test_in_place_and_defaults(kernels, ns, checking):
    @torchmojo.op(f"{ns}::scale_", kernels.scale_)
    def scale_(x, by): ...

    @torchmojo.op(f"{ns}::add", kernels.add)
    def add(a, b, alpha=1.0):
        return torch.empty_like(a)

    x = X.clone()
    version = x._version
    scale_(x, 2.0)
    close(x, 2 * X)
    assert x._version == version + 1
    close(add(x, x), 2 * x)
    close(add(x, x, 3.0), 4 * x)
    with pytest.raises(torchmojo.KernelError, match="add: alpha is unlucky"):
        add(x, x, 13.0)
    add.unregister()
    scale_.unregister()
