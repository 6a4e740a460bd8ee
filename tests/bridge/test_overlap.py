"""Which outputs are refused because memory is there twice (A12), against brute force."""

import itertools

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from torchmojo import AliasError
from torchmojo.bridge.refuse.overlap import overlaps_itself


@st.composite
def strided(draw, axes=(0, 3), most=4, reach=9):
    """Draw shape, strides in elements and offset of a small view, strides of either sign."""
    count = draw(st.integers(*axes))
    shape = tuple(draw(st.integers(0, most)) for _ in range(count))
    strides = tuple(draw(st.integers(-reach, reach)) for _ in range(count))
    return shape, strides, draw(st.integers(0, 40))


def offsets(shape, strides, offset):
    """List the offsets of all elements, one by one."""
    for index in itertools.product(*map(range, shape)):
        yield offset + sum(i * s for i, s in zip(index, strides, strict=True))


def view(base, shape, strides, offset):
    return np.lib.stride_tricks.as_strided(
        base[offset:], shape, [s * base.itemsize for s in strides]
    )


# --- the decision, against brute force ----------------------------------------------------------

BASE = np.zeros(200, dtype=np.uint8)
MIDDLE = 80  # negative strides walk down from here


@hypothesis.settings(max_examples=600)
@hypothesis.given(a=strided(), b=strided())
def test_overlap_is_decided_exactly(views, a, b):
    a, b = (a[0], a[1], a[2] + MIDDLE), (b[0], b[1], b[2] + MIDDLE)
    mine, theirs = list(offsets(*a)), list(offsets(*b))
    twice = len(set(mine)) < len(mine)
    same = a[2] == b[2] and a[0] == b[0]
    same = same and all(n < 2 or s == t for n, s, t in zip(*a[:2], b[1], strict=True))
    part = bool(set(mine) & set(theirs)) and not same
    dst, src = view(BASE, *a), view(BASE, *b)
    if not (twice or part):
        views.touch(dst, src)
        return
    with pytest.raises(AliasError) as caught:
        views.touch(dst, src)
    expected = "every element has a place of its own" if twice else "memory apart from src"
    assert expected in str(caught.value)


