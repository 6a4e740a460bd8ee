"""What went wrong in public elsewhere when tensors changed hands: each with its right value here.

Where the fault would end the process, the test runs in one of its own.
"""

import ctypes
import gc
import math
import sys
import threading

import numpy as np
import pytest
import torch

import torchmojo
from torchmojo import (
    AliasError,
    CopyError,
    CopyWarning,
    DeviceError,
    DTypeError,
    ExportError,
    GradError,
    KernelError,
    LayoutError,
    NoDataError,
    ReadOnlyError,
    copies,
    share,
)
from torchmojo.bridge.lend import dlpack

from .conftest import OldProducer, Producer

F32 = np.float32


def delete_off_gil(capsule):
    """Take a capsule as a C++ consumer does; its deleter runs on a thread without the GIL."""
    name = dlpack._capsule_name(capsule)
    address = dlpack._capsule_pointer(capsule, name)
    kind = dlpack._Versioned if name == b"dltensor_versioned" else dlpack._Legacy
    deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(kind.from_address(address).deleter)
    dlpack._set_capsule_name(capsule, dlpack._USED[name])
    thread = threading.Thread(target=deleter, args=(address,))
    thread.start()
    thread.join()


# --- who frees ----------------------------------------------------------------------------------


def test_empty_tensors_without_memory_are_given_back(views):
    """pytorch/pytorch#117273: nothing is read, and the deleter runs once."""
    made = Producer([0], (0, 3), null_data=True)
    with share(made) as handle:
        assert (handle.shape, handle.nbytes) == ((0, 3), 0)
        assert views.list_ranks([handle]) == 0
        assert np.from_dlpack(handle).shape == torch.from_dlpack(handle).shape == (0, 3)
    assert made.deletes() == [1]
    assert views.list_ranks([made]) == 0
    assert made.deletes() == [1, 1]


def test_a_producer_of_before_keywords_and_strides(kinds, views):
    made = OldProducer([1, 2, 3, 4, 5, 6], (2, 3), strides=None)
    dst = torch.zeros(2, 3)
    views.copy(dst, made)
    assert dst.tolist() == [[1, 2, 3], [4, 5, 6]] and made.deletes() == [1]
    with share(made) as handle:
        assert np.from_dlpack(handle).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert made.deletes() == [1, 1]


def test_a_capsule_given_twice(kinds, refused):
    """cupy/cupy#3611: the second time is an error, and the first view stays good."""
    capsule = torch.arange(4.0).__dlpack__()
    with share(capsule) as handle:
        for again in (lambda: share(capsule), lambda: kinds.total_float32(capsule)):
            text = refused(NoDataError, again)
            assert text.endswith("an unused DLPack capsule, given one named 'used_dltensor'")
        assert np.from_dlpack(handle).tolist() == [0, 1, 2, 3]
    with share(np.arange(4.0)) as handle:
        capsule = handle.__dlpack__()
        first = torch.from_dlpack(capsule)
        with pytest.raises(RuntimeError):
            torch.from_dlpack(capsule)
    assert first.tolist() == [0, 1, 2, 3]


def test_a_capsule_that_torch_has_taken(refused, kinds):
    made = Producer([5, 6], (2,), version=(1, 0))
    capsule = made.capsule()
    taken = torch.from_dlpack(capsule)
    for use in (share, kinds.total_float32):
        refused(NoDataError, use, capsule)
    assert made.deletes() == [0] and taken.tolist() == [5, 6]
    del taken, capsule
    gc.collect()
    assert made.deletes() == [1]


@pytest.mark.parametrize("max_version", [None, (1, 0)], ids=["legacy", "versioned"])
def test_deleters_take_the_gil_themselves(max_version):
    """numpy/numpy#22507: C++ frees on any thread, without the GIL."""
    for lender in (np.arange(6, dtype=F32), torch.arange(6.0), bytearray(6)):
        before = sys.getrefcount(lender)
        for _ in range(10):
            handle = share(lender)
            capsule = handle.__dlpack__(max_version=max_version)
            handle.release()
            delete_off_gil(capsule)
        assert sys.getrefcount(lender) == before


def test_memory_that_is_held_to_the_end_of_the_process(run_child):
    code = """
    import os
    os.dup2(1, 2)
    kept = np.from_dlpack(torchmojo.share(torch.zeros(10).numpy()))
    other = torch.from_dlpack(torchmojo.share(np.zeros(10)))
    handle = torchmojo.share(torch.zeros(10).numpy())
    print("end")
    """
    assert run_child(code) == "end\n"


