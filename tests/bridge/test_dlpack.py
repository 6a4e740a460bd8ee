"""DLPack out of handles: what consumers are told, how long it lasts, and who frees it."""

import array
import ctypes
import gc
import sys
import threading
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import torchmojo
from torchmojo import CopyError, CopyWarning, ExportError, NoDataError, copies, share
from torchmojo.bridge import core
from torchmojo.testing import inject

from .conftest import Producer, _Plain, _Versioned

VALUES = [1.0, 2.0, 3.0, 4.0]
READ_ONLY, IS_COPIED = 1, 2
_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi)
)
USED = {b"dltensor": b"used_dltensor", b"dltensor_versioned": b"used_dltensor_versioned"}


@pytest.fixture(autouse=True, scope="module")
def compiled():
    """Have the native core ready, so that its first use is not a part of any test."""
    try:
        core.memory()
    except torchmojo.CompilerNotFoundError as error:
        pytest.skip(str(error))


def read(capsule):
    """Read a capsule's managed tensor as C code would; it stays where it is."""
    name = _name(capsule)
    kind = _Versioned if name == b"dltensor_versioned" else _Plain
    return kind.from_address(_pointer(capsule, name))


def described(capsule):
    tensor = read(capsule).tensor
    count = tensor.ndim
    return {
        "data": tensor.data,
        "device": (tensor.device_type, tensor.device_id),
        "dtype": (tensor.code, tensor.bits, tensor.lanes),
        "shape": tuple(tensor.shape[i] for i in range(count)),
        "strides": tuple(tensor.strides[i] for i in range(count)),
        "byte_offset": tensor.byte_offset,
    }


def take(capsule):
    """Take a capsule's managed tensor as C++ consumers do; its address and its deleter."""
    managed, name = read(capsule), _name(capsule)
    _rename(capsule, USED[name])
    return ctypes.addressof(managed), managed.deleter


def delete_off_gil(address, deleter):
    """Call a deleter on a thread that does not hold the GIL."""
    thread = threading.Thread(
        target=ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter), args=(address,)
    )
    thread.start()
    thread.join()


LENT = {
    "numpy": (lambda: np.array(VALUES, dtype=np.float32), (2, 32, 1), (4,), (1,)),
    "numpy steps": (lambda: np.zeros((4, 6))[::2, 1::3], (2, 64, 1), (2, 2), (12, 3)),
    "0 axes": (lambda: np.array(7, dtype=np.int16), (0, 16, 1), (), ()),
    "complex": (lambda: np.zeros(2, dtype=np.complex64), (5, 64, 1), (2,), (1,)),
    "bool": (lambda: np.zeros(2, dtype=bool), (6, 8, 1), (2,), (1,)),
    "array": (lambda: array.array("Q", [1, 2]), (1, 64, 1), (2,), (1,)),
    "bytearray": (lambda: bytearray(3), (1, 8, 1), (3,), (1,)),
    "memoryview": (lambda: memoryview(array.array("f", VALUES))[::2], (2, 32, 1), (2,), (2,)),
    "dlpack": (lambda: Producer([0, *VALUES], (2, 2), byte_offset=4), (2, 32, 1), (2, 2), (2, 1)),
    "torch": (lambda: torch.zeros(2, 3).t(), (2, 32, 1), (3, 2), (1, 3)),
    "torch slice": (lambda: torch.arange(10)[3:8:2], (0, 64, 1), (3,), (2,)),
    "torch bfloat16": (lambda: torch.zeros(2, dtype=torch.bfloat16), (4, 16, 1), (2,), (1,)),
    "torch float8": (lambda: torch.zeros(2, dtype=torch.float8_e5m2), (12, 8, 1), (2,), (1,)),
    "torch expanded": (lambda: torch.zeros(1, 3).expand(5, 3), (2, 32, 1), (5, 3), (0, 1)),
    "torch 0 axes": (lambda: torch.tensor(1.5), (2, 32, 1), (), ()),
    "parameter": (lambda: torch.nn.Parameter(torch.zeros(2)), (2, 32, 1), (2,), (1,)),
}


