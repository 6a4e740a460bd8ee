"""Gradients: formulas, what they see and return, transforms, and what is refused."""

import gc
import weakref

import pytest
import torch
from torch.autograd import forward_ad

import torchmojo
from torchmojo import ArgumentError

from .conftest import close, text_of


def doubles(*shape, grad=True):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=grad)


def forget(op):
    """Take the formula away, as if there had been none."""
    op.formula = op.saves = None


@pytest.fixture
def ops(ops):
    """Give the operators, and no formulas from other tests."""
    made = [op for op in vars(ops).values() if isinstance(op, torchmojo.Op)]
    for op in made:
        forget(op)
    yield ops
    for op in made:
        forget(op)


@pytest.fixture
def add(ops):
    @ops.add.backward(save=())
    def _(ctx, grad):
        return grad, grad * ctx.alpha

    return ops.add


@pytest.fixture
def mul(ops):
    @ops.mul.backward
    def _(ctx, grad):
        return {
            "a": ops.mul(grad.contiguous(), ctx.b) if ctx.needs["a"] else None,
            "b": ops.mul(grad.contiguous(), ctx.a) if ctx.needs["b"] else None,
        }

    return ops.mul


# --- formulas -----------------------------------------------------------------------------------


def test_formula_in_torch(add):
    a, b = doubles(4), doubles(4)
    assert torch.autograd.gradcheck(lambda a, b: add(a, b, 2.5), (a, b))
    assert torch.autograd.gradgradcheck(lambda a, b: add(a, b, 2.5), (a, b))
    add(a, b, 3.0).sum().backward()
    close(a.grad, torch.ones_like(a))
    close(b.grad, torch.full_like(b, 3))


def test_formula_by_another_operator(mul):
    a, b = doubles(4), doubles(4)
    assert torch.autograd.gradcheck(mul, (a, b))
    assert torch.autograd.gradgradcheck(mul, (a, b))
    assert torch.autograd.gradcheck(lambda x: mul(x, x), (a,))


def test_results_saved_by_name(ops):
    @ops.powers.backward(save=("x", "square"))
    def _(ctx, of_square, of_cube):
        assert not hasattr(ctx, "cube")
        return 2 * ctx.x * of_square + 3 * ctx.square * of_cube

    x = doubles(5)
    assert torch.autograd.gradcheck(ops.powers, (x,))
    assert torch.autograd.gradgradcheck(ops.powers, (x,))
    ops.powers(x)[1].sum().backward()
    torch.testing.assert_close(x.grad, 3 * x.detach() ** 2)


def test_two_sizes(ops):
    @ops.outer.backward
    def _(ctx, grad):
        return grad @ ctx.b, grad.t() @ ctx.a

    assert torch.autograd.gradcheck(ops.outer, (doubles(3), doubles(4)))
    assert torch.autograd.gradgradcheck(ops.outer, (doubles(3), doubles(4)))


@pytest.mark.parametrize("view", ["expanded", "stepped", "transposed"])
def test_odd_incoming_gradients(ops, mul, view):
    a, b = doubles(4), doubles(4)
    seen = []

    @ops.mul.backward
    def _(ctx, grad):
        seen.append(grad.stride())
        return ops.mul(grad, ctx.b), ops.mul(grad, ctx.a)

    grad = {
        "expanded": torch.ones(1, dtype=torch.float64).expand(4),
        "stepped": torch.randn(8, dtype=torch.float64)[::2],
        "transposed": torch.randn(4, 2, dtype=torch.float64).t()[1],
    }[view]
    mul(a, b).backward(grad)
    close(a.grad, grad * b.detach())
    assert seen == [grad.stride()]


