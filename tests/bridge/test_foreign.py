"""Memory of objects that are not torch's: buffers, DLPack producers, NumPy's array interface."""

import array
import ctypes
import gc
import mmap
import threading
import types

import numpy as np
import pytest
import torch

import torchmojo
from torchmojo import (
    ArgumentError,
    DeviceError,
    DTypeError,
    KernelError,
    LayoutError,
    NoDataError,
    ReadOnlyError,
    ShapeError,
)

VALUES = [1.0, 2.0, 3.0, 4.0]


def as_mmap():
    memory = mmap.mmap(-1, 16)
    memory[:] = np.array(VALUES, dtype=np.float32).tobytes()
    return memory


def in_struct():
    packed = np.zeros(4, dtype=[("name", "S4"), ("value", "<f4"), ("more", "u4")])
    packed["value"] = VALUES
    return packed["value"]


class Interface:
    """An object that has nothing but `__array_interface__`."""

    def __init__(self, source, **changes):
        self.source = source
        self.__array_interface__ = {**source.__array_interface__, **changes}


WRITABLE = {
    "array": lambda: array.array("f", VALUES),
    "numpy": lambda: np.array(VALUES, dtype=np.float32),
    "numpy steps": lambda: np.repeat(np.array(VALUES, dtype=np.float32), 3)[1::3],
    "numpy backwards": lambda: np.array(VALUES[::-1], dtype=np.float32)[::-1],
    "numpy field": in_struct,
    "numpy subclass": lambda: np.array(VALUES, dtype=np.float32).view(np.recarray),
    "memoryview of bytearray": lambda: memoryview(
        bytearray(np.array(VALUES, dtype=np.float32).tobytes())
    ).cast("f"),
    "memoryview of mmap": lambda: memoryview(as_mmap()).cast("f"),
    "memoryview steps": lambda: memoryview(array.array("f", [v for v in VALUES for _ in "ab"]))[
        1::2
    ],
    "memoryview backwards": lambda: memoryview(array.array("f", VALUES[::-1]))[::-1],
    "ctypes": lambda: (ctypes.c_float * 4)(*VALUES),
    "array interface": lambda: Interface(np.array(VALUES, dtype=np.float32)),
    "array interface steps": lambda: Interface(
        np.repeat(np.array(VALUES, dtype=np.float32), 2)[::2]
    ),
}
READ_ONLY = {
    "memoryview of bytes": lambda: memoryview(np.array(VALUES, dtype=np.float32).tobytes()).cast(
        "f"
    ),
    "numpy frozen": lambda: np.frombuffer(np.array(VALUES, dtype=np.float32).tobytes(), "<f4"),
    "array interface frozen": lambda: Interface(
        np.frombuffer(np.array(VALUES, dtype=np.float32).tobytes(), "<f4")
    ),
}


@pytest.mark.parametrize("name", {**WRITABLE, **READ_ONLY})
def test_read(kinds, name):
    thing = {**WRITABLE, **READ_ONLY}[name]()
    assert kinds.total_float32(thing) == 10.0
    dst = torch.zeros(4)
    kinds.add(dst, thing, thing)
    assert dst.tolist() == [2.0, 4.0, 6.0, 8.0]
    assert kinds.sum_list(dst, [thing, dst.clone(), thing]) == 3


@pytest.mark.parametrize("name", WRITABLE)
def test_write(kinds, name):
    thing = WRITABLE[name]()
    kinds.scale(thing, 10.0)
    assert list(np.asarray(thing)) == [10.0, 20.0, 30.0, 40.0]
    kinds.number_list([thing], 7.0)
    assert list(np.asarray(thing)) == [7.0] * 4


@pytest.mark.parametrize("name", READ_ONLY)
def test_write_is_refused(kinds, refused, name):
    thing = READ_ONLY[name]()
    assert refused(ReadOnlyError, kinds.scale, thing, 2.0) == (
        "scale: x: wanted memory that may be written, given f32[4] cpu strides(1) read-only; "
        "pass a writable copy"
    )
    assert kinds.total_float32(thing) == 10.0