@pytest.mark.parametrize("max_version", [None, (0, 8), (1, 0), (1, 99), (2, 0), [1, 0]], ids=str)
@pytest.mark.parametrize("name", LENT)
def test_what_is_lent(name, max_version):
    make, dtype, shape, strides = LENT[name]
    with share(make()) as handle:
        capsule = handle.__dlpack__(max_version=max_version)
        newest = max_version is not None and max_version[0] >= 1
        assert _name(capsule) == (b"dltensor_versioned" if newest else b"dltensor")
        told = described(capsule)
        assert told["data"] + told["byte_offset"] == handle.address
        assert (told["device"], told["dtype"]) == ((1, 0), dtype)
        assert (told["shape"], told["strides"]) == (shape, strides)
        if newest:
            # torch tells its own minor version; ours is what the form asks for
            assert read(capsule).major == 1 and read(capsule).flags == 0


@pytest.mark.parametrize("name", LENT)
def test_an_immutable_handle_says_so(name, refused):
    with share(LENT[name][0](), "borrowed_immutable") as handle:
        assert read(handle.__dlpack__(max_version=(1, 0))).flags == READ_ONLY
        for version, shown in ((None, "None"), ((0, 5), "(0, 5)")):
            assert refused(ExportError, handle.__dlpack__, max_version=version) == (
                "__dlpack__: max_version: wanted (1, 0) or newer, which can say that memory is "
                f"read-only, given {shown} for {handle!r}; ask with copy=True"
            )
        assert _name(handle.__dlpack__(copy=True)) == b"dltensor"
    assert issubclass(ExportError, BufferError)


@pytest.mark.parametrize("name", LENT)
def test_a_copy_that_is_asked_for(name):
    lender = LENT[name][0]()
    with share(lender) as handle, share(lender, "borrowed_immutable") as frozen:
        for given in (handle, frozen):
            copies(reset=True)
            capsule = given.__dlpack__(max_version=(1, 0), copy=True)
            here = f"{__file__}:{sys._getframe().f_lineno - 1}"
            assert read(capsule).flags == IS_COPIED
            told = described(capsule)
            assert told["data"] != handle.address and told["shape"] == handle.shape
            (copied,) = copies(reset=True)
            assert (copied.place, copied.kernel, copied.argument) == (here, "__dlpack__", "x")
            assert (copied.reason, copied.count, copied.nbytes) == ("asked", 1, handle.nbytes)
        with torchmojo.no_copies(), pytest.raises(CopyError) as caught:
            handle.__dlpack__(copy=True)
        assert str(caught.value).startswith("__dlpack__: x: wanted no copy, given ")
        assert str(caught.value).endswith(": asked")
        assert read(handle.__dlpack__(max_version=(1, 0), copy=False)).flags == 0


def test_requests_that_cannot_be_met(refused):
    with share(bytearray(4)) as handle, share(torch.zeros(4)) as tensor:
        for given in (handle, tensor):
            for stream in (0, 1, 2, -1, "x"):
                assert refused(ExportError, given.__dlpack__, stream=stream) == (
                    "__dlpack__: stream: wanted None, as CPU memory has no stream, given "
                    f"{stream!r}"
                )
            for device in ((2, 0), (1, 1), (3, 0), (0, 0), [8, 0]):
                assert refused(ExportError, given.__dlpack__, dl_device=device) == (
                    f"__dlpack__: dl_device: wanted (1, 0), the CPU, given {device!r}; export it "
                    "and move it in the other library"
                )
            assert _name(given.__dlpack__(dl_device=(1, 0), stream=None)) == b"dltensor"
            for odd in ({"max_version": 1}, {"max_version": ()}, {"dl_device": 1}, {"what": 1}):
                with pytest.raises((TypeError, IndexError)):
                    given.__dlpack__(**odd)
            with pytest.raises(TypeError):
                given.__dlpack__(None)


# --- consumers ----------------------------------------------------------------------------------

