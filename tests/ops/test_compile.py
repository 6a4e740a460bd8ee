"""opcheck, torch.compile and torch.export take the operators as torch's own."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter

import torchmojo

from .conftest import close, make_ops, text_of

SPACE = "mjcompile"
WARNINGS = ("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
pytestmark = [pytest.mark.filterwarnings(w) for w in WARNINGS]


@pytest.fixture(scope="module")
def trained(kernels):
    """Give operators with formulas, in a namespace of their own."""
    ops = make_ops(kernels, SPACE)

    @ops.add.backward(save=())
    def _(ctx, grad):
        return grad, grad * ctx.alpha

    @ops.add_by_rule.backward(save=())
    def _(ctx, grad):
        return grad, grad * ctx.alpha

    @ops.mul.backward
    def _(ctx, grad):
        return grad * ctx.b, grad * ctx.a

    @ops.powers.backward(save=("x", "square"))
    def _(ctx, of_square, of_cube):
        return 2 * ctx.x * of_square + 3 * ctx.square * of_cube

    @ops.outer.backward
    def _(ctx, grad):
        return grad @ ctx.b, grad.t() @ ctx.a

    @ops.maybe.backward(save=())
    def _(ctx, grad):
        return grad, grad if ctx.needs["y"] else None

    @ops.total.backward
    def _(ctx, grad):
        return grad, [grad * (k + 1) for k in range(len(ctx.xs))]

    @ops.total_list.backward
    def _(ctx, grad):
        return [grad] * len(ctx.xs)

    yield ops
    torch._dynamo.reset()
    for made in vars(ops).values():
        if isinstance(made, torchmojo.Op):
            made.unregister()


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def double(*shape):
    return torch.randn(*shape, dtype=torch.float64)


CHECKED = {
    "add": lambda: [
        (leaf(5), leaf(5), 2.0),
        (leaf(5), torch.randn(5)),
        (torch.randn(10)[::2], torch.randn(1).expand(5)),
        (leaf(4, 5).t()[1], torch.randn(4)),
        (torch.randn(0), torch.randn(0)),
    ],
    "add_by_rule": lambda: [(leaf(5), leaf(5)), (torch.randn(6)[::3], torch.randn(2), 2.0)],
    "mul": lambda: [(leaf(5), leaf(5)), (torch.randn(6)[::2], leaf(3))],
    "powers": lambda: [(leaf(5),), (torch.randn(6)[::2],)],
    "outer": lambda: [(leaf(3), leaf(4)), (torch.randn(6)[::2], torch.randn(4))],
    "scale_": lambda: [(torch.randn(5), 2.0), (torch.randn(10)[::2], 2.0)],
    "tell": lambda: [
        (double(2), 3, -4, 250, 2**40, True, 1.5, 2.5, "é", [1, 2], [0.5], [True]),
    ],
    "maybe": lambda: [
        (double(3),),
        (double(3).requires_grad_(), double(3).requires_grad_(), 1, None, "text", [1, 2], True),
    ],
    "total": lambda: [(leaf(3), [leaf(3), torch.randn(6)[::2]]), (torch.randn(3), [])],
    "total_list": lambda: [([double(3).requires_grad_(), double(3)],)],
    "number_": lambda: [([torch.randn(2), torch.randn(6)[::2]], 1.0)],
    "sizes": lambda: [(torch.randn(2, 3).t(),)],
    "touch": lambda: [
        (torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),),
        (torch.randn(3, 4).t()[::2],),
        (torch.randn(3, 1).expand(3, 4),),
    ],
    "double": lambda: [(torch.randn(4, 3).t(),), (torch.randn(1).expand(2, 3),)],
    "flip": lambda: [(torch.arange(5),), (torch.tensor([True, False]),)],
    "square_complex": lambda: [(torch.randn(3, dtype=torch.complex128),)],
    "rows": lambda: [(torch.randn(2, 3),)],
}


# `touch` and `sizes` leave elements of their results unwritten, and opcheck compares values.
TESTS = ("test_schema", "test_autograd_registration", "test_faketensor")


@pytest.mark.parametrize("name", CHECKED)
def test_opcheck(trained, name):
    op = getattr(trained, name)
    for args in CHECKED[name]():
        unwritten = name in ("touch", "sizes", "tell")
        keywords = {"test_utils": TESTS} if unwritten else {}
        results = torch.library.opcheck(op.overload, args, **keywords)
        assert set(results.values()) == {"SUCCESS"}


@pytest.mark.parametrize("name", ["add", "powers"])
def test_opcheck_of_out(trained, name):
    op = getattr(getattr(torch.ops, SPACE), name).out
    a = torch.randn(6)[::2]
    given = {"dst": torch.zeros(3)} if name == "add" else {
        "square": torch.zeros(3), "cube": torch.zeros(6)[::2]
    }  # fmt: skip
    args = (a, a, 2.0) if name == "add" else (a,)
    results = torch.library.opcheck(op, args, given)
    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["add", "add_by_rule"])
def test_compiled_forward_and_backward(trained, name):
    op = getattr(trained, name)

    def work(a, b):
        return (op(a * 2, b, 3.0) + trained.mul(a, b)).relu()

    compiled = torch.compile(work, fullgraph=True)
    a, b = leaf(8), leaf(8)
    x, y = a.detach().clone().requires_grad_(), b.detach().clone().requires_grad_()
    torch.testing.assert_close(compiled(a, b), work(x, y))
    compiled(a, b).sum().backward()
    work(x, y).sum().backward()
    torch.testing.assert_close(a.grad, x.grad)
    torch.testing.assert_close(b.grad, y.grad)


@pytest.mark.slow
def test_mutation_under_inductor(trained):
    def work(x):
        y = x.clone()
        trained.scale_(y, 3.0)
        return x + y

    x = torch.randn(8)
    kept = x.clone()
    close(torch.compile(work, fullgraph=True)(x), x + 3 * x)
    close(x, kept)

    def on_input(x):
        trained.scale_(x, 2.0)
        return x + 1

    close(torch.compile(on_input, fullgraph=True)(x), 2 * kept + 1)
    close(x, 2 * kept)

    def with_out(x, dst):
        getattr(torch.ops, SPACE).add.out(x, x, 2.0, dst=dst)
        return dst * 2

    dst = torch.zeros(8)
    close(torch.compile(with_out, fullgraph=True)(x, dst), 6 * x)
    close(dst, 3 * x)


@pytest.mark.slow
def test_errors_from_compiled_code(trained):
    compiled = torch.compile(lambda a, b, s: trained.add(a, b, 13.0) * s, fullgraph=True)
    x = torch.ones(3)
    assert text_of(compiled, x, x, 2) == "add: alpha is unlucky"
    compiled = torch.compile(lambda a, b: trained.add(a, b) * 2, fullgraph=True)
    assert text_of(compiled, x.int(), x.int()) == text_of(trained.add, x.int(), x.int())
    assert text_of(compiled, x, torch.ones(2)) == (
        "add: b: wanted axis 0 (n) as long as axis 0 of dst, f32[3] cpu strides(1), "
        "given f32[2] cpu strides(1)"
    )
    close(compiled(x, x), 4 * x)


@pytest.mark.parametrize("name", ["add", "add_by_rule", "outer", "powers", "total"])
def test_sizes_are_not_compiled_in(trained, name):
    op = getattr(trained, name)
    calls = {
        "powers": lambda x: op(x)[0],
        "total": lambda x: op(x, [x, x]),
    }
    call = calls.get(name, lambda x: op(x, x))
    counter = CompileCounter()
    compiled = torch.compile(lambda x: call(x) + 1, backend=counter, dynamic=True, fullgraph=True)
    for size in (5, 6, 9, 17, 100):
        x = torch.randn(size)
        close(compiled(x), call(x) + 1)
    assert counter.frame_count == 1


class Work(torch.nn.Module):
    def __init__(self, ops):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(6))
        self.ops = ops

    def forward(self, x):
        square, cube = self.ops.powers.overload(x)
        y = self.ops.add.overload(square, cube, 0.5)
        return self.ops.mul.overload(y, self.weight)


def test_export(trained, tmp_path):
    work, x = Work(trained), torch.randn(6)
    exported = torch.export.export(work, (x,))
    names = {str(node.target) for node in exported.graph.nodes}
    assert {f"{SPACE}.{n}.default" for n in ("powers", "add", "mul")} <= names
    path = tmp_path / "work.pt2"
    torch.export.save(exported, path)
    again = torch.export.load(path).module()
    close(again(x), work(x))


def test_export_by_op(trained):
    class Calls(torch.nn.Module):
        def forward(self, x):
            return trained.add(x, x, alpha=2.0)

    x = torch.randn(6)
    size = torch.export.Dim("n", min=2, max=100)
    exported = torch.export.export(Calls(), (x,), dynamic_shapes={"x": {0: size}})
    close(exported.module()(torch.ones(9)), torch.full((9,), 3.0))
