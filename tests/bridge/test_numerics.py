"""Results against torch, bit by bit: rounding, subnormals, infinities, signs of zero, wrap."""

import itertools
import platform
from pathlib import Path

import numpy as np
import pytest
import torch

import torchmojo
from torchmojo import DTypeError

from .conftest import load

FLOATS = {
    torch.float32: torch.int32,
    torch.float64: torch.int64,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}
KERNELS = ("fma", "fma_scalar")  # SIMD with a scalar tail, and one element after another


@pytest.fixture(scope="module")
def numbers():
    return load("numbers")


@pytest.fixture(scope="module")
def fast():
    return load("numbers", fast_math=True)


@pytest.fixture(scope="module")
def running():
    return load("running")


def special(dtype):
    """List the values at which formats differ."""
    info = torch.finfo(dtype)
    tiny = info.smallest_normal
    values = [0.0, tiny, tiny * info.eps, tiny * (1 - info.eps), info.max, 1.0, 1 + info.eps]
    values += [float("inf"), 1 / 3]
    return torch.tensor([*values, *(-v for v in values), float("nan")], dtype=torch.float64).to(
        dtype
    )


def operands(dtype, count=20_011):
    """Give three tensors: all triples of special values, random bits, and numbers about 1."""
    generator = torch.Generator().manual_seed(count)
    triples = torch.tensor(list(itertools.product(special(dtype).tolist(), repeat=3)))
    bits = FLOATS[dtype]
    shift = 64 - torch.iinfo(bits).bits
    raw = torch.randint(-(2**63), 2**63 - 1, (3, count), generator=generator) >> shift
    normal = torch.randn(3, count, dtype=torch.float64, generator=generator)
    for row in range(3):
        parts = [triples[:, row].to(dtype), raw[row].to(bits).view(dtype), normal[row].to(dtype)]
        yield torch.cat(parts)


def same(a, b):
    """Compare bits; which NaN it is, no operation promises."""
    bits = FLOATS[a.dtype]
    return (a.view(bits) == b.view(bits)) | (a.isnan() & b.isnan())


def flushed(x):
    """Round a float32 to bfloat16 as AVX512-BF16 does: what is subnormal becomes zero."""
    tiny = torch.finfo(torch.bfloat16).smallest_normal
    return torch.where(x.abs() < tiny, torch.copysign(torch.zeros(()), x), x).bfloat16()


# --- floats -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_multiply_and_add_round_twice(numbers, kernel, dtype):
    a, b, c = operands(dtype)
    wanted = a * b + c
    results = [torch.empty_like(a)]
    numbers[kernel](results[0], a, b, c)
    # Strided operands take other loads and stores; none of the values may change by that.
    wide = [torch.zeros(a.numel(), 3, dtype=dtype) for _ in range(4)]
    for place, operand in zip(wide[1:], (a, b, c), strict=True):
        place[:, 1] = operand
    numbers[kernel](*(place[:, 1] for place in wide))
    results.append(wide[0][:, 1].contiguous())
    assert not wide[0][:, ::2].any()
    for result in results:
        ok = same(result, wanted)
        if dtype is torch.bfloat16:
            # LLVM rounds with an instruction that knows no subnormals, where the CPU has it.
            ok |= same(result, flushed(flushed(a.float() * b.float()).float() + c.float()))
        wrong = (~ok).nonzero().flatten()[:3]
        assert ok.all(), [t[wrong].tolist() for t in (a, b, c, result, wanted)]
    assert wanted.isnan().any() and wanted.isinf().any() and (wanted == 0).any()


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_tail_of_a_vectorized_loop(numbers, dtype, count):
    generator = torch.Generator().manual_seed(count)
    a, b, c = torch.randn(3, count + 2, generator=generator).to(dtype)
    out = torch.full((count + 2,), 7.0, dtype=dtype)
    numbers.fma(out[1:-1], a[1:-1], b[1:-1], c[1:-1])
    assert torch.equal(out[1:-1], a[1:-1] * b[1:-1] + c[1:-1])
    assert out[0] == out[-1] == 7


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_fast_math_is_within_one_ulp(numbers, fast, dtype):
    """One rounding instead of two: no more than one step apart where nothing cancels."""
    generator = torch.Generator().manual_seed(3)
    a, b, c = torch.rand(3, 30_000, dtype=dtype, generator=generator) + 0.01
    bits = FLOATS[dtype]
    exact = torch.empty_like(a)
    numbers.fma_scalar(exact, a, b, c)
    changed = 0
    for kernel in KERNELS:
        out = torch.empty_like(a)
        fast[kernel](out, a, b, c)
        apart = (out.view(bits) - exact.view(bits)).abs()
        assert apart.max() <= 1
        changed += int(apart.sum())
    if has_fma():
        assert changed > 0