def test_temporaries_live_as_long_as_they_are_read(kinds):
    """modular/modular#7091: nobody else holds what the kernel reads."""

    def junk():
        return [np.full(65536, 7.0, dtype=F32) for _ in range(32)]

    def more_junk():
        return [torch.full((1 << 20,), 9, dtype=torch.int64) for _ in range(8)]

    handle = share(np.arange(65536, dtype=F32) + 1)
    rubbish = junk()
    assert kinds.total_float32(handle) == 2147516416.0 and rubbish
    handle.release()
    assert kinds.total_float32(np.arange(65536, dtype=F32) + 1) == 2147516416.0

    handle = share((torch.arange(1 << 20, dtype=torch.int64) * 2)[1:-1])
    rubbish = more_junk()
    dst = torch.zeros(4)
    with share(torch.ones(4)) as a:
        with pytest.raises(KernelError):
            kinds.add(dst, a, a, 77)  # raises inside
    assert kinds.total_int64(handle) == 1048575 * 1048574 and rubbish
    handle.release()


def test_references_after_a_thousand_calls(kinds):
    """modular/modular#6833: nothing gains a reference, also where the kernel raises."""
    a, t, dst = np.arange(8, dtype=F32), torch.arange(8.0), torch.zeros(8)
    handle = share(a)
    things = (a, t, dst, handle, handle.shape, a.dtype, t.dtype, kinds.add)

    def call():
        kinds.add(dst, a, t)
        kinds.add(dst, handle, t)
        for given in (a, handle):
            try:
                kinds.add(dst, given, t, 77)
            except KernelError:
                continue
            raise AssertionError("no error")

    call()
    gc.collect()
    before = [sys.getrefcount(thing) for thing in things]
    for _ in range(1000):
        call()
    gc.collect()
    assert [sys.getrefcount(thing) for thing in things] == before
    handle.release()


# --- memory that is not there -------------------------------------------------------------------


def test_a_tensor_left_by_a_failed_resize(kinds, refused):
    """pytorch/pytorch#170298: its shape says more than its storage holds."""
    x = torch.from_numpy(np.arange(3))
    with pytest.raises(RuntimeError):
        x.resize_(10)
    assert x.numel() == 10 and x.untyped_storage().nbytes() == 24
    assert refused(NoDataError, share, x) == (
        "share: x: wanted 80 bytes for its shape and strides, given i64[10] cpu strides(1) with a "
        "storage of 24 bytes"
    )
    refused(NoDataError, kinds.total_int64, x)


def test_a_storage_freed_under_an_open_handle(run_child):
    code = """
    kernels = torchmojo.load(KERNELS / "kinds.mojo")
    x = torch.ones(1 << 20)
    handle = torchmojo.share(x)
    assert kernels.total_float32(handle) == 1 << 20
    x.untyped_storage().resize_(0)
    for use in (
        lambda: kernels.total_float32(handle),
        lambda: np.from_dlpack(handle),
        lambda: handle.address,
    ):
        try:
            use()
        except torchmojo.NoDataError as error:
            print(error)
    handle.release()
    """
    text = (
        ": x: wanted 4194304 bytes for its shape and strides, given f32[1048576] cpu strides(1) "
        "with a storage of 0 bytes"
    )
    assert run_child(code).splitlines() == [
        f"total_float32: x{text}",
        f"__dlpack__{text}",
        f"address{text}",
    ]


def test_a_map_closed_under_a_view(run_child):
    """numpy/numpy#9562: it stays open as long as a handle or an export needs it."""
    code = """
    import mmap
    kernels = torchmojo.load(KERNELS / "kinds.mojo")
    page = mmap.mmap(-1, 4096)
    page[:16] = np.arange(4, dtype=np.float32).tobytes()

    def close():
        try:
            page.close()
        except BufferError:
            return "held"
        return "closed"

    view = memoryview(page).cast("f")
    handle = torchmojo.share(view)
    exported = torch.from_dlpack(handle)
    view = None
    print(close(), np.from_dlpack(handle)[:4].tolist(), kernels.total_float32(handle))
    handle.release()
    print(close(), exported[:4].tolist())
    del exported
    print(close())
    """
    assert run_child(code).splitlines() == [
        "held [0.0, 1.0, 2.0, 3.0] 6.0",
        "held [0.0, 1.0, 2.0, 3.0]",
        "closed",
    ]


