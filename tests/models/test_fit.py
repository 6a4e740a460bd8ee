"""The quick check of inputs agrees with the slow one, and never lets through what differs."""

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

import torchmojo
from torchmojo.models import fit as module
from torchmojo.models.fit import Input, fit, quick_check

SPEC = Input("x", "float32", [2, 3, 4], [0, 2, 1], [12, 1, 3])
OTHER = Input("y", "int64", [5], [0], [1])


def good():
    return torch.zeros(2, 4, 3).transpose(1, 2)


def fake():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        return good()


def resized(nbytes, rows=2):
    """A tensor whose storage was cut, as FSDP does with weights that others hold."""
    value = torch.zeros(rows, 4, 3).transpose(1, 2)[-2:]
    value.untyped_storage().resize_(nbytes)
    return value


WRONG = {
    "dtype": lambda: good().double(),
    "size": lambda: torch.zeros(2, 4, 2).transpose(1, 2),
    "rank": lambda: torch.zeros(24),
    "stride": lambda: torch.zeros(2, 3, 4),
    "gap": lambda: torch.zeros(4, 4, 3).transpose(1, 2)[::2],
    "neg": lambda: torch._neg_view(good()),
    "grad": lambda: good().requires_grad_(),
    "meta": lambda: good().to("meta"),
    "fake": fake,
    "sparse": lambda: torch.zeros(2, 3, 4).to_sparse(),
    "list": lambda: good().tolist(),
    "none": lambda: None,
    "freed": lambda: resized(0),
    "cut": lambda: resized(2 * 3 * 4 * 4 - 1),
    "cut behind an offset": lambda: resized(2 * 3 * 4 * 4, rows=3),
    "zero": lambda: torch._efficientzerotensor(24).view(2, 4, 3).transpose(1, 2),
    "subclass": lambda: good().as_subclass(type("Mine", (torch.Tensor,), {})),
}


def without_guards(monkeypatch):
    monkeypatch.setattr(torch._C._dynamo.guards, "TensorGuards", None)
    return quick_check([SPEC, OTHER])


@pytest.mark.parametrize("native", [True, False])
def test_what_was_asked_for_passes(native, monkeypatch):
    check = quick_check([SPEC, OTHER]) if native else without_guards(monkeypatch)
    assert (module._native([SPEC]) is not None) == native
    assert check(good(), torch.zeros(5, dtype=torch.int64))
    with torch.no_grad():
        assert check(good(), torch.zeros(5, dtype=torch.int64))


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("native", [True, False])
def test_what_differs_does_not(what, native, monkeypatch):
    check = quick_check([SPEC, OTHER]) if native else without_guards(monkeypatch)
    assert not check(WRONG[what](), torch.zeros(5, dtype=torch.int64))


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("native", [True, False])
def test_nor_as_the_only_input(what, native, monkeypatch):
    if not native:
        without_guards(monkeypatch)
    check = quick_check([SPEC])
    assert check(good()) and not check(WRONG[what]())


@pytest.mark.parametrize("what", ["freed", "cut", "cut behind an offset", "zero", "meta", "fake"])
def test_what_has_no_memory_is_refused(what):
    with pytest.raises(torchmojo.NoDataError, match=r"storage ends before|memory of its own"):
        fit([SPEC], [WRONG[what]()])


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("transform", ["vmap", "functionalize", "jvp", "grad"])
def test_what_torch_wraps_is_refused(transform, many):
    specs = [SPEC, SPEC] if many else [SPEC]
    check = quick_check(specs)

    def call(x):
        values = [x] * len(specs)
        assert not check(*values)
        return fit(specs, values)[0].sum()

    calls = {
        "vmap": lambda: torch.vmap(call)(torch.zeros(5, 2, 4, 3).transpose(2, 3)),
        "functionalize": lambda: torch.func.functionalize(call)(good()),
        "jvp": lambda: torch.func.jvp(call, (good(),), (good(),)),
        "grad": lambda: torch.func.grad(call)(good()),
    }
    with pytest.raises(torchmojo.NoDataError, match=r"torch\.func and vmap lend tensors without"):
        calls[transform]()


def test_a_tangent_is_not_lost():
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        value = forward_ad.make_dual(good(), good())
        assert not quick_check([SPEC])(value) and not quick_check([SPEC, SPEC])(good(), value)
        with pytest.raises(torchmojo.GradError, match="computes no tangent"):
            fit([SPEC], [value])
        x = good()
        assert fit([SPEC], [x])[0] is x
    assert quick_check([SPEC])(good())


@pytest.mark.parametrize("mode", ["make_fx", "fake", "functional"])
def test_a_call_that_is_recorded_is_refused(mode):
    x, check = good(), quick_check([SPEC])

    def call(other):
        assert not check(x)
        with pytest.raises(torchmojo.ModelError, match=r"would record its result as a constant"):
            fit([SPEC], [x])
        return other

    if mode == "make_fx":
        from torch.fx.experimental.proxy_tensor import make_fx

        make_fx(call)(torch.zeros(3))
        return
    if mode == "fake":
        from torch._subclasses import FakeTensorMode as Mode
    else:
        from torch._subclasses.functional_tensor import FunctionalTensorMode as Mode
    with Mode():
        call(None)


def test_a_mode_that_records_nothing_is_no_hindrance():
    from torch.utils.flop_counter import FlopCounterMode

    x = good()
    with FlopCounterMode(display=False):
        assert fit([SPEC], [x])[0] is x


@hypothesis.given(data=st.data())
def test_a_yes_is_always_right(data):
    sizes = data.draw(st.lists(st.integers(0, 3), max_size=4))
    order = data.draw(st.permutations(range(len(sizes))))
    spec = Input("x", "float32", sizes, list(order), [None] * len(sizes))
    given = data.draw(st.permutations(range(len(sizes))))
    value = torch.zeros([sizes[axis] for axis in given]).permute(
        [given.index(axis) for axis in range(len(sizes))]
    )
    assert list(value.shape) == sizes
    strides = spec.strides_for(sizes)
    exact = value.stride() == strides
    assert quick_check([spec])(value) in (exact, False) and spec.takes(value) == exact
    with torchmojo.fallback("copy"):
        (fitted,) = fit([spec], [value])
    used = [axis for axis, size in enumerate(sizes) if size > 1 and 0 not in sizes]
    assert all(fitted.stride()[axis] == strides[axis] for axis in used)
    assert torch.equal(fitted, value)


def test_strides_follow_the_order_of_axes():
    assert SPEC.strides_for([2, 3, 4]) == (12, 1, 3) == good().stride()
    assert SPEC.strides_for([2, 0, 4]) == (4, 1, 1)


def test_sizes_that_vary_always_take_the_longer_way():
    size = {"name": "n", "least": 1, "most": 4}
    specs = [Input(name, "float32", [size], [0], [1]) for name in "xy"]
    assert not quick_check(specs)(torch.zeros(2), torch.zeros(2))
    x, y = torch.zeros(2), torch.ones(2)
    assert all(a is b for a, b in zip(fit(specs, [x, y]), (x, y), strict=True))
    with pytest.raises(torchmojo.ShapeError, match="axis 0 is n, which is 2 elsewhere"):
        fit(specs, [torch.zeros(2), torch.zeros(3)])


def test_a_tensor_given_twice_is_taken():
    specs = [Input(name, "float32", [3], [0], [1]) for name in "xy"]
    x = torch.zeros(3)
    assert module.fit(specs, [x, x]) == (x, x)
