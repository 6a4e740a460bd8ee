"""Inputs that broke other bridges, as operators meet them: no storage, writes, odd gradients.

The numbers are those of the collection from which they come, A16 to A21.
"""

import pytest
import torch

import torchmojo
from torchmojo.errors import NoDataError, SignatureError

from .conftest import close, text_of


@pytest.fixture(scope="module")
def rows():
    """Give kernels on matrices with any strides, and one with an integer result."""
    return torchmojo.inline(
        """
        from torchmojo import Layout, MutTensor, Tensor

        def square[dtype: DType](
            dst: MutTensor[dtype, 2, "n m"], x: Tensor[dtype, 2, "n m"]
        ) where (dtype == DType.float32 or dtype == DType.float64):
            for i in range(x.dim(0)):
                for j in range(x.dim(1)):
                    dst[i, j] = x[i, j] * x[i, j]

        def product[dtype: DType](
            dst: MutTensor[dtype, 2, "n m"], x: Tensor[dtype, 2, "n m"], y: Tensor[dtype, 2, "n m"]
        ) where (dtype == DType.float32 or dtype == DType.float64):
            for i in range(x.dim(0)):
                for j in range(x.dim(1)):
                    dst[i, j] = x[i, j] * y[i, j]

        def half(
            dst: MutTensor[DType.float32, 4, layout=Layout.ROW_MAJOR],
            x: Tensor[DType.float32, 4],
        ):
            for i in range(x.dim(0)):
                for j in range(x.dim(1)):
                    for k in range(x.dim(2)):
                        for l in range(x.dim(3)):
                            dst[i, j, k, l] = x[i, j, k, l] / 2

        def whole(dst: MutTensor[DType.int32, 1, "n"], x: Tensor[DType.float32, 1, "n"]):
            for i in range(x.dim(0)):
                dst[i] = Int32(x[i] * 2)
        """.replace("\n        ", "\n")
    )


@pytest.fixture(scope="module")
def square(rows):
    @torchmojo.op("mjcases::product", rows.product)
    def product(x, y):
        return torch.empty_like(x)

    @product.backward
    def _(ctx, grad):
        return product(grad, ctx.y), product(grad, ctx.x)

    @torchmojo.op("mjcases::square", rows.square)
    def square(x):
        return torch.empty_like(x)

    @square.backward
    def _(ctx, grad):
        return 2 * product(grad, ctx.x)

    return square


def test_a16a_vmap_runs_over_the_batch(square):
    batch = torch.arange(24.0).reshape(2, 3, 4)
    close(torch.vmap(square)(batch), torch.stack([square(matrix) for matrix in batch]))
    close(torch.vmap(square, in_dims=2, out_dims=2)(batch), batch**2)