def test_a_bytearray_resized_under_a_view():
    """python/cpython#85269: also where an exception or the collector ends the handle."""
    data = bytearray(np.array([1, 2, 3, 4], dtype=F32).tobytes())

    def by_release():
        handle = share(data)
        with pytest.raises(BufferError):
            data.extend(b"x")
        handle.release()

    def by_error():
        try:
            with share(data):
                data.extend(b"x")
        except BufferError:
            pass

    def by_collection():
        circle = [share(data)]
        circle.append(circle)
        with pytest.raises(BufferError):
            data.extend(b"x")
        del circle
        gc.collect()

    for end in (by_release, by_error, by_collection):
        end()
        data.extend(b"x")
    assert data == np.array([1, 2, 3, 4], dtype=F32).tobytes() + b"xxx"


# --- memory that must not be written ------------------------------------------------------------


def test_a_file_mapped_for_reading(kinds, views, tmp_path, refused):
    """pytorch/pytorch#46741: torch would write into it, and die."""
    path = tmp_path / "a.npy"
    np.save(path, np.arange(12, dtype=np.float64).reshape(3, 4))
    content = path.read_bytes()
    mapped = np.load(path, mmap_mode="r")
    copies(reset=True)
    with share(mapped) as handle:
        assert handle.state == "borrowed_immutable"
        assert handle.address == mapped.ctypes.data
        with share(mapped[1]) as row:
            assert kinds.total(row) == 22.0
        refused(ReadOnlyError, views.copy, handle, np.zeros((3, 4)))
        assert not np.from_dlpack(handle).flags.writeable
        refused(ExportError, handle.__dlpack__)
        got = torch.from_dlpack(handle, copy=True)
        got.zero_()
    assert path.read_bytes() == content
    assert [c.reason.value for c in copies(reset=True)] == ["asked"]


def test_bytes_stay_what_they_are(kinds, refused):
    data = np.arange(4, dtype=F32).tobytes()
    view = memoryview(data).cast("f")
    with share(view) as handle, torchmojo.fallback("copy"):
        assert kinds.total_float32(handle) == 6.0
        for given in (view, handle):
            refused(ReadOnlyError, kinds.scale, given, 2.0)
    assert data == np.arange(4, dtype=F32).tobytes()


def test_the_read_only_flag_of_dlpack(kinds, refused):
    made = Producer([1, 2, 3], (3,), version=(1, 0), flags=1)
    for given in (made, share(made), share(made.capsule())):
        assert kinds.total_float32(given) == 6.0
        refused(ReadOnlyError, kinds.scale, given, 2.0)
        if given is not made:  # the flag goes on to the next consumer
            assert not np.from_dlpack(given).flags.writeable
            given.release()
    gc.collect()
    assert made.deletes() == [1] * len(made.made)


# --- values that do not lie as they are ---------------------------------------------------------


@pytest.mark.copying
def test_foreign_byte_order_is_never_seen_raw(kinds, views):
    """pytorch/pytorch#3671: the values, by a copy that is told of; or an error."""
    copies(reset=True)
    big = np.array([1.5, -2.25, 1e10], dtype=">f4")
    turned = np.arange(6, dtype=">i8").reshape(2, 3).T
    for given in (big, share(big)):
        copies(reset=True)  # and forget where it was said already
        dst = torch.zeros(3)
        with pytest.warns(CopyWarning, match="wanted native byte order"):
            kinds.add(dst, given, torch.zeros(3))
        assert dst.tolist() == [1.5, -2.25, 1e10]
        with torchmojo.no_copies(), pytest.raises(CopyError):
            kinds.total_float32(given)
        with torchmojo.fallback("error"), pytest.raises(DTypeError):
            kinds.total_float32(given)
    dst, reasons = torch.zeros(3, 2, dtype=torch.int64), set()
    with torchmojo.fallback("copy"):
        views.copy(dst, turned)
    assert dst.tolist() == [[0, 3], [1, 4], [2, 5]]
    for lender, wanted in ((big, [1.5, -2.25, 1e10]), (turned, [[0, 3], [1, 4], [2, 5]])):
        reasons |= {c.reason.value for c in copies(reset=True)}
        with share(lender) as handle, pytest.warns(CopyWarning, match="byte order"):
            assert torch.from_dlpack(handle).tolist() == wanted
    assert reasons | {c.reason.value for c in copies(reset=True)} == {"byte order"}
    assert big.tolist() == [1.5, -2.25, 1e10]


