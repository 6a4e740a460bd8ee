"""Handles: what every lender lends, by which rule, how long, and what happens when it moves."""

import array
import copy
import ctypes
import gc
import mmap
import pickle
import sys
import threading
import types
import weakref
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import shared_memory
from pathlib import Path

import numpy as np
import pytest
import torch

import torchmojo
from torchmojo import (
    AliasError,
    ArgumentError,
    DeviceError,
    DTypeError,
    GradError,
    HandleError,
    LayoutError,
    NoDataError,
    ReadOnlyError,
    TorchmojoError,
    live_handles,
    share,
)
from torchmojo.testing import inject

from .conftest import OldProducer, Producer, load

pytestmark = [
    pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested:UserWarning"),
]
ROOT = str(Path(__file__).parent.parent.parent)
VALUES = [1.0, 2.0, 3.0, 4.0]
BYTES = np.array(VALUES, dtype=np.float32).tobytes()


@pytest.fixture(scope="module")
def running():
    return load("running")


class Sub(torch.Tensor):
    """A plain subclass."""


class Loud(torch.Tensor):
    """A subclass that nobody may look at in torch's way."""

    @classmethod
    def __torch_function__(cls, *_):
        raise AssertionError("looked at")


class Array(np.ndarray):
    """A subclass of NumPy's, with a dictionary."""


class Interface:
    """An object that has nothing but `__array_interface__`."""

    def __init__(self, source, **changes):
        self.source = source
        self.__array_interface__ = {**source.__array_interface__, **changes}


def tensor():
    return torch.tensor(VALUES)


def frozen_array():
    return np.frombuffer(BYTES, dtype=np.float32)


def in_struct():
    packed = np.zeros(4, dtype=[("name", "S4"), ("value", "<f4"), ("more", "u4")])
    packed["value"] = VALUES
    return packed["value"]


def as_mmap():
    page = mmap.mmap(-1, 16)
    page[:] = BYTES
    return page


def address_of(thing):
    """Tell where an object's memory starts, without any code of ours."""
    if isinstance(thing, torch.Tensor):
        with torch._C.DisableTorchFunction():
            return torch._C._data_address(thing) + thing.storage_offset() * thing.itemsize
    if isinstance(thing, Producer):
        return ctypes.addressof(ctypes.c_char.from_buffer(thing.buffer)) + thing.byte_offset
    if isinstance(thing, Interface):
        return thing.source.ctypes.data
    return np.asarray(thing).__array_interface__["data"][0]


# Four float32 of VALUES each; the strides in elements, and whether they may be written.
FOUR = {
    "torch": (tensor, 1, True),
    "torch subclass": (lambda: tensor().as_subclass(Sub), 1, True),
    "torch with __torch_function__": (lambda: tensor().as_subclass(Loud), 1, True),
    "parameter": (lambda: torch.nn.Parameter(tensor(), requires_grad=False), 1, True),
    "torch slice": (lambda: torch.tensor([9, 9, *VALUES, 9])[2:6], 1, True),
    "torch steps": (lambda: torch.tensor(VALUES).repeat_interleave(3)[1::3], 3, True),
    "torch column": (lambda: tensor()[:, None].expand(4, 1).t()[0], 1, True),
    "lazy clone": (lambda: torch._lazy_clone(tensor()), 1, True),
    "inference": (lambda: torch.inference_mode()(tensor)(), 1, True),
    "numpy": (lambda: np.array(VALUES, dtype=np.float32), 1, True),
    "numpy subclass": (lambda: np.array(VALUES, dtype=np.float32).view(Array), 1, True),
    "numpy frozen": (frozen_array, 1, False),
    "numpy backwards": (lambda: np.array(VALUES[::-1], dtype=np.float32)[::-1], -1, True),
    "numpy steps": (lambda: np.repeat(np.array(VALUES, dtype=np.float32), 3)[1::3], 3, True),
    "numpy field": (in_struct, 3, True),
    "array": (lambda: array.array("f", VALUES), 1, True),
    "memoryview of bytes": (lambda: memoryview(BYTES).cast("f"), 1, False),
    "memoryview of bytearray": (lambda: memoryview(bytearray(BYTES)).cast("f"), 1, True),
    "memoryview frozen": (lambda: memoryview(bytearray(BYTES)).toreadonly().cast("f"), 1, False),
    "memoryview of mmap": (lambda: memoryview(as_mmap()).cast("f"), 1, True),
    "memoryview steps": (
        lambda: memoryview(array.array("f", [v for v in VALUES for _ in "abc"]))[::3],
        3,
        True,
    ),
    "memoryview backwards": (lambda: memoryview(array.array("f", VALUES[::-1]))[::-1], -1, True),
    "ctypes": (lambda: (ctypes.c_float * 4)(*VALUES), 1, True),
    "array interface": (lambda: Interface(np.array(VALUES, dtype=np.float32)), 1, True),
    "array interface frozen": (lambda: Interface(frozen_array()), 1, False),
    "dlpack": (lambda: Producer(VALUES, (4,)), 1, True),
    "dlpack with an offset": (lambda: Producer([9, 9, *VALUES], (4,), byte_offset=8), 1, True),
    "dlpack versioned": (lambda: Producer(VALUES, (4,), version=(1, 0)), 1, True),
    "dlpack of tomorrow": (lambda: Producer(VALUES, (4,), version=(1, 99)), 1, True),
    "dlpack frozen": (lambda: Producer(VALUES, (4,), version=(1, 0), flags=1), 1, False),
    "dlpack copied": (lambda: Producer(VALUES, (4,), version=(1, 0), flags=2), 1, False),
    "dlpack without strides": (lambda: Producer(VALUES, (4,), strides=None), 1, True),
    "dlpack of before 1.0": (lambda: OldProducer(VALUES, (4,)), 1, True),
    "pinned memory of CUDA": (lambda: Producer(VALUES, (4,), device=(3, 0)), 1, True),
    "pinned memory of ROCm": (lambda: Producer(VALUES, (4,), device=(11, 7)), 1, True),
}


@pytest.mark.parametrize("name", FOUR)
def test_a_lender(kinds, name):
    make, step, writable = FOUR[name]
    lender = make()
    with share(lender) as handle:
        assert handle.state == ("borrowed" if writable else "borrowed_immutable")
        assert (handle.dtype, handle.shape, handle.strides) == ("float32", (4,), (step,))
        assert (handle.device, handle.nbytes, handle.released) == ("cpu", 16, False)
        assert handle.lender is lender
        assert handle.address == address_of(lender)  # nothing was copied
        assert kinds.total_float32(handle) == 10.0
        assert kinds.address(handle) == handle.address
        assert handle.__dlpack_device__() == (1, 0)
    assert handle.released


@pytest.mark.parametrize("name", [name for name in FOUR if FOUR[name][2]])
def test_writing_through_a_handle(kinds, name):
    lender = FOUR[name][0]()
    with torch.inference_mode("inference" in name), share(lender) as handle:
        kinds.scale(handle, 10.0)
        assert kinds.total_float32(handle) == 100.0
        assert kinds.total_float32(lender) == 100.0
        assert handle.address == address_of(lender)


@pytest.mark.parametrize("name", FOUR)
def test_an_immutable_handle_is_no_output(kinds, refused, name):
    lender = FOUR[name][0]()
    with share(lender, "borrowed_immutable") as handle, share(handle) as again:
        assert handle.state == again.state == "borrowed_immutable"
        wanted = "wanted memory that may be written, given"
        for given in (handle, again):
            assert refused(ReadOnlyError, kinds.scale, given, 10.0) == (
                f"scale: x: {wanted} {given!r}; pass a writable copy"
            )
            text = refused(ReadOnlyError, kinds.number_list, [torch.zeros(1), given], 1.0)
            assert text == f"number_list: xs[1]: {wanted} {given!r}; pass a writable copy"
            text = refused(ReadOnlyError, kinds.put_maybe, x=given, value=1.0)
            assert text == f"put_maybe: x: {wanted} {given!r}; pass a writable copy"
        assert kinds.total_float32(handle) == 10.0
        text = refused(ReadOnlyError, share, handle, "borrowed")
        assert text == f'share: x: {wanted} {handle!r}; share it as mode="borrowed_immutable"'