CONSUMERS = {
    "numpy": np.from_dlpack,
    "numpy on a device": lambda x: np.from_dlpack(x, device="cpu"),
    "numpy without a copy": lambda x: np.from_dlpack(x, copy=False),
    "torch": torch.from_dlpack,
    "torch on a device": lambda x: torch.from_dlpack(x, device="cpu"),
    "torch without a copy": lambda x: torch.from_dlpack(x, copy=False),
    "torch by capsule": lambda x: torch.utils.dlpack.from_dlpack(x.__dlpack__()),
    "a handle": lambda x: np.from_dlpack(share(x)),
    "an owner": lambda x: np.from_dlpack(share(x.__dlpack__())),
}


def address_of(x):
    return x.data_ptr() if isinstance(x, torch.Tensor) else x.ctypes.data


@pytest.mark.parametrize("lender", ["torch slice", "numpy steps", "memoryview", "0 axes", "dlpack"])
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_consumers(consumer, lender):
    source = LENT[lender][0]()
    with share(source) as handle:
        got = CONSUMERS[consumer](handle)
        assert address_of(got) == handle.address
        assert tuple(got.shape) == handle.shape
        got[...] = 5
        assert np.from_dlpack(handle).tolist() == got.tolist()
        shown = "float32" if lender in ("memoryview", "dlpack") else handle.dtype
        assert str(got.dtype).removeprefix("torch.") == shown


@pytest.mark.parametrize("copy", [None, True])
def test_jax(copy):
    jax = pytest.importorskip("jax")
    source = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    with share(source) as handle:
        got = jax.dlpack.from_dlpack(handle, copy=copy)
        assert got.tolist() == source.tolist()
    source.zero_()
    del source, got
    gc.collect()


def test_pyarrow():
    pa = pytest.importorskip("pyarrow")
    if not hasattr(pa.Array, "from_dlpack"):
        pytest.skip("this pyarrow takes no DLPack")
    with share(bytearray(b"abcd"), "borrowed_immutable") as handle:
        got = pa.Array.from_dlpack(handle)
        assert got.to_pylist() == [97, 98, 99, 100]
        assert got.buffers()[1].address == handle.address


def test_numpy_keeps_read_only_memory_read_only():
    with share(b"abcd") as handle:
        got = np.from_dlpack(handle)
        assert not got.flags.writeable and bytes(got) == b"abcd"
        assert np.from_dlpack(handle, copy=True).flags.writeable


def test_tensors_that_require_grad():
    leaf = torch.tensor(VALUES, requires_grad=True)
    with share(leaf) as handle:
        got = torch.from_dlpack(handle)
        assert got.data_ptr() == leaf.data_ptr() and not got.requires_grad
        assert leaf.requires_grad and leaf.grad_fn is None
    with share((leaf * 2)[1:]) as handle:
        assert np.from_dlpack(handle).tolist() == [4.0, 6.0, 8.0]


def test_kernels_take_what_is_lent(kinds):
    with share(np.array(VALUES, dtype=np.float32)) as handle:
        capsule = handle.__dlpack__(max_version=(1, 0))
        kinds.scale(capsule, 2.0)
        assert kinds.total_float32(handle) == 20.0
        with pytest.raises(NoDataError, match="'used_dltensor_versioned'"):
            kinds.scale(capsule, 2.0)
        with share(handle.__dlpack__()) as owner:
            kinds.scale(owner, 2.0)
            assert owner.state == "owned" and owner.lender is None
        assert kinds.total_float32(handle) == 40.0
    frozen = np.frombuffer(np.array(VALUES, dtype=np.float32).tobytes(), dtype=np.float32)
    with share(frozen) as handle, share(handle.__dlpack__(max_version=(1, 0))) as owner:
        assert owner.address == handle.address and kinds.total_float32(owner) == 10.0
        with pytest.raises(torchmojo.ReadOnlyError):
            kinds.scale(owner, 2.0)


