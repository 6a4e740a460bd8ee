"""Dtypes that a kernel takes without having named them."""

import pytest
import torch

from torchmojo import DTypeError

NUMBERS = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
]


@pytest.fixture(scope="module")
def numbers(load_kernels):
    return load_kernels("numbers")


def test_bool_is_taken_where_the_kernel_compiles_for_it(numbers, refused):
    src, dst = torch.tensor([True, False, True]), torch.zeros(3, dtype=torch.bool)
    numbers.assumed(dst, src)
    assert torch.equal(dst, src)
    assert "bool" in numbers.assumed.contract.parameters[0].choices
    assert "bool" not in numbers.doubled.contract.parameters[0].choices
    assert refused(DTypeError, numbers.doubled, dst, src) == (
        "doubled: dst: wanted f32 or f64 or f16 or bf16 or u8 or i8 or i16 or i32 or i64 or u16 or "
        "u32 or u64, given bool[3] cpu strides(1); make the output so from the start: what goes "
        "into a converted copy is lost"
    )


@pytest.mark.parametrize("dtype", NUMBERS)
def test_every_other_dtype_is_taken(numbers, dtype):
    src = torch.tensor([1, 2, 3]).to(dtype)
    dst = torch.zeros(3, dtype=dtype)
    numbers.doubled(dst, src)
    assert dst.tolist() == [2, 4, 6]


def test_float8_must_be_named(numbers, refused):
    x = torch.zeros(3, dtype=torch.float8_e5m2)
    refused(DTypeError, numbers.assumed, x, x)
