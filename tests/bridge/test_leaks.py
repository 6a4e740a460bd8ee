"""Calls leave nothing behind: no reference, no memory, no export, whichever way they end.

Blocks of CPython's allocator and bytes of the C library's are counted exactly, so that one leaked
word in a call shows. A million calls and the size of the process are left to the slow test.
"""

import array
import ctypes
import gc
import mmap
import sys

import numpy as np
import pytest
import torch

from torchmojo import (
    AliasError,
    ArgumentError,
    BoundsError,
    DeviceError,
    DTypeError,
    GradError,
    KernelError,
    LayoutError,
    NoDataError,
    ReadOnlyError,
    ShapeError,
)

from .conftest import KERNELS, Producer, load

MANY = 100_000  # calls that succeed
SOME = 400  # calls on each path that is refused


@pytest.fixture(scope="module")
def running():
    return load("running")


@pytest.fixture(scope="module")
def checked():
    return load("access", bounds=True)


# --- what is counted ----------------------------------------------------------------------------


_FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _Mallinfo(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in _FIELDS.split())


def in_use():
    """Tell the bytes that C code holds; 0 where the C library does not say (before glibc 2.33)."""
    try:
        ask = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return 0
    ask.restype = _Mallinfo
    info = ask()
    return info.uordblks + info.hblkhd


def references(things):
    """Count references: of things, exactly; of what the interpreter itself uses, roughly."""
    everyone = (None, 0, 1, 5, "", (), int, list, Exception)
    own = [thing for thing in things if not any(thing is one for one in everyone)]
    own += [torch.float32, torch.float64, torch.uint8, torch.Tensor, Producer]
    return [sys.getrefcount(x) for x in own], [sys.getrefcount(x) for x in everyone]


def assert_nothing_stays(call, things, times):
    """Call many times, after a few calls that may fill caches; compare all counts."""
    for _ in range(3):
        call()
    gc.collect()
    counts, blocks, held = references(things), sys.getallocatedblocks(), in_use()
    for _ in range(times):
        call()
    gc.collect()
    blocks, held = sys.getallocatedblocks() - blocks, in_use() - held
    own, others = references(things)
    assert own == counts[0]
    assert all(abs(a - b) < times / 20 + 20 for a, b in zip(others, counts[1], strict=True))
    # Far less than one block or one word a call; the interpreter itself is not quite still.
    assert blocks < times / 20 + 20 and held < max(times, 8_000)


# --- calls that succeed -------------------------------------------------------------------------


def successes(kinds, views, running):
    x, y, w = torch.zeros(3, 4).unbind()
    z, c = torch.zeros(2, 4, dtype=torch.complex64).unbind()
    a, b = np.ones(4, dtype=np.float32), np.ones(4, dtype=np.float32)
    data, other = bytearray(4), bytes(4)
    xs, numbers, text, value = [y, w, a], [1, 2, 3], "text" * 50, 12345.678
    words = array.array("f", [0] * 4)
    return {
        "nothing": (lambda: kinds.nothing(), (kinds.nothing,)),
        "torch": (lambda: kinds.add(x, y, w, value), (kinds.add, x, y, w, value)),
        "keywords": (lambda: kinds.add(b=w, dst=x, alpha=value, a=y), (kinds.add, x, y, w, value)),
        "in place": (lambda: kinds.add(x, x, x), (kinds.add, x)),
        "numpy": (lambda: kinds.add(a, a, b), (kinds.add, a, b)),
        "buffers": (lambda: kinds.add(words, memoryview(a), b), (words, a, b)),
        "bytes": (lambda: running.mixed(data, other, [other, data]), (running.mixed, data, other)),
        "complex": (lambda: running.conjugate(z, [c]), (running.conjugate, z, c)),
        "float": (lambda: kinds.echo_float64(value), (kinds.echo_float64, value)),
        "int": (lambda: kinds.echo_uint64(2**64 - 1), (kinds.echo_uint64,)),
        "text": (lambda: kinds.echo_string(text), (kinds.echo_string, text)),
        "list of numbers": (lambda: kinds.list_int(numbers), (kinds.list_int, numbers)),
        "list of tensors": (lambda: kinds.sum_list(x, xs), (kinds.sum_list, x, xs, *xs)),
        "list of outputs": (lambda: kinds.number_list(xs, 1.0), (kinds.number_list, xs, *xs)),
        "empty list": (lambda: kinds.sum_list(x, []), (kinds.sum_list, x)),
        "no tensor": (lambda: kinds.put_maybe(None, value), (kinds.put_maybe, value)),
        "a tensor": (lambda: kinds.put_maybe(x, value), (kinds.put_maybe, x, value)),
        "any dtype": (lambda: kinds.first(a), (kinds.first, a)),
    }


