"""Tensors that kernels make: who frees them, and what the compiler refuses."""

from __future__ import annotations

import gc
import os
import sys
import threading
from pathlib import Path

import pytest
import torch

import torchmojo

BODY = """
from std.utils import IndexList
from torchmojo import OwnedTensor

def make(n: Int) raises -> OwnedTensor[DType.float32, 1]:
    return OwnedTensor[DType.float32, 1](IndexList[1](n))

def wrong(n: Int) raises -> Int:
"""


@pytest.fixture(scope="session")
def owned(load_kernels):
    """Kernels that make tensors."""
    return load_kernels("owned")


def resident() -> int:
    """Bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def test_python_owns_what_a_kernel_made(owned):
    x = owned.ramp(1003)
    assert (x.dtype, x.shape, x.stride()) == (torch.float32, (1003,), (1,))
    assert torch.equal(x, torch.arange(1003.0))
    assert x.data_ptr() % 64 == 0
    x.requires_grad_()
    x.square().sum().backward()
    assert torch.equal(x.grad, 2 * torch.arange(1003.0))


@pytest.mark.parametrize("n", [0, 1, 7])
def test_sizes_and_strides(owned, n):
    x = owned.moved(n)
    assert (x.shape, x.dtype) == ((n, 2, 3), torch.int64)
    assert x.is_contiguous()
    wanted = [[[100 * i + 10 * j + k for k in range(3)] for j in range(2)] for i in range(n)]
    assert x.tolist() == wanted


def test_every_dtype(owned):
    for name in owned.outer.contract.parameters[0].choices:
        dtype = getattr(torch, name)
        a, b = torch.tensor([1, 0, 1]).to(dtype), torch.tensor([0, 1, 1, 0]).to(dtype)
        got = owned.outer(a, b)
        assert got.dtype == dtype
        wanted = torch.where(torch.arange(4) % 2 == 0, a[:, None], b)
        assert torch.equal(got, wanted)


def test_a_view_outlives_its_base(owned):
    tail = owned.ramp(100)[90:]
    gc.collect()
    junk = [owned.ramp(100).zero_() for _ in range(50)]
    assert tail.tolist() == list(range(90, 100))
    del junk


def test_a_kernel_that_raises_leaves_nothing(owned):
    with pytest.raises(torchmojo.KernelError, match=r"^fails: too many$"):
        owned.fails(5)
    assert owned.fails(1).shape == (1,)


def test_sizes_that_cannot_be(owned):
    with pytest.raises(torchmojo.KernelError) as error:
        owned.ramp(-1)
    assert str(error.value) == ("ramp: OwnedTensor: wanted sizes of 0 or more, given -1 on axis 0")
    with pytest.raises(torchmojo.KernelError) as error:
        owned.ramp(2**62)
    assert str(error.value) == "ramp: OwnedTensor: wanted fewer than 2^63 bytes"
    with pytest.raises(torchmojo.KernelError) as error:
        owned.ramp(2**50)
    assert str(error.value) == f"ramp: OwnedTensor: no memory for {2**52} bytes"


def test_memory_is_freed_once(owned):
    for _ in range(2000):
        owned.ramp(4096)
    before = resident()
    for _ in range(50_000):
        owned.ramp(4096)
        owned.handed_on(4096)
        owned.through_torch(4096)
    assert resident() - before < 8 * 2**20


def test_the_last_holder_frees_it_on_any_thread(owned):
    holders = [owned.ramp(1000) for _ in range(100)]
    thread = threading.Thread(target=holders.clear)
    thread.start()
    thread.join()
    assert holders == []


def test_torch_takes_it_from_mojo(owned):
    assert owned.through_torch(5) == 1


def test_torch_takes_nothing_where_it_is_not_imported(run_child):
    text = run_child(
        "import torchmojo\n"
        "kernels = torchmojo.load(KERNELS / 'owned.mojo')\n"
        "try:\n    kernels.through_torch(5)\n"
        "except torchmojo.KernelError as error:\n    print(error)\n",
        bare=True,
    )
    assert text.strip() == (
        "through_torch: into_torch: wanted torch 2.11 or newer in this process, given none"
    )


def test_numpy_where_torch_is_not_imported(run_child):
    assert (
        run_child(
            "import sys, torchmojo\n"
            "kernels = torchmojo.load(KERNELS / 'owned.mojo')\n"
            "x = kernels.ramp(5)\n"
            "assert 'torch' not in sys.modules\n"
            "print(type(x).__module__, x.dtype, x.tolist(), x.ctypes.data % 64)\n",
            bare=True,
        ).strip()
        == "numpy float32 [0.0, 1.0, 2.0, 3.0, 4.0] 0"
    )


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("    var made = make(n)\n    return n", "abandoned without being explicitly destroyed"),
        (
            "    var made = make(n)\n    var other = made\n    made^.release()\n"
            "    other^.release()\n    return n",
            "cannot be implicitly copied",
        ),
        (
            "    var made = make(n)\n    made^.release()\n    return made.dim(0)",
            "use of uninitialized value 'made'",
        ),
        (
            "    var made = make(n)\n    var view = made.view()\n    made^.release()\n"
            "    return Int(view[0])",
            "use of uninitialized value 'made'",
        ),
        (
            "    var made = make(n)\n    made^.release()\n    made^.release()\n    return n",
            "use of uninitialized value 'made'",
        ),
        (
            "    var handle = make(n).into_handle()\n    return n",
            "abandoned without being explicitly destroyed",
        ),
        (
            "    var handle = make(n).into_handle()\n    var other = handle\n"
            "    handle^.release()\n    other^.release()\n    return n",
            "cannot be implicitly copied",
        ),
        (
            "    var handle = make(n).into_handle()\n    var address = handle^.into_address()\n"
            "    handle^.release()\n    return address",
            "use of uninitialized value 'handle'",
        ),
        (
            "    var tensor = make(n).into_torch()\n    return tensor.address()",
            "abandoned without being explicitly destroyed",
        ),
    ],
    ids=[
        "forgotten",
        "copied",
        "used after release",
        "view after release",
        "released twice",
        "handle forgotten",
        "handle copied",
        "handle used after its end",
        "torch tensor forgotten",
    ],
)
def test_the_compiler_refuses(body, wanted):
    with pytest.raises(torchmojo.CompileError, match=wanted):
        torchmojo.inline(BODY + body + "\n")
    assert "torch" in sys.modules