@pytest.mark.parametrize("name", [name for name in FOUR if not FOUR[name][2]])
def test_read_only_memory_is_not_borrowed_for_writing(refused, name):
    lender = FOUR[name][0]()
    text = refused(ReadOnlyError, share, lender, mode="borrowed")
    assert text.startswith("share: x: wanted memory that may be written, given f32[4] cpu ")
    assert text.endswith('; share it as mode="borrowed_immutable"')
    with share(lender, "borrowed_immutable") as handle:
        assert handle.state == "borrowed_immutable"


# --- outlines -----------------------------------------------------------------------------------


class Pair(ctypes.Structure):
    _fields_ = (("a", ctypes.c_int), ("b", ctypes.c_double))


def packed():
    return np.zeros(4, dtype=[("a", "u1"), ("b", "<f4")])


# dtype, shape, strides, bytes, and the outline in the repr.
OUTLINES = {
    "0 axes": (lambda: torch.tensor(3.0), "float32", (), (), 4, "f32[] cpu"),
    "0 axes of numpy": (lambda: np.array(3.0), "float64", (), (), 8, "f64[] cpu"),
    "0 axes of ctypes": (lambda: ctypes.c_int32(3), "int32", (), (), 4, "i32[] cpu"),
    "no elements": (
        *(lambda: torch.zeros(2, 0), "float32", (2, 0), (1, 1), 0),
        "f32[2,0] cpu strides(1,1)",
    ),
    "no elements of a slice": (
        *(lambda: torch.zeros(5, 4)[5:, ::2], "float32", (0, 2), (4, 2), 0),
        "f32[0,2] cpu strides(4,2)",
    ),
    "no elements of numpy": (
        *(lambda: np.zeros((3, 0, 2)), "float64", (3, 0, 2), (0, 2, 1), 0),
        "f64[3,0,2] cpu strides(0,2,1)",
    ),
    "no bytes": (lambda: b"", "uint8", (0,), (1,), 0, "u8[0] cpu strides(1)"),
    "an empty array": (lambda: array.array("d"), "float64", (0,), (1,), 0, "f64[0] cpu strides(1)"),
    "bytes": (lambda: b"abc", "uint8", (3,), (1,), 3, "u8[3] cpu strides(1)"),
    "transposed": (
        *(lambda: torch.zeros(2, 3).t(), "float32", (3, 2), (1, 3), 24),
        "f32[3,2] cpu strides(1,3)",
    ),
    "expanded": (
        *(lambda: torch.zeros(1).expand(2**40), "float32", (2**40,), (0,), 2**42),
        f"f32[{2**40}] cpu strides(0)",
    ),
    "backwards": (
        *(lambda: np.arange(6.0)[::-2], "float64", (3,), (-2,), 24),
        "f64[3] cpu strides(-2)",
    ),
    "big-endian": (
        *(lambda: np.arange(3, dtype=">i8"), "int64", (3,), (1,), 24),
        "i64[3] cpu strides(1)",
    ),
    "big-endian ctypes": (
        *(lambda: (ctypes.c_int16.__ctype_be__ * 3)(), "int16", (3,), (1,), 6),
        "i16[3] cpu strides(1)",
    ),
    "field at odd bytes": (lambda: packed()["b"], "float32", (4,), None, 16, "f32[4] cpu"),
    "40 axes": (
        *(lambda: np.zeros((1,) * 40), "float64", (1,) * 40, (1,) * 40, 8),
        f"f64[{','.join('1' * 40)}] cpu strides({','.join('1' * 40)})",
    ),
    "complex": (
        *(lambda: np.zeros(3, np.complex64), "complex64", (3,), (1,), 24),
        "c64[3] cpu strides(1)",
    ),
    "half complex": (
        *(lambda: torch.zeros(3, dtype=torch.complex32), "complex32", (3,), (1,), 12),
        "c32[3] cpu strides(1)",
    ),
    "bfloat16": (
        *(lambda: torch.zeros(3, dtype=torch.bfloat16), "bfloat16", (3,), (1,), 6),
        "bf16[3] cpu strides(1)",
    ),
    "conj bit": (
        *(lambda: torch.zeros(3, dtype=torch.cfloat).conj(), "complex64", (3,), (1,), 24),
        "c64[3] cpu strides(1)",
    ),
    "neg bit": (
        *(lambda: torch._neg_view(torch.zeros(3)), "float32", (3,), (1,), 12),
        "f32[3] cpu strides(1)",
    ),
    "quantized": (
        *(lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8), "quint8"),
        *((3,), (1,), 3, "quint8[3] cpu strides(1)"),
    ),
    "structures": (
        *(lambda: (Pair * 3)(), "format 'T{<i:a:<d:b:}'", (3,), (1,), 48),
        "format 'T{<i:a:<d:b:}'[3] cpu strides(1)",
    ),
    "structures of numpy": (
        *(lambda: memoryview(packed())[::2], "format 'T{B:a:=f:b:}'", (2,), (2,), 10),
        "format 'T{B:a:=f:b:}'[2] cpu strides(2)",
    ),
    "pointers": (
        *(lambda: (ctypes.c_void_p * 2)(), "format '<P'", (2,), (1,), 16),
        "format '<P'[2] cpu strides(1)",
    ),
    "rows of ctypes": (
        *(lambda: (ctypes.c_float * 3 * 2)(), "float32", (2, 3), (3, 1), 24),
        "f32[2,3] cpu strides(3,1)",
    ),
}


@pytest.mark.parametrize("name", OUTLINES)
def test_outlines(name):
    make, dtype, shape, strides, nbytes, outline = OUTLINES[name]
    lender = make()
    with share(lender) as handle:
        assert (handle.dtype, handle.shape, handle.strides) == (dtype, shape, strides)
        assert handle.nbytes == nbytes
        kind = f"{type(lender).__module__}.{type(lender).__qualname__}".removeprefix("builtins.")
        assert repr(handle) == (
            f"<handle {handle.state} {outline} of {kind}, made at {handle.place}>"
        )


def test_jax_and_pyarrow(kinds):
    jnp, pa = pytest.importorskip("jax.numpy"), pytest.importorskip("pyarrow")
    numbers = np.array(VALUES, dtype=np.float32)
    for lender, state in (
        (jnp.array(numbers), "borrowed_immutable"),
        (pa.array(numbers), "borrowed_immutable"),
        (pa.array([9.0, *VALUES], type=pa.float32())[1:], "borrowed_immutable"),
        (memoryview(pa.py_buffer(BYTES)).cast("f"), "borrowed_immutable"),
        (pa.Tensor.from_numpy(numbers), "borrowed"),
    ):
        with share(lender) as handle:
            assert (handle.state, handle.dtype, handle.shape) == (state, "float32", (4,))
            assert handle.address == np.from_dlpack(handle).ctypes.data
            assert kinds.total_float32(handle) == 10.0
    with share(jnp.arange(3, dtype=jnp.bfloat16)) as handle:
        assert (handle.dtype, kinds.first(handle)) == ("bfloat16", 0.0)
    with share(pa.allocate_buffer(8)) as handle:
        assert (handle.state, handle.dtype) == ("borrowed", "int8")
    with share(pa.py_buffer(b"abcd")) as handle:
        assert (handle.state, handle.nbytes) == ("borrowed_immutable", 4)


# --- what lends nothing -------------------------------------------------------------------------


class Device:
    """As a tensor of another device: only its device may be asked for."""

    def __init__(self, device):
        self.device = device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **_):
        raise AssertionError("its memory was asked for")

    @property
    def __cuda_array_interface__(self):
        raise AssertionError("its pointer was read")