# --- no elements --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(0, 3),
        lambda: torch.zeros(5, 4)[5:, ::2],
        lambda: np.zeros((3, 0, 2), dtype=np.float32),
        lambda: Producer([0], (0, 3), null_data=True),
        lambda: array.array("f"),
        lambda: memoryview(b"")[::-1],
    ],
    ids=["torch", "torch slice", "numpy", "null", "array", "memoryview"],
)
def test_no_elements(make):
    with share(make()) as handle:
        for consumer in (np.from_dlpack, torch.from_dlpack):
            if handle.state == "borrowed_immutable" and consumer is torch.from_dlpack:
                continue
            assert tuple(consumer(handle).shape) == handle.shape
        assert np.from_dlpack(handle, copy=True).shape == handle.shape


def test_strides_that_nobody_walks(run_child):
    """A negative stride ends a process with torch 2.13, also where there is one element or none."""
    code = """
    for lender in (
        np.zeros((0, 3))[:, ::-1],
        np.zeros((0, 3))[::-1],
        np.arange(3.0).reshape(1, 3)[::-1],
        np.arange(3.0).reshape(3, 1)[:, ::-1],
        np.arange(3.0)[::-1][:1],
    ):
        with torchmojo.no_copies(), torchmojo.share(lender) as handle:
            got = torch.from_dlpack(handle)
            assert got.tolist() == lender.tolist() and tuple(got.shape) == lender.shape
            assert lender.size == 0 or got.data_ptr() == lender.ctypes.data
    print("lived")
    """
    assert run_child(code) == "lived\n"


# --- what cannot be lent as it lies -------------------------------------------------------------


def packed():
    field = np.zeros(4, dtype=[("a", "u1"), ("b", "<f4")])["b"]
    field[:] = VALUES
    return field


def misaligned():
    data = np.frombuffer(bytearray(17), dtype=np.uint8)[1:].view(np.float32)
    data[:] = VALUES
    return data


TURNED = {
    "negative stride": lambda: np.array(VALUES[::-1], dtype=np.float32)[::-1],
    "byte order": lambda: np.array(VALUES, dtype=">f4"),
    "step": packed,
    "alignment": misaligned,
    "neg bit": lambda: torch._neg_view(-torch.tensor(VALUES)),
    "conj bit": lambda: torch.tensor(VALUES, dtype=torch.cfloat).conj(),
}


@pytest.mark.parametrize("reason", TURNED)
@pytest.mark.copying
def test_a_copy_that_must_be(reason, refused):
    copies(reset=True)
    with share(TURNED[reason]()) as handle:
        for _ in range(3):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                made = [handle.__dlpack__(max_version=(1, 0)) for _ in range(2)]
                here = f"{__file__}:{sys._getframe().f_lineno - 1}"
            told = [(str(w.message), w.category, w.filename, w.lineno) for w in caught]
            if _ == 0:
                given = told[0][0].removeprefix("__dlpack__: x: copied on its way, given ")
                assert given != told[0][0] and given.endswith(f": {reason}")
                assert told == [(told[0][0], CopyWarning, __file__, int(here.split(":")[-1]))]
            else:
                assert told == []  # once a place
            assert all(read(capsule).flags == IS_COPIED for capsule in made)
            for capsule in made:
                assert share(capsule).address % 64 == 0
        (copied,) = copies(reset=True)
        assert (copied.place, copied.reason, copied.count) == (here, reason, 6)
        assert copied.nbytes == 6 * handle.nbytes
        with torchmojo.fallback("copy"):
            assert torch.from_dlpack(handle).tolist() == VALUES
            got = np.from_dlpack(handle)
            assert got.tolist() == VALUES and got.flags.writeable
            assert refused(ExportError, handle.__dlpack__, copy=False) == (
                f"__dlpack__: copy: wanted None or True, given False for {given}"
            )
            with torchmojo.no_copies():
                assert refused(CopyError, handle.__dlpack__) == (
                    f"__dlpack__: x: wanted no copy, given {given}"
                )
        with torchmojo.fallback("error"):
            assert refused(ExportError, handle.__dlpack__) == (
                "__dlpack__: x: wanted memory that DLPack can describe to every consumer, given "
                f"{given}; ask with copy=True"
            )
            assert torch.from_dlpack(handle, copy=True).tolist() == VALUES
    copies(reset=True)


