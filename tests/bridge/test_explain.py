"""`explain` tells what a call would do; both are held together on random values."""

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st

import torchmojo
from torchmojo import ArgumentError, TorchmojoError
from torchmojo.bridge.code import Code
from torchmojo.bridge.refuse.message import _CLASSES

DTYPES = ["float32", "float32", "float32", "float64", "uint8", "int64", "bool", "complex64"]

# Kernels with one tensor, so that every refusal is about it alone.
ONE = {
    ("views", "describe"): (),
    ("views", "scalar_of"): (),
    ("views", "put_scalar"): (1.0,),
    ("views", "row_major_any"): (),
    ("views", "takes_channels_last"): (),
    ("views", "fixed"): (),
    ("views", "square"): (),
    ("views", "steps"): (4,),
    ("views", "conjugate"): (),
    ("views", "complex_dense"): (),
    ("kinds", "scale"): (1.0,),
    ("kinds", "total_float32"): (),
    ("kinds", "pick_count"): (),
    ("kinds", "halves_any"): (),
}


@st.composite
def tensors(draw):
    """Draw a tensor of any kind: strided, lazy, frozen, foreign, or without memory."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 3), min_size=0, max_size=5))
    if draw(st.booleans()):
        shape = [*shape[:2], 3][:3]
    kind = draw(
        st.sampled_from(
            [
                *("plain", "plain", "permuted", "strided", "expanded", "channels_last", "grad"),
                *("parameter", "inference", "meta", "negated", "zombie", "sparse", "numpy"),
                *("frozen", "backwards", "misaligned", "clone", "none", "no tensor"),
            ]
        )
    )
    x = torch.zeros(shape, dtype=getattr(torch, dtype))
    if kind == "permuted":
        return x.permute(draw(st.permutations(range(x.ndim))))
    if kind == "strided":
        strides = [draw(st.integers(0, 5)) for _ in shape]
        return torch.zeros(200, dtype=x.dtype).as_strided(shape, strides, draw(st.integers(0, 9)))
    if kind == "expanded":
        return torch.zeros(*shape, 1, dtype=x.dtype).expand(*shape, 3)
    if kind == "channels_last":
        return torch.zeros(2, 3, 2, 2, dtype=x.dtype).to(memory_format=torch.channels_last)
    if kind in ("grad", "parameter") and dtype in ("float32", "float64"):
        return torch.nn.Parameter(x) if kind == "parameter" else x.requires_grad_() * 1
    if kind == "inference":
        with torch.inference_mode():
            return torch.zeros(shape, dtype=x.dtype)
    if kind == "meta":
        return x.to("meta")
    if kind == "negated" and dtype == "float32":
        return torch._neg_view(x)
    if kind == "zombie":
        x.untyped_storage().resize_(draw(st.integers(0, x.untyped_storage().nbytes())))
        return x
    if kind == "sparse" and shape:
        return x.to_sparse()
    if kind == "clone":
        return torch._lazy_clone(x)
    if kind == "none":
        return None
    if kind == "no tensor":
        return draw(st.sampled_from([1, "a", [1.0], object()]))
    array = x.numpy().copy()
    if kind == "frozen":
        array.flags.writeable = False
    if kind == "backwards":
        return array[tuple(slice(None, None, -1) for _ in shape)]
    if kind == "misaligned":
        raw = np.zeros(array.nbytes + 8, dtype=np.uint8)
        return raw[1 : 1 + array.nbytes].view(array.dtype).reshape(shape)
    return array if kind == "numpy" else x


@hypothesis.settings(
    max_examples=1500, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(x=tensors(), case=st.sampled_from(sorted(ONE)), grad=st.booleans())
def test_explain_agrees_with_calls(request, x, case, grad):
    file, name = case
    kernel = getattr(request.getfixturevalue(file), name)
    argument = next(iter(kernel.arguments.values()))
    with torch.set_grad_enabled(grad):
        told = torchmojo.explain(x, argument)
        try:
            kernel(x, *ONE[case])
            error = None
        except TorchmojoError as refusal:
            error = refusal
    if told.ok:
        assert error is None, f"{told}\n{error}"
        return
    first = next(check for check in told if not check.ok)
    assert error is not None, told
    if first.code in (Code.FOREIGN, Code.NONE):
        return
    assert type(error) is _CLASSES[first.code], f"{told}\n{error}"
    if first.code != Code.AXIS:
        assert f"wanted {first.wanted}, given" in str(error)
        assert first.advice in str(error)


def test_a_passing_value(kinds):
    told = torchmojo.explain(torch.zeros(3), kinds.add.dst)
    assert told.ok and len(told) == 13
    assert [check.name for check in told] == [
        *("tensor with memory", "strided", "device", "storage", "conj bit", "neg bit", "rank"),
        *("dtype", "storage size", "alignment", "autograd", "inference", "overlap"),
    ]
    assert all(check.ok and check.advice == "" and check.wanted and check.found for check in told)
    assert told[1].name == "strided" and told.title == 'add: dst: MutTensor[float32, 1, "n"]'
    assert told.given == "f32[3] cpu strides(1)"


def test_every_reason_of_one_value(views):
    """Checks that can still be made are made: a value may fail in several ways."""
    x = torch.zeros(2, 3, requires_grad=True)[:, :1].expand(2, 3) * torch.ones(()).expand(2, 3)
    told = torchmojo.explain(x.detach()[:1].expand(2, 3).requires_grad_(), views.steps.x)
    assert [check.name for check in told if not check.ok] == ["autograd", "overlap"]


def test_table(views):
    told = torchmojo.explain(np.zeros((2, 4), dtype=np.float32)[:, ::-1], views.row_major.x)
    text = repr(told)
    assert 'row_major: x: Tensor[float32, 2, "h w", layout=row_major]  <-  ' in text
    assert "strides(4,-1)" in text
    row = next(line for line in text.splitlines() if "layout" in line and "NO" in line)
    assert "contiguous (row-major)" in row


def test_foreign_and_missing_values(kinds, views):
    told = torchmojo.explain(5, kinds.add.a)
    assert [(c.name, c.ok, c.found, c.code) for c in told] == [
        ("tensor", False, "builtins.int", Code.FOREIGN)
    ]
    told = torchmojo.explain(None, kinds.add.a)
    assert [(c.wanted, c.ok, c.code) for c in told] == [("a tensor", False, Code.NONE)]
    assert torchmojo.explain(None, kinds.pick_first.x).ok
    assert torchmojo.explain(bytearray(8), kinds.tail_uint8.x).ok


def test_wrong_arguments_of_explain(kinds, refused):
    assert refused(ArgumentError, torchmojo.explain, torch.zeros(3), kinds.add) == (
        "explain: argument: wanted an argument of a kernel, as kernels.f.a, given "
        f"{kinds.add!r:.57}... (Kernel)"
    )
    assert refused(ArgumentError, torchmojo.explain, 1.0, kinds.add.alpha) == (
        "explain: argument: wanted a tensor argument, given alpha: Float64 = 1.0"
    )
    assert repr(kinds.add.a) == '<argument add.a: Tensor[float32, 1, "n"]>'


def test_explain_changes_nothing(kinds, counts):
    x = torch.zeros(3)
    array = np.zeros(3, dtype=np.float32)
    raw = bytearray(12)
    before = counts(x, array, raw)
    for value in (x, array, raw, x.double(), array[::-1]):
        torchmojo.explain(value, kinds.add.dst)
    del value
    assert counts(x, array, raw) == before and x._version == 0
    raw.extend(b"free")


def test_codes_agree():
    """The reasons have the same numbers in Python and in Mojo."""
    source = torchmojo.toolchain.library.MOJO_PACKAGE / "torchmojo" / "_glue" / "code.mojo"
    mojo = {}
    for line in source.read_text(encoding="utf-8").splitlines():
        if line.strip().startswith("comptime "):
            name, value = line.split("comptime ")[1].split(" = ")
            mojo[name] = int(value)
    assert mojo == {code.name: int(code) for code in Code}


@pytest.mark.parametrize("name", ["contract", "arguments"])
def test_arguments_whose_names_are_taken(kinds, name):
    """`kernel.arguments` reaches every argument, whatever it is called."""
    assert set(kinds.add.arguments) == {"dst", "a", "b", "alpha"}
    assert getattr(kinds.add, name)