class Broken:
    """A producer that fails in its own way."""

    def __init__(self, error):
        self.error = error

    def __dlpack__(self, **_):
        raise self.error


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.zeros(3)


def zombie_tensor():
    x = torch.from_numpy(np.arange(3, dtype=np.float32))
    with pytest.raises(RuntimeError, match="not resizable"):
        x.resize_(10)
    return x


def emptied():
    x = torch.ones(3)
    x.untyped_storage().resize_(0)
    return x


def bfloat16_of_numpy():
    return np.zeros(4, pytest.importorskip("ml_dtypes").bfloat16)


NO_TENSOR = (
    "share: wanted a tensor (torch, NumPy, or any object with the buffer protocol or __dlpack__), "
    "given "
)
CARRIED = "share: wanted a dtype that the buffer protocol or DLPack carries, given "
LENDS_NOTHING = {
    "None": (lambda: None, DTypeError, NO_TENSOR + "builtins.NoneType"),
    "number": (lambda: 3, DTypeError, NO_TENSOR + "builtins.int"),
    "text": (lambda: "abc", DTypeError, NO_TENSOR + "builtins.str"),
    "list": (lambda: [1.0], DTypeError, NO_TENSOR + "builtins.list"),
    "released memoryview": (
        lambda: [view := memoryview(b"a"), view.release()][0],
        DTypeError,
        NO_TENSOR + "builtins.memoryview",
    ),
    "bfloat16 of numpy": (bfloat16_of_numpy, DTypeError, CARRIED + "bfloat16"),
    "structures": (packed, DTypeError, CARRIED + "[('a', 'u1'), ('b', '<f4')]"),
    "objects": (lambda: np.array([None]), DTypeError, CARRIED + "object"),
    "dates": (lambda: np.zeros(1, "M8[s]"), DTypeError, CARRIED + "datetime64[s]"),
    "CUDA": (
        lambda: Device((2, 0)),
        DeviceError,
        "share: wanted CPU memory, given DLPack device type 2; move it to the CPU first",
    ),
    "Metal": (
        lambda: Device((8, 0)),
        DeviceError,
        "share: wanted CPU memory, given DLPack device type 8; move it to the CPU first",
    ),
    "a CUDA capsule": (
        lambda: Producer([1], (1,), device=(2, 0)).capsule(),
        DeviceError,
        "share: wanted CPU memory, given DLPack device type 2",
    ),
    "producer that fails": (
        lambda: Broken(RuntimeError("on purpose\nand more")),
        NoDataError,
        "share: wanted memory through DLPack, given a refusal: on purpose",
    ),
    "producer that finds a wrong type": (
        lambda: Broken(TypeError("no such dtype")),
        NoDataError,
        "share: wanted memory through DLPack, given a refusal: no such dtype",
    ),
    "sparse": (
        lambda: torch.zeros(2, 2).to_sparse(),
        LayoutError,
        "share: x: wanted a strided tensor, given f32[2,2] cpu sparse_coo; write x.to_dense()",
    ),
    "nested": (
        lambda: torch.nested.nested_tensor([torch.zeros(2)]),
        LayoutError,
        "share: x: wanted a strided tensor, given f32 nested; write x.to_dense()",
    ),
    "mkldnn": (
        lambda: torch.zeros(3).to_mkldnn(),
        LayoutError,
        "share: x: wanted a strided tensor, given f32[3] cpu _mkldnn; write x.to_dense()",
    ),
    "meta": (
        lambda: torch.zeros(3, device="meta"),
        DeviceError,
        "share: x: wanted cpu, given f32[3] meta strides(1); a meta tensor has no data; share real "
        "tensors",
    ),
    "fake": (
        fake,
        NoDataError,
        "share: x: wanted a tensor with memory of its own, given f32[3] cpu strides(1) "
        "(FakeTensor); share it outside of tracing and compiled code",
    ),
    "without a shape": (
        lambda: torch.nn.LazyLinear(3).weight,
        NoDataError,
        "share: x: wanted a tensor with memory of its own, given f32 (UninitializedParameter); "
        "share it outside of tracing and compiled code",
    ),
    "zeros without memory": (
        lambda: torch._efficientzerotensor(3),
        NoDataError,
        "share: x: wanted a tensor with memory of its own, given f32[3] cpu strides(1) without; "
        "share it outside of function transforms",
    ),
    "a failed resize": (
        zombie_tensor,
        NoDataError,
        "share: x: wanted 40 bytes for its shape and strides, given f32[10] cpu strides(1) with a "
        "storage of 12 bytes",
    ),
    "an emptied storage": (
        emptied,
        NoDataError,
        "share: x: wanted 12 bytes for its shape and strides, given f32[3] cpu strides(1) with a "
        "storage of 0 bytes",
    ),
    "an interface without address": (
        lambda: types.SimpleNamespace(__array_interface__={"typestr": "<f4", "shape": (1,)}),
        NoDataError,
        "share: wanted an address in __array_interface__, given none",
    ),
}


@pytest.mark.parametrize("name", LENDS_NOTHING)
def test_what_lends_nothing(refused, name):
    make, error, text = LENDS_NOTHING[name]
    lender, before = make(), live_handles()
    assert refused(error, share, lender) == text
    assert live_handles() == before


@pytest.mark.parametrize("transform", ["vmap", "grad", "functionalize"])
def test_function_transforms(refused, transform):
    def seen(x):
        text = refused(NoDataError, share, x)
        assert text.startswith("share: x: wanted ") and "given f32[3] cpu strides(1)" in text
        return x.sum()

    x = torch.ones(2, 3) if transform == "vmap" else torch.ones(3)
    getattr(torch.func, transform)(seen)(x)


@pytest.mark.parametrize(("mode", "shown"), [("rent", "'rent'"), ("", "''"), (1, "1")])
@pytest.mark.parametrize("lender", [torch.ones(1), b"a", np.ones(1)], ids=["torch", "bytes", "np"])
def test_modes_that_there_are_not(refused, lender, mode, shown):
    assert refused(ArgumentError, share, lender, mode) == (
        f"share: mode: wanted None, 'owned', 'borrowed' or 'borrowed_immutable', given {shown}"
    )


def test_a_handle_is_made_by_share_alone(refused):
    text = "Handle: wanted torchmojo.share(x), which makes one"
    assert refused(TypeError, torchmojo.Handle) == text
    assert refused(TypeError, torchmojo.Handle.__new__, torchmojo.Handle) == text
    with share(bytearray(4)) as handle:
        # A copy would give back the export that this handle still uses.
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
            assert refused(TypeError, duplicate, handle) == (
                "Handle: wanted torchmojo.share(handle), which makes a second one, given a copy or "
                f"pickle of {handle!r}"
            )
        assert not handle.released


# --- exports are held ---------------------------------------------------------------------------


def test_a_bytearray_keeps_its_size():
    lender = bytearray(4)
    with share(lender):
        with pytest.raises(BufferError):
            lender.append(0)
    lender.append(0)


def test_an_array_keeps_its_size():
    lender = array.array("f", VALUES)
    handle = share(lender)
    with pytest.raises(BufferError):
        lender.extend(VALUES)
    del handle  # nobody released it, which does the same
    lender.extend(VALUES)


@pytest.mark.parametrize(
    ("access", "state"),
    [
        (mmap.ACCESS_READ, "borrowed_immutable"),
        (mmap.ACCESS_WRITE, "borrowed"),
        (mmap.ACCESS_COPY, "borrowed"),
    ],
)
def test_a_map_stays_open(kinds, tmp_path, access, state):
    file = tmp_path / "numbers"
    file.write_bytes(BYTES)
    with file.open("r+b") as opened:
        page = mmap.mmap(opened.fileno(), 0, access=access)
    with share(page) as handle:
        assert (handle.state, handle.shape) == (state, (16,))
        assert handle.address == address_of(page)
        for end in (page.close, lambda: page.resize(4096)):
            with pytest.raises((BufferError, TypeError)):
                end()
        assert kinds.tail_uint8(handle, 16) == sum(BYTES)
    page.close()
    assert file.read_bytes() == BYTES


