"""What a kernel sees of a tensor: address, shape, strides, names of axes, layouts, ranks."""

import numpy as np
import pytest
import torch

from torchmojo import ArgumentError, DTypeError, LayoutError, ShapeError

CL, CL3 = torch.channels_last, torch.channels_last_3d


def told(x: torch.Tensor) -> str:
    axes = "".join(f" {n}:{s}" for n, s in zip(x.shape, x.stride(), strict=True))
    return f"{x.data_ptr()}{axes} {'contiguous' if x.is_contiguous() else 'strided'}"


BASE = torch.arange(2 * 3 * 4 * 5 * 6, dtype=torch.float32).reshape(2, 3, 4, 5, 6)
STRIDED = {
    "rank 0": BASE[1, 2, 3, 4, 5],
    "rank 1": BASE[1, 2, 3, 4],
    "step": BASE[0, 0, 0, :, ::3],
    "offset": BASE[1, :, 2:],
    "transposed": BASE[0, 0].mT,
    "permuted": BASE.permute(4, 2, 0, 3, 1),
    "expanded": BASE[:1, :1, 0, 0, 0].expand(7, 9),
    "one": BASE[:1, :, :1, 0, 0],
    "windows": BASE.view(-1).as_strided((5, 4), (2, 3), 7),
    "column": BASE[0, 0, 0, :, :1],
}


@pytest.mark.parametrize("name", STRIDED)
def test_strides_of_torch(views, name):
    x = STRIDED[name]
    assert views.describe(x) == told(x)


def test_strides_of_numpy(views):
    a = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    for x in (a, a.T, a[::2, 1:, ::-1], a[::-1, ::-2], a[1], a[1, 2], a[1, 2, 3:4], a[:1, ::2]):
        address = x.__array_interface__["data"][0]
        axes = "".join(f" {n}:{s // 4}" for n, s in zip(x.shape, x.strides, strict=True))
        ending = "contiguous" if x.flags.c_contiguous else "strided"
        assert views.describe(x) == f"{address}{axes} {ending}"
    zero = np.array(1.5, dtype=np.float32)
    assert views.describe(zero) == f"{zero.__array_interface__['data'][0]} contiguous"


@pytest.mark.parametrize(
    "x",
    [torch.empty(0), torch.empty(0, 5)[:, ::2], torch.empty(3, 0, 2), torch.empty(1, 2, 0, 3)],
)
def test_no_elements(views, x):
    """A14: no elements are contiguous, whatever the strides say."""
    axes = "".join(f" {n}:{s}" for n, s in zip(x.shape, x.stride(), strict=True))
    assert views.describe(x).split(" ", 1)[1] == f"{axes[1:]} contiguous"
    array = np.empty(tuple(x.shape), dtype=np.float32)
    assert views.describe(array).endswith("contiguous")


ALL = [
    *("float32", "float64", "float16", "bfloat16", "uint8", "int8", "int16", "int32", "int64"),
    *("uint16", "uint32", "uint64", "bool"),
]


@pytest.mark.parametrize("name", ALL)
def test_copy_of_every_dtype_in_any_strides(views, name):
    generator = torch.Generator().manual_seed(7)
    bits = torch.randint(0, 2, (4, 6, 10), generator=generator)
    src = bits.to(getattr(torch, name))
    guard = torch.ones(4, 8, 12).to(src.dtype)
    for pick in (
        lambda x: x,
        lambda x: x.permute(2, 0, 1),
        lambda x: x[1:3, ::2, ::3],
        lambda x: x[2],
        lambda x: x[:, 3, 1::2],
        lambda x: x[3, 5],
        lambda x: x[1, :, 2],
    ):
        a = pick(src)
        whole = guard.clone()
        dst = pick(whole[:, 1:7, 1:11])
        outside = guard.clone()
        pick(outside[:, 1:7, 1:11]).copy_(a)
        views.copy(dst, a)
        assert torch.equal(whole.view(torch.uint8), outside.view(torch.uint8))