def test_bfloat16_without_a_detour(kinds):
    """jax-ml/ml_dtypes#81: NumPy has no such type; bits become one only where that is asked."""
    values = [1.0, -2.5, 3.140625, math.inf, math.nan]
    x = torch.tensor(values, dtype=torch.bfloat16)
    with torchmojo.no_copies(), share(x) as handle:
        assert (handle.dtype, handle.address) == ("bfloat16", x.data_ptr())
        for i, value in enumerate(values):
            with share(x[i:]) as rest:
                got = kinds.first(rest)
            assert got == value or (math.isnan(got) and math.isnan(value))
        assert torch.from_dlpack(handle).dtype == torch.bfloat16
    bits = np.array([0x3F80, 0xC020, 0x4049, 0x7FC0], dtype=np.uint16)
    with share(bits) as handle:
        assert handle.dtype == "uint16" and kinds.first(handle) == 0x3F80
    asked = torch.from_numpy(bits).view(torch.bfloat16)
    with torchmojo.no_copies(), share(asked) as handle:
        assert handle.address == bits.ctypes.data
        assert [kinds.first(asked[i:]) for i in range(3)] == [1.0, -2.5, 3.140625]
        assert math.isnan(kinds.first(asked[3:]))


def test_negative_strides_never_reach_torch(run_child):
    """pytorch/pytorch#188023: torch 2.13 ends the process on them."""
    code = """
    kernels = torchmojo.load(KERNELS / "kinds.mojo")
    import sys
    sys.path.insert(0, str(KERNELS.parent.parent.parent))
    from tests.bridge.conftest import Producer
    torchmojo.fallback("copy")
    backwards = np.arange(6, dtype=np.float64)[::-1]
    image = np.arange(105, dtype=np.uint8).reshape(5, 7, 3)
    flipped = image[..., ::-1]
    made = Producer([1, 2, 3, 4], (4,), strides=(-1,), byte_offset=12)
    with torchmojo.no_copies():  # a kernel walks any stride
        assert kernels.first(backwards) == 5.0 and kernels.first(flipped[0, 0]) == 2
        for given in (torchmojo.share(made), made):
            assert kernels.total_float32(given) == 10.0
            dst = torch.zeros(4)
            kernels.add(dst, given, torch.zeros(4))
            assert dst.tolist() == [4, 3, 2, 1]
    with torchmojo.share(backwards) as handle:
        print(torch.from_dlpack(handle).tolist())
    with torchmojo.share(flipped) as handle:
        got = torch.from_dlpack(handle)
        print(got[0, 0].tolist(), got[4, 6].tolist())
    with torchmojo.share(made.capsule()) as handle:
        print(torch.from_dlpack(handle).tolist(), np.from_dlpack(handle).tolist())
    del given
    assert made.deletes() == [1] * len(made.made)
    assert image[0, 0].tolist() == [0, 1, 2]
    print([(c.reason.value, c.count) for c in torchmojo.copies()])
    """
    lines = run_child(code).splitlines()
    assert lines[:3] == [
        "[5.0, 4.0, 3.0, 2.0, 1.0, 0.0]",
        "[2, 1, 0] [104, 103, 102]",
        "[4.0, 3.0, 2.0, 1.0] [4.0, 3.0, 2.0, 1.0]",
    ]
    assert "negative stride" in lines[3]


def test_expanded_tensors_are_read_and_not_written(kinds, views, refused):
    """pytorch/pytorch#17935: several indices share one cell."""
    wide = torch.tensor([2.0]).expand(4)
    base = torch.tensor([[1.0], [2.0]])
    rows = base.expand(2, 3)
    with share(wide) as handle, torchmojo.fallback("copy"):
        for given in (wide, handle):
            dst = torch.zeros(4)
            kinds.add(dst, given, torch.zeros(4))
            assert dst.tolist() == [2.0] * 4
            refused(AliasError, kinds.scale, given, 2.0)
    with share(rows) as handle, torchmojo.fallback("copy"):
        for given in (rows, handle):
            dst = torch.zeros(2, 3)
            views.copy(dst, given)
            assert dst.tolist() == [[1, 1, 1], [2, 2, 2]]
            refused(AliasError, views.copy, given, torch.zeros(2, 3))
    assert wide[0] == 2.0 and base.tolist() == [[1], [2]]