def test_a_copying_map_keeps_writes_to_itself(kinds, tmp_path):
    file = tmp_path / "numbers"
    file.write_bytes(BYTES)
    with file.open("r+b") as opened:
        page = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)
    view = memoryview(page).cast("f")
    with share(view) as handle:
        kinds.scale(handle, 2.0)
    assert view.tolist() == [2.0, 4.0, 6.0, 8.0] and file.read_bytes() == BYTES
    view.release()
    page.close()


def test_shared_memory_stays_open(kinds):
    memory = shared_memory.SharedMemory(create=True, size=64)
    try:
        with share(memory.buf) as handle:
            with pytest.raises(BufferError):
                memory.close()
            kinds.tail_uint8(handle, 64)
        memory.close()
    finally:
        memory.unlink()


def test_a_memoryview_is_not_released():
    view = memoryview(bytearray(4))
    with share(view):
        with pytest.raises(BufferError):
            view.release()
    view.release()


def test_an_array_of_numpy_keeps_its_size():
    lender = np.zeros(4, dtype=np.float32)
    with share(lender):
        with pytest.raises(ValueError, match="cannot resize"):
            lender.resize(9)
    lender.resize(9)


def test_a_handle_keeps_its_lender():
    lender = torch.zeros(4)
    ref, handle = weakref.ref(lender), share(lender)
    del lender
    gc.collect()
    assert handle.lender is ref() is not None
    handle.release()
    assert ref() is None


def test_an_error_that_is_kept_keeps_no_export(refused, kinds):
    """A caught error may live long, as the last one of a notebook does."""
    lender = bytearray(4)
    with share(lender) as handle, pytest.raises(DTypeError) as caught:
        kinds.scale(handle, 2.0)
    lender.append(0)
    producer = Producer(VALUES, (2, 2), strides=(1, 2))
    handle = share(producer.capsule())
    with pytest.raises(torchmojo.ShapeError) as caught_too:
        kinds.scale(handle, 2.0)
    handle.release()
    assert producer.deletes() == [1]
    assert caught.value.__traceback__ is not None is not caught_too.value.__traceback__


# --- lenders that move --------------------------------------------------------------------------


def transpose(x):
    x.t_()


def shrink(x):
    x.resize_(1, 2)


def grow(x):
    x.resize_(100, 100)


def replace_data(x):
    x.set_(torch.zeros(2, 3))


def put_data(x):
    x.data = torch.zeros(2, 3)


def change_dtype(x):
    x.data = x.data.view(torch.int32)


def stretch(x):
    x.as_strided_((2, 3), (1, 2))


def free(x):
    x.untyped_storage().resize_(0)


def enlarge(x):
    x.untyped_storage().resize_(10**6)


MOVES = [transpose, shrink, grow, replace_data, put_data, change_dtype, stretch, free, enlarge]


@pytest.mark.parametrize("mode", [None, "borrowed_immutable", "owned"])
@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.__name__)
def test_a_tensor_that_moves(views, refused, move, mode):
    lender = torch.zeros(2, 3)
    uses = {
        "address": lambda: handle.address,
        "describe: x": lambda: views.describe(handle),
        "list_ranks: xs[1]": lambda: views.list_ranks([torch.zeros(1, 1), handle]),
        "__dlpack__": lambda: handle.__dlpack__(max_version=(1, 0)),
        "share": lambda: share(handle),
    }
    with share(lender, mode) as handle:
        for use in uses.values():
            use()
        move(lender)
        for what, use in uses.items():
            if move is change_dtype and "describe" in what + "list_ranks":
                continue  # glue reads the tensor as it is now, which is safe
            text = refused(NoDataError, use)
            if move is free:
                assert text == (
                    f"{what}: x: wanted 24 bytes for its shape and strides, given f32[2,3] cpu "
                    "strides(3,1) with a storage of 0 bytes"
                )
            else:
                assert text.startswith(
                    f"{what}: wanted the memory that was shared, f32[2,3] cpu strides(3,1), given "
                    "a lender that has moved or changed since, "
                )
                assert text.endswith("; share it again")
        assert (handle.shape, handle.strides, handle.nbytes) == ((2, 3), (3, 1), 24)


def test_what_moves_and_comes_back(kinds):
    lender = torch.zeros(4, 4)
    with share(lender) as handle:
        lender.t_()
        with pytest.raises(NoDataError):
            _ = handle.address
        lender.t_()
        assert handle.address == lender.data_ptr()


def moved(lender):
    lender.resize(10**6, refcheck=False)
    return lender


def own_array(dtype, kind=np.ndarray):
    lender = kind((4,), dtype=dtype)
    lender[...] = VALUES
    return lender


@pytest.mark.parametrize("mode", [None, "borrowed_immutable", "owned"])
@pytest.mark.parametrize(
    ("kind", "dtype", "order"),
    [(np.ndarray, "<f4", ""), (Array, "<f4", ""), (np.ndarray, ">f4", " big-endian")],
    ids=["numpy", "subclass", "big-endian"],
)
@pytest.mark.copying
def test_an_array_that_moves(kinds, refused, kind, dtype, order, mode):
    """`resize(refcheck=False)` frees the memory in spite of the export."""
    if mode == "owned" and order:
        pytest.skip("DLPack has no byte order")
    lender = own_array(dtype, kind)
    with torchmojo.fallback("copy"), share(lender, mode) as handle:
        assert kinds.total_float32(handle) == 10.0
        moved(lender)
        for what, use in (
            ("address", lambda: handle.address),
            ("total_float32: x", lambda: kinds.total_float32(handle)),
            ("__dlpack__", lambda: handle.__dlpack__(copy=True)),
        ):
            assert refused(NoDataError, use) == (
                f"{what}: wanted the memory that was shared, f32[4] cpu strides(1), given a lender "
                f"that has moved or changed since, f32[1000000] cpu strides(1){order}; share it "
                "again"
            )


def test_an_array_that_is_frozen_later(kinds, refused):
    lender = np.array(VALUES, dtype=np.float32)
    with share(lender) as handle:
        kinds.scale(handle, 2.0)
        lender.flags.writeable = False
        refused(ReadOnlyError, kinds.scale, handle, 2.0)
        assert kinds.total_float32(handle) == 20.0


def test_a_lazy_clone_is_not_moved_by_its_own_handle(kinds):
    base = tensor()
    lender = torch._lazy_clone(base)
    with share(lender) as handle:
        assert handle.address == torch._C._data_address(lender)
        kinds.scale(handle, 2.0)
        kinds.scale(handle, 2.0)
        assert base.tolist() == VALUES and lender.tolist() == [4.0, 8.0, 12.0, 16.0]


def test_a_lazy_clone_that_is_only_read_stays_one(kinds):
    base = tensor()
    lender = torch._lazy_clone(base)
    with share(lender, "borrowed_immutable") as handle:
        assert kinds.total_float32(handle) == 10.0
        assert handle.address == torch._C._data_address(base)
        exported = np.from_dlpack(handle)
        assert exported.ctypes.data == handle.address and not exported.flags.writeable
        assert torch._C._is_cow_tensor(lender)
        lender.zero_()
        assert exported.tolist() == VALUES
        with pytest.raises(NoDataError, match="has moved or changed since"):
            _ = handle.address


# --- release ------------------------------------------------------------------------------------


