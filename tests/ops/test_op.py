"""Operators give what plain torch gives, for every kind of argument, and say what is wrong."""

import random
import shutil

import pytest
import torch

import torchmojo
from torchmojo import ArgumentError, LibraryError, SignatureError

from .conftest import KERNELS, SPACE, close, text_of

X = torch.arange(4, dtype=torch.float64)
TELL = (3, -4, 250, 2**40, True, 1.5, 2.5, "héé", [1, 2], [0.5], [True, False, True])


# --- values -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [0, 1, 2, 7])
def test_one_result(ops, dtype, size):
    a, b = torch.randn(size, dtype=dtype), torch.randn(size, dtype=dtype)
    close(torch.ops.mjtest.add(a, b, 2.0), a + 2 * b)
    close(ops.add(a, b), a + b)
    close(ops.add(a, alpha=0.5, b=b), a + 0.5 * b)
    close(ops.mul(a, b), a * b)


def test_two_results(ops):
    x = torch.randn(5)
    square, cube = ops.powers(x)
    close(square, x * x)
    close(cube, x * x * x)


def test_sizes_of_two_inputs(ops):
    a, b = torch.randn(3), torch.randn(4)
    close(ops.outer(a, b), torch.outer(a, b))
    assert ops.outer(a, b[:0]).shape == (3, 0)
    assert ops.outer(a[:0], b).shape == (0, 4)


def test_in_place(ops):
    x = torch.randn(6)
    wanted, version = x.clone(), x._version
    assert ops.scale_(x, 3.0) is None
    close(x, wanted * 3)
    assert x._version == version + 1
    ops.scale_(x[::2], 2.0)
    wanted *= 3
    wanted[::2] *= 2
    close(x, wanted)
    assert x._version == version + 2


def test_out(ops):
    a, b, dst = torch.randn(5), torch.randn(5), torch.zeros(10)
    version = dst._version
    assert torch.ops.mjtest.add.out(a, b, 2.0, dst=dst[::2]) is None
    close(dst[::2], a + 2 * b)
    close(dst[1::2], torch.zeros(5))
    assert dst._version == version + 1
    square, cube = torch.zeros(5), torch.zeros(5)
    torch.ops.mjtest.powers.out(a, square=square, cube=cube)
    close(square, a * a)
    close(cube, a * a * a)
    assert (square._version, cube._version) == (1, 1)
    torch.ops.mjtest.add.out(a, b, dst=a)
    assert text_of(torch.ops.mjtest.add.out, a, b, dst=torch.zeros(4)) == (
        "add: a: wanted axis 0 (n) as long as axis 0 of dst, f32[4] cpu strides(1), "
        "given f32[5] cpu strides(1)"
    )


def test_numbers_text_and_lists(ops):
    wanted = [3, -4, 250, 2**40, 1, 1.5, 2.5, 5, 2, 1, 3, 7, 2, -1.5, 1, -7]
    found = ops.tell(X, *TELL)[:24]
    assert found.tolist() == [*wanted, 1, 2, 0.5, 1, 0, 1, 1, -2]
    found = ops.tell(X, *TELL, "é", [], 0.25, False, 9)[:22]
    assert found.tolist() == [*wanted[:11], 2, 0, 0.25, 0, 9, 1, 2, 0.5, 1, 0, 1]
    found = ops.tell(X, *TELL[:7], "", [], [], [], m=[7], p=2**40)[:17]
    assert found.tolist() == [*wanted[:7], 0, 0, 0, 0, 7, 1, -1.5, 1, 2**40, 7]


def test_ranges_of_numbers(ops):
    def tell(**changed):
        values = {**dict(zip("abcdefghijk", TELL, strict=True)), **changed}
        return ops.tell(X, **values)

    for b in (-128, 127):
        assert tell(b=b)[1] == b
    for c in (0, 255):
        assert tell(c=c)[2] == c
    assert tell(d=2**63 - 1)[3] == 2.0**63
    assert text_of(tell, b=128) == (
        "tell: b: wanted a value of Int8, given 128 (int); out of range"
    )
    assert text_of(tell, c=-1) == "tell: c: wanted a value of UInt8, given -1 (int); out of range"
    assert text_of(tell, d=-1) == "tell: d: wanted a value of UInt64, given -1 (int); out of range"
    assert torch.isnan(tell(g=float("nan"))[6])
    assert tell(g=-float("inf"))[6] == -float("inf")