def test_conjugate_incoming_gradient(ops):
    @ops.square_complex.backward
    def _(ctx, grad):
        return 2 * grad * ctx.z.conj()

    z = torch.randn(3, dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradcheck(ops.square_complex, (z,))
    grad = torch.randn(3, dtype=torch.complex128).conj()
    ops.square_complex(z).backward(grad)
    torch.testing.assert_close(z.grad, 2 * grad * z.detach().conj())


def test_views_as_inputs(mul):
    a, b = doubles(8), doubles(1)
    assert torch.autograd.gradcheck(lambda a, b: mul(a[::2], b.expand(4)), (a, b))


def test_saved_numbers_and_none(ops):
    @ops.maybe.backward
    def _(ctx, grad):
        assert (ctx.a, ctx.c, ctx.d) == (2, "ab", [1, 2]) and ctx.e is None
        assert ctx.needs == {**dict.fromkeys("abcde", False), "x": True, "y": ctx.y is not None}
        return grad, None if ctx.y is None else grad

    x, y = doubles(3), doubles(3)
    ops.maybe(x, None, 2, 0.5, "ab", [1, 2]).sum().backward()
    close(x.grad, torch.ones_like(x))
    ops.maybe(x, y, 2, 0.5, "ab", [1, 2]).sum().backward()
    close(y.grad, torch.ones_like(y))


@pytest.mark.parametrize("form", ["tuple", "dictionary", "all arguments"])
def test_forms_of_return(ops, form):
    @ops.add.backward
    def _(ctx, grad):
        return {
            "tuple": (grad, 2 * grad),
            "dictionary": {"b": 2 * grad, "a": grad},
            "all arguments": (grad, 2 * grad, None),
        }[form]

    a, b = doubles(3), doubles(3)
    ops.add(a, b, 2.0).sum().backward()
    close(a.grad, torch.ones_like(a))
    close(b.grad, torch.full_like(b, 2))


def test_wrong_returns(ops):
    a, b = doubles(3), doubles(3)

    def fails(made, text):
        ops.add.backward(lambda ctx, grad: made(grad))
        assert text_of(ops.add(a, b).sum().backward) == text

    fails(
        lambda grad: grad,
        "mjtest::add: backward: wanted 2 gradients (a, b), given 1",
    )
    fails(
        lambda grad: {"a": grad, "c": grad},
        "mjtest::add: backward: wanted gradients of a, b, given c",
    )


def test_wrong_names(ops):
    with pytest.raises(ArgumentError) as caught:
        ops.add.backward(save=("c",))
    assert str(caught.value) == (
        "mjtest::add: backward: save: wanted names among a, b, dst, given 'c'"
    )

    @ops.add.backward(save=("a",))
    def _(ctx, grad):
        return grad * ctx.b, grad

    with pytest.raises(AttributeError) as caught:
        ops.add(doubles(3), doubles(3)).sum().backward()
    assert str(caught.value) == ("backward: wanted one of alpha, a, given b; name it in save=(...)")


def test_no_formula(ops):
    y = ops.mul(doubles(3), doubles(3))
    assert y.requires_grad
    assert text_of(y.sum().backward) == (
        "mjtest::mul: wanted a backward formula, given none; register one with @mul.backward, or "
        "call it under torch.no_grad()"
    )


def test_lists_of_tensors(ops):
    @ops.total.backward
    def _(ctx, grad):
        assert len(ctx.xs) == 2 and ctx.needs["xs"]
        return grad, [grad * (k + 1) for k in range(len(ctx.xs))]

    def total(x, a, b):
        return ops.total(x, [a, b])

    assert torch.autograd.gradcheck(total, (doubles(3), doubles(3), doubles(3)))
    a = doubles(3)
    ops.total(doubles(3, grad=False), [a, doubles(3, grad=False)]).sum().backward()
    close(a.grad, torch.ones_like(a))
    ops.total.backward(lambda ctx, grad: (grad, [grad]))
    assert text_of(total(a, a, a).sum().backward) == (
        "mjtest::total: backward: wanted 2 gradients for the list xs, given 1"
    )


def test_lists_of_tensors_in_python(ops):
    @ops.total_list.backward
    def _(ctx, grad):
        return [grad] * len(ctx.xs)  # one tensor argument: its list

    a, b = doubles(3), doubles(3)
    y = ops.total_list([a, b])
    assert y.requires_grad
    y.sum().backward()
    close(a.grad, torch.ones_like(a))
    close(b.grad, torch.ones_like(b))


def test_python_route(ops):
    @ops.add_by_rule.backward(save=())
    def _(ctx, grad):
        return grad, grad * ctx.alpha

    assert torch.autograd.gradcheck(ops.add_by_rule, (doubles(4), doubles(4)))
    assert torch.autograd.gradcheck(
        lambda a, b: ops.add_by_rule(a, b, alpha=2.0), (doubles(2), doubles(2))
    )
    close(
        torch.func.grad(lambda a: ops.add_by_rule(a, a).sum())(doubles(3, grad=False)),
        torch.full((3,), 2.0, dtype=torch.float64),
    )


# --- when nothing is recorded, or too late ------------------------------------------------------


def test_modes(add):
    a, b = doubles(3), doubles(3)
    with torch.no_grad():
        assert not add(a, b).requires_grad
    with torch.inference_mode():
        assert add(a, b).is_inference()
    frozen = doubles(3, grad=False)
    assert not add(frozen, frozen).requires_grad
    add(a, frozen).sum().backward()
    assert frozen.grad is None
    close(a.grad, torch.ones_like(a))
    with torch.inference_mode():
        made = torch.ones(3, dtype=torch.float64)
    assert not add(made, made).requires_grad
    y = add(a.detach(), b)
    assert y.requires_grad and y.grad_fn is not None and y.is_leaf is False


def test_needs(ops):
    seen = []

    @ops.mul.backward
    def _(ctx, grad):
        seen.append(dict(ctx.needs))
        return grad * ctx.b, grad * ctx.a

    ops.mul(doubles(3), doubles(3, grad=False)).sum().backward()
    ops.mul(doubles(3, grad=False), doubles(3)).sum().backward()
    assert seen == [{"a": True, "b": False}, {"a": False, "b": True}]


def test_saved_tensor_changed_in_place(ops, mul):
    a, b = doubles(3), doubles(3, grad=False)
    y = mul(a, b)
    ops.scale_(b, 2.0)
    assert "has been modified by an inplace operation" in text_of(y.sum().backward)
    c = doubles(3, grad=False)
    y = mul(a, c)
    torch.ops.mjtest.mul.out(b, b, dst=c)
    assert "has been modified by an inplace operation" in text_of(y.sum().backward)


def test_errors_while_recording(ops, add):
    a = doubles(3)
    assert text_of(add, a, a, 13.0) == "add: alpha is unlucky"
    assert text_of(add, a, doubles(2)).startswith("add: b: wanted axis 0 (n) as long as axis 0 of")


def test_graph_is_freed(mul):
    a = doubles(3)
    y = mul(a, a)
    node = weakref.ref(y.grad_fn)
    other = weakref.ref(a)
    del y, a
    gc.collect()
    assert node() is None and other() is None


# --- transforms ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["add", "add_by_rule"])
def test_forward_mode_is_refused(ops, name):
    op, x = getattr(ops, name), torch.ones(3)
    for formula in (None, lambda ctx, grad: (grad, grad)):
        op.formula = formula
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, x)
            with pytest.raises((RuntimeError, NotImplementedError), match=r"jvp|forward"):
                op(dual, x)
        with pytest.raises((RuntimeError, NotImplementedError), match=r"jvp|forward"):
            torch.func.jvp(lambda a: op(a, x), (x,), (x,))
    close(op(x, x), 2 * x)


