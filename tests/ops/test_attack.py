"""What broke operators once: each test keeps the right value."""

import pickle

import pytest
import torch

import torchmojo
from torchmojo.errors import ArgumentError, GradError, LibraryError, SignatureError

from .conftest import close, load, text_of

X = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)


def square_of(kernels, name):
    op = torchmojo.op(name, kernels.mul)(lambda a, b: torch.empty_like(a))
    op.backward(lambda ctx, grad: (grad * ctx.b, grad * ctx.a))
    return op


# --- one file, loaded twice ---------------------------------------------------------------------


def test_one_file_loaded_twice(ns):
    """The loader opens a library once: both share its table, and must share its slots."""
    first, second = load(), load()
    assert first is not second
    f = torchmojo.op(f"{ns}::f", first.mul)(lambda a, b: torch.empty_like(a))
    g = torchmojo.op(f"{ns}::g", second.add)(lambda b, a, alpha: torch.empty_like(b))
    h = torchmojo.op(f"{ns}::h", second.mul)(lambda a, b: torch.empty_like(a))
    f.backward(lambda ctx, grad: (2 * grad, None))
    h.backward(lambda ctx, grad: (1000 * grad, None))
    leaf = X.clone().requires_grad_()
    assert torch.autograd.grad(f(leaf, X).sum(), leaf)[0].tolist() == [2.0] * 3
    assert torch.autograd.grad(h(leaf, X).sum(), leaf)[0].tolist() == [1000.0] * 3
    close(g(X, 2 * X, 0.5), 2 * X + 0.5 * X)
    assert text_of(g, X, 2 * X, 13.0) == "add: alpha is unlucky"
    h.unregister()
    assert torch.autograd.grad(f(leaf, X).sum(), leaf)[0].tolist() == [2.0] * 3
    close(f(X, X), X * X)
    f.unregister()
    g.unregister()


def test_edited_and_back(tmp_path):
    source = tmp_path / "twice.mojo"
    text = (
        "from torchmojo import MutTensor, Tensor\n"
        'def f(dst: MutTensor[DType.float64, 1, "n"], x: Tensor[DType.float64, 1, "n"]):\n'
        "    for i in range(x.dim(0)):\n"
        "        dst[i] = 2 * x[i]\n"
    )
    source.write_text(text)
    library = torchmojo.load(source)
    kept = torchmojo.op("mjback::first", library.f)(lambda x: torch.empty_like(x))
    kept.backward(lambda ctx, grad: 2 * grad)
    source.write_text(text.replace("2 *", "3 *"))
    library.reload()
    other = torchmojo.op("mjback::second", library.f)(lambda x: torch.empty_like(x))
    other.backward(lambda ctx, grad: 3 * grad)
    source.write_text(text)
    library.reload()
    third = torchmojo.op("mjback::third", library.f)(lambda x: torch.empty_like(x))
    third.backward(lambda ctx, grad: 1000 * grad)
    for op, slope in (kept, 2), (other, 3), (third, 1000):
        leaf = X.clone().requires_grad_()
        made = op(leaf)
        close(made.detach(), (2 if slope == 1000 else slope) * X)
        made.sum().backward()
        close(leaf.grad, torch.full_like(X, slope))
        op.unregister()


# --- forward mode --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "work",
    [
        lambda f, x: torch.func.hessian(lambda v: f(v, v).sum())(x),
        lambda f, x: torch.func.jvp(torch.func.grad(lambda v: f(v, v).sum()), (x,), (x,)),
        lambda f, x: torch.func.jvp(lambda v: torch.func.vjp(f, v, v)[0], (x,), (x,)),
        lambda f, x: torch.func.jacfwd(torch.func.jacfwd(lambda v: f(v, v)))(x),
    ],
)
def test_forward_over_reverse_is_refused(kernels, ns, work):
    """The tangent was dropped without a word, and a Hessian was wrong."""
    f = square_of(kernels, f"{ns}::f")
    with pytest.raises(GradError) as caught:
        work(f, X)
    assert str(caught.value) == (
        f"{ns}::f: wanted tensors without tangents, given some that have one: there is no "
        "forward-mode formula; use torch.autograd.grad, torch.func.vjp or jacrev"
    )
    reverse = torch.func.jacrev(torch.func.jacrev(lambda v: f(v, v).sum()))(X)
    close(reverse, 2 * torch.eye(3, dtype=torch.float64))
    f.unregister()


# --- no memory -----------------------------------------------------------------------------------


def test_a_result_without_memory(ops, kernels, ns):
    huge = torch.empty(1, dtype=torch.float64).expand(2**45)
    assert "can't allocate memory" in text_of(ops.double, huge[None])
    f = torchmojo.op(f"{ns}::f", kernels.mul)(lambda a, b: a.new_empty(2**50))
    assert "can't allocate memory" in text_of(f, X, X)
    close(f.kernel.__name__ and ops.mul(X, X), X * X)
    f.unregister()


# --- rules that cannot be read -------------------------------------------------------------------


def by_default(x, y):
    if y is None:
        return torch.empty_like(x)
    return x.new_empty(y.shape[0])


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x, y: torch.empty_like(y), "y is not always a tensor"),
        (lambda x, y: x.new_empty(y.shape[0]), "y is not always a tensor"),
        (lambda x, y: torch.empty(x.shape[0], dtype=y.dtype), "y is not always a tensor"),
        (by_default, "it decides on its arguments"),
        (lambda x, y: x.new_empty(x.shape[0] if y is None else 3), "it decides on its arguments"),
        (lambda x, y: by_default(x, y), "it uses by_default"),
        (lambda x, y: torch.empty_like(input=x), "empty_like by keyword"),
    ],
)
def test_rules_that_cannot_be_read(kernels, ns, function, why):
    op = torchmojo.op(f"{ns}::maybe", kernels.maybe)(function)
    assert (op.route, op.why) == ("python", why)
    close(op(X, X), 2 * X + 0.5)
    op.unregister()