def test_release_once(refused):
    handle = share(bytearray(4))
    place = f"{__file__}:{sys._getframe().f_lineno - 1}"
    assert handle.place == place
    handle.release()
    assert handle.released and repr(handle) == f"<handle released, made at {place}>"
    assert refused(HandleError, handle.release) == (
        f"release: wanted an open handle, given one that was released already, made at {place}"
    )
    assert issubclass(HandleError, ValueError) and issubclass(HandleError, TorchmojoError)
    for name in ("state", "dtype", "shape", "strides", "device", "address", "nbytes", "lender"):
        assert refused(HandleError, getattr, handle, name) == (
            f"{name}: wanted an open handle, given one that was released, made at {place}"
        )
    for name, call in (
        ("__dlpack__", handle.__dlpack__),
        ("__dlpack_device__", handle.__dlpack_device__),
        ("with", handle.__enter__),
        ("share", lambda: share(handle)),
    ):
        assert refused(HandleError, call) == (
            f"{name}: wanted an open handle, given one that was released, made at {place}"
        )
    assert handle.place == place and handle.released


def test_a_with_releases(refused):
    lender = bytearray(4)
    with share(lender) as handle:
        assert not handle.released
        handle.release()
        assert handle.released
        lender.append(0)
    assert handle.released
    with pytest.raises(KeyError), share(lender) as handle:
        raise KeyError
    assert handle.released
    with share(lender) as handle, handle:  # a second `with` on the same handle ends it once
        pass
    lender.append(0)


def test_a_released_handle_is_no_argument(kinds, refused):
    handle = share(array.array("f", VALUES))
    handle.release()
    out = torch.zeros(4)
    for what, call in (
        ("total_float32: x", lambda: kinds.total_float32(handle)),
        ("scale: x", lambda: kinds.scale(handle, 2.0)),
        ("add: b", lambda: kinds.add(out, out, b=handle)),
        ("sum_list: xs[1]", lambda: kinds.sum_list(out, [out.clone(), handle])),
        ("pick_first: x", lambda: kinds.pick_first(handle)),
    ):
        assert refused(HandleError, call) == (
            f"{what}: wanted an open handle, given one that was released, made at {handle.place}"
        )


def test_a_handle_can_be_watched():
    handle = share(b"abc")
    ends = []
    ref = weakref.ref(handle, lambda _: ends.append(1))
    assert ref() is handle
    handle.release()
    assert ref() is handle and ends == []
    del handle
    assert ref() is None and ends == [1]


def test_place_is_the_caller_of_share():
    def here():
        return share(
            b"abc",
        )

    with here() as handle:
        assert handle.place == f"{__file__}:{here.__code__.co_firstlineno + 1}"
    code = compile("\n\nhandle = share(b'')", "<cell>", "exec")
    scope = {"share": share}
    exec(code, scope)
    assert scope["handle"].place == "<cell>:3"
    assert repr(scope["handle"]) == (
        "<handle borrowed_immutable u8[0] cpu strides(1) of bytes, made at <cell>:3>"
    )


def test_live_handles():
    before = live_handles()
    handles = [share(bytearray(i)) for i in range(5)]
    assert live_handles() == [*before, *handles]
    handles[1].release()
    again = share(b"new")
    del handles[2]
    assert live_handles() == [*before, handles[0], handles[2], handles[3], again]
    for handle in (*handles, again):
        if not handle.released:
            handle.release()
    assert live_handles() == before


def test_a_share_of_a_share(kinds):
    lender = bytearray(BYTES)
    view = memoryview(lender).cast("f")
    first = share(view)
    second = share(first)
    third = share(second, "borrowed_immutable")
    assert second.lender is third.lender is view
    assert first.address == second.address == third.address
    assert [h.state for h in (first, second, third)] == ["borrowed"] * 2 + ["borrowed_immutable"]
    assert len({first.place, second.place, third.place}) == 3
    first.release()
    kinds.scale(second, 2.0)
    second.release()
    with pytest.raises(BufferError):
        view.release()
    assert kinds.total_float32(third) == 20.0
    third.release()
    view.release()
    lender.append(0)


@pytest.mark.parametrize("kind", [bytearray, Array, Sub], ids=["bytearray", "numpy", "torch"])
def test_a_circle_is_collected(kind):
    """A lender that refers to its own handle holds the export that holds it."""

    class Lender(kind):
        pass

    if kind is bytearray:
        lender = Lender(8)
    elif kind is Array:
        lender = np.zeros(8).view(Lender)
    else:
        lender = torch.zeros(8).as_subclass(Lender)
    lender.handle = share(lender)
    lender.other = share(lender.handle)
    assert len(live_handles()) >= 2
    ref, before = weakref.ref(lender), len(live_handles())
    del lender
    gc.collect()
    assert ref() is None and len(live_handles()) == before - 2


# --- arguments of kernels -----------------------------------------------------------------------


def test_every_kind_of_argument(kinds):
    with share(tensor()) as a, share(array.array("f", VALUES)) as b, share(torch.zeros(4)) as out:
        kinds.add(out, a, b)
        assert out.lender.tolist() == [2.0, 4.0, 6.0, 8.0]
        kinds.add(b=b, dst=out, a=out, alpha=-1.0)
        assert out.lender.tolist() == VALUES
        assert kinds.sum_list(out, [a, b, np.zeros(4, np.float32), Producer(VALUES, (4,))]) == 4
        assert out.lender.tolist() == [3.0, 6.0, 9.0, 12.0]
        kinds.number_list((a, out), 5.0)
        assert a.lender.tolist() == [5.0] * 4 and out.lender.tolist() == [6.0] * 4
        assert kinds.pick_first(a) == "5.0" and kinds.pick_first(x=b) == "1.0"
        assert kinds.put_maybe(b, 7.0) is True and b.lender[3] == 7.0
        assert kinds.pick_first() == "nothing" and kinds.pick_first(None) == "nothing"


def test_a_handle_is_no_number(kinds, refused):
    with share(np.ones(1)) as handle:
        for call in (
            lambda: kinds.echo_float64(handle),
            lambda: kinds.list_int(handle),
            lambda: kinds.echo_string(handle),
        ):
            with pytest.raises(ArgumentError):
                call()


def test_checks_look_through_a_handle(kinds, views, refused):
    x = torch.arange(8.0)
    with share(x[:4]) as handle, share(x.to(torch.int64)) as numbers:
        assert refused(DTypeError, kinds.total_float32, numbers) == (
            "total_float32: x: wanted f32, given i64[8] cpu strides(1); "
            "write x.to(torch.float32), which copies"
        )
        with share(x.view(2, 4).t()) as turned:
            assert refused(LayoutError, views.row_major, turned) == (
                "row_major: x: wanted contiguous (row-major), given f32[4,2] cpu strides(1,4); "
                "write x.contiguous(), which copies"
            )
        kinds.add(handle, x[:4], x[4:])  # the very same view is allowed
        assert x[:4].tolist() == [4.0, 6.0, 8.0, 10.0]
        text = refused(AliasError, kinds.add, handle, x[1:5], x[4:])
        assert text == (
            "add: dst: wanted memory apart from a, or the very same view, given f32[4] cpu "
            "strides(1) over f32[4] cpu strides(1); write a.clone()"
        )
        with share(torch.zeros(1).expand(4)) as wide:
            with pytest.raises(AliasError):
                kinds.scale(wide, 2.0)
            assert kinds.total_float32(wide) == 0.0


def test_autograd_sees_writes_through_a_handle(kinds, refused):
    x = torch.ones(3, requires_grad=True)
    y = x * 1.0
    loss = (y * y).sum()
    with share(y) as handle, torch.no_grad():
        before = y._version
        kinds.scale(handle, 2.0)
        assert y._version == before + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with share(x) as leaf:
        assert leaf.state == "borrowed"
        refused(GradError, kinds.scale, leaf, 2.0)
        assert kinds.total_float32(leaf) == 3.0
        with torch.no_grad():
            kinds.scale(leaf, 2.0)
    assert x.tolist() == [2.0] * 3 and x.requires_grad


def test_lazy_bits_are_refused_or_copied(kinds, refused):
    with share(torch._neg_view(tensor())) as handle:
        text = refused(LayoutError, kinds.total_float32, handle)
        assert text.startswith(
            "total_float32: x: wanted values as they lie in memory, given f32[4]"
        )
        with torchmojo.fallback("copy"):
            assert kinds.total_float32(handle) == -10.0