@hypothesis.settings(max_examples=300)
@hypothesis.given(a=strided(axes=(2, 2)), b=strided(axes=(2, 2), reach=30))
def test_overlap_of_different_element_sizes(views, a, b):
    """Elements of 4 bytes against elements of 1 byte, at any distance."""
    base = np.zeros(400, dtype=np.uint8)
    wide = base[: 400 // 4 * 4].view(np.float32)
    dst = view(wide, a[0], a[1], a[2] % 20 + 30)
    src = view(base, b[0], b[1], b[2] + 160)
    mine = [o for o in offsets(a[0], a[1], a[2] % 20 + 30)]
    twice = len(set(mine)) < len(mine)
    bytes_ = {4 * o + k for o in mine for k in range(4)}
    meet = bool(bytes_ & set(offsets(b[0], b[1], b[2] + 160)))
    if twice or meet:
        with pytest.raises(AliasError):
            views.touch_wide(dst, src)
    else:
        views.touch_wide(dst, src)


@hypothesis.settings(max_examples=500)
@hypothesis.given(a=strided(axes=(0, 5), reach=12))
def test_the_slow_telling_is_exact_too(a):
    mine = list(offsets(*a))
    assert overlaps_itself(a[0], a[1]) == (len(set(mine)) < len(mine))


# --- what is allowed ----------------------------------------------------------------------------

N = 300_000


def pairs():
    x = torch.zeros(2 * N)
    image = torch.zeros(500, 700, 3)
    matrix = torch.zeros(30_000, 10)
    y = torch.zeros(N)
    deep = torch.zeros(40, 50, 6, 70)
    return {
        "apart": (torch.zeros(N), torch.zeros(N)),
        "the very same": (y, y),
        "the same view made twice": (y[3:90], y[3:90]),
        "even and odd": (x[::2], x[1::2]),
        "every third": (x[: 3 * 1000 : 3], x[2 : 3 * 1000 : 3]),
        "first and second half": (x[:N], x[N:]),
        "neighbours": (x[:7], x[7:14]),
        "interleaved channels": (image[..., 0], image[..., 2]),
        "left and right half": (matrix[:, :5], matrix[:, 5:]),
        "columns": (matrix[:, 3], matrix[:, 4]),
        "transposed halves": (matrix[:, :5].t(), matrix[:, 5:].t()),
        "rows in turn": (matrix[::2], matrix[1::2]),
        "halves of other rows": (matrix[:, :5], matrix[::2, 5:]),
        "halves of odd rows": (matrix[::3, :5], matrix[1::7, 5:]),
        "blocks": (deep[:, :25, :, :35], deep[5:30:2, 20:, 3:, 35:]),
        "checkers": (deep[::2, :, 1], deep[1::2, :, 1]),
        "inner axis": (deep[:, :, 2, 3:60], deep[:, :, 3, 3:60]),
        "empty inside": (x[5:5], x[4:4]),
    }


@pytest.mark.parametrize("name", pairs())
def test_apart_is_allowed_at_any_size(views, name):
    dst, src = pairs()[name]
    views.touch_wild(dst, src)
    if name not in ("the very same", "the same view made twice", "empty inside"):
        views.touch_wild(dst.numpy(), src.numpy())


def test_an_empty_output_overlaps_nothing(views):
    x = torch.zeros(8)
    views.touch_wild(x[4:4], x[:0])
    views.touch_wild(x[2:2], x[1:7])
    views.touch_wild(x[1:7], x[2:2])
    views.touch_wild(torch.zeros(1).expand(0), x)
    views.touch_wild(x.view(2, 4)[:, 2:2].expand(2, 0), x.view(2, 4))


def test_wider_than_the_search_is_fast(views):
    """Long views that share no element are decided by their common divisor, not by trying all."""
    x = torch.zeros(1_000_000)
    views.touch_wild(x[::6], x[1::3])
    views.touch_wild(x[:990_000].view(1000, 990)[:, ::6], x[1:990_001].view(1000, 990)[:, ::6])


def test_in_place_gives_the_result_of_apart(views):
    x = torch.arange(5.0)
    views.inputs_first(x, x)
    assert x.tolist() == [1, 2, 3, 4, 5]
    even, odd = torch.arange(10.0)[::2], torch.arange(10.0)[1::2]
    base = torch.arange(10.0)
    views.inputs_first(base[1::2], base[::2])
    assert base[::2].tolist() == (odd + 1).tolist() and even.tolist() == [0, 2, 4, 6, 8]


# --- what is refused, with the text -------------------------------------------------------------


def test_expanded_outputs_are_refused(views, refused):
    x = torch.tensor([2.0]).expand(4)
    before = x._version
    assert refused(AliasError, views.outputs, x) == (
        "outputs: a: wanted memory in which every element has a place of its own, given f32[4] "
        "cpu strides(0); write x.clone() (an expanded tensor cannot be an output)"
    )
    y = torch.tensor([[1.0], [2.0]])
    for bad in (y.expand(2, 3), y.expand(2, 3).numpy(), torch.zeros(3).as_strided((2, 2), (1, 1))):
        assert "place of its own" in refused(AliasError, views.steps, bad, 4)
    assert x[0] == 2 and y.tolist() == [[1], [2]] and x._version == before
    # As inputs they are read element by element.
    dst = torch.zeros(4)
    views.inputs_first(x, dst)
    assert dst.tolist() == [3.0] * 4


@pytest.mark.parametrize("convert", [lambda x: x, lambda x: x.numpy()])
def test_partial_overlap_is_refused(views, refused, convert):
    x = torch.arange(6.0)
    cases = [(x[:-1], x[1:]), (x[1:], x[:-1]), (x[::2], x[:3]), (x[:3], x[::2])]
    if convert(x) is not x:
        cases.append((x.numpy()[::-1], x.numpy()))
    for src, dst in cases:
        src, dst = (v if isinstance(v, np.ndarray) else convert(v) for v in (src, dst))
        text = refused(AliasError, views.inputs_first, src, dst)
        assert text.startswith("inputs_first: dst: wanted memory apart from src, or the very same")
    assert refused(AliasError, views.inputs_first, convert(x[:-1]), convert(x[1:])) == (
        "inputs_first: dst: wanted memory apart from src, or the very same view, given f32[5] cpu "
        "strides(1) over f32[5] cpu strides(1); write src.clone()"
    )
    assert x.tolist() == list(range(6)) and x._version == 0


def test_two_outputs(views, refused):
    x = torch.zeros(6)
    views.two_outputs(x[:3], x[3:])
    assert x.tolist() == [1, 1, 1, 2, 2, 2]
    assert refused(AliasError, views.two_outputs, x[:4], x[3:]) == (
        "two_outputs: a: wanted memory apart from b, or the very same view, given f32[4] cpu "
        "strides(1) over f32[3] cpu strides(1); write b.clone()"
    )


def test_torch_and_numpy_of_one_memory(views, refused):
    x = torch.arange(6.0)
    refused(AliasError, views.inputs_first, x.numpy()[:-1], x[1:])
    refused(AliasError, views.inputs_first, x[:-1], memoryview(x.numpy())[1:])
    views.inputs_first(x.numpy(), x)
    assert x.tolist() == [1, 2, 3, 4, 5, 6]


def test_lists(views, refused):
    x, y = torch.zeros(8), torch.ones(1)
    views.list_out([x[:4], x[4:]], y)
    assert x.tolist() == [1] * 4 + [2] * 4
    assert refused(AliasError, views.list_out, [x[:5], x[4:]], y) == (
        "list_out: xs: wanted tensors of which no two share some of their memory, given a list of "
        "2 tensors; write x.clone()"
    )
    assert refused(AliasError, views.list_out, [x[:3], x[6:]], x[2:4]) == (
        "list_out: xs: wanted memory apart from src, or the very same view, given a list of 2 "
        "tensors over f32[2] cpu strides(1); write src.clone()"
    )
    assert refused(AliasError, views.list_out, [x[:3], y.expand(2)], y.clone()) == (
        "list_out: xs[1]: wanted memory in which every element has a place of its own, given "
        "f32[2] cpu strides(0); write x.clone() (an expanded tensor cannot be an output)"
    )
    assert views.list_both([x, x], [x, x]) == 22
    refused(AliasError, views.list_both, [x[:2], x[2:4]], [y, x[3:]])


def test_storage_that_is_copied_on_write(views, refused):
    """Outputs are opened before inputs, so that both look at the same copy."""
    base = torch.arange(6.0)
    x = torch._lazy_clone(base)
    refused(AliasError, views.inputs_first, x[:-1], x[1:])
    x = torch._lazy_clone(base)
    views.inputs_first(x, x)
    assert x.tolist() == [1, 2, 3, 4, 5, 6] and base.tolist() == list(range(6))