def test_bytes_are_uint8(kinds, refused):
    for thing in (b"abc", bytearray(b"abc"), memoryview(b"abc"), array.array("B", b"abc")):
        assert kinds.tail_uint8(thing, 2) == 98 + 99
    m = as_mmap()
    assert kinds.tail_uint8(m, 16) == sum(m[:])
    m.close()
    assert kinds.tail_uint8((ctypes.c_ubyte * 3)(1, 2, 3), 3) == 6
    assert refused(DTypeError, kinds.total_float32, b"abcd") == (
        "total_float32: x: wanted f32, given u8[4] cpu strides(1) read-only; "
        'write numpy.frombuffer(x, "float32") if these are its bytes'
    )


@pytest.mark.parametrize(
    ("letter", "dtype"),
    [
        *(("b", "int8"), ("h", "int16"), ("i", "int32"), ("l", "int64"), ("q", "int64")),
        *(("B", "uint8"), ("H", "uint16"), ("I", "uint32"), ("L", "uint64"), ("Q", "uint64")),
        *(("f", "float32"), ("d", "float64")),
    ],
)
def test_every_letter_of_array(kinds, letter, dtype):
    source = array.array(letter, [7, 1])
    assert source.itemsize == np.dtype(dtype).itemsize
    assert kinds.first(source) == 7
    top = np.finfo(dtype).max if letter in "fd" else np.iinfo(dtype).max
    assert kinds.first(array.array(letter, [top.item() if letter in "fd" else int(top)])) == top


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bool", "int8", "uint64"])
def test_every_kind_of_numpy(kinds, dtype):
    assert kinds.first(np.array([1], dtype=dtype)) == 1
    assert kinds.first(np.array([1], dtype=np.dtype(dtype).newbyteorder("="))) == 1
    interface = Interface(np.array([1], dtype=dtype))
    assert kinds.first(interface) == 1


def test_ctypes_of_every_size(kinds, views):
    for kind, value in (
        *((ctypes.c_int8, -3), (ctypes.c_uint16, 3), (ctypes.c_long, -3), (ctypes.c_bool, True)),
        *((ctypes.c_double, 1.5), (ctypes.c_uint64, 2**64 - 1), (ctypes.c_longlong, -3)),
    ):
        assert kinds.first((kind * 1)(value)) == value
    rows = ((ctypes.c_float * 3) * 2)((1, 2, 3), (4, 5, 6))
    assert views.row_major(rows) == "3,1 True [4.0, 5.0]"


def test_bfloat16_has_no_other_way(kinds):
    """A10: torch's own tensor needs no NumPy in between; bits of uint16 stay integers."""
    x = torch.tensor([-2.5, float("inf")], dtype=torch.bfloat16)
    assert kinds.first(x) == -2.5 and kinds.first(x[1:]) == float("inf")
    assert kinds.first(np.array([0x3F80], dtype=np.uint16)) == 0x3F80


# --- what is refused ----------------------------------------------------------------------------


def test_foreign_byte_order(kinds, refused):
    """A09: never the raw bytes."""
    x = torch.zeros(3)
    advice = "write x.astype(x.dtype.newbyteorder('=')), which copies"
    for big, given in (
        (np.array(VALUES[:3], dtype=">f4"), "f32[3] cpu strides(1) big-endian"),
        (Interface(np.array(VALUES[:3], dtype=">f4")), "f32[3] cpu strides(1) big-endian"),
    ):
        assert refused(DTypeError, kinds.add, x, big, x) == (
            f"add: a: wanted native byte order, given {given}; {advice}"
        )
    assert refused(DTypeError, kinds.add, np.array(VALUES[:3], dtype=">f4"), x, x) == (
        "add: dst: wanted native byte order, given f32[3] cpu strides(1) big-endian; make the "
        "output so from the start: what goes into a converted copy is lost"
    )
    # The dtype comes first: another byte order alone would not help.
    assert refused(DTypeError, kinds.add, x, np.arange(3, dtype=">i8"), x) == (
        'add: a: wanted f32, given i64[3] cpu strides(1) big-endian; write x.astype("float32"), '
        "which copies"
    )
    assert refused(DTypeError, kinds.first, np.arange(6, dtype=">i8").reshape(2, 3).T[0]) == (
        f"first: x: wanted native byte order, given i64[2] cpu strides(3) big-endian; {advice}"
    )
    kinds.first(np.array([1], dtype=">i1"))  # one byte has no order