def test_what_no_kernel_takes_as_it_lies(kinds, refused):
    """Foreign byte order and steps between elements, by handle as by the lender itself."""
    field = packed()["b"]
    field[:] = VALUES
    for lender, text in (
        (np.array(VALUES, dtype=">f4"), "wanted native byte order, given f32[4] cpu strides(1)"),
        (field, "wanted strides that are multiples of the element size, given f32[4] cpu steps(5)"),
    ):
        error = DTypeError if lender is not field else LayoutError
        with share(lender) as handle:
            assert refused(error, kinds.total_float32, handle).startswith(
                f"total_float32: x: {text}"
            )
            refused(error, kinds.scale, handle, 2.0)
            refused(error, kinds.sum_list, torch.zeros(4), [handle])
            with torchmojo.fallback("copy"):
                assert kinds.total_float32(handle) == 10.0
                kinds.scale(handle, 2.0)
            assert lender.tolist() == [2.0, 4.0, 6.0, 8.0]


def test_structures_reach_no_kernel(kinds, refused):
    with share((Pair * 3)()) as handle:
        assert refused(DTypeError, kinds.first, handle).startswith("first: x: wanted ")


def test_where_torch_is_unknown(kinds, refused):
    """The door to torch is shut: handles pass through Python, with the same checks and values."""
    with inject("door"):
        lender = tensor()
        with share(lender) as handle, share(lender, "borrowed_immutable") as frozen:
            kinds.scale(handle, 2.0)
            assert kinds.total_float32(frozen) == 20.0
            refused(ReadOnlyError, kinds.scale, frozen, 2.0)
            lender.resize_(2)
            with pytest.raises(NoDataError, match="has moved or changed since"):
                kinds.scale(handle, 2.0)


def test_explain_takes_a_handle(kinds):
    with share(np.zeros(4)) as handle:
        table = torchmojo.explain(handle, kinds.total_float32.x)
        assert not table.ok and "f64[4] cpu strides(1)" in repr(table)
    with share(np.zeros(4, np.float32)) as handle:
        assert torchmojo.explain(handle, kinds.total_float32.x).ok


def test_explain_uses_no_capsule_up(kinds):
    made = Producer(VALUES, (4,), version=(1, 0))
    capsule = made.capsule()
    assert torchmojo.explain(capsule, kinds.total_float32.x).ok
    assert not torchmojo.explain(capsule, kinds.total.x).ok
    assert made.deletes() == [0]
    assert kinds.total_float32(capsule) == 10.0
    assert made.deletes() == [1]
    used = torchmojo.explain(capsule, kinds.total_float32.x)
    assert not used.ok and used[0].found == "one named 'used_dltensor_versioned'"


# --- hand-overs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [None, (1, 0)], ids=["legacy", "versioned"])
@pytest.mark.parametrize("way", ["capsule", "mode", "both"])
def test_a_hand_over(kinds, producer, version, way):
    made = producer(VALUES, (4,), version=version)
    lender = made if way == "mode" else made.capsule()
    handle = share(lender) if way == "capsule" else share(lender, "owned")
    assert handle.state == "owned" and handle.lender is (made if way == "mode" else None)
    assert handle.address == address_of(made) and handle.nbytes == 16
    of = " of tests.bridge.conftest.Producer" if way == "mode" else ""
    assert repr(handle) == (
        f"<handle owned f32[4] cpu strides(1){of}, made at {handle.place}>"
    ).replace("tests.bridge.conftest", producer.__module__)
    kinds.scale(handle, 2.0)
    assert kinds.total_float32(handle) == 20.0
    assert made.deletes() == [0]
    handle.release()
    assert made.deletes() == [1]
    with pytest.raises(HandleError):
        handle.release()
    del lender
    gc.collect()
    assert made.deletes() == [1]


def test_a_hand_over_that_is_dropped(producer):
    made = producer(VALUES, (4,), version=(1, 0))
    handle = share(made.capsule())
    del handle
    assert made.deletes() == [1]


def test_a_second_holder_of_a_hand_over(producer, kinds):
    made = producer(VALUES, (4,))
    first = share(made.capsule())
    second, third = share(first), share(first, "borrowed")
    assert (second.state, third.state) == ("owned", "borrowed")
    export = np.from_dlpack(third)
    for handle in (first, second, third):
        handle.release()
        assert made.deletes() == [0]
    assert export.tolist() == VALUES
    del export
    assert made.deletes() == [1]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (1,), (1, 1), (2, 1), ()], ids=str)
def test_hand_overs_of_odd_shapes(views, shape):
    """NumPy tells strides that nobody walks in another way by DLPack than by a buffer."""
    lender = np.ones(shape, dtype=np.float32)
    with share(lender, "owned") as handle:
        assert (handle.shape, handle.address) == (shape, lender.ctypes.data)
        assert not shape or views.list_ranks([handle]) == lender.size
        assert np.from_dlpack(handle).tolist() == lender.tolist()


def test_only_an_owner_shares_ownership(refused):
    with share(bytearray(4)) as handle:
        assert refused(ArgumentError, share, handle, "owned") == (
            f"share: x: wanted an owner to share ownership with, given {handle!r}"
        )


def test_what_cannot_hand_over(refused):
    assert refused(ArgumentError, share, b"ab", "owned") == (
        "share: x: wanted a DLPack capsule or an object with __dlpack__ to own, given u8[2] cpu "
        'strides(1) read-only; share it as mode="borrowed"'
    )
    assert refused(NoDataError, share, torch.zeros(1, requires_grad=True), "owned") == (
        "share: wanted memory through DLPack, given a refusal: Can't export tensors that require "
        "gradient, use tensor.detach()"
    )


def test_a_read_only_hand_over(kinds, producer, refused):
    made = producer(VALUES, (4,), version=(1, 0), flags=1)
    with share(made.capsule()) as handle:
        assert handle.state == "owned"
        refused(ReadOnlyError, kinds.scale, handle, 2.0)
    assert made.deletes() == [1]


def test_without_a_deleter(kinds):
    made = Producer(VALUES, (4,))
    capsule = made.capsule()
    made.made[0][0].deleter = None
    with share(capsule) as handle:
        assert kinds.total_float32(handle) == 10.0
    assert made.deletes() == [0]


def test_no_elements_and_no_memory(producer, views):
    for version in (None, (1, 0)):
        made = producer([0], (0, 3), null_data=True, version=version)
        with share(made.capsule()) as handle:
            assert (handle.shape, handle.address, handle.nbytes) == ((0, 3), 0, 0)
            assert views.list_ranks([handle]) == 0
        assert made.deletes() == [1]


# --- capsules -----------------------------------------------------------------------------------


def test_a_capsule_is_used_once(kinds, refused):
    for version, used in ((None, "used_dltensor"), ((1, 0), "used_dltensor_versioned")):
        made = Producer(VALUES, (4,), version=version)
        capsule = made.capsule()
        assert kinds.total_float32(capsule) == 10.0
        assert made.deletes() == [1]
        assert refused(NoDataError, kinds.total_float32, capsule) == (
            f"total_float32: x: wanted an unused DLPack capsule, given one named {used!r}"
        )
        assert refused(NoDataError, share, capsule) == (
            f"share: wanted an unused DLPack capsule, given one named {used!r}"
        )
        del capsule
        assert made.deletes() == [1]


def test_a_capsule_used_by_torch(kinds, refused):
    capsule = tensor().__dlpack__()
    kept = torch.from_dlpack(capsule)
    assert refused(NoDataError, kinds.total_float32, capsule) == (
        "total_float32: x: wanted an unused DLPack capsule, given one named 'used_dltensor'"
    )
    assert kept.tolist() == VALUES