def test_a_dtype_of_an_input(kernels, ns):
    op = torchmojo.op(f"{ns}::mul", kernels.mul)(
        lambda a, b: torch.empty(a.shape[0], dtype=b.dtype)
    )
    assert op.route == "mojo"
    close(op(X.float(), X.float()), (X * X).float())
    op.unregister()


# --- what the function declares ------------------------------------------------------------------


def test_defaults_of_the_function(kernels, ns):
    @torchmojo.op(f"{ns}::add", kernels.add)
    def add(a, b, alpha=3.0):
        return torch.empty_like(a)

    assert add.signature.schema == "add(Tensor a, Tensor b, float alpha=3.0) -> Tensor"
    close(add(X, X), 4 * X)
    dst = torch.empty_like(X)
    getattr(torch.ops, ns).add.out(X, X, dst=dst)
    close(dst, 4 * X)
    add.unregister()

    @torchmojo.op(f"{ns}::maybe", kernels.maybe)
    def maybe(x, y=None, a=2, b=0.0, c="ab"):
        return torch.empty_like(x)

    close(maybe(X), X + 220)
    close(torch.vmap(maybe)(torch.stack([X, X])), torch.stack([X, X]) + 220)
    maybe.unregister()
    with pytest.raises(SignatureError) as caught:
        torchmojo.op(f"{ns}::maybe", kernels.maybe)(lambda x, d=(1, 2): torch.empty_like(x))
    assert str(caught.value) == (
        "op: d: wanted None, or no default: torch's schemas hold no default of an optional list, "
        "given [1, 2]"
    )


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda a, b=None: 0, "b: wanted a default that a tensor can be, given None"),
        (lambda a, b=1: 0, "b: wanted no default for a tensor but None, given int"),
        (lambda a, *, b: 0, "wanted parameters that are passed by position, given b of <lambda>"),
        (lambda *a: 0, "wanted parameters that are passed by position, given *a of <lambda>"),
    ],
)
def test_declarations_that_are_none(kernels, ns, function, text):
    with pytest.raises(SignatureError) as caught:
        torchmojo.op(f"{ns}::f", kernels.mul)(function)
    assert str(caught.value) in (f"op: {ns}::f: {text}", f"op: {ns}::f: {text}")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("aten::f", "op: name: wanted a namespace of your own, given torch's aten"),
        ("mj::name", "op: name: wanted a name that torch.ops.mj leaves free, given name"),
        ("mjé::f", "op: name: wanted \"namespace::name\", given 'mjé::f'"),
    ],
)
def test_names_that_are_taken(kernels, name, text):
    with pytest.raises(ArgumentError) as caught:
        torchmojo.op(name, kernels.mul)
    assert str(caught.value) == text


def test_words_that_mean_something():
    kernels = torchmojo.inline(
        "from torchmojo import MutTensor, Tensor\n"
        'def f(dst: MutTensor[DType.float64, 1, "n"], self: Tensor[DType.float64, 1, "n"],'
        " needs: Float64):\n"
        "    for i in range(self.dim(0)):\n"
        "        dst[i] = needs * self[i]\n"
        "def g(dst: MutTensor[DType.float64, 1], big: UInt64 = 18446744073709551615):\n"
        "    pass\n"
    )
    f = torchmojo.op("mjwords::f", kernels.f)(lambda self, needs: torch.empty_like(self))
    close(f(self=X, needs=2.0), 2 * X)
    with pytest.raises(ArgumentError) as caught:
        f.backward(lambda ctx, grad: grad)
    assert str(caught.value) == (
        "mjwords::f: backward: wanted another name for the kernel's argument needs, which a "
        "formula's ctx has already"
    )
    with pytest.raises(SignatureError) as caught:
        torchmojo.op("mjwords::g", kernels.g)(lambda dst, big: None)
    assert str(caught.value) == (
        "op: big: wanted a default that 64 bits with a sign can hold, as torch's schemas have, "
        "given 18446744073709551615"
    )


# --- the rest ------------------------------------------------------------------------------------


def test_vmap_over_nobody(ops):
    square, cube = torch.vmap(ops.powers)(torch.empty(0, 3, dtype=torch.float64))
    assert square.shape == cube.shape == (0, 3) and square.dtype == torch.float64
    total = torch.vmap(ops.total, in_dims=(None, 1))(X, [torch.empty(3, 0, dtype=torch.float64)])
    assert total.shape == (0, 3)


def test_pickled_by_name(ops):
    assert pickle.loads(pickle.dumps(ops.add)) is ops.add
    with pytest.raises(LibraryError) as caught:
        pickle.loads(pickle.dumps(ops.add).replace(b"mjtest::add", b"mjtest::odd"))
    assert str(caught.value) == (
        "op: mjtest::odd: wanted an operator that this process has registered, given none; "
        "register it before unpickling what refers to it"
    )


def test_lazy_bits_in_place_while_checking(kernels, ns, monkeypatch):
    monkeypatch.setenv("TORCHMOJO_CHECK_OPS", "1")
    scale_ = torchmojo.op(f"{ns}::scale_", kernels.scale_)(lambda x, by: None)
    assert "given f64[3] cpu strides(1) neg bit" in text_of(scale_, torch._neg_view(X.clone()), 2.0)
    x = X.clone()
    scale_(x, 2.0)
    close(x, 2 * X)
    scale_.unregister()