def test_rank_zero(views):
    x = torch.tensor(2.5)
    assert views.scalar_of(x) == 2.5
    views.put_scalar(x, 4.0)
    assert x.item() == 4.0 and x._version == 1
    array = np.array(1.0, dtype=np.float32)
    views.put_scalar(array, 3.0)
    assert array.item() == views.scalar_of(array) == 3.0
    row = torch.zeros(3)
    views.put_scalar(row[1], 7.0)
    assert row.tolist() == [0, 7, 0]


def test_rank_is_refused(views, refused):
    x = torch.zeros(2, 3)
    assert refused(ShapeError, views.scalar_of, x) == (
        "scalar_of: x: wanted 0 axes, given f32[2,3] cpu strides(3,1); "
        "pass a tensor with 0 axes, for instance by x.reshape(...) or x[None]"
    )
    deep = torch.zeros(1, 1, 1, 1, 1, 1)
    assert refused(ShapeError, views.describe, deep) == (
        "describe: x: wanted 0 or 1 or 2 or 3 or 4 or 5 axes, given f32[1,1,1,1,1,1] cpu "
        "strides(1,1,1,1,1,1); reshape it"
    )
    assert refused(ShapeError, views.copy, torch.zeros(()), torch.zeros(())) == (
        "copy: dst: wanted 1 or 2 or 3 axes, given f32[] cpu; reshape it"
    )
    assert refused(ShapeError, views.copy, x, x[0]) == (
        "copy: src: wanted the rank of dst, f32[2,3] cpu strides(3,1), given f32[3] cpu "
        "strides(1); reshape one of them"
    )
    assert views.same_rank(x, x.long()) == 2
    assert refused(ShapeError, views.same_rank, x, x[0].long()) == (
        "same_rank: b: wanted the rank of a, f32[2,3] cpu strides(3,1), given i64[3] cpu "
        "strides(1); reshape one of them"
    )


def test_dtypes_are_refused(views, refused):
    f, i, u = torch.zeros(2), torch.zeros(2).long(), torch.zeros(2).byte()
    assert views.two_dtypes(f, u, f) == "float32 uint8"
    assert views.two_dtypes(i, i, i) == "int64 int64"
    assert refused(DTypeError, views.two_dtypes, f, u, i) == (
        "two_dtypes: c: wanted the dtype of a, f32[2] cpu strides(1), given i64[2] cpu "
        "strides(1); write x.to(torch.float32), which copies"
    )
    assert refused(DTypeError, views.two_dtypes, f, f, f) == (
        "two_dtypes: b: wanted u8 or i64, given f32[2] cpu strides(1); "
        "write x.to(torch.uint8), which copies"
    )
    assert refused(DTypeError, views.two_dtypes, f.numpy(), np.zeros(2), f) == (
        "two_dtypes: b: wanted u8 or i64, given f64[2] cpu strides(1); "
        'write x.astype("uint8"), which copies'
    )


# --- layouts ------------------------------------------------------------------------------------


def test_row_major(views, refused):
    x = torch.arange(6.0).reshape(2, 3)
    assert views.row_major(x) == views.row_major(x.numpy()) == "3,1 True [3.0, 4.0]"
    # Strides of axes of size 1 do not matter.
    assert views.row_major(torch.arange(6.0).as_strided((2, 3), (3, 1))[:, :3]).startswith("3,1")
    given = "f32[3,2] cpu strides(1,3)"
    assert refused(LayoutError, views.row_major, x.t()) == (
        f"row_major: x: wanted contiguous (row-major), given {given}; "
        "write x.contiguous(), which copies"
    )
    assert refused(LayoutError, views.row_major, x.numpy().T) == (
        f"row_major: x: wanted contiguous (row-major), given {given}; "
        "write numpy.ascontiguousarray(x), which copies"
    )
    for bad in (x[:, :2], x[:, 1:].T, x[:, :1].expand(2, 3)):
        refused(LayoutError, views.row_major, bad)
    # Without elements every layout fits, and the kernel must not touch memory.
    assert views.touch(torch.empty(0, 3).byte()[:, ::2], torch.empty(0).byte()) is False