@pytest.mark.copying
def test_a_warning_that_is_an_error_copies_nothing():
    copies(reset=True)
    with share(np.arange(3.0)[::-1]) as handle, warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(CopyWarning) as caught:
            handle.__dlpack__()
    assert str(caught.value) == (
        "__dlpack__: x: copied on its way, given f64[3] cpu strides(-1): negative stride"
    )
    assert copies() == []


def test_no_memory_for_a_copy():
    copies(reset=True)
    before = core.counters()[0]
    with share(np.arange(3.0)) as handle:
        with inject("allocation"), pytest.raises(MemoryError):
            handle.__dlpack__(copy=True)
        with share(torch.zeros(1, dtype=torch.uint8).expand(2**62)) as huge:
            with pytest.raises(MemoryError):
                huge.__dlpack__(copy=True)
    assert core.counters()[0] == before and copies() == []


def test_dtypes_that_dlpack_has_not(refused):
    class Pair(ctypes.Structure):
        _fields_ = (("a", ctypes.c_int), ("b", ctypes.c_double))

    with share((Pair * 3)()) as handle:
        for keywords in ({}, {"copy": True}, {"max_version": (1, 0)}):
            assert refused(ExportError, handle.__dlpack__, **keywords) == (
                f"__dlpack__: x: wanted a dtype of DLPack's, given {handle!r}"
            )


# --- how long it lasts --------------------------------------------------------------------------


@pytest.mark.parametrize("consumer", [np.from_dlpack, torch.from_dlpack], ids=["numpy", "torch"])
def test_exports_outlive_the_handle(consumer):
    lender = bytearray(b"abcd")
    handle = share(lender)
    got = consumer(handle)
    handle.release()
    with pytest.raises(BufferError):
        lender.append(0)
    got[0] = 122
    assert lender == b"zbcd"
    tail = got[1:]
    del got
    with pytest.raises(BufferError):
        lender.append(0)
    assert bytes(tail.tolist()) == b"bcd"
    del tail
    lender.append(0)


def test_exports_keep_the_lender():
    class Array(np.ndarray):
        pass

    for make in (lambda: np.arange(4.0).view(Array), lambda: torch.arange(4.0)):
        lender = make()
        ref, handle = weakref.ref(lender), share(lender)
        got, capsule = np.from_dlpack(handle), handle.__dlpack__()
        handle.release()
        del lender, handle
        gc.collect()
        junk = [np.full(4, 7.0) for _ in range(64)]
        assert got.tolist() == [0.0, 1.0, 2.0, 3.0] and junk
        del got
        assert torch.from_dlpack(capsule).tolist() == [0.0, 1.0, 2.0, 3.0]
        del capsule
        gc.collect()
        assert ref() is None


def test_exports_of_a_hand_over():
    made = Producer(VALUES, (4,), version=(1, 0))
    handle = share(made.capsule())
    first, second = np.from_dlpack(handle), handle.__dlpack__()
    handle.release()
    assert made.deletes() == [0] and first.tolist() == VALUES
    del first
    assert made.deletes() == [0]
    del second
    assert made.deletes() == [1]


def test_capsules_that_nobody_takes():
    lender = bytearray(8)
    alive, deleted, twice = core.counters()
    with share(lender) as handle:
        capsules = [handle.__dlpack__(max_version=v) for v in (None, (1, 0)) for _ in range(50)]
        assert core.counters() == (alive + 100, deleted, twice)
        capsules.clear()
        assert core.counters() == (alive, deleted + 100, twice)
    lender.append(0)