@pytest.mark.parametrize(
    ("keywords", "wanted"),
    [
        ({}, 0.5),
        ({"y": X}, 0.5 + X),
        ({"y": None, "b": None}, 0),
        ({"a": 3}, 30.5),
        ({"a": 0}, 0.5),
        ({"b": 2.0}, 2),
        ({"c": "ab"}, 200.5),
        ({"c": ""}, 0.5),
        ({"d": [1, 2, 3]}, 6.5),
        ({"d": []}, 0.5),
        ({"e": True}, 1000.5),
        ({"e": False}, 2000.5),
        ({"y": X, "a": 1, "b": 0.25, "c": "é", "d": [5], "e": True}, 1215.25 + X),
    ],
)
def test_optional_arguments(ops, keywords, wanted):
    close(ops.maybe(X, **keywords), X + wanted)


def test_lists_of_tensors(ops):
    xs = [torch.randn(4, dtype=torch.float64) for _ in range(3)]
    close(ops.total(X, xs), X + xs[0] + 2 * xs[1] + 3 * xs[2])
    close(ops.total(X, []), X)
    close(ops.total_list(xs), 0 + xs[0] + xs[1] + xs[2])
    a, b = torch.zeros(2), torch.zeros(3)
    ops.number_([a, b], 4.0)
    close(a, torch.full((2,), 4.0))
    close(b, torch.full((3,), 5.0))
    assert (a._version, b._version) == (1, 1)


DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint16, torch.uint32, torch.uint64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(ops, dtype):
    x = (
        torch.tensor([0, 1, 1, 0, 1]).to(dtype)
        if dtype is torch.bool
        else torch.arange(5).to(dtype)
    )
    found = ops.flip(x)
    assert found.dtype == dtype and found.tolist() == x.tolist()[::-1]


@pytest.mark.parametrize("rank", range(6))
def test_ranks(ops, rank):
    shape = (2, 3, 1, 4, 5)[:rank]
    x = torch.randn(shape)
    found = ops.sizes(x).tolist()[: 2 + rank]
    assert found == [rank, x.numel(), *shape]


def test_rank_that_it_does_not_take(ops, kernels):
    x = torch.zeros((1,) * 6)
    with pytest.raises(torchmojo.ShapeError) as caught:
        kernels.sizes(torch.zeros(7, dtype=torch.int64), x)
    assert text_of(ops.sizes, x) == str(caught.value)


# --- layouts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    {
        "stepped": lambda: torch.randn(6, 8)[::2, ::3],
        "transposed": lambda: torch.randn(4, 3).t(),
        "expanded": lambda: torch.randn(4, 1).expand(4, 3),
        "expanded twice": lambda: torch.randn(1).expand(4, 3),
        "offset": lambda: torch.randn(20)[3:15].view(3, 4),
        "empty": lambda: torch.randn(0, 3),
        "empty behind": lambda: torch.randn(3, 0),
        "one": lambda: torch.randn(1, 1),
        "neg": lambda: torch._neg_view(torch.randn(3, 4)),
        "imag of conj": lambda: torch.randn(3, 4, dtype=torch.complex64).conj().imag,
    }.items(),
    ids=lambda item: item[0],
)
def test_layouts(ops, make):
    x = make[1]()
    found = ops.double(x)
    close(found, 2 * x)
    assert found.stride() == torch.empty_like(x).stride()


def random_view(rng: random.Random) -> torch.Tensor:
    rank = rng.randint(0, 5)
    sizes = [rng.choice([0, 1, 1, 2, 3, 5]) if rng.random() < 0.9 else 0 for _ in range(rank)]
    x = torch.zeros([2 * s for s in sizes])
    for i, size in enumerate(sizes):
        kind = rng.choice(["plain", "step", "expand", "offset"])
        if kind == "step":
            x = x.narrow(i, 0, 2 * size)[(slice(None),) * i + (slice(None, None, 2),)]
        elif kind == "expand":
            one = [1 if k == i else n for k, n in enumerate(x.shape)]
            x = torch.zeros(one).expand([size if k == i else n for k, n in enumerate(x.shape)])
        elif kind == "offset":
            x = x.narrow(i, size, size)
        else:
            x = x.narrow(i, 0, size)
            if rng.random() < 0.5:
                x = x.contiguous()
    order = list(range(rank))
    rng.shuffle(order)
    return x.permute(order)