def has_fma():
    if platform.machine() in ("aarch64", "arm64"):
        return True
    try:
        return " fma " in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def test_fast_math_rounds_once(fast):
    """Where everything but the rounding error cancels, the difference is all there is."""
    a = torch.full((5,), 1 + 2.0**-12)
    c = -(a * a)
    out = torch.empty_like(a)
    fast.fma_scalar(out, a, a, c)
    assert out.tolist() == ([2.0**-24] * 5 if has_fma() else [0.0] * 5)


def test_fast_math_has_a_cache_entry_of_its_own(numbers, fast):
    assert fast._built.folder != numbers._built.folder
    assert [str(kernel) for kernel in fast] == [str(kernel) for kernel in numbers]


# --- integers -----------------------------------------------------------------------------------

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_wrap(numbers, name):
    info = np.iinfo(name)
    edges = [info.min, info.min + 1, info.max, info.max - 1, info.max // 2, 0, 1, 2, 3]
    edges += [-1] if info.min else []
    pairs = np.array(list(itertools.product(edges, edges)), dtype=name)
    random = np.random.default_rng(5).integers(info.min, info.max, (5003, 2), name, endpoint=True)
    a, b = (np.ascontiguousarray(column) for column in np.concatenate([pairs, random]).T)
    total, product = np.zeros_like(a), np.zeros_like(a)
    numbers.add_mul(total, product, a, b)
    assert np.array_equal(total, a + b) and np.array_equal(product, a * b)
    x, y, outs = (
        torch.from_numpy(a),
        torch.from_numpy(b),
        torch.empty(2, len(a)).to(getattr(torch, name)),
    )
    numbers.add_mul(outs[0], outs[1], x, y)
    assert np.array_equal(outs.numpy(), [total, product])
    if name not in ("uint16", "uint32", "uint64"):  # for which torch has no arithmetic
        assert torch.equal(outs[0], x + y) and torch.equal(outs[1], x * y)


def test_all_pairs_of_bytes(numbers):
    for dtype in (torch.uint8, torch.int8):
        every = torch.arange(256).to(torch.uint8).view(dtype)
        a, b = (t.contiguous() for t in torch.cartesian_prod(every, every).T)
        total, product = torch.empty_like(a), torch.empty_like(a)
        numbers.add_mul(total, product, a, b)
        assert torch.equal(total, a + b) and torch.equal(product, a * b)


# --- float8, which must be named ----------------------------------------------------------------

FLOAT8 = ["float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz"]


@pytest.mark.parametrize("name", FLOAT8)
def test_float8(running, name):
    dtype = getattr(torch, name)
    every = torch.arange(256).to(torch.uint8).view(dtype)
    read = torch.empty(256)
    running.from_float8(read, every)
    assert torch.equal(read.nan_to_num(99, 999, -999), every.float().nan_to_num(99, 999, -999))
    assert torch.equal(read.isnan(), every.float().isnan())
    # Within the range of the dtype, rounding is torch's; beyond it Mojo gives the largest number.
    top = torch.finfo(dtype).max
    generator = torch.Generator().manual_seed(8)
    scales = 2 ** (torch.rand(20_000, generator=generator) * 40 - 25)
    random = torch.randn(20_000, generator=generator) * scales
    finite = read[read.isfinite()]
    halves = (finite.sort().values[1:] + finite.sort().values[:-1]) / 2
    x = torch.cat([finite, halves, random.clamp(-top, top), torch.tensor([0.0, -0.0])])
    written = torch.empty(x.numel(), dtype=dtype)
    running.to_float8(written, x)
    assert torch.equal(written.view(torch.uint8), x.to(dtype).view(torch.uint8))
    far = torch.tensor([1e30, -1e30, float("nan")])
    written = torch.empty(3, dtype=dtype)
    running.to_float8(written, far)
    assert written.float()[:2].tolist() == [top, -top] and written.float()[2].isnan()


SOURCE = """
from torchmojo import MutTensor, Tensor

def negate[dtype: DType](dst: MutTensor[dtype, 1, "n"], src: Tensor[dtype, 1, "n"]):
    for i in range(src.dim(0)):
        dst[i] = (-src[i].cast[DType.float32]()).cast[dtype]()
"""


def test_float8_when_named(refused):
    x = torch.tensor([1.0, -2.5, 0.0])
    named = torchmojo.inline(SOURCE, dtypes=["float8_e4m3fn", "float32"])
    for dtype in (torch.float8_e4m3fn, torch.float32):
        out = torch.empty(3, dtype=dtype)
        named.negate(out, x.to(dtype))
        assert out.float().tolist() == [-1.0, 2.5, -0.0]
    text = refused(DTypeError, named.negate, out.double(), x.double())
    assert "wanted f8e4m3fn or f32, given f64[3]" in text
    unnamed = torchmojo.inline(SOURCE)
    half = x.to(torch.float8_e4m3fn)
    assert "given f8e4m3fn[3]" in refused(DTypeError, unnamed.negate, half.clone(), half)