def test_references_are_given_back():
    lender, array_ = bytearray(8), np.zeros(3)
    with share(lender) as handle, share(array_) as other:
        things = (handle, other, lender, array_, handle.shape, other._lease)
        before = [sys.getrefcount(thing) for thing in things]
        for _ in range(500):
            np.from_dlpack(handle)
            torch.from_dlpack(other)
            other.__dlpack__()
            other.__dlpack__(max_version=(1, 0), copy=True)
        assert [sys.getrefcount(thing) for thing in things] == before
    copies(reset=True)


@pytest.mark.parametrize("max_version", [None, (1, 0)], ids=["legacy", "versioned"])
@pytest.mark.parametrize("lender", [bytearray(16), torch.zeros(4)], ids=["ours", "torch's"])
def test_a_deleter_on_a_thread_without_the_gil(lender, max_version):
    before = sys.getrefcount(lender)
    for _ in range(20):
        handle = share(lender)
        address, deleter = take(handle.__dlpack__(max_version=max_version))
        handle.release()
        delete_off_gil(address, deleter)
    gc.collect()
    assert sys.getrefcount(lender) == before
    if isinstance(lender, bytearray):
        lender.append(0)
        lender.pop()


def test_exports_of_eight_threads():
    lender = bytearray(1000)
    alive = core.counters()[0]
    with share(lender) as handle:

        def work(number):
            for i in range(200):
                got = np.from_dlpack(handle) if i % 2 else torch.from_dlpack(handle)
                assert len(got) == 1000
                address, deleter = take(handle.__dlpack__())
                ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)(address)

        with ThreadPoolExecutor(8) as executor:
            list(executor.map(work, range(8)))
        assert core.counters()[0] == alive
    lender.append(0)