def test_channels_last(views, refused):
    x = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
    y = x.contiguous(memory_format=CL)
    assert views.channels_last(y) == f"60,1,15,3 {x[1, 1, 0, 1].item()}"
    assert views.channels_last(y.numpy()) == views.channels_last(y)
    assert refused(LayoutError, views.channels_last, x) == (
        "channels_last: x: wanted channels-last, given f32[2,3,4,5] cpu strides(60,20,5,1); "
        "write x.contiguous(memory_format=torch.channels_last), which copies"
    )
    deep = torch.arange(1 * 2 * 2 * 3 * 4.0).reshape(1, 2, 2, 3, 4)
    z = deep.contiguous(memory_format=CL3)
    assert views.channels_last_3d(z) == f"1,2 {deep[0, 1, 1, 0, 1].item()}"
    assert refused(LayoutError, views.channels_last_3d, deep) == (
        "channels_last_3d: x: wanted channels-last, given f32[1,2,2,3,4] cpu "
        "strides(48,24,12,4,1); "
        "write x.contiguous(memory_format=torch.channels_last_3d), which copies"
    )


@pytest.mark.parametrize(
    "shape", [(2, 1, 4, 5), (2, 3, 1, 1), (1, 1, 2, 2), (1, 3, 2, 1), (2, 3, 4, 5), (0, 3, 4, 5)]
)
def test_layouts_agree_with_torch(views, refused, shape):
    x = torch.zeros(shape)
    for y in (
        *(x, x.contiguous(memory_format=CL), x.permute(0, 1, 3, 2), x[..., :1]),
        *(x.contiguous(memory_format=CL)[:, :, ::2], x.contiguous(memory_format=CL)[:1]),
    ):
        # Without elements every layout fits (A14).
        if y.is_contiguous(memory_format=CL) or y.numel() == 0:
            assert views.takes_channels_last(y)
        else:
            refused(LayoutError, views.takes_channels_last, y)


# --- names of axes ------------------------------------------------------------------------------


def test_named_axes(views, refused):
    a, b, bias = torch.randn(2, 3), torch.randn(3, 4), torch.randn(4)
    dst = torch.empty(2, 4)
    views.named(dst, a, b)
    assert torch.allclose(dst, a @ b, atol=1e-6)
    views.named(dst, a, b, bias)
    assert torch.allclose(dst, a @ b + bias, atol=1e-6)
    expect = [
        (
            (dst, a, b[:2]),
            "b: wanted axis 0 (k) as long as axis 1 of a, f32[2,3] cpu strides(3,1), given "
            "f32[2,4] cpu strides(4,1)",
        ),
        (
            (dst, a[:1], b),
            "a: wanted axis 0 (n) as long as axis 0 of dst, f32[2,4] cpu strides(4,1), given "
            "f32[1,3] cpu strides(3,1)",
        ),
        (
            (dst, a, b, bias[:3]),
            "bias: wanted axis 0 (m) as long as axis 1 of dst, f32[2,4] cpu strides(4,1), given "
            "f32[3] cpu strides(1)",
        ),
    ]
    for args, text in expect:
        assert refused(ShapeError, views.named, *args) == f"named: {text}"


def test_fixed_sizes_and_equal_axes(views, refused):
    image = torch.zeros(4, 5, 3, dtype=torch.uint8)
    assert views.fixed(image) == views.fixed(image.numpy()) == 20
    assert refused(ShapeError, views.fixed, image[..., :2]) == (
        "fixed: image: wanted size 3 on axis 2, given u8[4,5,2] cpu strides(15,3,1)"
    )
    assert refused(ShapeError, views.fixed, image[..., :0]) == (
        "fixed: image: wanted size 3 on axis 2, given u8[4,5,0] cpu strides(15,3,1)"
    )
    assert views.square(torch.zeros(3, 3)) == 3
    assert refused(ShapeError, views.square, torch.zeros(2, 3)) == (
        "square: x: wanted axis 1 (n) as long as axis 0 of x, f32[2,3] cpu strides(3,1), given "
        "f32[2,3] cpu strides(3,1)"
    )
    assert views.wild(torch.zeros(2, 3, 4), torch.zeros(4)) == 234
    refused(ShapeError, views.wild, torch.zeros(2, 3, 4), torch.zeros(3))


