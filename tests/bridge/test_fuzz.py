"""Producers that lie in every field: an error, or the value that the description stands for.

What cannot be noticed is left out, and is the producer's promise: a pointer to nowhere, and a shape
that reaches beyond the memory that it has. Such a description is looked at here but not read.
"""

from pathlib import Path

import pytest

ROOT = str(Path(__file__).parent.parent.parent)

CODE = """
import ctypes as C, collections, itertools, random, sys
sys.path.insert(0, ROOT)
from tests.bridge.conftest import _DESTRUCTORS, _Plain, _Versioned, _deleter, load
from torchmojo import TorchmojoError, share
from torchmojo.bridge.share.leak import tally
from torchmojo.dtypes import BY_DLPACK, BY_NAME

rng = random.Random(SEED)
kinds, views = load("kinds"), load("views")
torchmojo.fallback("error")
NUMPY = {name: np.dtype(name) for name in BY_NAME if name in np.sctypeDict}
new_capsule = C.PYFUNCTYPE(C.py_object, C.c_void_p, C.c_char_p, C.c_void_p)(
    ("PyCapsule_New", C.pythonapi)
)
TOP = 2**63
SIZES = [0, 1, 2, 3, 3, 4, 5, 2**31, 2**32 + 1, 2**61, 2**62, TOP - 1, -1, -(2**31), -TOP]
STEPS = [0, 1, 1, 2, 3, -1, -2, 5, 2**31, -(2**31), 2**60, -(2**60), TOP - 1, -TOP]
OFFSETS = [0, 0, 0, 4, 8, 1, 3, 2**31, TOP - 1, TOP, 2**64 - 4, 2**64 - 1]
DTYPES = [(2, 32), (2, 64), (2, 16), (0, 8), (1, 8), (0, 64), (1, 16), (6, 8), (5, 64), (4, 16)]
DEVICES = [1, 1, 1, 1, 3, 11, 0, 2, 4, 7, 8, 10, 13, 14, 16, -1, 2**31 - 1, -(2**31)]
DIMS = [0, 1, 1, 2, 2, 3, 5, 8, 9, 64, 65, 66, -1, -(2**31), 2**31 - 1]
buffer = bytearray(range(256)) * 2
BASE = C.addressof(C.c_char.from_buffer(buffer))


def some(plain, odd, share_of_odd):
    return rng.choice(odd) if rng.random() < share_of_odd else plain


def produce(wild):
    '''Make a capsule; also what it says, and how often it was deleted.'''
    versioned = rng.random() < 0.5
    managed = (_Versioned if versioned else _Plain)()
    tensor = managed.tensor
    ndim = rng.choice(DIMS) if rng.random() < wild else rng.choice([0, 1, 1, 2, 3])
    count = min(max(ndim, 0), 66)
    pick = lambda odd, plain: rng.choice(odd if rng.random() < wild else plain)
    sizes = [pick(SIZES, [0, 1, 2, 3, 3, 4, 5]) for _ in range(count)]
    steps = [pick(STEPS, [0, 1, 1, 2, 3, -1, 5]) for _ in range(count)]
    if count > 5 and rng.random() < 0.7:
        sizes = [1 if rng.random() < 0.95 else n for n in sizes]
    dtype = rng.choice(DTYPES)
    if rng.random() < wild:
        dtype = (rng.randrange(256), rng.choice([0, 1, 4, 8, 16, 32, 64, 128, 255]))
    lanes = pick([0, 1, 2, 4, 65535], [1])
    null_data, null_shape = rng.random() < wild / 4, rng.random() < wild / 4
    null_steps = rng.random() < 0.2
    offset = pick(OFFSETS, [0, 0, 4, 8])
    # Addresses that nothing can lie at; others could not be told from good ones.
    start = pick([BASE + 128, BASE + 129, 2**64 - 8, TOP - 4, TOP + 1], [BASE + 128])
    device = pick(DEVICES, [1]), pick([0, 1, -1, 2**31 - 1], [0])
    name = b"dltensor_versioned" if versioned else b"dltensor"
    names = [b"used_dltensor", b"used_dltensor_versioned", b"", None, b"DLTensor", b"dltensor "]
    odd_name = rng.random() < wild / 4
    if odd_name:
        name = rng.choice(names)
    version = pick([0, 2, 7, 2**32 - 1], [1]), pick([2**32 - 1, 3], [0, 1])
    flags = pick([2**64 - 1, 4, 2**63, 3], [0, 0, 1, 2])
    has_deleter = rng.random() < 0.9

    tensor.data = None if null_data else start
    tensor.device_type, tensor.device_id = device
    tensor.ndim, tensor.byte_offset = ndim, offset
    (tensor.code, tensor.bits), tensor.lanes = dtype, lanes
    own = (C.c_int64 * max(count, 1))(*sizes), (C.c_int64 * max(count, 1))(*steps)
    if not null_shape:
        tensor.shape = C.cast(own[0], C.POINTER(C.c_int64))
    if not null_steps:
        tensor.strides = C.cast(own[1], C.POINTER(C.c_int64))
    managed.context = 0
    managed.deleter = _deleter(type(managed)) if has_deleter else None
    if versioned:
        (managed.major, managed.minor), managed.flags = version, flags
    destructor = None if odd_name else _DESTRUCTORS[versioned]
    if not has_deleter and not odd_name:
        destructor = None  # NumPy's calls what is not there
    capsule = new_capsule(C.addressof(managed), name, destructor)
    if null_steps:
        steps, step = [], 1
        for n in reversed(sizes):
            steps.insert(0, step)
            step *= max(n, 1)
    said = dict(
        name=name, odd_name=odd_name, major=version[0] if versioned else 1, device=device[0],
        ndim=ndim, shape=tuple(sizes), steps=tuple(steps), start=0 if null_data else start,
        offset=offset, null_shape=null_shape, dtype=dtype, lanes=lanes,
        frozen=versioned and bool(flags & 3), deletes=has_deleter,
    )
    return capsule, said, managed, (own, name)


def reach(said, width):
    '''Tell the bytes that a description reaches, as numbers without end.'''
    low = high = said["start"] + said["offset"]
    if 0 not in said["shape"]:
        for n, s in zip(said["shape"], said["steps"]):
            far = (n - 1) * s * width
            low, high = low + min(far, 0), high + max(far, 0)
        high += width
    return low, high


def width_of(said, info):
    return info.width if info else max(-(-said["dtype"][1] * said["lanes"] // 8), 1)


def judge(said):
    '''Tell whether a description can be one, and of which dtype.'''
    if said["odd_name"] or said["major"] != 1 or said["device"] not in (1, 3, 11):
        return False, None
    if not 0 <= said["ndim"] <= 64 or (said["ndim"] and said["null_shape"]):
        return False, None
    info = BY_DLPACK.get(said["dtype"]) if said["lanes"] == 1 else None
    numel = 1
    for n in said["shape"]:
        if n < 0:
            return False, info
        numel *= n
    low, high = reach(said, width_of(said, info))
    if numel >= TOP or low < 0 or high >= TOP or (numel and not said["start"]):
        return False, info
    return True, info


def values(said, info):
    '''Read what the description stands for, element by element, out of the buffer.'''
    got = []
    if 0 in said["shape"]:
        return b""
    for index in itertools.product(*map(range, said["shape"])):
        at = said["start"] + said["offset"] - BASE
        at += sum(i * s for i, s in zip(index, said["steps"])) * info.width
        got.append(bytes(buffer[at : at + info.width]))
    return b"".join(got)


def use(handle, said, info, counts):
    '''Look at a handle of something possible, and read it where it lies in the buffer.'''
    low, high = reach(said, width_of(said, info))
    assert handle.state in ("owned", "borrowed", "borrowed_immutable")
    assert handle.shape == said["shape"]
    assert handle.address == said["start"] + said["offset"]
    numel = int(np.prod([int(n) for n in handle.shape], dtype=object)) if handle.shape else 1
    assert 0 in handle.shape or handle.strides == said["steps"]
    repr(handle), handle.nbytes, handle.dtype
    inside = BASE <= low and high <= BASE + len(buffer)
    try:
        views.list_ranks([handle])  # looks at float32 of any rank, reads nothing
        assert info.name == "float32" and 1 <= said["ndim"]
        counts["looked at"] += 1
    except TorchmojoError:
        pass
    if info is None:
        try:
            handle.__dlpack__(copy=True)
            raise AssertionError("a dtype of nobody's was copied")
        except BufferError:
            return
    if inside and said["ndim"] == 1 and numel and low % info.width == 0 and not info.parts:
        try:
            kinds.first(handle)
        except TorchmojoError:
            assert info.kind == "8"
    much = int(np.prod([max(int(n), 1) for n in handle.shape] or [1], dtype=object))
    if not inside or much > 5000 or info.name not in NUMPY:
        return
    wanted = values(said, info)
    got = np.from_dlpack(handle, copy=True)
    assert got.shape == said["shape"] and got.tobytes() == wanted, said
    counts["copied"] += 1
    try:
        got = np.from_dlpack(handle)
    except BufferError:
        return
    assert got.tobytes() == wanted
    assert numel == 0 or got.ctypes.data == handle.address
    assert got.flags.writeable != said["frozen"]
    counts["lent"] += 1


counts = collections.Counter()
before = tally()
for turn in range(TURNS):
    capsule, said, managed, keep = produce(rng.choice([0.0, 0.03, 0.1, 0.3]))
    possible, info = judge(said)
    way = rng.choice(["share", "kernel", "producer", "owned", "list"])
    kept = [capsule]

    class Lender:
        def __dlpack_device__(self, device=said["device"]):
            return (device, 0)

        def __dlpack__(self, **_):
            return kept.pop()

    del capsule
    taken = False
    try:
        if way == "share":
            handle = share(kept[0])
        elif way == "owned":
            handle = share(Lender(), "owned")
        elif way == "producer":
            handle = share(Lender())
        elif way == "kernel":
            handle = None
            views.list_ranks([kept[0]])
        else:
            handle = None
            views.list_both([], [kept[0]])
        taken = True
        assert possible, said
        if handle is not None:
            assert handle.state == (
                "borrowed_immutable" if said["frozen"] and way == "producer"
                else "borrowed" if way == "producer" else "owned"
            )
            with handle:
                use(handle, said, info, counts)
            del handle
        counts["taken"] += 1
    except TorchmojoError as error:
        assert not possible or way in ("kernel", "list"), (said, error)
        assert str(error).split(": ", 1)[0] in ("share", "list_ranks", "list_both"), error
        counts["refused"] += 1
        del error
    if possible and way in ("kernel", "list") and not kept:
        raise AssertionError
    kept.clear()
    ended = (managed.context or 0) == (1 if said["deletes"] and not said["odd_name"] else 0)
    assert ended, (said, way, managed.context)
now = tally()
assert (now.handles, now.leases, now.buffers, now.twice) == (
    before.handles, before.leases, before.buffers, before.twice
), (before, now)
for what in ("taken", "refused", "looked at", "copied", "lent"):
    assert counts[what] > TURNS / 50, counts
print("done")
"""


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_dlpack_in_every_field(run_child, seed):
    code = CODE.replace("ROOT", repr(ROOT)).replace("SEED", str(seed)).replace("TURNS", "2500")
    assert run_child(code) == "done\n"


