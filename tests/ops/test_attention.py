"""The fused attention of `examples/04_fused_attention` against attention in float64."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import torchmojo
from torchmojo.errors import CompilerNotFoundError

from .conftest import close, text_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "04_fused_attention" / "main.py"
DTYPES = [torch.float32, torch.bfloat16]
# Sums are float32: a bfloat16 result is rounded once, and a gradient's inputs once more.
TOLERANCE = {
    torch.float32: {"rtol": 2e-5, "atol": 2e-5},
    torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2},
    torch.float64: {"rtol": 1e-11, "atol": 1e-11},
}


@pytest.fixture(scope="module")
def fused():
    """Give the example's module, whose operators are in the namespace `fused`."""
    spec = importlib.util.spec_from_file_location("torchmojo_example_attention", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except CompilerNotFoundError as error:
        pytest.skip(str(error))
    return module


@pytest.fixture(scope="module")
def doubles(fused):
    """Give the same operators in float64, for finite differences."""
    kernels = torchmojo.load(fused.KERNELS, dtypes=["float64"])

    @torchmojo.op("fused64::attention", kernels.attention)
    def attention(q, k, v, causal: bool = False, scale: float | None = None):
        return torch.empty_like(q), q.new_empty(q.shape[0], q.shape[1], q.shape[2])

    @torchmojo.op("fused64::attention_backward", kernels.attention_backward)
    def backward(grad, grad_lse, q, k, v, dst, lse, causal=False, scale=None):
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)

    @attention.backward(save=("q", "k", "v", "dst", "lse"))
    def _(ctx, grad, grad_lse):
        kept = (ctx.q, ctx.k, ctx.v, ctx.dst, ctx.lse, ctx.causal, ctx.scale)
        return backward(grad, grad_lse, *kept)

    yield SimpleNamespace(attention=attention)
    attention.unregister()
    backward.unregister()


def oracle(q, k, v, causal=False, scale=None):
    """Attention as it is written in a book, in float64: result and logarithm of the sums."""
    q, k, v = q.double(), k.double(), v.double()
    group = q.shape[1] // max(1, k.shape[1])
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("bhld,bhsd->bhls", q, k)
    scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        sees = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~sees, -torch.inf)
    return torch.einsum("bhls,bhsd->bhld", scores.softmax(-1), v), scores.logsumexp(-1)