def test_capsules_in_every_place(kinds):
    made = [Producer(VALUES, (4,)) for _ in range(4)]
    capsules = [m.capsule() for m in made]
    out = torch.zeros(4)
    kinds.add(capsules[0], a=capsules[1], b=out)
    kinds.sum_list(out, [capsules[2], tensor(), capsules[3]])
    assert out.tolist() == [3.0, 6.0, 9.0, 12.0]
    assert [m.deletes() for m in made] == [[1]] * 4


def test_a_capsule_twice_in_one_call(kinds, refused):
    made = Producer(VALUES, (4,))
    capsule = made.capsule()
    assert refused(NoDataError, kinds.add, torch.zeros(4), capsule, capsule) == (
        "add: b: wanted an unused DLPack capsule, given one named 'used_dltensor'"
    )
    assert made.deletes() == [1]


def test_a_call_that_is_refused_uses_its_capsules(kinds):
    made = Producer([1, 2], (2,))
    with pytest.raises(torchmojo.ShapeError):
        kinds.add(torch.zeros(4), made.capsule(), tensor())
    assert made.deletes() == [1]


def test_a_capsule_that_nobody_took():
    made = Producer(VALUES, (4,), version=(1, 0))
    capsule = made.capsule()
    del capsule
    assert made.deletes() == [1]


def test_a_capsule_that_is_refused_stays_whole(refused):
    made = Producer(VALUES, (4,), device=(2, 0))
    capsule = made.capsule()
    refused(DeviceError, share, capsule)
    assert made.deletes() == [0]
    del capsule
    gc.collect()  # what was caught refers to the call
    assert made.deletes() == [1]


def test_other_capsules(kinds, refused):
    import datetime

    for what, call in (("share", share), ("total_float32: x", kinds.total_float32)):
        assert refused(NoDataError, call, datetime.datetime_CAPI) == (
            f"{what}: wanted an unused DLPack capsule, given one named 'datetime.datetime_CAPI'"
        )


# --- threads ------------------------------------------------------------------------------------


def test_handles_of_eight_threads(kinds):
    lender = torch.zeros(1000)
    data = bytearray(1000)

    def work(number):
        for i in range(300):
            with share(lender) as mine, share(data) as other, share(other) as third:
                made = Producer(VALUES, (4,))
                owned = share(made.capsule())
                kinds.total_float32(mine)
                kinds.tail_uint8(third, 10)
                if i % 2:
                    owned.release()
                del owned
                assert made.deletes() == [1]
                made.made.clear()
        return number

    before = live_handles()
    with ThreadPoolExecutor(8) as executor:
        assert list(executor.map(work, range(8))) == list(range(8))
    assert live_handles() == before
    data.append(0)