def test_strides_between_elements(kinds, refused):
    packed = np.zeros(4, dtype=[("a", "u1"), ("b", "<f4")])
    text = (
        "total_float32: x: wanted strides that are multiples of the element size, given f32[4] cpu "
        "steps(5) bytes; write x.copy()"
    )
    assert refused(LayoutError, kinds.total_float32, packed["b"]) == text
    assert refused(LayoutError, kinds.total_float32, Interface(packed["b"])) == text
    aligned = np.zeros(1, dtype=[("a", "u1"), ("b", "<f4")])["b"]  # the stride of one is not used
    assert "multiple of 4" in refused(LayoutError, kinds.total_float32, aligned)


def test_dtypes_that_nothing_carries(kinds, refused):
    for thing, name in (
        (np.array([None]), "object"),
        (np.array(["a"]), "<U1"),
        (np.zeros(1, dtype="M8[s]"), "datetime64[s]"),
        (np.zeros(1, dtype=[("a", "u1")]), "[('a', 'u1')]"),
    ):
        assert refused(DTypeError, kinds.total_float32, thing) == (
            "total_float32: x: wanted a dtype that the buffer protocol or DLPack carries, given "
            f"{name}"
        )
    assert refused(DTypeError, kinds.total_float32, np.zeros(1, dtype=np.complex64)) == (
        "total_float32: x: wanted f32, given c64[1] cpu strides(1); pass it to an argument whose "
        "last axis is named `complex`, or torch.view_as_real(x), a view with a last axis of 2"
    )
    refused(DTypeError, kinds.total_float32, np.zeros(1, dtype=np.longdouble))
    assert refused(DTypeError, kinds.total_float32, (ctypes.c_wchar * 2)()) == (
        "total_float32: x: wanted f32, given format '<u'[2] cpu strides(1); "
        "convert it to float32 first, which copies"
    )


def test_released_memoryview(kinds, refused):
    view = memoryview(bytearray(16)).cast("f")
    view.release()
    assert refused(DTypeError, kinds.total_float32, view) == (
        "total_float32: x: wanted a tensor (torch, NumPy, or any object with the buffer protocol "
        "or __dlpack__), given builtins.memoryview"
    )


def test_array_interface_without_an_address(kinds, refused):
    base = np.array(VALUES, dtype=np.float32)
    assert refused(NoDataError, kinds.total_float32, Interface(base, data=None)) == (
        "total_float32: x: wanted an address in __array_interface__, given none"
    )
    # Pillow makes a copy for the occasion.
    assert refused(NoDataError, kinds.total_float32, Interface(base, data=base.tobytes())) == (
        "total_float32: x: wanted an address in __array_interface__, given bytes; "
        "write numpy.asarray(x)"
    )
    refused(NoDataError, kinds.total_float32, Interface(base, data=(0, False)))
    refused(NoDataError, kinds.total_float32, Interface(base, shape=(2**62,), strides=(8,)))
    refused(NoDataError, kinds.total_float32, Interface(base, shape=(-4,), strides=None))
    assert kinds.total_float32(Interface(base, shape=(0,), data=(0, False))) == 0


def test_pillow(kinds, refused):
    image = pytest.importorskip("PIL.Image").new("L", (4, 2), 7)
    with pytest.raises(NoDataError, match=r"write numpy\.asarray"):
        kinds.tail_uint8(image, 3)
    assert kinds.tail_uint8(np.asarray(image).ravel(), 3) == 21


# --- exports are held for the time of a call ----------------------------------------------------


def exporters():
    raw = np.array(VALUES * 100, dtype=np.float32).tobytes()
    memory = mmap.mmap(-1, len(raw))
    memory[:] = raw
    return {
        "bytearray": (bytearray(raw), lambda b: b.extend(b"x")),
        "array": (array.array("B", raw), lambda a: a.append(1)),
        "mmap": (memory, lambda m: m.close()),
    }


@pytest.mark.parametrize("name", exporters())
def test_memory_is_held_while_a_kernel_runs(threads, name):
    """A07: another thread cannot resize or close it; afterwards it can."""
    thing, change = exporters()[name]
    results = []

    def attack():
        while not results:
            try:
                started.wait()
                change(thing)
                results.append("changed")
            except BufferError:
                results.append("refused")

    started = threading.Event()
    thread = threading.Thread(target=attack)
    thread.start()
    timer = threading.Timer(0.05, started.set)
    timer.start()
    threads.spin_bytes(thing, 200)
    thread.join()
    timer.join()
    assert results == ["refused"]
    change(thing)