def test_strides_of_empty_like(ops):
    rng = random.Random(20)
    for _ in range(200):
        x = random_view(rng)
        wanted = torch.empty_like(x)
        found = ops.touch(x)
        assert (found.shape, found.stride()) == (wanted.shape, wanted.stride()), (
            x.shape,
            x.stride(),
        )


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 3, 1, 5), (2, 1, 4, 4), (0, 3, 4, 5)])
def test_channels_last(ops, shape):
    x = torch.zeros(shape).to(memory_format=torch.channels_last)
    for given in (x, x[:, :, ::2], x[..., ::2], x[:1], x[:, :1]):
        wanted = torch.empty_like(given)
        assert ops.touch(given).stride() == wanted.stride()


def test_conj_and_neg(ops):
    z = torch.randn(4, dtype=torch.complex128)
    close(ops.square_complex(z), z * z)
    found = ops.square_complex(z.conj())
    torch.testing.assert_close(found, (z * z).conj().resolve_conj())
    close(ops.add(torch._neg_view(X), X), torch.zeros(4, dtype=torch.float64))


@pytest.mark.copying
def test_lazy_bits_in_place_are_copied_by_policy(ops):
    x = torch.randn(3, dtype=torch.complex128).conj().imag
    assert x.is_neg()
    wanted = x.clone() * 2
    with torchmojo.fallback("copy"):
        ops.scale_(x, 2.0)
        close(x.resolve_neg(), wanted)
        torch.ops.mjtest.mul.out(wanted, wanted, dst=x)
        close(x.resolve_neg(), wanted * wanted)
    with torchmojo.fallback("error"):
        assert text_of(ops.scale_, x, 2.0).startswith("scale_: x: wanted ")


@pytest.mark.copying
def test_copied_by_policy(ops):
    x = torch.arange(6.0).reshape(2, 3).t()
    with torchmojo.fallback("copy"):
        close(ops.rows(x), x.flatten())
    with torchmojo.fallback("error"):
        text = text_of(ops.rows, x)
    assert text.startswith("rows: x: wanted ")
    close(ops.rows(x.contiguous()), x.flatten())


def test_bounds():
    checked = torchmojo.inline(
        "from torchmojo import MutTensor, Tensor\n"
        "def fetch(dst: MutTensor[DType.float32, 1], x: Tensor[DType.float32, 1], index: Int):\n"
        "    dst[0] = x[index]\n",
        bounds=True,
    )

    @torchmojo.op("mjbounds::fetch", checked.fetch)
    def fetch(x, index):
        return x.new_empty(1)

    x = torch.arange(4.0)
    assert fetch(x, 3) == 3
    assert text_of(fetch, x, 4) == "fetch: x: wanted 0 <= index < 4 on axis 0, given 4"
    assert text_of(fetch, x, -1) == "fetch: x: wanted 0 <= index < 4 on axis 0, given -1"
    assert fetch(x, 2) == 2
    fetch.unregister()


# --- errors -------------------------------------------------------------------------------------


def wrong_calls():
    ones = torch.ones
    return {
        "shape": (
            lambda ops: ops.add(ones(5), ones(3)),
            "add: b: wanted axis 0 (n) as long as axis 0 of dst, f32[5] cpu strides(1), "
            "given f32[3] cpu strides(1)",
        ),
        "rank": (lambda ops: ops.add(ones(2, 2), ones(2, 2)), None),
        "dtype": (lambda ops: ops.add(ones(3).int(), ones(3).int()), None),
        "two dtypes": (lambda ops: ops.add(ones(3), ones(3).double()), None),
        "Mojo's": (lambda ops: ops.add(ones(3), ones(3), 13.0), "add: alpha is unlucky"),
    }


def direct(kernels, call):
    """Give what the kernel itself says to the same arguments."""

    class Direct:
        @staticmethod
        def add(a, b, alpha=1.0):
            return kernels.add(torch.empty_like(a), a, b, alpha)

    with pytest.raises(torchmojo.TorchmojoError) as caught:
        call(Direct)
    return str(caught.value)


@pytest.mark.parametrize("name", wrong_calls())
def test_same_text_as_the_direct_call(ops, kernels, name):
    call, text = wrong_calls()[name]
    found = text_of(call, ops)
    assert found == direct(kernels, call)
    assert text is None or found == text


def test_class_of_errors(ops):
    """The function raises what the direct call raises; torch itself hands on a text alone."""
    with pytest.raises(torchmojo.ShapeError) as caught:
        ops.add(torch.ones(2), torch.ones(3))
    with pytest.raises(RuntimeError) as plain:
        ops.add.overload(torch.ones(2), torch.ones(3))
    assert type(plain.value) is RuntimeError
    assert str(plain.value) == str(caught.value)