def test_func_grad(mul):
    a, b = doubles(3, grad=False), doubles(3, grad=False)
    close(torch.func.grad(lambda a: mul(a, b).sum())(a), b)
    second = torch.func.grad(lambda a: torch.func.grad(lambda a: mul(a, a).sum())(a).sum())(a)
    close(second, torch.full_like(a, 2))
    _, pull = torch.func.vjp(mul, a, b)
    found = pull(torch.ones_like(a))
    close(found[0], b)
    close(found[1], a)


def test_vmap(ops):
    a, b = torch.randn(5, 3), torch.randn(5, 3)
    close(torch.vmap(ops.mul)(a, b), a * b)
    close(torch.vmap(ops.mul, in_dims=(1, None))(a.t(), b[0]), a * b[0])
    close(torch.vmap(ops.mul, in_dims=(0, 1), out_dims=1)(a, b.t()), (a * b).t())
    close(torch.vmap(ops.add, in_dims=(0, 0, None))(a, b, 2.0), a + 2 * b)
    square, cube = torch.vmap(ops.powers)(a)
    close(square, a * a)
    close(cube, a * a * a)
    twice = torch.vmap(torch.vmap(ops.mul))(a[None], b[None])
    close(twice, (a * b)[None])
    close(torch.vmap(lambda x, y: ops.total(x, [y]))(a, b), a + b)
    close(torch.vmap(ops.add_by_rule)(a, b), a + b)


def test_vmap_of_what_writes(ops):
    text = text_of(torch.vmap(lambda x: ops.scale_(x, 2.0)), torch.ones(2, 3))
    assert "wanted a batching rule for an operator that writes its arguments, given none" in text


def test_vmap_of_grad(mul):
    a, b = doubles(4, 3, grad=False), doubles(4, 3, grad=False)
    close(torch.vmap(torch.func.grad(lambda a, b: mul(a, b).sum()))(a, b), b)
    found = torch.func.jacrev(lambda a: mul(a, b[0]))(a[0])
    close(found, torch.diag(b[0]))
    a.requires_grad_()
    torch.vmap(mul)(a, b).sum().backward()
    close(a.grad, b)


def test_batching_rule(kernels, ns):
    @torchmojo.op(f"{ns}::mul", kernels.mul)
    def mul(a, b):
        return torch.empty_like(a)

    calls = []

    @mul.vmap
    def _(info, in_dims, a, b):
        calls.append((info.batch_size, in_dims))
        return a * b, 0

    a = torch.randn(4, 3)
    close(torch.vmap(mul)(a, a), a * a)
    assert calls == [(4, (0, 0))]
    mul.unregister()