@pytest.mark.parametrize("name", exporters())
def test_memory_is_given_back(kinds, refused, threads, name):
    """Also after a refusal, a raise, and while the exception is still alive."""
    thing, change = exporters()[name]
    kept = []
    for error, call in (
        (DTypeError, lambda: kinds.total_float32(thing)),
        (ArgumentError, lambda: kinds.tail_uint8(thing, "x")),
        (ArgumentError, lambda: kinds.tail_uint8(thing)),
        (ArgumentError, lambda: threads.spin_bytes(thing, None)),
        (DTypeError, lambda: kinds.add(thing, thing, thing)),
        (DTypeError, lambda: kinds.sum_list(torch.zeros(3), [thing, thing])),
        (DTypeError, lambda: kinds.add(torch.zeros(4), Interface(np.zeros(4, "f4")), thing)),
    ):
        with pytest.raises(error) as caught:
            call()
        kept.append(caught)
    kinds.tail_uint8(thing, 1)
    torchmojo.explain(thing, kinds.tail_uint8.x)
    change(thing)
    assert kept


def test_memory_is_given_back_after_a_raise(kinds, refused):
    dst, x = array.array("f", VALUES), np.zeros(4, dtype=np.float32)
    with pytest.raises(KernelError):
        kinds.add(dst, x, x, 77.0)
    dst.append(5.0)
    with pytest.raises(ArgumentError) as caught:
        kinds.add(dst, x, x, alpha="a")
    dst.append(6.0)
    assert caught


# --- DLPack -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [None, (1, 0), (1, 3)])
@pytest.mark.parametrize("strides", [(), None])
@pytest.mark.parametrize("offset", [0, 2])
def test_dlpack(kinds, producer, version, strides, offset):
    """A01b, A13: byte_offset counts, NULL strides mean row-major."""
    values = [9.0] * offset + VALUES
    lender = producer(values, (4,), strides, byte_offset=4 * offset, version=version)
    assert kinds.total_float32(lender) == 10.0
    assert lender.deletes() == [1]
    kinds.scale(lender, 10.0)
    assert lender.deletes() == [1, 1]
    assert np.frombuffer(lender.buffer, "f4").tolist() == [9.0] * offset + [10.0, 20.0, 30.0, 40.0]


def test_dlpack_of_before_version_1(kinds, views, old_producer):
    lender = old_producer([1, 2, 3, 4, 5, 6], (2, 3), None)
    assert views.row_major(lender) == "3,1 True [4.0, 5.0]"
    assert lender.deletes() == [1]


def test_dlpack_strides(kinds, views, producer):
    """A11c: a negative stride is read as it is."""
    backwards = producer(VALUES, (4,), (-1,), byte_offset=12)
    dst = torch.zeros(4)
    views.inputs_first(backwards, dst)
    assert dst.tolist() == [5, 4, 3, 2] and backwards.deletes() == [1]
    column = producer(VALUES, (2, 2), (1, 2))
    views.copy(out := torch.zeros(2, 2), column)
    assert out.tolist() == [[1, 3], [2, 4]]
    spread = producer([5.0], (4,), (0,))
    assert kinds.total_float32(spread) == 20.0


def test_dlpack_without_elements(kinds, views, producer):
    """A01a: nothing is dereferenced, the deleter is called once."""
    for strides in ((3, 1), None):
        lender = producer([0], (0, 3), strides, null_data=True)
        assert views.row_major.__name__ and views.describe(lender).endswith("contiguous")
        assert lender.deletes() == [1]
    scalar = producer([2.5], (), null_shape=True, strides=None)
    assert views.scalar_of(scalar) == 2.5