def test_a_release_beside_exports():
    """Whoever comes too late is told so; nobody sees memory that was given back."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(100):
            made = Producer(VALUES, (4,), version=(1, 0))
            handle, got = share(made.capsule()), []
            gate = threading.Barrier(4)

            def work(handle=handle, got=got, gate=gate):
                gate.wait()
                try:
                    got.append(np.from_dlpack(handle))
                    got.append(share(handle))
                    got.append(np.from_dlpack(handle, copy=True))
                except torchmojo.HandleError:
                    pass

            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            gate.wait()
            handle.release()
            for thread in threads:
                thread.join()
            arrays = [x for x in got if isinstance(x, np.ndarray)]
            assert all(x.tolist() == VALUES for x in arrays)
            held = len(got) > 0
            assert made.deletes() == ([0] if held else [1])
            arrays.clear()
            while got:  # no name may be left that holds the last one
                last = got.pop()
                if isinstance(last, torchmojo.Handle):
                    last.release()
                del last
            assert made.deletes() == [1]
    finally:
        sys.setswitchinterval(interval)


# --- the end, and hostile consumers -------------------------------------------------------------


@pytest.mark.parametrize("max_version", ["None", "(1, 0)"])
def test_a_deleter_after_the_interpreter(run_child, max_version):
    """C++ objects that live as long as the process call it when there is no Python any more."""
    code = f"""
    import ctypes, os
    os.dup2(1, 2)
    from torchmojo.bridge.lend import dlpack
    handle = torchmojo.share(bytearray(64))
    for i in range(3):
        capsule = handle.__dlpack__(max_version={max_version})
        name = dlpack._capsule_name(capsule)
        address = dlpack._capsule_pointer(capsule, name)
        kind = dlpack._Versioned if b"versioned" in name else dlpack._Legacy
        deleter = ctypes.c_void_p(kind.from_address(address).deleter)
        dlpack._set_capsule_name(capsule, dlpack._USED[name])
        assert ctypes.CDLL(None).__cxa_atexit(deleter, ctypes.c_void_p(address), None) == 0
    print("end")
    """
    assert run_child(code, PYTHONMALLOC="debug") == "end\n"


def test_a_deleter_while_the_interpreter_ends(run_child):
    """Other threads delete without end while the interpreter is taken apart."""
    code = """
    import ctypes, os, threading, time
    os.dup2(1, 2)
    from torchmojo.bridge.lend import dlpack
    handle = torchmojo.share(bytearray(64))
    taken = []
    for i in range(3000):
        capsule = handle.__dlpack__()
        address = dlpack._capsule_pointer(capsule, b"dltensor")
        deleter = dlpack._Legacy.from_address(address).deleter
        dlpack._set_capsule_name(capsule, b"used_dltensor")
        taken.append(address)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)
    def work():
        for address in taken:
            call(address)
            time.sleep(0.0001)
    threading.Thread(target=work, daemon=True).start()
    time.sleep(0.02)

    class Late:
        def __del__(self, sleep=time.sleep):
            sleep(0.2)

    import builtins
    builtins.late = Late()
    print("end")
    """
    assert run_child(code, timeout=60) == "end\n"


@pytest.mark.parametrize("max_version", ["None", "(1, 0)"])
def test_a_consumer_that_deletes_twice(run_child, max_version):
    code = f"""
    import ctypes, os, sys, threading
    os.dup2(1, 2)
    from torchmojo.bridge.lend import dlpack
    handle = torchmojo.share(bytearray(64))

    def take():
        capsule = handle.__dlpack__(max_version={max_version})
        name = dlpack._capsule_name(capsule)
        address = dlpack._capsule_pointer(capsule, name)
        kind = dlpack._Versioned if b"versioned" in name else dlpack._Legacy
        deleter = kind.from_address(address).deleter
        dlpack._set_capsule_name(capsule, dlpack._USED[name])
        return address, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)

    try:
        with torchmojo.leak_check():
            address, deleter = take()
            other = np.from_dlpack(handle)
            deleter(address)
            deleter(address)
            thread = threading.Thread(target=deleter, args=(address,))
            thread.start()
            thread.join()
            for i in range(500):  # fewer than the dead blocks that are kept
                deleter(take()[0])
            deleter(address)
            del other
    except torchmojo.LeakError as error:
        print(error)
    sys.stdout.flush()
    for i in range(3000):
        deleter(take()[0])
    handle.release()
    try:
        raise KeyError("on its way")
    except KeyError:
        pass
    print("lived")
    """
    lines = run_child(code).splitlines()
    report = (
        "torchmojo.HandleError: a DLPack consumer called the deleter of a tensor twice; the second "
        "call did nothing"
    )
    assert lines.count(report) == 3
    assert lines[-2:] == [
        "leak_check: wanted nothing held, given 3 DLPack exports freed twice by a consumer",
        "lived",
    ]


def test_where_nothing_is_compiled(run_child, tmp_path):
    """Without a compiler and its results, the lender lends itself, if it can."""
    code = """
    import sys
    import torchmojo.testing
    sys.path.insert(0, str(KERNELS.parent.parent.parent))
    from tests.bridge.conftest import OldProducer, Producer
    a, x = np.arange(4.0), torch.arange(4.0)
    with torchmojo.testing.inject("compiler"):
        for lender in (a, x):
            frozen = torchmojo.share(lender, "borrowed_immutable")
            with torchmojo.share(lender) as handle, frozen:
                assert np.from_dlpack(handle).ctypes.data == handle.address
                assert torch.from_dlpack(handle).data_ptr() == handle.address
                assert not np.from_dlpack(frozen).flags.writeable
        for made in (Producer([1, 2], (2,)), OldProducer([1, 2], (2,))):  # they know no flags
            with torchmojo.share(made) as handle:
                assert np.from_dlpack(handle).tolist() == [1, 2]
        for lender, mode in (
            (bytearray(4), None),
            (np.zeros((1, 3))[::-1], None),
            (Producer([1, 2], (2,)), "borrowed_immutable"),
        ):
            with torchmojo.share(lender, mode) as handle:
                try:
                    np.from_dlpack(handle)
                except torchmojo.CompilerNotFoundError as error:
                    print(error)
    with torchmojo.share(bytearray(4)) as handle:
        print(np.from_dlpack(handle).tolist())
    """
    assert run_child(code).splitlines() == [
        *["mojo: wanted a compiler, given none (injected)"] * 3,
        "[0, 0, 0, 0]",
    ]
