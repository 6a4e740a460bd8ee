"""What torch's stack carries survives every way a call can end: words, threads, forks, memory."""

import concurrent.futures
import gc
import os

import pytest
import torch

from .conftest import close, text_of

X = torch.arange(4, dtype=torch.float64)


def test_refusal_reads_every_kind(ops):
    """A refused call hands each argument to Python, which words the refusal."""
    every = (1, 2, 3, 4, True, 1.5, 2.5, "é", [1, 2], [0.5], [True])
    text = text_of(ops.tell, X.float(), *every)
    assert text.startswith("tell: dst: wanted f64, given f32[32] cpu strides(1)")
    for rest in (
        (),
        (None, None, None, None, None),
        (5, 0.25, "text", [1, 2, 3], True),
        (0, 0.0, "", [], False),
    ):
        text = text_of(ops.maybe, X, X[:2], *rest)
        assert text == (
            "maybe: y: wanted axis 0 (n) as long as axis 0 of dst, f64[4] cpu strides(1), "
            "given f64[2] cpu strides(1)"
        )


def test_refusal_in_a_list(ops):
    assert text_of(ops.total, X, [X, X[:2]]) == (
        "total: xs[1]: wanted axis 0 (n) as long as axis 0 of dst, f64[4] cpu strides(1), "
        "given f64[2] cpu strides(1)"
    )
    assert text_of(ops.number_, [torch.ones(2), torch.ones(1).expand(2)], 1.0).startswith(
        "number_: xs[1]: wanted "
    )


def test_recording_reads_every_kind(ops):
    x = X.clone().requires_grad_()
    close(ops.maybe(x, X, 2, 0.25, "é", [1, -2], True).detach(), X + X + 20 + 0.25 + 200 - 1 + 1000)
    close(ops.maybe(x, None, None, None, None, None, None).detach(), X)
    close(ops.total(x, [X, X]).detach(), 4 * X)


def test_errors_do_not_disturb_the_next_call(ops):
    for _ in range(100):
        text_of(ops.add, X, X, 13.0)
        close(ops.add(X, X), X + X)


def test_tensors_are_dropped(ops):
    storage = torch.ones(4, dtype=torch.float64)
    before = storage._use_count()
    for _ in range(10):
        ops.add(storage, storage)
        ops.maybe(storage, storage)
        ops.total(storage, [storage, storage])
        text_of(ops.maybe, storage, storage[:2])
        text_of(ops.total, storage, [storage, storage[:2]])
        text_of(ops.add, storage, storage, 13.0)
        ops.add(storage, X.clone().requires_grad_())
    gc.collect()
    assert storage._use_count() == before


def test_threads(ops):
    @ops.mul.backward
    def _(ctx, grad):
        return grad * ctx.b, grad * ctx.a

    def work(seed):
        torch.manual_seed(seed)
        for i in range(200):
            a = torch.full((7,), float(seed + i), dtype=torch.float64, requires_grad=True)
            b = torch.full((7,), float(seed), dtype=torch.float64)
            close(ops.add(a.detach(), b, 2.0), a.detach() + 2 * b)
            ops.mul(a, b).sum().backward()
            close(a.grad, b)
            if i % 10 == 0:
                size = seed + 1
                text = text_of(ops.add, torch.ones(size), torch.ones(size + 1))
                assert f"f32[{size}]" in text and f"f32[{size + 1}]" in text
        return True

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    ops.mul.formula = None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_fork(run_child):
    out = run_child(
        """
        import os
        @torchmojo.op("mjfork::add", kernels.add)
        def add(a, b, alpha=1.0):
            return torch.empty_like(a)
        x = torch.ones(3)
        add(x, x)
        child = os.fork()
        if child == 0:
            ok = torch.equal(add(x, x), 2 * x)
            try:
                add(x, x, 13.0)
                ok = False
            except RuntimeError as error:
                ok = ok and str(error) == "add: alpha is unlucky"
            os._exit(0 if ok else 1)
        print(os.waitpid(child, 0)[1], torch.equal(add(x, x), 2 * x))
        """
    )
    assert out.split() == ["0", "True"]


def test_first_call_imports_no_compiler(run_child):
    out = run_child(
        """
        import sys
        @torchmojo.op("mjlight::add", kernels.add)
        def add(a, b, alpha=1.0):
            return torch.empty_like(a)
        x = torch.ones(3)
        print(torch.ops.mjlight.add(x, x).tolist())
        add(x, x)
        for name in ("torch._dynamo", "torch._inductor", "sympy"):
            print(name, name in sys.modules)
        """
    )
    assert out.splitlines()[:2] == ["[2.0, 2.0, 2.0]", "torch._dynamo False"]


@pytest.mark.slow
def test_memory_stays_flat(run_child):
    out = run_child(
        """
        import gc, resource
        @torchmojo.op("mjsoak::add", kernels.add)
        def add(a, b, alpha=1.0):
            return torch.empty_like(a)
        @torchmojo.op("mjsoak::maybe", kernels.maybe)
        def maybe(x, y, a, b, c, d, e):
            return torch.empty_like(x)
        @torchmojo.op("mjsoak::total", kernels.total)
        def total(x, xs):
            return torch.empty_like(x)
        x = torch.ones(16, dtype=torch.float64)
        def resident():
            gc.collect()
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * resource.getpagesize() // 1024
        def soak(calls, raises):
            for i in range(raises):
                for op, args in (add, (x, x, 13.0)), (maybe, (x, x[:2], 1, 2.0, "text", [1])):
                    try:
                        op(*args)
                    except (RuntimeError, torchmojo.TorchmojoError):
                        pass
            for i in range(calls):
                torch.ops.mjsoak.add(x, x)
            for i in range(calls // 20):
                maybe(x, x, 1, 2.0, "text", [1, 2, 3], True)
                total(x, [x, x])
                add(x, x, 2.0)
                torch.ops.mjsoak.add.out(x, x, dst=x)
        soak(20_000, 2_000)
        before = resident()
        soak(2_000_000, 50_000)
        print(resident() - before)
        """,
        timeout=280,
    )
    assert int(out) < 4096  # KiB; 16 bytes a call would be 8 MB