def test_dlpack_flags(kinds, refused, producer):
    """A08c: read-only is carried over; what is written into a producer's copy would be lost."""
    for flags in (1, 2, 3):
        lender = producer(VALUES, (4,), version=(1, 0), flags=flags)
        assert kinds.total_float32(lender) == 10.0
        assert refused(ReadOnlyError, kinds.scale, lender, 2.0) == (
            "scale: x: wanted memory that may be written, given f32[4] cpu strides(1) read-only; "
            "pass a writable copy"
        )
        assert set(lender.deletes()) == {1}
        assert np.frombuffer(lender.buffer, "f4").tolist() == VALUES


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        (
            {"shape": (2**31, 2**31, 2**31), "strides": (0, 0, 0)},
            NoDataError,
            "wanted memory below 2^63 bytes, given DLPack shape (2147483648, 2147483648, "
            "2147483648) strides (0, 0, 0)",
        ),
        (
            {"shape": (4,), "strides": (2**62,)},
            NoDataError,
            "wanted memory below 2^63 bytes, given DLPack shape (4,) strides "
            "(4611686018427387904,)",
        ),
        (
            {"shape": (4,), "strides": (-(2**61),)},
            NoDataError,
            "wanted memory below 2^63 bytes, given DLPack shape (4,) strides "
            "(-2305843009213693952,)",
        ),
        (
            {"shape": (4,), "byte_offset": 2**63},
            NoDataError,
            "wanted memory below 2^63 bytes, given DLPack shape (4,) strides (1,)",
        ),
        (
            {"shape": (-1,)},
            NoDataError,
            "wanted sizes of 0 or more, given DLPack shape (-1,)",
        ),
        (
            {"shape": (4,), "null_shape": True},
            NoDataError,
            "wanted a shape, given DLPack ndim 1 without one",
        ),
        (
            {"shape": (4,), "null_data": True},
            NoDataError,
            "wanted memory, given a DLPack tensor (4,) without data",
        ),
        (
            {"shape": (4,), "device": (2, 0)},
            DeviceError,
            "wanted CPU memory, given DLPack device type 2; move it to the CPU first",
        ),
        (
            {"shape": (4,), "version": (2, 0)},
            NoDataError,
            "wanted DLPack 1, given DLPack 2.0",
        ),
        (
            {"shape": (4,), "dtype": (2, 32, 4)},
            DTypeError,
            "wanted f32, given DLPack type 2 with 32 bits, 4 lanes[4] cpu strides(1); convert it "
            "to float32 first, which copies",
        ),
        (
            {"shape": (4,), "dtype": (2, 128, 1)},
            DTypeError,
            "wanted f32, given DLPack type 2 with 128 bits, 1 lanes[4] cpu strides(1); convert it "
            "to float32 first, which copies",
        ),
        (
            {"shape": (4,), "dtype": (0, 32, 1)},
            DTypeError,
            "wanted f32, given i32[4] cpu strides(1); convert it to float32 first, which copies",
        ),
        (
            {"shape": (2, 2)},
            ShapeError,
            "wanted 1 axis, given f32[2,2] cpu strides(2,1); pass a tensor with 1 axis, for "
            "instance by x.reshape(...) or x[None]",
        ),
        (
            {"shape": (4,), "name": b"used_dltensor"},
            NoDataError,
            "wanted an unused DLPack capsule, given one named 'used_dltensor'",
        ),
        (
            {"shape": (3,), "byte_offset": 1},
            LayoutError,
            "wanted an address that is a multiple of 4, given f32[3] cpu strides(1) (past one by "
            "1); write x.copy()",
        ),
    ],
)
def test_dlpack_that_is_refused(kinds, refused, producer, fields, error, text):
    """A22c among them: refused without reading, and given back."""
    lender = producer(VALUES, **fields)
    assert refused(error, kinds.total_float32, lender) == f"total_float32: x: {text}"
    gc.collect()  # the exception's traceback held the capsule
    if "name" not in fields:  # a used capsule is not the bridge's to give back
        assert set(lender.deletes()) == ({1} if "device" not in fields else set())


def test_capsules_themselves(kinds, refused, producer):
    """A02: a call consumes a bare capsule, once."""
    x = torch.arange(4.0)
    for version in (None, (1, 0)):
        capsule = x.__dlpack__(max_version=version)
        assert kinds.total_float32(capsule) == x.sum()
        name = "used_dltensor" + "_versioned" * bool(version)
        text = f"wanted an unused DLPack capsule, given one named {name!r}"
        assert refused(NoDataError, kinds.total_float32, capsule) == f"total_float32: x: {text}"
        with pytest.raises(RuntimeError):
            torch.from_dlpack(capsule)
        kinds.scale(x.__dlpack__(max_version=version), 10.0)
        lender = producer(VALUES, (4,), version=version)
        capsule = lender.capsule()
        kinds.number_list([x[:0], capsule], 7.0)
        assert np.frombuffer(lender.buffer, "f4").tolist() == [8.0] * 4
        assert lender.deletes() == [1]
        del capsule
        assert lender.deletes() == [1]
    assert x.tolist() == [0, 100, 200, 300]
    elsewhere = producer(VALUES, (4,), device=(2, 0)).capsule()
    for _ in range(2):  # what cannot be used is not used up
        assert refused(DeviceError, kinds.total_float32, elsewhere) == (
            "total_float32: x: wanted CPU memory, given DLPack device type 2"
        )