@pytest.mark.parametrize("version", [None, (1, 0)], ids=["legacy", "versioned"])
def test_offsets_of_dlpack(kinds, views, version):
    """NVIDIA/cuda-python#2592: the first element lies at data + byte_offset."""
    made = Producer([9, 9, 1, 2, 3, 4], (4,), byte_offset=8, version=version)
    square = Producer([9, 9, 1, 2, 3, 4], (2, 2), strides=None, byte_offset=8, version=version)
    dst, wide = torch.zeros(4), torch.zeros(2, 2)
    for given in (made, share(made), share(made.capsule())):
        kinds.add(dst, given, torch.zeros(4))
        assert dst.tolist() == [1, 2, 3, 4]
    for given in (square, share(square), share(square.capsule())):
        views.copy(wide, given)
        assert wide.tolist() == [[1, 2], [3, 4]]
    with share(square) as handle:  # and out again, from where it starts
        start = ctypes.addressof(ctypes.c_char.from_buffer(square.buffer)) + 8
        assert handle.address == torch.from_dlpack(handle).data_ptr() == start
        assert torch.from_dlpack(handle).tolist() == [[1, 2], [3, 4]]


def test_offsets_of_torch(kinds):
    base = torch.arange(10.0)
    part = base[3:8:2]
    with share(part) as handle:
        assert handle.address == part.data_ptr() == base.data_ptr() + 12
        assert np.from_dlpack(handle).tolist() == [3, 5, 7]
        assert np.from_dlpack(handle, copy=True).tolist() == [3, 5, 7]
        dst = torch.zeros(3)
        kinds.add(dst, handle, torch.zeros(3))
        assert dst.tolist() == [3, 5, 7]
        kinds.scale(handle, -1.0)
    assert base.tolist() == [0, 1, 2, -3, 4, -5, 6, -7, 8, 9]
    copies(reset=True)


@pytest.mark.copying
def test_copies_start_at_the_offset(views):
    """What is copied on its way starts where the view starts, not its storage."""
    base = torch.arange(40.0).reshape(5, 8)
    for x in (base[1:, 3:].t(), base[2:4, 1:7:2].t(), torch._neg_view(base[1:, 3:])):
        with torchmojo.fallback("copy"), share(x) as handle:
            wanted = x.resolve_neg()[1, :2].tolist()
            for given in (x, handle):
                told = views.row_major(given)
                assert told == f"{x.shape[1]},1 True [{wanted[0]}, {wanted[1]}]"
            assert np.from_dlpack(handle, copy=True).tolist() == x.tolist()
    copies(reset=True)


def test_no_elements_are_contiguous(views, kinds):
    """microsoft/onnxruntime#27450: an empty key-value cache keeps its shape and is not copied."""
    cache, part = np.zeros((1, 8, 0, 128), dtype=F32), torch.empty(0, 5)[:, ::2]
    assert tuple(part.shape) == (0, 3)
    with torchmojo.no_copies():
        for lender, shape in ((cache, (1, 8, 0, 128)), (part, (0, 3))):
            with share(lender) as handle:
                assert handle.shape == shape
                for given in (lender, handle):
                    assert views.list_ranks([given]) == 0
                assert tuple(np.from_dlpack(handle).shape) == shape
                assert tuple(torch.from_dlpack(handle).shape) == shape
        with share(part) as handle:
            assert views.row_major_any(handle) == views.row_major_any(part)


def test_lazy_bits_are_worked_into_values(views, refused):
    """pytorch/pytorch#59945: the numbers that torch shows, or an error; never those stored."""
    x = torch.tensor([1 + 2j, 3 - 4j]).conj()
    adjoint = torch.tensor([[1 + 1j, 2 + 2j], [3 + 3j, 4 + 4j]]).mH
    with share(x) as handle:
        for given in (x, handle):
            real, imaginary = torch.zeros(2), torch.zeros(2)
            refused(LayoutError, views.split_complex, real, imaginary, given)
            with torchmojo.fallback("copy"):
                views.split_complex(real, imaginary, given)
            assert torch.complex(real, imaginary).tolist() == [1 - 2j, 3 + 4j]
        refused(ExportError, handle.__dlpack__)
        with torchmojo.fallback("copy"):
            assert torch.from_dlpack(handle).tolist() == [1 - 2j, 3 + 4j]
    with share(adjoint) as handle, torchmojo.fallback("copy"):
        assert np.from_dlpack(handle).tolist() == [[1 - 1j, 3 - 3j], [2 - 2j, 4 - 4j]]
    copies(reset=True)