INTERFACE = """
import random, sys, types
sys.path.insert(0, ROOT)
from tests.bridge.conftest import load
from torchmojo import TorchmojoError, share

rng = random.Random(SEED)
kinds, views = load("kinds"), load("views")
torchmojo.fallback("error")
source = np.arange(24, dtype=np.float32).reshape(4, 6)
whole = source.__array_interface__
start = source.ctypes.data
HUGE = [2**63 - 1, 2**63, 2**64, -(2**63), 10**30, -1]
ODD = [None, 1.5, "4", b"4", [], {}, (), object(), float("nan"), True, np.int64(2), np.float32(2)]
SHAPES = [(4, 6), (24,), (), (0,), (0, 10**30), (10**30,), (2**32, 2**32), (2.0, 3), "46", (None,)]
SHAPES += [(-1, 6), (4, -6), (np.int64(4), 6), [4, 6], 24, (True, 6), (1,) * 70, (2**63 - 1, 0)]
STRIDES = [None, (24, 4), (4, 24), (0, 0), (-24, -4), (4,), (4, 4, 4), (10**30, 4), (24, "4"), 4]
STRIDES += [(np.int64(24), 4), (24, 4.0), [24, 4], (3, 1), (2**62, 2**62), ()]
TYPES = ["<f4", ">f4", "|u1", "<i8", "|V4", "<c8", "f4", "<", "", "<f", "<fx", "|O8", "<f-4", "<f0"]
TYPES += [4, None, b"<f4", "<f99999999999999999999", "=f4", "?b1", "<U4"]
DATA = [(start, False), (start, True), (start, 3), (start,), (0, False), (start + 1, False), None]
DATA += [start, (None, False), ("x", False), (float(start), False), b"bytes", [start, False]]
DATA += [(2**64, False), (-8, False), (np.int64(start), False), (2**63 - 1, False)]
FIELDS = dict(shape=SHAPES, strides=STRIDES, typestr=TYPES, data=DATA)
shared = refused = read = 0
for turn in range(TURNS):
    facts = dict(whole)
    for name in rng.sample(sorted(FIELDS), rng.choice([0, 1, 1, 2, 3])):
        facts[name] = rng.choice(FIELDS[name] + (ODD + HUGE if rng.random() < 0.2 else []))
        if rng.random() < 0.05:
            del facts[name]
    whole_facts = facts if rng.random() < 0.95 else rng.choice(ODD)
    lender = types.SimpleNamespace(__array_interface__=whole_facts)
    for way in (share, lambda x: views.list_ranks([x]), kinds.pick_count):
        try:
            got = way(lender)
        except TorchmojoError as error:
            refused += 1
            assert ": " in str(error)
            continue
        if way is not share:
            continue
        shared += 1
        with got as handle:
            repr(handle), handle.nbytes
            assert all(type(n) is int for n in (*handle.shape, *(handle.strides or ())))
            if facts == whole:
                assert np.from_dlpack(handle).tolist() == source.tolist()
                assert handle.address == start and kinds.pick_count is not None
                read += 1
assert min(shared, refused, read) > TURNS / 20, (shared, refused, read)
print("done")
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_array_interfaces_in_every_field(run_child, seed):
    code = INTERFACE.replace("ROOT", repr(ROOT)).replace("SEED", str(seed)).replace("TURNS", "3000")
    assert run_child(code) == "done\n"