def test_producers_that_fail(kinds, refused):
    class Failing:
        def __dlpack__(self, **keywords):
            raise BufferError("not today\nsecond line")

    class Wrong:
        def __dlpack__(self, **keywords):
            return 5

    assert refused(NoDataError, kinds.total_float32, Failing()) == (
        "total_float32: x: wanted memory through DLPack, given a refusal: not today"
    )
    assert refused(NoDataError, kinds.total_float32, Wrong()) == (
        "total_float32: x: wanted a capsule from __dlpack__, given a int"
    )


def test_another_library_through_dlpack(kinds):
    class Wrapped:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, **keywords):
            return self.tensor.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    x = torch.arange(4.0)
    assert kinds.address(Wrapped(x[1:])) == x.data_ptr() + 4
    kinds.scale(Wrapped(x), 2.0)
    assert x.tolist() == [0, 2, 4, 6]


# --- temporaries --------------------------------------------------------------------------------


def test_temporaries_live_as_long_as_the_call(kinds):
    """A04: nobody else holds them."""

    def junk():
        return [np.full(65536, 7.0, dtype=np.float32) for _ in range(32)]

    for make in (
        lambda: np.arange(65536, dtype=np.float32) + 1,
        lambda: torch.arange(65536.0) + 1,
        lambda: memoryview(np.arange(65536, dtype=np.float32) + 1),
        lambda: (torch.arange(65538.0))[1:-1],
    ):
        assert kinds.total_float32(make()) == 2147516416.0
        junk()
    dst = torch.zeros(65536)
    assert kinds.sum_list(dst, [torch.ones(65536) for _ in range(3)]) == 3 and (dst == 3).all()
    dst.zero_()
    assert kinds.sum_list(dst, [np.ones(65536, "f4") for _ in range(3)]) == 3 and (dst == 3).all()
    assert kinds.total_int64((torch.arange(1 << 20) * 2)[1:-1]) == 1048575 * 1048574


def test_a_list_emptied_by_another_thread(threads):
    """The call holds the tensors of a list, not only the list."""
    for make in (lambda: torch.zeros(1 << 20), lambda: np.zeros(1 << 20, dtype=np.float32)):
        tensors = [make() for _ in range(4)]
        stop = threading.Event()

        def attack(tensors=tensors, stop=stop, make=make):
            stop.wait(0.02)
            tensors.clear()
            for _ in range(50):
                make()

        thread = threading.Thread(target=attack)
        thread.start()
        threads.spin_list(tensors, 150)
        thread.join()
        assert tensors == []


# --- every format of the buffer protocol ----------------------------------------------------------


@pytest.fixture(scope="module")
def exporter():
    """Give CPython's own test exporter, which can make any buffer."""
    return pytest.importorskip("_testbuffer")


@pytest.mark.parametrize(
    ("formats", "dtype"),
    [
        (("f", "=f", "@f", "<f"), "f32"),
        (("d", "<d"), "f64"),
        (("e", "<e"), "f16"),
        (("?", "<?"), "bool"),
        (("B", "!B", ">B", "c"), "u8"),
        (("b", ">b"), "i8"),
        (("h", "<h"), "i16"),
        (("i", "<l", "=l", "=i"), "i32"),
        (("l", "@l", "q", "<q", "n"), "i64"),
        (("H", "<H"), "u16"),
        (("I", "<L", "=I"), "u32"),
        (("L", "@L", "Q", "<Q", "N"), "u64"),
    ],
)
def test_every_format(kinds, exporter, formats, dtype):
    for text in formats:
        value = b"\x01" if text == "c" else 1
        thing = exporter.ndarray([value, value], shape=[2], format=text)
        assert kinds.first(thing) == 1
        assert torchmojo.explain(thing, kinds.first.x).given.startswith(f"{dtype}[2] cpu")


