"""Arithmetic is torch's, bit by bit; with `fast_math` it may differ in the last bit only."""

import math

import numpy as np
import pytest
import torch

from torchmojo import DTypeError

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
]
SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-30, 6e-8, 3.4e38, 65504.0]


@pytest.fixture(scope="module")
def numbers(load_kernels):
    return load_kernels("numbers")


@pytest.fixture(scope="module")
def fast(load_kernels):
    return load_kernels("numbers", fast_math=True)


def bits(x: torch.Tensor) -> torch.Tensor:
    """Give the bits of a tensor; all NaN count as one."""
    return torch.where(x.isnan(), math.nan, x).view(
        {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    )


def three(dtype, n=10_007):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(n, generator=generator, dtype=torch.float64).to(dtype) for _ in range(3)]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["fma", "fma_scalar"])
def test_multiply_and_add_round_twice(numbers, name, dtype):
    a, b, c = three(dtype)
    dst = torch.empty_like(a)
    getattr(numbers, name)(dst, a, b, c)
    assert torch.equal(bits(dst), bits(a * b + c))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["fma", "fma_scalar"])
def test_special_values(numbers, name, dtype):
    values = torch.tensor(SPECIAL, dtype=torch.float64).to(dtype)
    a, b, c = (x.reshape(-1) for x in torch.meshgrid(values, values, values, indexing="ij"))
    a, b, c = a.contiguous(), b.contiguous(), c.contiguous()
    dst = torch.empty_like(a)
    getattr(numbers, name)(dst, a, b, c)
    assert torch.equal(bits(dst), bits(a * b + c))
    assert torch.signbit(dst)[(a * b + c) == 0].equal(torch.signbit(a * b + c)[(a * b + c) == 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_subnormal_numbers_are_kept(numbers, dtype):
    tiny = torch.finfo(dtype).tiny
    a = torch.tensor([tiny, tiny / 4, -tiny / 8], dtype=dtype)
    b = torch.tensor([0.5, 1.0, 0.5], dtype=dtype)
    dst = torch.empty_like(a)
    numbers.fma(dst, a, b, torch.zeros_like(a))
    assert torch.equal(bits(dst), bits(a * b)) and (dst != 0).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_fast_math_is_fused_or_the_same(fast, dtype):
    a, b, c = three(dtype)
    dst = torch.empty_like(a)
    fast.fma(dst, a, b, c)
    exact = a.double() * b.double() + c.double()
    plain = a * b + c
    # Each of the two roundings is at most half a step of the larger of product and result.
    scale = torch.maximum((a * b).double().abs(), exact.abs())
    assert ((dst.double() - exact).abs() <= scale * torch.finfo(dtype).eps).all()
    fused = exact.to(dtype)
    if dtype == torch.float32:
        assert torch.logical_or(dst == plain, dst == fused).all()


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap(numbers, dtype):
    info = torch.iinfo(dtype)
    values = [info.min, info.min + 1, 0, 1, 2, 3, 11, info.max - 1, info.max, info.max // 2 + 1]
    a, b = np.meshgrid(
        np.array(values, dtype=str(dtype)[6:]), np.array(values, dtype=str(dtype)[6:])
    )
    a, b = a.ravel(), b.ravel()
    sum_, product = np.empty_like(a), np.empty_like(a)
    numbers.add_mul(sum_, product, a, b)
    with np.errstate(over="ignore"):
        assert np.array_equal(sum_, a + b) and np.array_equal(product, a * b)
    x, y = torch.from_numpy(a), torch.from_numpy(b)
    sums, products = torch.empty_like(x), torch.empty_like(x)
    numbers.add_mul(sums, products, x, y)
    assert torch.equal(sums, torch.from_numpy(a + b))


# --- bool where a kernel says nothing -----------------------------------------------------------


def test_bool_is_taken_where_the_kernel_compiles_for_it(numbers, refused):
    src, dst = torch.tensor([True, False, True]), torch.zeros(3, dtype=torch.bool)
    numbers.assumed(dst, src)
    assert torch.equal(dst, src)
    assert "bool" in numbers.assumed.contract.parameters[0].choices
    assert "bool" not in numbers.doubled.contract.parameters[0].choices
    assert refused(DTypeError, numbers.doubled, dst, src) == (
        "doubled: dst: wanted f32 or f64 or f16 or bf16 or u8 or i8 or i16 or i32 or i64 or u16 or "
        "u32 or u64, given bool[3] cpu strides(1); write x.to(torch.float32), which copies"
    )


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_every_other_dtype_is_taken(numbers, dtype):
    src = torch.tensor([1, 2, 3]).to(dtype)
    dst = torch.zeros(3, dtype=dtype)
    numbers.doubled(dst, src)
    assert dst.tolist() == [2, 4, 6]


def test_float8_must_be_named(numbers, refused):
    x = torch.zeros(3, dtype=torch.float8_e5m2)
    refused(DTypeError, numbers.assumed, x, x)