FAST = [
    *(
        "nothing",
        "torch",
        "keywords",
        "in place",
        "numpy",
        "buffers",
        "bytes",
        "complex",
        "float",
        "int",
    ),
    *("text", "list of numbers", "list of tensors", "list of outputs", "empty list", "no tensor"),
    *("a tensor", "any dtype"),
]


@pytest.mark.parametrize("name", FAST)
def test_calls(kinds, views, running, name):
    call, things = successes(kinds, views, running)[name]
    assert_nothing_stays(call, things, MANY)


def mended(kinds, views, running):
    """Calls that pass through Python once: what glue does not read itself."""
    x, y = torch.zeros(4), torch.ones(4)
    one, number = Producer([1] * 4, (4,)), np.float64(2)

    class Sub(torch.Tensor):
        pass

    class Interface:
        held = np.zeros(4, dtype=np.float32)
        __array_interface__ = held.__array_interface__

    sub, interface, reversed_ = y.as_subclass(Sub), Interface(), np.zeros(8, dtype=np.float32)[::-2]
    parameter = torch.nn.Parameter(torch.zeros(4), requires_grad=False)
    return {
        "numpy number": (lambda: kinds.echo_float64(number), (kinds.echo_float64, number)),
        "range": (lambda: kinds.list_int(range(4)), (kinds.list_int,)),
        "dlpack": (lambda: kinds.add(x, one, y), (kinds.add, x, one, y)),
        "dlpack in a list": (lambda: kinds.sum_list(x, [one, y]), (kinds.sum_list, x, one, y)),
        "subclass": (lambda: kinds.add(x, sub, y), (kinds.add, x, sub, y)),
        "parameter": (lambda: kinds.add(parameter, x, y), (kinds.add, parameter, x, y)),
        "interface": (lambda: kinds.add(x, interface, y), (kinds.add, x, interface, y)),
        "reversed": (lambda: kinds.add(reversed_, x, y), (kinds.add, reversed_, x, y)),
    }


@pytest.mark.parametrize(
    "name",
    [
        *("numpy number", "range", "dlpack", "dlpack in a list", "subclass", "parameter"),
        *("interface", "reversed"),
    ],
)
def test_calls_that_are_mended(kinds, views, running, name):
    call, things = mended(kinds, views, running)[name]
    if name.startswith("dlpack"):
        producer = next(thing for thing in things if isinstance(thing, Producer))
        for _ in range(SOME):
            call()
        # Each capsule is given back exactly once.
        assert producer.deletes() == [1] * len(producer.made) == [1] * SOME
        producer.made.clear()
    else:
        assert_nothing_stays(call, things, SOME)


# --- calls that are refused ---------------------------------------------------------------------


def neg():
    return torch._neg_view(torch.zeros(2, 2))


def inference():
    with torch.inference_mode():
        return torch.zeros(4)


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.zeros(4)


class Hostile:
    """No tensor: it says that it has a buffer interface and fails."""

    @property
    def __array_interface__(self):
        raise RuntimeError("on purpose")