# --- lists --------------------------------------------------------------------------------------


def test_lists_share_dtypes_ranks_and_axes(views, refused):
    f, i = torch.zeros(3), torch.zeros(3).long()
    assert views.list_dtypes([], f) == 0 and views.list_dtypes([i, i], i) == 2
    assert views.list_ranks([torch.zeros(2, 3), torch.zeros(4, 0)]) == 6
    assert refused(DTypeError, views.list_dtypes, [f, i], f) == (
        "list_dtypes: xs[1]: wanted the dtype of xs[0], f32[3] cpu strides(1), given i64[3] cpu "
        "strides(1); write x.to(torch.float32), which copies"
    )
    assert refused(DTypeError, views.list_dtypes, [f], i) == (
        "list_dtypes: y: wanted the dtype of xs, f32[3] cpu strides(1), given i64[3] cpu "
        "strides(1); write x.to(torch.float32), which copies"
    )
    assert refused(DTypeError, views.list_dtypes, [], f.double()) == (
        "list_dtypes: y: wanted f32 or i64, given f64[3] cpu strides(1); "
        "write x.to(torch.float32), which copies"
    )
    assert refused(ShapeError, views.list_dtypes, [f, f[:2]], f) == (
        "list_dtypes: xs[1]: wanted axis 0 (n) as long as axis 0 of xs[0], f32[3] cpu "
        "strides(1), given f32[2] cpu strides(1)"
    )
    assert refused(ShapeError, views.list_ranks, [f, f[None]]) == (
        "list_ranks: xs[1]: wanted the rank of xs[0], f32[3] cpu strides(1), given f32[1,3] cpu "
        "strides(3,1); reshape one of them"
    )
    assert refused(ShapeError, views.list_ranks, [f, torch.tensor(1.0)]) == (
        "list_ranks: xs[1]: wanted the rank of xs[0], f32[3] cpu strides(1), given f32[] cpu; "
        "reshape one of them"
    )
    assert refused(ArgumentError, views.list_out, [f, None], f) == (
        "list_out: xs[1]: wanted a tensor, given None"
    )


# --- views of views -----------------------------------------------------------------------------


def test_select_slice_and_transpose(views):
    expected = None
    for make in (lambda x: x, lambda x: x.permute(2, 1, 0).contiguous().permute(2, 1, 0)):
        x = make(torch.arange(24.0).reshape(2, 3, 4))
        y = x.clone()
        y[1, 0, 0] = 50
        text = views.chain(x)
        assert torch.equal(x, y)
        a, c = y.select(1, 1), y[:, :, 1:100:2]
        d, e = c[0:1], y[:, 3:2]
        expected = (
            f"{a.shape[0]}x{a.shape[1]} {a[1, 2].item()} 4x2 {y[1, 0, 0].item()} "
            f"{c.shape[2]} {c[0, 0, 1].item()} {d.shape[0]} 0 {e.numel()} 2 "
            f"{a.is_contiguous()} {x.is_contiguous()}"
        )
        assert text == expected


@pytest.mark.parametrize("columns", [0, 1, 3, 4, 5, 8, 11])
def test_simd_along_any_stride(views, columns):
    base = torch.zeros(3, 2 * columns + 2)
    plain = torch.arange(3.0 * columns).reshape(3, columns)
    for x in (base[:, 1 : columns + 1], base[:, 1 : 2 * columns + 1 : 2]):
        base.zero_()
        x.copy_(plain)
        assert views.steps(x, 4) == (plain + 1).sum().item()
        assert torch.equal(x, plain + 1)
        assert base.sum() == x.sum(), "written outside"
    reverse = plain.numpy()[:, ::-1].copy()[:, ::-1]
    views.steps(reverse, 4)
    assert np.array_equal(reverse, plain.numpy() + 1)