@pytest.mark.parametrize(
    ("text", "value"), [("s", b"a"), ("P", 7), ("3f", (1.0, 2.0, 3.0)), ("2i", (1, 2)), ("Bx", 1)]
)
def test_formats_of_no_dtype(kinds, refused, exporter, text, value):
    thing = exporter.ndarray([value, value], shape=[2], format=text)
    assert refused(DTypeError, kinds.total_float32, thing) == (
        f"total_float32: x: wanted f32, given format {text!r}[2] cpu strides(1) read-only; "
        "convert it to float32 first, which copies"
    )


def test_formats_in_foreign_order(kinds, refused, exporter):
    for text, dtype in (("!h", "i16"), (">f", "f32"), (">q", "i64"), ("!d", "f64")):
        thing = exporter.ndarray([1, 1], shape=[2], format=text)
        assert refused(DTypeError, kinds.first, thing) == (
            f"first: x: wanted native byte order, given {dtype}[2] cpu strides(1) big-endian "
            "read-only; write x.astype(x.dtype.newbyteorder('=')), which copies"
        )


def test_indirect_buffers(kinds, refused, exporter):
    thing = exporter.ndarray([1, 2, 3, 4], shape=[4], format="f", flags=exporter.ND_PIL)
    assert refused(LayoutError, kinds.first, thing) == (
        "first: x: wanted strided memory, given an indirect buffer (suboffsets); make a NumPy "
        "array of it first"
    )


def test_values_that_cannot_be_printed(kinds, refused):
    class Mute:
        def __repr__(self):
            raise RuntimeError("no words")

    assert refused(ArgumentError, kinds.echo_int, Mute()) == (
        "echo_int: x: wanted an int for Int, given a value (Mute)"
    )
    refused(DTypeError, kinds.total_float32, Mute())


# --- what an attacker found ---------------------------------------------------------------------


def test_elements_wider_than_their_format_are_refused(kinds, refused):
    """A ctypes union or packed structure exports the format `B` with elements of many bytes."""

    class Union(ctypes.Union):
        _fields_ = (("x", ctypes.c_double),)

    class Packed(ctypes.Structure):
        _pack_ = 1
        _fields_ = (("a", ctypes.c_uint8), ("b", ctypes.c_uint8))

    for kind in (Union, Packed):
        things = (kind * 2)()
        refused(DTypeError, kinds.total_float32, things)


@pytest.mark.parametrize(
    "facts",
    [
        {"data": (-8, False)},
        {"data": (2**63, False)},
        {"data": (2**64 + 64, False)},
        {"shape": (2**64 + 4,)},
        {"shape": (-1,)},
        {"strides": (2**66 + 4,)},
        {"strides": (4, 4)},
        {"typestr": "<"},
        {"data": (64,)},
        {"shape": None},
    ],
    ids=str,
)
def test_array_interfaces_that_lie(kinds, refused, facts):
    true = {"data": (64, False), "shape": (4,), "typestr": "<f4", "version": 3}
    liar = types.SimpleNamespace(__array_interface__={**true, **facts})
    text = refused(NoDataError, kinds.total_float32, liar)
    assert text.startswith("total_float32: x: wanted ")


def test_a_collection_while_a_list_is_taken_frees_nothing_that_was_read(run_child):
    """The tuple that holds a list may start a collection, whose finalizers free a storage."""
    assert "refused or right" in run_child(
        """
        import gc
        class Finalizer:
            def __init__(self, x):
                self.x, self.me = x, self
            def __del__(self):
                self.x.untyped_storage().resize_(0)
        kernels = torchmojo.inline('''
        from torchmojo import MutTensor, TensorList
        def add_all(dst: MutTensor[DType.float32, 1], xs: TensorList[DType.float32, 1]):
            for k in range(len(xs)):
                for i in range(dst.dim(0)):
                    dst[i] += xs[k][i % xs[k].dim(0)]
        ''')
        x, xs = torch.zeros(1 << 22), [torch.ones(4)] * 25
        gc.collect(); gc.disable()
        Finalizer(x)
        gc.set_threshold(1); gc.enable()
        try:
            kernels.add_all(x, xs)
        except torchmojo.NoDataError:
            pass
        print("refused or right")
        """
    )


def test_a_dtype_that_differs_keeps_no_export(kinds):
    """The exception lives on, the buffer that it speaks of is free again."""
    source = bytearray(8)
    with pytest.raises(DTypeError):
        kinds.add(torch.zeros(8), source, torch.zeros(8))
    source.extend(b"x")