# `mixed(dst, src, xs, count, text, values, extra, result)` with one argument wrong: the error, and
# what is passed instead. All of dst, src and xs are bytearrays, exported when the call is refused.
REFUSED = {
    "no value": (ArgumentError, lambda: {"xs": ...}),
    "unknown keyword": (ArgumentError, lambda: {"nobody": 1}),
    "scalar": (ArgumentError, lambda: {"count": "many"}),
    "range": (ArgumentError, lambda: {"count": 128}),
    "range of numpy": (ArgumentError, lambda: {"count": np.int64(128)}),
    "text": (ArgumentError, lambda: {"text": 5}),
    "text for UTF-8": (ArgumentError, lambda: {"text": "\ud800"}),
    "list": (ArgumentError, lambda: {"values": 5}),
    "element of a list": (ArgumentError, lambda: {"values": [1, "2", 3]}),
    "range in a list": (ArgumentError, lambda: {"values": [1, 300]}),
    "dtype": (DTypeError, lambda: {"extra": torch.zeros(2, 2, dtype=torch.float64)}),
    "dtype of numpy": (DTypeError, lambda: {"extra": np.zeros((2, 2))}),
    "dtype of a buffer": (DTypeError, lambda: {"src": np.zeros(4)}),
    "complex": (DTypeError, lambda: {"result": torch.zeros(4, dtype=torch.complex64)}),
    "rank": (ShapeError, lambda: {"extra": torch.zeros(2, 2, 2)}),
    "rank of a buffer": (ShapeError, lambda: {"src": memoryview(bytearray(4)).cast("B", (2, 2))}),
    "rank in a list": (ShapeError, lambda: {"xs": [bytearray(2), np.zeros((2, 2), np.uint8)]}),
    "axis": (ShapeError, lambda: {"src": bytearray(5)}),
    "fixed axis": (ShapeError, lambda: {"extra": torch.zeros(2, 3)}),
    "layout": (LayoutError, lambda: {"extra": torch.zeros(2, 4).t()}),
    "layout kind": (LayoutError, lambda: {"extra": torch.zeros(2, 2).to_sparse()}),
    "neg bit": (LayoutError, lambda: {"extra": neg()}),
    "conj bit": (LayoutError, lambda: {"extra": torch.zeros(2, 2, dtype=torch.cfloat).conj()}),
    "alignment": (LayoutError, lambda: {"extra": unaligned()}),
    "strides in bytes": (LayoutError, lambda: {"result": fields()}),
    "device": (DeviceError, lambda: {"extra": torch.zeros(2, 2, device="meta")}),
    "no data": (NoDataError, lambda: {"result": fake()}),
    "grad": (GradError, lambda: {"result": torch.zeros(4, requires_grad=True)}),
    "inference": (GradError, lambda: {"result": inference()}),
    "self-overlap": (AliasError, lambda: {"result": torch.zeros(1).expand(4)}),
    "read-only": (ReadOnlyError, lambda: {"dst": bytes(4)}),
    "read-only view": (ReadOnlyError, lambda: {"dst": memoryview(bytearray(4)).toreadonly()}),
    "read-only array": (ReadOnlyError, lambda: {"result": frozen()}),
    "foreign object": (DTypeError, lambda: {"src": object()}),
    "foreign text": (DTypeError, lambda: {"src": "text"}),
    "foreign in a list": (DTypeError, lambda: {"xs": [bytearray(1), object()]}),
    "hostile object": (RuntimeError, lambda: {"src": Hostile()}),
    "foreign byte order": (DTypeError, lambda: {"result": np.zeros(4, ">f4")}),
    "dlpack device": (DeviceError, lambda: {"result": Producer([0] * 4, (4,), device=(2, 0))}),
    "dlpack dtype": (DTypeError, lambda: {"result": Producer([0] * 4, (4,), dtype=(0, 32, 1))}),
    "dlpack version": (NoDataError, lambda: {"result": Producer([0] * 4, (4,), version=(2, 0))}),
    "none": (ArgumentError, lambda: {"dst": None}),
    "none in a list": (ArgumentError, lambda: {"xs": [bytearray(1), None]}),
    "no list": (ArgumentError, lambda: {"xs": bytearray(4)}),
    "kernel": (KernelError, lambda: {"text": "raised by the kernel"}),
}