def test_one_handle_released_by_eight_threads(producer):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(50):
            made = producer(VALUES, (4,))
            handle, ends = share(made.capsule()), []
            gate = threading.Barrier(8)

            def work(handle=handle, ends=ends, gate=gate):
                gate.wait()
                try:
                    handle.release()
                    ends.append("released")
                except HandleError:
                    ends.append("refused")

            threads = [threading.Thread(target=work) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(ends) == ["refused"] * 7 + ["released"]
            assert made.deletes() == [1]
    finally:
        sys.setswitchinterval(interval)


def test_one_capsule_for_eight_threads(producer):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(50):
            made = producer(VALUES, (4,), version=(1, 0))
            capsule, taken = made.capsule(), []
            gate = threading.Barrier(8)

            def work(capsule=capsule, taken=taken, gate=gate):
                gate.wait()
                try:
                    taken.append(share(capsule))
                except NoDataError:
                    taken.append(None)

            threads = [threading.Thread(target=work) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            handles = [handle for handle in taken if handle is not None]
            assert len(taken) == 8 and len(handles) == 1
            assert made.deletes() == [0]
            handles[0].release()
            assert made.deletes() == [1]
    finally:
        sys.setswitchinterval(interval)


MEANWHILE = f"""
import sys, threading, time, weakref
sys.path.insert(0, {ROOT!r})
from tests.bridge.conftest import Producer, load
running = load("running")

def during(handle, look, *others):
    '''Run a kernel that writes the handle's memory after it was released; what a look sees.'''
    counter, seen = np.zeros(1, dtype=np.int64), []
    others = list(others)
    call = (bytearray(1), [handle, *others]) if handle.dtype == "float32" else (handle, others)
    thread = threading.Thread(target=running.hold, args=(*call, counter, 2, 60_000))
    thread.start()
    while counter[0] == 0:
        time.sleep(0.001)
    handle.release()
    seen.append(look())
    counter[0] += 1
    thread.join()
    return [*seen, look()]
"""


def test_a_handle_released_while_a_kernel_runs(run_child):
    """The call holds the memory, as it holds an argument: it goes back when the kernel is done."""
    code = (
        MEANWHILE
        + """
made = Producer([1, 2, 3, 4], (4,), version=(1, 0))
print(during(torchmojo.share(made.capsule()), made.deletes))
x = torch.zeros(1000)
alive = weakref.ref(x)
handle = torchmojo.share(x)
del x
print(during(handle, lambda: alive() is None))
data = bytearray(16)
def look():
    try:
        data.append(0)
    except BufferError:
        return "held"
    return "given back"
print(during(torchmojo.share(data), look), data[:16] == b"\\7" * 16)
made = Producer([1, 2, 3, 4], (4,))
print(during(torchmojo.share(made), made.deletes))
big = np.zeros(4, dtype=">f4")
with torchmojo.fallback("copy"):
    print(during(torchmojo.share(big), lambda: big.tolist()))
# An argument that glue does not read makes the call pass through Python, which holds the rest.
foreign = Producer([1, 2], (2,))
made = Producer([1, 2, 3, 4], (4,))
print(during(torchmojo.share(made.capsule()), made.deletes, foreign))
data = bytearray(16)
print(during(torchmojo.share(data), look, foreign), data[:16] == b"\\7" * 16)
made = Producer([1, 2, 3, 4, 5], (4,), byte_offset=1)  # misaligned: copied, and back at the end
with torchmojo.fallback("copy"):
    print(during(torchmojo.share(made.capsule()), made.deletes), made.buffer[1:5])
"""
    )
    assert run_child(code).splitlines() == [
        "[[0], [1]]",
        "[False, True]",
        "['held', 'given back'] True",
        "[[0], [1]]",
        "[[0.0, 0.0, 0.0, 0.0], [7.0, 7.0, 7.0, 7.0]]",
        "[[0], [1]]",
        "['held', 'given back'] True",
        "[[0], [1]] bytearray(b'\\x00\\x00\\xe0@')",
    ]


# --- fork and other interpreters ----------------------------------------------------------------

FORK = f"""
import os, signal, sys, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of Python: threads and fork
sys.path.insert(0, {ROOT!r})
from tests.bridge.conftest import Producer, load

def in_child(body):
    '''Run a function in a forked child; its exit status.'''
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            os._exit(0 if body() else 1)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def test_a_forked_child_runs_no_deleter_of_its_parent(run_child):
    """The memory may be shared with the parent, so giving it back is the parent's."""
    code = (
        FORK
        + """
import mmap, ctypes
page = mmap.mmap(-1, 4096)  # shared with children: what a deleter does there is seen here
count = ctypes.c_int.from_buffer(page)

@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def deleter(managed):
    count.value += 1

made = [Producer([1, 2, 3, 4], (4,), version=version) for version in (None, (1, 0))]
capsules = [m.capsule() for m in made]
for m in made:
    m.made[0][0].deleter = ctypes.cast(deleter, ctypes.c_void_p).value
handles = [torchmojo.share(capsule) for capsule in capsules]
again = torchmojo.share(handles[0])
exported = np.from_dlpack(handles[1])

def body():
    global exported
    for handle in (*handles, again):
        assert handle.address
        handle.release()
    del exported
    assert torchmojo.live_handles() == []
    own = Producer([1], (1,))
    torchmojo.share(own.capsule()).release()  # its own hand-over ends in the child
    return own.deletes() == [1]

print(in_child(body), count.value)
for handle in (*handles, again):
    handle.release()
del exported
print(count.value)
"""
    )
    assert run_child(code) == "0 0\n2\n"


@pytest.mark.parametrize("parallel", [False, True], ids=["idle", "after torch's threads"])
def test_a_forked_child_uses_kernels_and_handles(run_child, parallel):
    code = (
        FORK
        + f"""
kinds, threads = load("kinds"), load("threads")
torch.set_num_threads(2)
if {parallel}:
    torch.rand(10**6).exp_().sum()
    threads.fill_parallel(torch.zeros(100_000, dtype=torch.int64), 1)
x, data = torch.arange(4.0), bytearray(8)
before = torchmojo.share(x), torchmojo.share(data)
exported = np.from_dlpack(before[1])

def body():
    kinds.scale(before[0], 2.0)
    assert x.tolist() == [0, 2, 4, 6]
    assert exported.sum() == 0
    with torchmojo.share(np.arange(3, dtype=np.float32)) as mine:
        assert kinds.total_float32(mine) == 3.0
        other = np.from_dlpack(mine)
    assert other.tolist() == [0, 1, 2]
    with torchmojo.fallback("copy"):
        assert kinds.total_float32(np.arange(3, dtype=">f4")) == 3.0
    for handle in before:
        handle.release()
    return torchmojo.live_handles() == []

print(in_child(body), in_child(body), x.tolist(), len(torchmojo.live_handles()))
"""
    )
    assert run_child(code) == "0 0 [0.0, 1.0, 2.0, 3.0] 2\n"


LOOPS = """
kinds, threads = load("kinds"), load("threads")
torch.set_num_threads(2)
dst = torch.zeros(100_000, dtype=torch.int64)
threads.fill_parallel(dst, 1)
big = np.arange(10**6, dtype=">f4")

def loop():
    dst.numpy()[:] = 0
    threads.fill_parallel(dst, 1)
    return bool((dst.numpy() == np.arange(100_000)).all())

def copy():
    with torchmojo.fallback("copy"):
        return kinds.total_float32(big) == float(np.arange(10**6).sum())
"""


def test_a_forked_child_loops_on_one_thread(run_child):
    """What the guide advises, since torch's threads are not there after a fork."""
    code = (
        FORK
        + LOOPS
        + """
def body():
    torch.set_num_threads(1)
    return loop() and copy()

print(in_child(body))
"""
    )
    assert run_child(code) == "0\n"


def test_a_forked_child_copies(run_child):
    """A copy is nobody's loop: nothing says that it may wait for threads that are not there."""
    assert run_child(FORK + LOOPS + "print(in_child(copy))") == "0\n"


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_of_a_data_loader(tmp_path, run_child, start):
    """Kernels are made at the top of a module, as a dataset's are."""
    module = tmp_path / "loader_of_numbers.py"
    module.write_text(
        "import warnings\n"
        "import numpy as np\n"
        "import torch\n"
        "import torchmojo\n"
        f"kernels = torchmojo.load({str(Path(__file__).parent / 'kernels' / 'kinds.mojo')!r})\n"
        "class Numbers(torch.utils.data.Dataset):\n"
        "    def __init__(self):\n"
        "        self.kernel = kernels.scale\n"
        "        self.bytes = np.arange(16, dtype=np.float32)\n"
        "    def __len__(self):\n"
        "        return 8\n"
        "    def __getitem__(self, i):\n"
        "        item = torch.full((4,), float(i))\n"
        "        with torchmojo.share(item) as handle:\n"
        "            self.kernel(handle, 3.0)\n"
        "        with torchmojo.share(self.bytes) as handle:\n"
        "            assert kernels.total_float32(torch.from_dlpack(handle)) == 120.0\n"
        "        assert torchmojo.live_handles() == []\n"
        "        return item\n"
    )
    code = f"""
    import sys, warnings
    warnings.simplefilter("ignore")
    sys.path.insert(0, {str(tmp_path)!r})
    from loader_of_numbers import Numbers, kernels
    kernels.scale(torch.ones(4), 2.0)
    torch.rand(10**6).exp_().sum()
    loader = torch.utils.data.DataLoader(
        Numbers(), batch_size=2, num_workers=2, multiprocessing_context={start!r}, timeout=100
    )
    print([batch[:, 0].tolist() for batch in loader])
    """
    assert run_child(code) == "[[0.0, 3.0], [6.0, 9.0], [12.0, 15.0], [18.0, 21.0]]\n"


def test_a_python_without_the_gil(monkeypatch):
    """Whether a build is free-threaded is asked before anything of its is read."""
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with pytest.raises(RuntimeError) as caught:
        load("kinds")
    assert str(caught.value) == (
        "load: wanted a Python with the GIL, given a free-threaded one; its objects are laid out "
        "in another way, which torchmojo does not support yet"
    )
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
    assert load("kinds").echo_int(3) == 3


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the module has another name from 3.13 on")
def test_a_sub_interpreter(run_child):
    """Handles and kernels work; exports, whose deleters could not take the GIL, are refused."""
    inner = f"""
import array, torchmojo
numbers = array.array("f", [1, 2, 3])
kernels = torchmojo.load({str(Path(__file__).parent / "kernels" / "kinds.mojo")!r})
with torchmojo.share(numbers) as handle:
    kernels.scale(handle, 2.0)
    try:
        handle.__dlpack__()
    except BufferError as error:
        print(error)
numbers.append(7)
print(numbers.tolist())
"""
    code = f"""
    import _xxsubinterpreters
    number = _xxsubinterpreters.create()
    _xxsubinterpreters.run_string(number, {inner!r})
    """
    assert run_child(code, bare=True).splitlines() == [
        "__dlpack__: wanted the main interpreter, given a sub-interpreter, in which deleters "
        "cannot take the GIL; ask for it there",
        "[2.0, 4.0, 6.0, 7.0]",
    ]


# --- the end of the process ---------------------------------------------------------------------


def test_handles_at_the_end_of_the_process(run_child):
    """Whoever holds a handle or its memory last, nothing is printed and nothing crashes."""
    code = """
    import builtins, os, sys
    os.dup2(1, 2)  # what is printed while the interpreter ends would show here
    kept = torchmojo.share(bytearray(64))
    builtins.handle = torchmojo.share(np.zeros(3))
    builtins.owned = torchmojo.share(np.zeros(3).__dlpack__())
    builtins.tensor = torchmojo.share(torch.zeros(3))
    builtins.torch_export = torch.from_dlpack(torchmojo.share(bytearray(64)))
    builtins.numpy_export = np.from_dlpack(torchmojo.share(bytearray(64)))
    capsule = torchmojo.share(bytearray(64)).__dlpack__(max_version=(1, 0))
    class Circle(bytearray):
        pass
    circle = Circle(8)
    circle.handle = torchmojo.share(circle)
    print("end")
    """
    assert run_child(code, PYTHONMALLOC="debug") == "end\n"


# --- a million ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_million_handles(run_child):
    code = """
    import gc, sys
    from pathlib import Path
    from torchmojo.bridge.share.leak import tally

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    x, data, a = torch.zeros(4), bytearray(16), np.zeros(4, dtype=np.float32)

    def some(count):
        for i in range(count):
            torchmojo.share(x).release()
            torchmojo.share(data).release()
            with torchmojo.share(a) as handle, torchmojo.share(handle, "borrowed_immutable"):
                pass
            torchmojo.share(a.__dlpack__())
            if i % 8 == 0:
                np.from_dlpack(torchmojo.share(data))
    some(5_000)
    gc.collect()
    before, counts = resident(), tuple(map(sys.getrefcount, (x, data, a)))
    some(200_000)
    gc.collect()
    held = tally()
    assert (held.handles, held.leases, held.buffers, held.exports) == (0, 0, 0, 0), held
    assert tuple(map(sys.getrefcount, (x, data, a))) == counts
    print(resident() - before)
    """
    assert int(run_child(code, timeout=800)) < 8 * 2**20