def test_parameters_are_read_as_they_are(kinds, refused):
    """ROCm/FlyDSL#1099: a reading kernel needs no detach()."""
    parameter = torch.nn.Parameter(torch.arange(3.0))
    with share(parameter) as handle:
        for given in (parameter, handle):
            assert kinds.total_float32(given) == 3.0
            refused(GradError, kinds.scale, given, 2.0)
        assert np.from_dlpack(handle).tolist() == [0, 1, 2]
    assert parameter.requires_grad and parameter.grad_fn is None


# --- tensors that stand for others --------------------------------------------------------------


def test_a_batch_under_vmap(kinds, refused):
    """pytorch/pytorch#122706: never one run over the whole batch, as if it were a row."""
    seen = []

    def row(x):
        for use in (share, kinds.total_float32, lambda x: kinds.sum_list(torch.zeros(4), [x])):
            seen.append(refused(NoDataError, use, x))
        return x

    torch.vmap(row)(torch.arange(12.0).reshape(3, 4))
    assert len(seen) == 3 and all("vmap" in text or "bytes" in text for text in seen)


def test_fake_and_meta_tensors_have_no_data(kinds, refused):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.empty(3)
    meta = torch.empty(2, 3, device="meta")
    assert refused(NoDataError, share, fake) == (
        "share: x: wanted a tensor with memory of its own, given f32[3] cpu strides(1) "
        "(FakeTensor); share it outside of tracing and compiled code"
    )
    assert refused(DeviceError, share, meta) == (
        "share: x: wanted cpu, given f32[2,3] meta strides(3,1); a meta tensor has no data; share "
        "real tensors"
    )
    assert refused(NoDataError, kinds.total_float32, fake) == (
        "total_float32: x: wanted a tensor with memory of its own, given f32[3] cpu strides(1) "
        "(FakeTensor); call the kernel on real tensors, outside of tracing and compiled code"
    )
    assert refused(DeviceError, kinds.total_float32, meta[0]) == (
        "total_float32: x: wanted cpu, given f32[3] meta strides(1); a meta tensor has no data; "
        "call the kernel on real tensors"
    )


# --- more than 2^31 -----------------------------------------------------------------------------


def test_more_than_two_billion_elements(kinds):
    """microsoft/onnxruntime#32299: nothing wraps; only the last page is touched."""
    x = torch.empty(2**31 + 64, dtype=torch.uint8)
    x[-64:] = torch.arange(1, 65, dtype=torch.uint8)
    with share(x) as handle:
        assert (handle.shape, handle.nbytes) == ((2**31 + 64,), 2**31 + 64)
        for given in (x, handle, handle.__dlpack__(max_version=(1, 0))):
            assert kinds.tail_uint8(given, 64) == 2080
        assert kinds.tail_uint8(handle, 1) == 64
        exported = np.from_dlpack(handle)
        assert (exported.size, exported[-1]) == (2**31 + 64, 64)
        del exported


@pytest.mark.copying
def test_wide_views_are_not_copied_unasked(kinds, views, refused):
    """The number of elements is exact; a copy of two gigabytes is told of, or refused."""
    wide = torch.zeros(1, dtype=torch.uint8).expand(2**31 + 5)
    with share(wide) as handle, torchmojo.no_copies():
        assert handle.shape == (2147483653,) and handle.nbytes == 2147483653
        assert kinds.tail_uint8(handle, 3) == 0  # read as it lies
        assert torch.from_dlpack(handle).numel() == 2147483653
        refused(CopyError, handle.__dlpack__, copy=True)
    square = torch.zeros(1).expand(2**16, 2**15 + 1)
    with share(square) as handle:
        for given in (square, handle):
            with torchmojo.no_copies():
                refused(CopyError, views.row_major, given)
            with torchmojo.fallback("error"):
                refused(LayoutError, views.row_major, given)


def test_a_shape_beyond_64_bits(kinds, views, refused):
    made = Producer([1], (2**31, 2**31, 2**31), strides=(0, 0, 0))
    for use in (share, lambda x: views.list_ranks([x]), lambda x: share(x.capsule())):
        text = refused(NoDataError, use, made)
        assert text.endswith(
            ": wanted memory below 2^63 bytes, given DLPack shape (2147483648, 2147483648, "
            "2147483648) strides (0, 0, 0)"
        )
    gc.collect()
    assert made.deletes() == [1] * 3