def unaligned():
    return np.frombuffer(bytearray(17), dtype=np.uint8)[1:].view(np.float32).reshape(2, 2)


def fields():
    return np.zeros(4, dtype=[("a", "f4"), ("b", "u1")])["a"]


def frozen():
    array_ = np.zeros(4, dtype=np.float32)
    array_.flags.writeable = False
    return array_


def refused_call(running, name, lease):
    """Return the call that is refused, its error, and all that it is given."""
    error, make = REFUSED[name]
    values = {"dst": bytearray(4), "src": bytearray(4), "xs": [bytearray(1), bytearray(2)]}
    if lease:  # an object that glue does not know makes the call pass through Python
        values["result"] = Producer([0] * 4, (4,))
    values |= make()
    values = {k: v for k, v in values.items() if v is not ...}
    mixed = running.mixed

    def call():
        try:
            mixed(**values)
        except error:
            return
        raise AssertionError(f"{name}: not refused")

    return call, [mixed, error, *values.values(), *values.get("xs", ())]


@pytest.mark.parametrize("name", REFUSED)
def test_refused_calls(running, name):
    call, things = refused_call(running, name, lease=False)
    if name.startswith("dlpack"):
        producer = next(thing for thing in things if isinstance(thing, Producer))
        for _ in range(50):
            call()
        assert producer.deletes() == [1] * len(producer.made)
        producer.made.clear()
    else:
        assert_nothing_stays(call, things, SOME)


@pytest.mark.parametrize("lease", [False, True], ids=["glue", "python"])
@pytest.mark.parametrize("name", REFUSED)
def test_exports_end(running, name, lease):
    """Every bytearray can be resized at once, though the exception is still held."""
    error, make = REFUSED[name]
    held = {"dst": bytearray(4), "src": bytearray(4)}
    items = [bytearray(1), bytearray(2)]
    values = {**held, "xs": items}
    if lease:
        values["result"] = producer = Producer([0] * 4, (4,))
    values |= make()
    values = {k: v for k, v in values.items() if v is not ...}
    with pytest.raises(error) as caught:
        running.mixed(**values)
    every = [*held.values(), *items, *values.values(), *(values.get("xs") or ())]
    resized = [thing.append(0) for thing in every if type(thing) is bytearray]
    assert len(resized) >= 3 and caught.value is not None
    if lease:
        assert producer.deletes() == [1] * len(producer.made)


def overlaps():
    data = bytearray(8)
    view = memoryview(data)
    return data, {
        "partial overlap": dict(dst=view[:4], src=view[1:5], xs=[]),
        "overlap in a list": dict(dst=view[:4], src=bytearray(4), xs=[view[3:]]),
        "count": dict(dst=view[:4], src=view[4:]),
    }


@pytest.mark.parametrize("name", ["partial overlap", "overlap in a list", "count"])
def test_overlaps_and_counts(running, refused, name):
    data, calls = overlaps()
    values = calls.pop(name)
    error = ArgumentError if name == "count" else AliasError
    mixed = running.mixed

    def call():
        try:
            mixed(**values)
        except error:
            return
        raise AssertionError("not refused")

    assert_nothing_stays(call, [mixed, error, data, *values.values()], SOME)
    del calls
    for view in (*values.values(), *values.get("xs", ())):
        if isinstance(view, memoryview):
            view.release()  # fails while it is exported
    values.clear()
    gc.collect()


def test_too_many_arguments(kinds):
    x = torch.zeros(1)
    args = [x] * 9

    def call():
        try:
            kinds.add(*args)
        except ArgumentError:
            return
        raise AssertionError("not refused")

    assert_nothing_stays(call, [x, kinds.add, args], SOME)