def test_an_error_of_a_pack_hook_keeps_its_class(kernels, ns):
    op = make_mul(kernels, f"{ns}::mul")
    op.backward(lambda ctx, grad: (grad * ctx.b, grad * ctx.a))

    class Stopped(Exception):
        pass

    def stop(tensor):
        raise Stopped("early")

    x = torch.ones(3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(stop, lambda x: x):
        with pytest.raises(Stopped, match="early"):
            op(x, torch.ones(3))
    op.unregister()


def test_expanded_output(ops):
    text = text_of(ops.scale_, torch.ones(1).expand(4), 2.0)
    assert text.startswith("scale_: x: wanted ") and "f32[4] cpu strides(0)" in text


@pytest.mark.parametrize("route", ["scale_", "out"])
def test_in_place_on_what_autograd_records(ops, route):
    leaf = torch.ones(3, requires_grad=True)

    def call(x):
        if route == "scale_":
            ops.scale_(x, 2.0)
        else:
            torch.ops.mjtest.add.out(torch.ones(3), torch.ones(3), dst=x)

    name = "scale_: x" if route == "scale_" else "add: dst"
    for x in (leaf, leaf * 1, (leaf * 1)[:2]):
        text = text_of(call, x)
        assert text.startswith(f"{name}: wanted a tensor that autograd does not record, given ")
        assert text.endswith("; call it under torch.no_grad(), or write into x.detach()")
    with torch.no_grad():
        call(leaf)
    close(leaf.detach(), torch.full((3,), 2.0))


def test_out_with_a_recorded_input(ops):
    leaf, dst = torch.ones(3, requires_grad=True), torch.zeros(3)
    assert text_of(torch.ops.mjtest.add.out, leaf, leaf, dst=dst) == (
        "add: wanted arguments that autograd does not record, as it writes dst in place, given "
        "one that requires grad or has a tangent; call it under torch.no_grad()"
    )
    close(dst, torch.zeros(3))


def test_wrong_kinds_are_torchs_errors(ops):
    for call in (
        lambda: ops.add(torch.ones(2)),
        lambda: ops.add(torch.ones(2), torch.ones(2), "x"),
        lambda: ops.add(torch.ones(2), 3),
        lambda: ops.add(torch.ones(2), torch.ones(2), beta=1.0),
    ):
        with pytest.raises(RuntimeError, match="mjtest::add"):
            call()
    close(ops.add(X, X), X + X)


# --- registration -------------------------------------------------------------------------------


def test_unknown_name(kernels, ns):
    with pytest.raises(SignatureError) as caught:

        @torchmojo.op(f"{ns}::f", kernels.mul)
        def f(a, c):
            return torch.empty_like(a)

    assert str(caught.value) == f"op: {ns}::f: wanted arguments of mul (dst, a, b), given c"


def test_missing_argument(kernels, ns):
    with pytest.raises(SignatureError) as caught:

        @torchmojo.op(f"{ns}::f", kernels.mul)
        def f(a):
            return torch.empty_like(a)

    assert str(caught.value) == (
        f"op: {ns}::f: wanted the argument b of mul, which has no default, given none"
    )


def test_kernel_that_returns(kernels, ns):
    with pytest.raises(SignatureError) as caught:

        @torchmojo.op(f"{ns}::f", kernels.returns)
        def f(x): ...

    assert str(caught.value) == (
        f"op: {ns}::f: wanted a kernel that writes its results into MutTensors, or returns an "
        "OwnedTensor, given returns, which returns Int"
    )


def test_kernel_that_makes_its_result(ns):
    made = torchmojo.inline(
        """
        from std.utils import IndexList
        from torchmojo import OwnedTensor, Tensor

        def positive(x: Tensor[DType.float64, 1]) raises -> OwnedTensor[DType.float64, 1]:
            var count = 0
            for i in range(x.dim(0)):
                count += 1 if x[i] > 0 else 0
            var made = OwnedTensor[DType.float64, 1](IndexList[1](count))
            var view = made.view()
            var at = 0
            for i in range(x.dim(0)):
                if x[i] > 0:
                    view[at] = x[i]
                    at += 1
            return made^
        """.replace("\n        ", "\n")
    )

    @torchmojo.op(f"{ns}::positive", made.positive)
    def positive(x):
        return x.new_empty(torch.library.get_ctx().new_dynamic_size())

    @positive.backward
    def _(ctx, grad):
        return torch.zeros_like(ctx.x).masked_scatter(ctx.x > 0, grad)

    assert positive.signature.schema == "positive(Tensor x) -> Tensor"
    assert (positive.route, positive.why) == ("python", "the kernel makes its result")
    x = torch.tensor([1.0, -2.0, 0.0, 4.0], dtype=torch.float64, requires_grad=True)
    y = positive(x)
    close(y.detach(), torch.tensor([1.0, 4.0], dtype=torch.float64))
    (y * torch.tensor([3.0, 5.0])).sum().backward()
    close(x.grad, torch.tensor([3.0, 0, 0, 5.0], dtype=torch.float64))
    assert positive(x[:0].detach()).shape == (0,)
    assert torch.autograd.gradcheck(positive, (x.detach()[[0, 1, 3]].requires_grad_(),))

    def work(x):
        return torch.ops.__getattr__(ns).positive(x) * 2

    exported = torch.export.export(_Call(work), (x.detach(),))
    close(exported.module()(x.detach() + 5), (x.detach() + 5) * 2)


class _Call(torch.nn.Module):
    def __init__(self, work):
        super().__init__()
        self.work = work

    def forward(self, x):
        return self.work(x)


@pytest.mark.parametrize("name", ["f", "a b::f", "ns::", "::f", "ns::f.out", "ns::f::g", ""])
def test_bad_name(kernels, name):
    with pytest.raises(ArgumentError) as caught:
        torchmojo.op(name, kernels.mul)
    assert str(caught.value) == f'op: name: wanted "namespace::name", given {name!r}'


def test_no_kernel(ns):
    with pytest.raises(ArgumentError, match=r"op: kernel: wanted a kernel, as kernels\.f, given "):
        torchmojo.op(f"{ns}::f", print)


def make_mul(kernels, name):
    @torchmojo.op(name, kernels.mul)
    def mul(a, b):
        return torch.empty_like(a)

    return mul


def test_a_failed_registration_leaves_nothing(kernels, ns):
    with pytest.raises(SignatureError):
        torchmojo.op(f"{ns}::f", kernels.mul)(lambda a: a)
    mul = make_mul(kernels, f"{ns}::f")
    close(mul(X, X), X * X)
    mul.unregister()


def test_two_files_and_one_name(kernels, ns, tmp_path):
    mine = make_mul(kernels, f"{ns}::mul")
    copy = tmp_path / "ops.mojo"
    shutil.copy(KERNELS, copy)
    other = torchmojo.load(copy)
    with pytest.raises(LibraryError) as caught:
        make_mul(other, f"{ns}::mul")
    assert str(caught.value) == (
        f"op: {ns}::mul: wanted a name of its own, given one that {KERNELS} has registered "
        "already; unregister() that one, or choose another namespace"
    )
    close(mine(X, X), X * X)
    mine.unregister()


def test_unregister(kernels, ns):
    for _ in range(6):  # more often than there are slots
        mul = make_mul(kernels, f"{ns}::mul")
        close(getattr(torch.ops, ns).mul(X, X), X * X)
        mul.unregister()
        assert text_of(mul, X, X) == (
            f"op: {ns}::mul: wanted a registered operator, given one that unregister() has taken "
            "out, or that was registered again"
        )
        with pytest.raises(AttributeError, match="mul"):
            getattr(torch.ops, ns).mul(X, X)
        mul.unregister()


def test_registered_again(kernels, ns):
    for _ in range(6):
        mul = make_mul(kernels, f"{ns}::mul")
        close(mul(X, X), X * X)
    mul.unregister()


def test_too_many_overloads(kernels, ns):
    for _ in range(3):  # what fails takes no slot
        made = []
        with pytest.raises(LibraryError) as caught:
            for i in range(4):
                made.append(make_mul(kernels, f"{ns}::mul{i}"))
        assert str(caught.value).endswith(
            "wanted at most 4 overloads of operators made of one kernel, given 4 of mul already; "
            "unregister() one"
        )
        for op in made:
            op.unregister()
    assert not hasattr(getattr(torch.ops, ns), "mul3")


@pytest.mark.slow
def test_reload(tmp_path):
    source = tmp_path / "mine.mojo"
    text = (
        "from torchmojo import MutTensor, Tensor\n\n\n"
        'def put(dst: MutTensor[DType.float32, 1, "n"], x: Tensor[DType.float32, 1, "n"]):\n'
        "    for i in range(x.dim(0)):\n        dst[i] = x[i] + 1\n"
    )
    source.write_text(text)
    library = torchmojo.load(source)
    ops = torchmojo.ops_from(library, namespace="mjreload")
    close(ops["put"](torch.zeros(2)), torch.ones(2))
    source.write_text(text.replace("+ 1", "+ 2"))
    library.reload()
    close(ops["put"](torch.zeros(2)), torch.ones(2))
    ops = torchmojo.ops_from(library, namespace="mjreload")
    close(torch.ops.mjreload.put(torch.zeros(2)), torch.full((2,), 2.0))


def test_ops_from(kernels):
    ops = torchmojo.ops_from(kernels, namespace="mjfile")
    assert "returns" not in ops and ops["mul"].route == "mojo"
    close(torch.ops.mjfile.mul(X, X), X * X)
    close(torch.ops.mjfile.outer(X, X[:2]), torch.outer(X, X[:2]))
    square, _ = torch.ops.mjfile.powers(X)
    close(square, X * X)
    x = X.clone()
    torch.ops.mjfile.scale_(x, 2.0)
    close(x, 2 * X)
    dst = torch.zeros(1)  # its size is in no input
    torch.ops.mjfile.fetch(dst, torch.arange(3.0), 2)
    assert dst == 2
    assert ops["add"].__doc__ == kernels.add.contract.doc
    with pytest.raises(ArgumentError, match="options: wanted none for a library"):
        torchmojo.ops_from(kernels, namespace="mjfile", bounds=True)
    for op in ops.values():
        op.unregister()


# --- results made by Python ---------------------------------------------------------------------


def test_python_route(ops):
    op = ops.add_by_rule
    assert (
        op.route == "python"
        and "decides on its arguments" in op.why
        and "results by Python" in repr(op)
    )
    for x in (X, X[:2], X[::2], X[:0]):
        close(op(x, x), x + x)
        close(op(x, x, 3.0), x + 3 * x)
        close(op(x, alpha=2.0, b=x), x + 2 * x)
    with pytest.raises((RuntimeError, ValueError), match="add: b: wanted axis 0"):
        op(X, X[:2])


def test_tags(kernels, ns):
    op = torchmojo.op(f"{ns}::mul", kernels.mul, tags=[torch.Tag.pointwise])(
        lambda a, b: torch.empty_like(a)
    )
    exact = {torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides}
    assert {*op.overload.tags} == {*exact, torch.Tag.pointwise}
    assert {*getattr(torch.ops, ns).mul.out.tags} == {*exact, torch.Tag.pointwise}
    op.unregister()
    flexible = torchmojo.op(f"{ns}::f", kernels.mul, tags=[torch.Tag.flexible_layout])(
        lambda a, b: torch.empty_like(a)
    )
    assert torch.Tag.needs_exact_strides not in flexible.overload.tags
    flexible.unregister()
    with pytest.raises(ArgumentError) as caught:
        torchmojo.op(f"{ns}::g", kernels.mul, tags=["pointwise"])(lambda a, b: torch.empty_like(a))
    assert str(caught.value) == "op: tags: wanted values of torch.Tag, given 'pointwise' (str)"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_changes_nothing(ops, dtype):
    """The rule: an operator runs in the dtype of its arguments, under autocast too."""
    x = torch.ones(3, dtype=torch.float64)
    with torch.autocast("cpu", dtype=dtype):
        assert ops.add(x, x).dtype == torch.float64
        assert ops.add(x.float(), x.float()).dtype == torch.float32
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype
        assert "add: " in text_of(ops.add, x.bfloat16(), x.bfloat16())


def test_a_device_without_a_kernel(ops):
    """Meta tensors go to the fake kernel; any other device is named by torch."""
    with pytest.raises((NotImplementedError, RuntimeError)) as caught:
        ops.add(torch.ones(3).to_sparse(), torch.ones(3).to_sparse())
    assert f"{SPACE}::add" in str(caught.value) and "SparseCPU" in str(caught.value)


def test_shown(ops):
    assert repr(ops.add) == (
        f"<operator {SPACE}::add(Tensor a, Tensor b, float alpha=1.0) -> Tensor, "
        "results made in Mojo>"
    )
    assert ops.add.__doc__ == "Add." and isinstance(ops.add, torchmojo.Op)