def random(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def make(b, h, g, lq, s, d, dtype=torch.float32):
    shapes = ((b, h, lq, d), (b, g, s, d), (b, g, s, d))
    return [random(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]


def check(attention, q, k, v, causal=False, scale=None):
    """Compare result, sums and gradients, those of the sums included, with the oracle's."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    assert [x.stride() for x in leaves] == [x.stride() for x in (q, k, v)]
    given = attention(*leaves, causal, scale)
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    wanted = oracle(*exact, causal, scale)
    limits = TOLERANCE[q.dtype]
    assert given[0].dtype == q.dtype and given[0].shape == q.shape
    torch.testing.assert_close(given[0].double(), wanted[0], **limits)
    torch.testing.assert_close(given[1].double(), wanted[1], rtol=1e-5, atol=1e-5)
    grads = [random(*x.shape, dtype=x.dtype, seed=9) for x in given]
    slopes = torch.autograd.grad(given, leaves, grads)
    exact_slopes = torch.autograd.grad(wanted, exact, [x.double() for x in grads])
    for name, slope, right in zip("qkv", slopes, exact_slopes, strict=True):
        # An element is a sum with cancellation: what it is compared with is the largest one.
        limit = limits["atol"] * max(1.0, float(right.abs().max()) if right.numel() else 0.0)
        off = (slope.double() - right).abs().max() if right.numel() else torch.zeros(())
        assert off <= limit, (name, float(off), limit)


# --- sizes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [1, 8, 32, 33, 64, 96, 128])
def test_widths(fused, d, causal, dtype):
    check(fused.attention, *make(2, 2, 2, 70, 70, d, dtype), causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("lq", "s"),
    [(1, 1), (1, 70), (70, 1), (63, 65), (64, 64), (65, 63), (3, 200), (200, 3), (129, 257)],
)
def test_lengths(fused, lq, s, causal):
    check(fused.attention, *make(1, 2, 2, lq, s, 16), causal)


@pytest.mark.parametrize(("h", "g"), [(4, 1), (6, 3), (2, 2)])
def test_heads_of_keys_are_shared(fused, h, g):
    q, k, v = make(2, h, g, 66, 67, 32)
    check(fused.attention, q, k, v, True)
    own = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(fused.attention(q, k, v, True)[0], own)


@given(
    b=st.integers(1, 2),
    g=st.integers(1, 2),
    group=st.integers(1, 2),
    lq=st.integers(1, 140),
    s=st.integers(1, 140),
    d=st.integers(1, 70),
    causal=st.booleans(),
    dtype=st.sampled_from(DTYPES),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_sizes(fused, b, g, group, lq, s, d, causal, dtype):
    check(fused.attention, *make(b, g * group, g, lq, s, d, dtype), causal)


@pytest.mark.parametrize(
    "sizes", [(0, 2, 2, 3, 4, 8), (1, 0, 0, 3, 4, 8), (1, 2, 2, 0, 4, 8), (1, 2, 2, 3, 4, 0)]
)
def test_empty(fused, sizes):
    q, k, v = (x.requires_grad_() for x in make(*sizes))
    out, _ = fused.attention(q, k, v)
    assert out.shape == q.shape
    for slope, x in zip(torch.autograd.grad(out.sum(), (q, k, v)), (q, k, v), strict=True):
        close(slope[..., :0], torch.zeros_like(x)[..., :0])
        if sizes[3] == 0:
            close(slope, torch.zeros_like(x))


@pytest.mark.parametrize("causal", [False, True])
def test_no_keys(fused, causal):
    q, k, v = (x.requires_grad_() for x in make(1, 2, 2, 3, 0, 8))
    out, lse = fused.attention(q, k, v, causal)
    close(out, torch.zeros_like(out))
    close(lse, torch.full_like(lse, -torch.inf))
    close(torch.autograd.grad(out.sum(), q)[0], torch.zeros_like(q))


# --- strides ------------------------------------------------------------------------------------

LAYOUTS = {
    "as a linear layer leaves it": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "transposed": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "stepped": lambda x: x.repeat_interleave(2, 3)[..., ::2],
    "offset": lambda x: torch.cat([x, x], 2)[:, :, x.shape[2] :],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides(fused, layout, causal, dtype):
    inputs = [LAYOUTS[layout](x) for x in make(2, 3, 3, 67, 70, 33, dtype)]
    assert layout == "offset" or not inputs[0].is_contiguous()
    check(fused.attention, *inputs, causal)


def test_expanded_keys(fused):
    q, k, v = make(2, 3, 3, 20, 21, 16)
    check(fused.attention, q, k[:, :1].expand(2, 3, 21, 16), v[:1].expand(2, 3, 21, 16), True)
    check(fused.attention, q, k[:, :, :1].expand(2, 3, 21, 16), v)


def test_the_result_lies_as_the_queries_do(fused):
    q, k, v = (x.transpose(1, 2) for x in make(1, 5, 5, 2, 2, 8))
    out, _ = fused.attention(q, k, v)
    assert out.stride() == q.stride() and out.transpose(1, 2).is_contiguous()


def test_inputs_are_not_written(fused):
    q, k, v = make(1, 2, 2, 70, 70, 8)
    kept = [x.clone() for x in (q, k, v)]
    check(fused.attention, q, k, v, True)
    for x, before in zip((q, k, v), kept, strict=True):
        close(x, before)


# --- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.3, 0.0, -1.0, 2])
def test_scale(fused, scale):
    check(fused.attention, *make(1, 2, 2, 20, 70, 16), False, scale)


def test_great_scores(fused):
    q, k, v = make(1, 1, 1, 70, 130, 16)
    out, _ = fused.attention(300 * q, 10 * k, v)
    wanted, _ = oracle(300 * q, 10 * k, v)
    torch.testing.assert_close(out.double(), wanted, rtol=2e-3, atol=2e-3)
    # All but one key are too far below the greatest score for an exponential of float32.
    k = torch.zeros(1, 1, 130, 16)
    k[:, :, 99] = 1
    close(
        fused.attention(torch.full((1, 1, 70, 16), 1e3), k, v)[0],
        v[:, :, 99:100].expand(1, 1, 70, 16),
    )


def test_finite_differences(doubles):
    q, k, v = (x.double().requires_grad_() for x in make(1, 2, 1, 5, 6, 3))
    for causal in (False, True):
        assert torch.autograd.gradcheck(
            lambda *x, c=causal: doubles.attention(*x, c, 0.7), (q, k, v)
        )


@pytest.mark.parametrize("causal", [False, True])
def test_float64(doubles, causal):
    check(doubles.attention, *(x.double() for x in make(1, 2, 2, 70, 131, 33)), causal)


def test_nan_stays_where_it_belongs(fused):
    q, k, v = make(1, 1, 1, 150, 150, 16)
    clean, _ = fused.attention(q, k, v, True)
    q[0, 0, 7, 3] = torch.nan
    out, _ = fused.attention(q, k, v, True)
    assert out[0, 0, 7].isnan().all() and int(out.isnan().sum()) == 16
    q[0, 0, 7, 3] = 0
    k[0, 0, 90, 3] = torch.nan
    out, _ = fused.attention(q, k, v, True)
    assert out[0, 0, 90:].isnan().all()
    rows = [i for i in range(90) if i != 7]
    close(out[0, 0, rows], clean[0, 0, rows])


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_is_not_finite_spreads(fused, which, value):
    inputs = make(1, 1, 1, 70, 70, 16)
    inputs[which][0, 0, 3, 3] = value
    leaves = [x.requires_grad_() for x in inputs]
    out, _ = fused.attention(*leaves)
    assert not out.isfinite().all()
    wanted, _ = oracle(*inputs)
    finite = wanted.isfinite()
    torch.testing.assert_close(out[finite].double(), wanted[finite], rtol=1e-4, atol=1e-4)
    assert not any(x.isfinite().all() for x in torch.autograd.grad(out.sum(), leaves[:1]))


THREADS = """
import importlib.util, sys, torch
spec = importlib.util.spec_from_file_location("example", sys.argv[1])
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
inputs = [torch.randn(2, 3, 300, 32) for _ in range(4)]
for causal in (False, True):
    seen = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        seen.append(example.forward_and_backward(example.with_mojo, *inputs, causal))
    for other in seen[1:]:
        assert all(torch.equal(a, b) for a, b in zip(seen[0], other, strict=True))
print("same")
"""


def test_the_number_of_threads_changes_nothing(fused):
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", THREADS, str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "same\n"), done.stderr


# --- refusals -----------------------------------------------------------------------------------


def test_refusals(fused):
    q, k, v = make(1, 4, 4, 5, 6, 8)
    assert text_of(fused.attention, q, k, v[:, :, :5]) == (
        "attention: v: wanted axis 2 (s) as long as axis 2 of k, f32[1,4,6,8] cpu "
        "strides(192,48,8,1), given f32[1,4,5,8] cpu strides(192,48,8,1)"
    )
    assert text_of(fused.attention, q, k[..., :7], v).startswith(
        "attention: k: wanted axis 3 (d) as long as axis 3 of dst, f32[1,4,5,8] cpu "
    )
    for heads in (3, 0):
        assert text_of(fused.attention, q, k[:, :heads], v[:, :heads]) == (
            f"attention: k: wanted heads that divide the 4 of q, given {heads}; repeat or drop some"
        )
    assert text_of(fused.attention, q[0], k, v).startswith("attention: dst: wanted 4 axes, given ")
    assert text_of(fused.attention, q, k.bfloat16(), v).startswith(
        "attention: k: wanted the dtype of dst, f32[1,4,5,8] cpu "
    )


# --- torch's machinery --------------------------------------------------------------------------

WARNINGS = ("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


@pytest.mark.filterwarnings(*WARNINGS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_opcheck(fused, dtype):
    q, k, v = (x.requires_grad_() for x in make(1, 2, 1, 5, 6, 8, dtype))
    views = [x.detach().transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    for args in ((q, k, v), (q, k, v, True, 0.5), (*views, True)):
        results = torch.library.opcheck(fused.attention.overload, args)
        assert set(results.values()) == {"SUCCESS"}
    out, lse = (x.detach() for x in fused.attention(q, k, v))
    grad = torch.ones(1, dtype=dtype).expand(out.shape)
    kept = [x.detach() for x in (q, k, v)]
    args = (grad, torch.zeros_like(lse), *kept, out, lse, False, None)
    results = torch.library.opcheck(fused.attention_backward.overload, args)
    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.slow
@pytest.mark.filterwarnings(*WARNINGS)
@pytest.mark.parametrize("causal", [False, True])
def test_compile(fused, causal):
    def block(x, weight):
        b, length, _ = x.shape
        q, k, v = (y.view(b, length, 4, 8).transpose(1, 2) for y in (x @ weight).chunk(3, -1))
        out = fused.attention(q, k, v, causal)[0]
        return (x + out.transpose(1, 2).reshape(x.shape)).square().mean()

    torch._dynamo.reset()
    compiled = torch.compile(block, fullgraph=True)
    x, weight = random(2, 21, 32), random(32, 96, seed=1) / 6
    losses, slopes = [], []
    for call in (block, compiled):
        leaf = weight.clone().requires_grad_()
        losses.append(call(x, leaf))
        slopes.append(torch.autograd.grad(losses[-1], leaf)[0])
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*slopes)