def test_an_index_outside(checked):
    x, data = torch.zeros(4), array.array("f", [0] * 4)
    xs = [x, data]

    def call():
        for kernel, args in (
            (checked.get1, (x, 4)),
            (checked.set1, (data, 9, 1.0)),
            (checked.list_set, (xs, 2, 0)),
            (checked.raises_after, (x, 5)),
        ):
            try:
                kernel(*args)
            except BoundsError:
                continue
            raise AssertionError("not refused")

    assert_nothing_stays(call, [x, data, xs, checked.get1, checked.set1, checked.list_set], SOME)
    data.append(0)


# --- exports ------------------------------------------------------------------------------------


def test_exports_end_after_success(running, kinds):
    data, source, items = bytearray(4), bytearray(b"abcd"), [bytearray(3), bytearray(0)]
    assert running.mixed(data, source, items) == 2
    for thing in (data, source, *items):
        thing.append(1)
    assert data == b"abcd\1"
    numbers = array.array("f", [1, 2])
    kinds.scale(numbers, 2.0)
    numbers.append(3)
    assert numbers.tolist() == [2, 4, 3]
    with mmap.mmap(-1, 4096) as page:
        kinds.tail_uint8(page, 5)
    assert page.closed  # which fails with BufferError while it is exported
    view = memoryview(source)
    kinds.tail_uint8(view, 1)
    view.release()


def test_numpy_arrays_can_be_resized(kinds):
    x = np.zeros(4, dtype=np.float32)
    kinds.scale(x, 2.0)
    with pytest.raises(KernelError):
        kinds.add(x, x, x, 77)
    x.resize(9, refcheck=True)


# --- kernels and libraries ----------------------------------------------------------------------


def test_libraries_are_freed(kinds):
    """A library, its kernels and their arguments refer to each other; loading again frees them."""
    import weakref

    library = load("threads")
    kept = library.add_one
    watched = [weakref.ref(library), weakref.ref(library.spin)]
    del library
    gc.collect()
    assert watched[0]() is not None  # a kernel holds its library
    x = torch.zeros(2)
    kept(x, x)
    assert x.tolist() == [1, 1]
    del kept
    gc.collect()
    assert [ref() for ref in watched] == [None] * 2
    blocks = []
    for _ in range(3):
        for _ in range(40):
            load("threads").reload()
        gc.collect()
        blocks.append(sys.getallocatedblocks())
    # A library that stayed would be some hundred blocks, forty times.
    assert blocks[2] - blocks[1] < 400


def test_errors_hold_no_tensor_for_long(kinds):
    """What a caught error refers to goes with it."""
    import weakref

    x = torch.zeros(3)
    ref = weakref.ref(x)
    try:
        kinds.add(x, torch.zeros(2), x)
    except ShapeError as error:
        kept = str(error)
    del x
    gc.collect()
    assert ref() is None and "f32[2]" in kept


# --- a million calls, in a process of their own -------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(1600)
def test_a_million_calls(run_child):
    code = f"""
    import sys
    sys.path.insert(0, {str(KERNELS.parent.parent.parent)!r})
    from pathlib import Path
    from tests.bridge import test_leaks as leaks

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    kernels = [torchmojo.load(KERNELS / f"{{name}}.mojo") for name in ("kinds", "views", "running")]
    for name in leaks.FAST:
        call, things = leaks.successes(*kernels)[name]
        for _ in range(10_000):
            call()
        before, counts = resident(), leaks.references(things)
        for _ in range(1_000_000):
            call()
        assert leaks.references(things)[0] == counts[0], name
        assert resident() - before < 2_000_000, (name, resident() - before)
    torchmojo.fallback("error")
    for name in leaks.REFUSED:
        if name.startswith("dlpack"):
            continue  # the test's producers keep what they made
        call, things = leaks.refused_call(kernels[2], name, lease=False)
        before = resident()
        leaks.assert_nothing_stays(call, things, 10_000)
        assert resident() - before < 2_000_000, (name, resident() - before)
    print("done")
    """
    assert run_child(code, timeout=1500) == "done\n"
