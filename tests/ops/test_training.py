"""The operators of examples/03_train_with_a_mojo_op, over dtypes and layouts."""

import importlib.util
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

EXAMPLE = Path(__file__).parents[2] / "examples" / "03_train_with_a_mojo_op" / "main.py"
DTYPES = [torch.float32, torch.float64]


@pytest.fixture(scope="module")
def example():
    """Give the example's module, whose operators are registered when it is imported."""
    spec = importlib.util.spec_from_file_location("torchmojo_example_03", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inputs(dtype):
    """Give matrices as they come: dense, transposed, with a step, of one row, of none."""
    torch.manual_seed(0)
    yield torch.randn(5, 7, dtype=dtype)
    yield torch.randn(7, 5, dtype=dtype).t()
    yield torch.randn(5, 14, dtype=dtype)[:, ::2]
    yield torch.randn(1, 7, dtype=dtype)
    yield torch.randn(0, 7, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bias_gelu(example, dtype):
    for x in inputs(dtype):
        bias = torch.randn(14, dtype=dtype)[::2]
        grad = torch.randn_like(x)
        for op, args in (
            (example.bias_gelu, (x, bias)),
            (example.bias_gelu_backward, (grad, x, bias)),
        ):
            results = torch.library.opcheck(op.overload, args)
            assert set(results.values()) == {"SUCCESS"}
        wanted = F.gelu(x + bias, approximate="tanh")
        torch.testing.assert_close(example.bias_gelu(x, bias), wanted)
        if dtype == torch.float64:
            leaves = tuple(t.clone().requires_grad_() for t in (x, bias))
            assert torch.autograd.gradcheck(example.bias_gelu, leaves)


@pytest.mark.parametrize("dtype", DTYPES)
def test_smooth_cross_entropy(example, dtype):
    for x in inputs(dtype):
        target = torch.randint(7, (len(x),))
        grad = torch.randn(len(x), dtype=dtype)
        for op, args in (
            (example.smooth_cross_entropy, (x, target, 0.1)),
            (example.smooth_cross_entropy_backward, (grad, x, target, 0.1)),
        ):
            results = torch.library.opcheck(op.overload, args)
            assert set(results.values()) == {"SUCCESS"}
        wanted = F.cross_entropy(x, target, label_smoothing=0.1, reduction="none")
        torch.testing.assert_close(example.smooth_cross_entropy(x, target, 0.1), wanted)
        if dtype == torch.float64:
            leaf = x.clone().requires_grad_()
            call = lambda t, k=target: example.smooth_cross_entropy(t, k, 0.1)  # noqa: E731
            assert torch.autograd.gradcheck(call, (leaf,))


def test_second_derivative_is_refused_by_name(example):
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(3, dtype=torch.float64)
    (first,) = torch.autograd.grad(example.bias_gelu(x, bias).sum(), x, create_graph=True)
    with pytest.raises(Exception, match="digits::bias_gelu_backward: wanted a backward formula"):
        first.sum().backward()