def test_a16bc_no_memory(square, rows):
    """Fake and meta tensors go to the fake kernel; handed to the kernel they are refused."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = square(torch.empty(3, 2))
    assert (fake.shape, type(fake).__name__) == ((3, 2), "FakeTensor")
    meta = square(torch.empty(2, 3, device="meta"))
    assert (meta.shape, meta.device.type) == ((2, 3), "meta")
    with pytest.raises((NoDataError, torchmojo.DeviceError)):
        rows.square(torch.empty(2, 3), torch.empty(2, 3, device="meta"))


def test_a17a_a_write_is_seen(ops):
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    y = x * 1.0
    loss = (y * y).sum()
    with torch.no_grad():
        ops.scale_(y, 10.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a17b_a_leaf_is_not_written(ops):
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    assert "autograd does not record" in text_of(ops.scale_, x, 2.0)
    close(x.detach(), torch.ones(3, dtype=torch.float64))


def test_a18a_a_gradient_without_strides(square):
    x = torch.arange(12.0).reshape(3, 4).requires_grad_()
    square(x).sum().backward()
    close(x.grad, 2 * x.detach())


def test_a18b_a_broadcast_gradient(square):
    x = torch.arange(12.0).reshape(3, 4).requires_grad_()
    square(x).backward(torch.tensor(0.5).expand(3, 4))
    close(x.grad, x.detach())


def test_a19a_second_derivative(square):
    x = torch.tensor([[0.3, -1.2]], dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradgradcheck(square, (x,))
    (first,) = torch.autograd.grad(square(2 * x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    close(first.detach(), 8 * x.detach())
    close(second, torch.full((1, 2), 8.0, dtype=torch.double))


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x, y: x, "x"),
        (lambda x, y: y[:, :], "y"),
        (lambda x, y: y.as_strided((2, 2), (1, 2)), "y"),
        (lambda x, y: x.detach(), "x"),
    ],
)
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a20a_a_result_that_is_an_argument(rows, ns, function, name, compiled):
    op = torchmojo.op(f"{ns}::alias", rows.product)(function)
    x, y = torch.ones(2, 2), torch.full((2, 2), 3.0)
    call = torch.compile(lambda x, y: op(x, y) + 0, fullgraph=True) if compiled else op
    text = (
        f"{ns}::alias: dst: wanted a tensor of its own, given one that shares the memory of "
        f"{name}; let the function make it, as by torch.empty_like"
    )
    with pytest.raises(Exception) as caught:  # dynamo wraps it
        call(x, y)
    assert text in str(caught.value)
    close(x, torch.ones(2, 2))
    close(y, torch.full((2, 2), 3.0))
    op.unregister()


def test_a20a_one_tensor_twice(kernels, ns):
    @torchmojo.op(f"{ns}::twice", kernels.powers)
    def twice(x):
        one = torch.empty_like(x)
        return one, one

    with pytest.raises(SignatureError) as caught:
        twice(torch.ones(3))
    assert "cube: wanted a tensor of its own, given one that shares the memory of square" in str(
        caught.value
    )


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (
            lambda x: torch.empty_like(x) + 0,
            "wanted 2 results of its function (square, cube), given 1",
        ),
        (
            lambda x: [torch.zeros_like(x)] * 1 + [None],
            "cube: wanted a tensor of its function, given None",
        ),
    ],
)
def test_results_that_are_none(kernels, ns, function, text):
    op = torchmojo.op(f"{ns}::none", kernels.powers)(function)
    with pytest.raises(SignatureError) as caught:
        op(torch.ones(3))
    assert str(caught.value).startswith(f"{ns}::none: {text}")


def test_a20b_an_undeclared_write_does_not_compile():
    """A Tensor argument is read-only in Mojo: the compiler refuses the kernel of that case."""
    with pytest.raises(torchmojo.CompileError) as caught:
        torchmojo.inline(
            "from torchmojo import MutTensor, Tensor\n"
            "def secret(dst: MutTensor[DType.float32, 1], x: Tensor[DType.float32, 1]):\n"
            "    x[0] = x[0] + 1\n"
        )
    assert "<inline>:3" in str(caught.value)


def test_a21a_strides_of_the_fake_kernel(rows, ns):
    @torchmojo.op(f"{ns}::half", rows.half)
    def half(x):
        return x.new_empty(x.shape[0], x.shape[1], x.shape[2], x.shape[3])

    x = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert half(x).stride() == (60, 20, 5, 1)
    assert half(x.to("meta")).stride() == (60, 20, 5, 1)
    assert set(torch.library.opcheck(half.overload, (x,)).values()) == {"SUCCESS"}
    close(half(x), x / 2)
    half.unregister()


def test_a21b_a_fake_kernel_with_another_dtype(rows, ns):
    @torchmojo.op(f"{ns}::whole", rows.whole)
    def whole(x):
        return torch.empty_like(x)

    assert text_of(whole, torch.ones(3)).startswith("whole: dst: wanted i32, given f32[3] cpu")
    whole.unregister()
