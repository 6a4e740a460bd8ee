"""The native core by its C functions: copies, conversions of dtypes, DLPack exports.

NumPy and torch are the oracles. Memory round each output is compared too, so that a stray write
shows, and a child process reads and writes up to the edge of mapped memory.
"""

import ctypes as C
import gc
import itertools
import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchmojo.errors import CompilerNotFoundError
from torchmojo.toolchain.core import build_core

BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}
NONE, SWAP, FLIP, NEGATE = range(4)
MASK, MASK_LO = 0x7123456789ABCDEF, 0x1F2E3D4C5B6A7988
EDGES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129)


def library(name):
    try:
        return str(build_core(name))
    except CompilerNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def memory_path():
    return library("memory")


@pytest.fixture(scope="session")
def raw_copy(memory_path):
    function = C.CDLL(memory_path).torchmojo_copy
    function.restype, function.argtypes = C.c_int32, (C.c_int64,) * 10
    return function


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def words(values):
    return (C.c_int64 * max(len(values), 1))(*values)


def copy_into(raw_copy, dst, src, change=NONE, mask=MASK, mask_lo=MASK_LO):
    """Call torchmojo_copy on two arrays of one shape."""
    sizes, to, come = words(dst.shape), words(dst.strides), words(src.strides)
    places = (C.addressof(w) for w in (sizes, to, come))
    start = (dst.ctypes.data, src.ctypes.data, dst.ndim)
    return raw_copy(*start, *places, dst.itemsize, change, mask, mask_lo)


def changed(src, change):
    """Do slowly, on bytes, what torchmojo_copy does to elements."""
    width = src.itemsize
    parts = np.frombuffer(src.tobytes(), np.uint8).reshape(*src.shape, width)
    if change == SWAP:
        parts = parts[..., ::-1]
    elif change == FLIP:
        low = MASK_LO if width == 16 else MASK
        both = low.to_bytes(8, "little") + MASK.to_bytes(8, "little")
        parts = parts ^ np.frombuffer(both, np.uint8)[:width]
    elif change == NEGATE:
        number = np.dtype(f"u{width}")
        with np.errstate(over="ignore"):
            numbers = -np.ascontiguousarray(parts).view(number)
        parts = numbers.view(np.uint8)
    return np.ascontiguousarray(parts).tobytes()


def scattered(seed, shape, width, steps, order, offset):
    """Lay an array out in random bytes: with steps, negative ones too, axes in any order."""
    extents = [max(size * abs(step), 1) + 1 for size, step in zip(shape, steps, strict=True)]
    count = int(np.prod(extents)) * width + offset + 16
    raw = np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)
    base = np.ndarray([extents[i] for i in order], BITS[width], raw.data, offset)
    array = base.transpose([order.index(i) for i in range(len(shape))])
    cut = [slice(0, n * abs(s), abs(s)) for n, s in zip(shape, steps, strict=True)]
    array = array[(*cut, ...)]
    backwards = [i for i, step in enumerate(steps) if step < 0]
    return (np.flip(array, backwards) if backwards else array), raw


def untouched(array, raw):
    """Tell which bytes of `raw` are none of `array`'s; the array is overwritten."""
    array[...] = 0
    zeros = raw.copy()
    full = np.full((), 255, np.uint8).repeat(array.itemsize).view(array.dtype)[0]
    array[...] = full
    return zeros == raw


@st.composite
def layouts(draw):
    ndim = draw(st.integers(0, 5))
    most = {0: 1, 1: 300, 2: 140, 3: 20}.get(ndim, 6)
    size = st.integers(0, 6) | st.sampled_from([n for n in EDGES if n <= most] or [1])
    shape = [draw(size) for _ in range(ndim)]
    step = st.sampled_from([1, 1, 1, 2, 3, 4, 5, -1, -2])
    sides = []
    for _ in range(2):
        steps = [draw(step) for _ in range(ndim)]
        order = draw(st.permutations(range(ndim)))
        sides.append((steps, list(order), draw(st.sampled_from([0, 0, 0, 1, 3, 8]))))
    repeated = draw(st.none() | st.integers(0, ndim - 1)) if ndim else None
    return shape, sides, repeated


# --- copies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", BITS)
@settings(max_examples=500)
@given(layout=layouts(), change=st.sampled_from([NONE, NONE, SWAP, FLIP, NEGATE]))
def test_any_layout(raw_copy, width, layout, change):
    shape, (to, come), repeated = layout
    if (width, change) == (16, NEGATE):
        change = FLIP
    src, _ = scattered(1, shape, width, *come)
    if repeated is not None and shape[repeated]:
        first = [slice(0, 1) if i == repeated else slice(None) for i in range(len(shape))]
        src = np.broadcast_to(src[tuple(first)], shape)
    dst, raw = scattered(2, shape, width, *to)
    before = raw.copy()
    assert copy_into(raw_copy, dst, src, change) == 0
    assert dst.tobytes() == changed(src, change)
    after = raw.copy()
    outside = untouched(dst, raw)
    assert np.array_equal(before[outside], after[outside])


@pytest.mark.parametrize("width", BITS)
def test_sizes_around_a_tile(raw_copy, width):
    rng = np.random.default_rng(width)
    pool = rng.integers(0, 256, 131 * 131 * width + 1, dtype=np.uint8)
    for rows, columns in itertools.product(EDGES, EDGES):
        n = rows * columns
        for offset in (0, 1):
            src = np.ndarray((columns, rows), BITS[width], pool.data, offset)
            dst = np.empty((rows, columns), BITS[width])
            assert copy_into(raw_copy, dst, src.T) == 0  # gather
            assert dst.tobytes() == src.T.tobytes(), (rows, columns)
            out = np.empty(n * width + 1, np.uint8)
            back = np.ndarray((columns, rows), BITS[width], out.data, offset)
            assert copy_into(raw_copy, back.T, dst) == 0  # scatter
            assert back.tobytes() == src.tobytes(), (rows, columns)


@pytest.mark.parametrize("width", BITS)
def test_channels(raw_copy, width):
    rng = np.random.default_rng(width)
    for channels, pixels in itertools.product(range(1, 7), (*EDGES, 1000)):
        raw = rng.integers(0, 256, channels * pixels * width, dtype=np.uint8)
        image = raw.view(BITS[width]).reshape(pixels, channels)
        planes = np.empty((channels, pixels), BITS[width])
        assert copy_into(raw_copy, planes, image.T) == 0
        assert planes.tobytes() == image.T.tobytes()
        again = np.empty_like(image)
        assert copy_into(raw_copy, again, planes.T) == 0
        assert again.tobytes() == image.tobytes()
        one = np.empty(pixels, BITS[width])
        assert copy_into(raw_copy, one, image[:, -1]) == 0
        assert one.tobytes() == image[:, -1].tobytes()


def large():
    """Give layouts above the size from which on threads share the work."""
    numbers = torch.arange(6_000_000)
    a = numbers[: 1021 * 1031].reshape(1021, 1031)
    picture = numbers[: 700 * 701 * 3].reshape(700, 701, 3)
    return {
        "contiguous": a,
        "transposed": a.T,
        "step 2": numbers[::2],
        "step 3": a[:, ::3],
        "backwards": numbers[:999_999].flip(0)[::5],
        "rows": a[:, :1000],
        "across steps": a[::2, ::2].T,
        "expanded": numbers[:1500, None].expand(1500, 1400),
        "expanded rows": numbers[:1400].expand(1500, 1400),
        "one value": numbers[:1].expand(2_000_003),
        "to planes": picture.permute(2, 0, 1),
        "to pixels": picture.reshape(3, 701, 700).permute(1, 2, 0),
        "four axes": numbers[: 31 * 47 * 63 * 11].reshape(31, 47, 63, 11).permute(2, 0, 3, 1),
        "many small": numbers[: 80_000 * 12].reshape(80_000, 3, 4).permute(0, 2, 1),
        "channels last": numbers[: 4 * 65 * 67 * 33].reshape(4, 65, 67, 33).permute(0, 2, 3, 1),
    }


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int16, torch.float32, torch.complex128], ids=str
)
def test_large_ones_on_threads(raw_copy, threads, dtype):
    for name, x in large().items():
        x = x.to(torch.int16).to(dtype) if name == "contiguous" else like(x, dtype)
        dst = np.empty(x.shape, x.numpy().dtype)
        assert copy_into(raw_copy, dst, x.numpy()) == 0
        assert torch.equal(torch.from_numpy(dst), x), name
        # The other way: a contiguous input into an output of that layout.
        if "expanded" not in name and name != "one value":
            out = like(torch.empty_strided(x.shape, x.stride()), dtype, x.stride())
            assert copy_into(raw_copy, out.numpy(), dst) == 0
            assert torch.equal(out, x), name


def test_a_function_for_threads_that_is_given(memory_path):
    function = C.CDLL(memory_path).torchmojo_copy_on
    function.restype, function.argtypes = C.c_int32, (C.c_int64,) * 11
    calls = []
    body_type = C.CFUNCTYPE(None, C.c_int64, C.c_int64, C.c_void_p)

    @C.CFUNCTYPE(C.c_int32, C.c_int64, C.c_int64, C.c_int64, body_type, C.c_void_p)
    def backwards(begin, end, grain, body, context):
        """Do the work in small pieces, the last one first."""
        calls.append((begin, end, grain))
        for start in reversed(range(begin, end, 3)):
            body(start, min(start + 3, end), context)
        return 0

    def copy(*rest):
        return function(C.cast(backwards, C.c_void_p).value, *rest)

    for name, x in large().items():
        dst = np.zeros(x.shape, np.int64)
        assert copy_into(copy, dst, x.numpy()) == 0
        assert np.array_equal(dst, x.numpy()), name
    assert len(calls) == len(large()) and all(0 == a < g < b for a, b, g in calls)
    small = np.arange(600.0).reshape(20, 30)
    out = np.zeros((30, 20))
    assert copy_into(copy, out, small.T) == 0 and np.array_equal(out, small.T)
    assert len(calls) == len(large())


def like(x, dtype, stride=None):
    """Convert without a change of strides, as `.to` would make it dense."""
    size = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) + 1
    flat = x.as_strided((size,), (1,)).to(dtype)
    return flat.as_strided(x.shape, x.stride() if stride is None else stride)


def test_every_change_of_dense_and_of_large(raw_copy, threads):
    src = np.random.default_rng(0).integers(0, 256, 249 * 251 * 16, dtype=np.uint8)
    for width, change in itertools.product(BITS, (SWAP, FLIP, NEGATE)):
        x = src[: 249 * 251 * width].view(BITS[width]).reshape(249, 251)
        for view in (x, x.T, x[:, ::2]):
            dst = np.zeros(view.shape, BITS[width])
            status = copy_into(raw_copy, dst, view, change)
            if (width, change) == (16, NEGATE):
                assert status == 1 and not dst.any()
            else:
                assert status == 0 and dst.tobytes() == changed(view, change)


def test_a_mask_negates_floats_and_conjugates(raw_copy):
    for dtype, mask in ((np.float16, 1 << 15), (np.float32, 1 << 31), (np.float64, -(1 << 63))):
        x = np.array([0.0, -0.0, 1.5, -np.inf, np.nan], dtype)
        dst = np.empty_like(x)
        assert copy_into(raw_copy, dst, x, FLIP, mask, 0) == 0
        assert dst.tobytes() == (-x).tobytes()
    z = np.array([1 + 2j, -0.0 - 3j])
    for mask, mask_lo, wanted in ((-(1 << 63), 0, z.conj()), (-(1 << 63), -(1 << 63), -z)):
        dst = np.empty_like(z)
        assert copy_into(raw_copy, dst, z, FLIP, mask, mask_lo) == 0
        assert dst.tobytes() == wanted.tobytes()


def test_nothing_to_copy(raw_copy):
    for shape in ((0,), (3, 0), (0, 5), (2, 0, 3)):
        sizes = words(shape)
        # No address is valid: reading or writing one would end the process.
        assert (
            raw_copy(1, 1, len(shape), C.addressof(sizes), *([C.addressof(sizes)] * 2), 4, 0, 0, 0)
            == 0
        )
    one, other = np.array(5.5), np.array(0.0)
    assert copy_into(raw_copy, other, one) == 0 and other == 5.5


def test_ranks_up_to_the_last(raw_copy):
    src = np.arange(2**12, dtype=np.float32)
    for ndim in (12, 64):
        shape = (1,) * (ndim - 12) + (2,) * 12
        order = [*range(ndim - 12), *reversed(range(ndim - 12, ndim))]
        x = src.reshape(shape).transpose(order)
        dst = np.empty(shape, np.float32)
        assert copy_into(raw_copy, dst, x) == 0 and np.array_equal(dst, x)


@pytest.mark.parametrize(
    ("ndim", "width", "change"),
    [(65, 4, 0), (-1, 4, 0), (1, 3, 0), (1, 0, 0), (1, 32, 0), (1, 4, 4), (1, 4, -1), (1, 16, 3)],
)
def test_unknown_requests_write_nothing(raw_copy, ndim, width, change):
    src, dst, ones = np.ones(64), np.zeros(64), words([1] * 65)
    place = C.addressof(ones)
    where = (dst.ctypes.data, src.ctypes.data)
    assert raw_copy(*where, ndim, place, place, place, width, change, 0, 0) == 1
    assert not dst.any()


GUARDED = """
import ctypes as C, itertools, mmap
import numpy as np

PAGE = mmap.PAGESIZE
libc = C.CDLL(None, use_errno=True)
libc.mprotect.argtypes = (C.c_void_p, C.c_size_t, C.c_int)
copy = C.CDLL(LIBRARY).torchmojo_copy
copy.argtypes = (C.c_int64,) * 10

class Guarded:
    # Pages between two that nobody may touch.
    def __init__(self, pages):
        self.map = mmap.mmap(-1, (pages + 2) * PAGE)
        self.start = C.addressof(C.c_char.from_buffer(self.map)) + PAGE
        self.size = pages * PAGE
        assert libc.mprotect(self.start - PAGE, PAGE, 0) == 0
        assert libc.mprotect(self.start + self.size, PAGE, 0) == 0
        self.bytes = np.frombuffer(self.map, np.uint8)[PAGE:-PAGE]

    def place(self, count, at_end):
        return self.bytes[self.size - count :] if at_end else self.bytes[:count]

def run(dst, src):
    w = lambda x: (C.c_int64 * max(len(x), 1))(*x)
    words = w(dst.shape), w(dst.strides), w(src.strides)
    places = [C.addressof(x) for x in words]
    assert copy(dst.ctypes.data, src.ctypes.data, dst.ndim, *places, dst.itemsize, 0, 0, 0) == 0

a, b = Guarded(24), Guarded(24)
a.bytes[:] = np.arange(a.size) % 251
count = 0
sizes = (1, 2, 3, 4, 5, 16, 17, 33, 64, 67)
for width, n, m in itertools.product((1, 2, 4, 8, 16), sizes, (3, 16, 21, 65)):
    kind = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}[width]
    for at_end in (False, True):
        x = a.place(n * m * width, at_end).view(kind).reshape(n, m)
        y = b.place(n * m * width, at_end).view(kind)
        for view in (x, x.T, x[::-1], x[:, ::-1]):
            out = y.reshape(view.shape)
            run(out, view)
            assert out.tobytes() == view.tobytes()
            count += 1
        # Rows of steps that end with the very last element of the mapping.
        for step in (2, 3, 4, 5):
            size = (n * m - 1) * step + 1
            if size * width <= a.size:
                flat = a.place(size * width, at_end).view(kind)[::step]
                run(y, flat)
                assert y.tobytes() == flat.tobytes()
                count += 1
print(count)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="uses mprotect of Linux")
def test_nothing_outside_is_read_or_written(memory_path, run_child):
    assert int(run_child(f"LIBRARY = {memory_path!r}\n" + GUARDED, bare=True)) > 2000


# --- conversions --------------------------------------------------------------------------------

NUMBERS = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.bool: 11,
    torch.bfloat16: 15,
    torch.float8_e5m2: 23,
    torch.float8_e4m3fn: 24,
    torch.uint16: 27,
    torch.uint32: 28,
    torch.uint64: 29,
}
FLOATS = [dtype for dtype in NUMBERS if dtype.is_floating_point]
INTEGERS = [dtype for dtype in NUMBERS if not dtype.is_floating_point and dtype != torch.bool]
BY_WIDTH = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
NARROW = (torch.float16, torch.bfloat16, torch.float8_e5m2, torch.float8_e4m3fn)


@pytest.fixture(scope="session")
def cast():
    function = C.CDLL(library("convert")).torchmojo_cast
    function.restype, function.argtypes = C.c_int32, (C.c_int64,) * 9

    def cast(dst, src):
        """Convert; give the status and the integer that did not fit."""
        bad = (C.c_uint64 if src.dtype == torch.uint64 else C.c_int64)(0)
        steps = [words([s * t.element_size() for s in t.stride()]) for t in (dst, src)]
        sizes = words(dst.shape)
        places = [C.addressof(w) for w in (sizes, *steps)]
        start = (dst.data_ptr(), src.data_ptr(), dst.dim())
        kinds = (NUMBERS[dst.dtype], NUMBERS[src.dtype])
        return function(*start, *places, *kinds, C.addressof(bad)), bad.value

    return cast


def bits(tensor):
    return tensor.view(BY_WIDTH[tensor.element_size()])


def halfway(dtype):
    """Give what lies between neighbours of a narrow float, a little less and a little more."""
    all_bits = torch.arange(2 ** (8 * dtype.itemsize), dtype=torch.int32).to(
        BY_WIDTH[dtype.itemsize]
    )
    finite = all_bits.view(dtype).double()
    finite = finite[finite.isfinite()].unique()
    middle = bits((finite[1:] + finite[:-1]) / 2)
    return torch.cat([middle, middle + 1, middle - 1, middle + (1 << 28), middle + (1 << 29)])


def samples(dtype):
    """Give all values of a narrow dtype; of a wide one, random bits, ties and limits."""
    if dtype == torch.bool:
        return torch.tensor([False, True] * 9)
    if dtype.itemsize <= 2:
        count = 2 ** (8 * dtype.itemsize)
        return torch.arange(count, dtype=torch.int32).to(BY_WIDTH[dtype.itemsize]).view(dtype)
    generator = torch.Generator().manual_seed(5)
    noise = torch.randint(-(2**63), 2**63 - 1, (20_000,), generator=generator)
    if dtype.is_floating_point:
        ties = torch.cat([halfway(narrow) for narrow in NARROW]).view(torch.float64)
        if dtype == torch.float64:
            singles = bits(samples(torch.float32).double())
            near = [singles + d for d in (0, 1, -1, 1 << 28, (1 << 28) + 1)]
            return torch.cat([noise, *near]).view(torch.float64)
        return torch.cat([noise.to(torch.int32).view(torch.float32), ties.float()])
    powers = torch.tensor(
        [s * (1 << k) + d for k in range(63) for s in (1, -1) for d in range(-2, 3)]
    )
    shifts = torch.randint(0, 64, noise.shape, generator=generator)
    near = torch.arange(-66_000, 66_000)
    wide = torch.cat([noise, noise >> shifts, powers, powers << 1, near])
    return wide.to(BY_WIDTH[dtype.itemsize]).view(dtype)


def fitting(src, dtype):
    """Tell which integers fit another integer dtype."""
    info = torch.iinfo(dtype)
    values = src.numpy().astype(object)
    return torch.from_numpy(((values >= info.min) & (values <= info.max)).astype(bool))


def wanted(src, dtype):
    """Ask torch; before 2.13 its float8_e4m3fn has NaN for what is too large."""
    result = src.to(dtype)
    if dtype == torch.float8_e4m3fn:
        values = src.to(torch.float32)
        limit = torch.tensor([448.0]).copysign(values).to(dtype)
        result = torch.where(values.abs() >= 448, bits(limit), bits(result)).view(dtype)
    return result


def assert_same(got, expected):
    """Compare bits; any NaN is as good as another, for torch's depend on where they stand."""
    assert got.dtype == expected.dtype
    same = bits(got) == bits(expected)
    if got.dtype.is_floating_point:
        same |= got.double().isnan() & expected.double().isnan()
    assert bool(same.all()), f"{int((~same).sum())} of {same.numel()} differ"


@pytest.mark.parametrize("src", NUMBERS, ids=str)
def test_every_pair(cast, src):
    x = samples(src)
    for dst in NUMBERS:
        if src in FLOATS and dst in INTEGERS:
            out = torch.full((7,), 5, dtype=torch.uint8).to(dst)
            assert cast(out, x[:7]) == (1, 0)
            assert bool((out.to(torch.int64) == 5).all())
            continue
        fit = bits(x)
        if src in INTEGERS and dst in INTEGERS:
            fit = fit[fitting(x, dst)]
        fit = fit.view(src)
        out = torch.empty(fit.shape, dtype=dst)
        assert cast(out, fit) == (0, 0)
        assert_same(out, wanted(fit, dst))


def test_subnormals_of_narrow_floats_are_never_zeros(cast):
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush subnormals")
    try:
        for src, dst in itertools.product(NARROW, (torch.float32, torch.float64)):
            x = samples(src)
            if src == torch.bfloat16:  # its subnormals are those of float32
                x = x[(bits(x) & 0x7F80) != 0]
            out = torch.empty(x.shape, dtype=dst)
            assert cast(out, x) == (0, 0)
            assert_same(out, x.to(dst))
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("src", INTEGERS, ids=str)
def test_integers_that_do_not_fit(cast, src):
    for dst in INTEGERS:
        x = samples(src)
        fits = fitting(x, dst)
        if fits.all():
            continue
        strangers = bits(x)[~fits].view(src)
        places = (0, 15, 16, 1023, 1024, 2499)
        for stranger, place in zip(strangers[:: len(strangers) // 6 + 1], places, strict=False):
            calm = torch.full((2500,), 7, dtype=torch.uint8).to(src)
            calm[place] = stranger
            out = torch.full((2600,), 9, dtype=torch.uint8).to(dst)
            assert cast(out[:2500], calm) == (2, int(stranger.numpy()))
            assert int(out[place]) == 9 and bool((out[2500:].to(torch.int64) == 9).all())


def test_conversions_of_any_layout(cast, threads):
    generator = torch.Generator().manual_seed(1)
    base = torch.randint(0, 100, (40, 66, 70), generator=generator)
    views = {
        "transposed": lambda x: x[:, :, 3].T,
        "permuted": lambda x: x.permute(2, 0, 1),
        "steps": lambda x: x[::3, 1::2, ::5],
        "dense": lambda x: x.flatten()[1:],
        "expanded": lambda x: x[:, :1, :1].expand(40, 50, 60),
        "one": lambda x: x[3, 4, 5],
        "none": lambda x: x[:, 5:5],
        "narrow": lambda x: x[:, :, :3].permute(1, 2, 0),
    }
    pairs = [
        (torch.uint8, torch.float32),
        (torch.float32, torch.float16),
        (torch.bfloat16, torch.float64),
        (torch.int64, torch.int8),
        (torch.float64, torch.bool),
        (torch.bool, torch.int32),
    ]
    for (src, dst), (name, view) in itertools.product(pairs, views.items()):
        x = view(base.to(src))
        out = torch.empty(x.shape, dtype=dst)
        assert cast(out, x) == (0, 0)
        assert torch.equal(out, x.to(dst)), name
        # Into an output with strides and with something between its elements.
        room = torch.zeros(*x.shape, 2, dtype=dst)
        assert cast(room[..., 1], x) == (0, 0)
        assert torch.equal(room[..., 1], out) and not room[..., 0].any(), name


def test_conversions_without_alignment(cast):
    array = np.ndarray((499,), np.float32, np.zeros(500 * 4, np.uint8).data, 1)
    array[:] = torch.randn(499).numpy()
    room = np.zeros(499 * 8 + 3, np.uint8)
    out = np.ndarray((499,), np.float64, room.data, 3)
    sizes, to, come = words([499]), words([8]), words([4])
    function = C.CDLL(library("convert")).torchmojo_cast
    function.argtypes = (C.c_int64,) * 9
    places = (C.addressof(w) for w in (sizes, to, come))
    assert function(out.ctypes.data, array.ctypes.data, 1, *places, 7, 6, 0) == 0
    assert out.tobytes() == array.astype(np.float64).tobytes() and not room[:3].any()


def test_unknown_dtypes_are_refused(cast):
    function = C.CDLL(library("convert")).torchmojo_cast
    function.argtypes = (C.c_int64,) * 9
    place = C.addressof(words([1] * 65))
    for ndim, dst, src in ((1, 8, 6), (1, 6, 9), (1, -1, 6), (1, 6, 44), (65, 6, 6), (-1, 6, 6)):
        assert function(0, 0, ndim, place, place, place, dst, src, 0) == 1


def test_one_bad_integer_among_many_on_threads(cast, threads):
    x = torch.arange(3_000_000) % 120
    x[2_345_678] = -129
    assert cast(torch.empty(3_000_000, dtype=torch.int8), x) == (2, -129)
    x[2_345_678] = -128
    out = torch.empty(3_000_000, dtype=torch.int8)
    assert cast(out, x) == (0, 0) and torch.equal(out, x.to(torch.int8))


# --- exports ------------------------------------------------------------------------------------

ALIVE, DELETED, DOUBLE, FINALIZING, TURN, ERROR = range(6)
READ_ONLY = 1
NAMES = {True: b"dltensor_versioned", False: b"dltensor"}


class Lender:
    """Owns memory; can be counted, weakly referenced, and told to act when it dies."""

    def __init__(self, count=6):
        self.values = np.arange(count, dtype=np.float32)
        self.at_end = None

    def __del__(self):
        if self.at_end:
            self.at_end()


class Made:
    """A producer that gives one capsule away."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return (1, 0)


class Exports:
    """Calls torchmojo_lend with a table of its own."""

    def __init__(self, path):
        self.table = (C.c_int64 * (8 + 1024))()
        self.function = C.PyDLL(path).torchmojo_lend
        self.function.restype = C.py_object
        self.function.argtypes = (C.py_object, *(C.c_int64,) * 8)

    def lend(self, owner, shape=(2, 3), strides=(3, 1), flags=0, versioned=True):
        dtype = 2 | 32 << 8 | 1 << 16
        sizes, steps = words(shape), words(strides)
        places = (C.addressof(sizes), C.addressof(steps))
        data = owner.values.ctypes.data
        table = C.addressof(self.table)
        return self.function(owner, data, len(shape), *places, dtype, flags, versioned, table)

    def counts(self):
        return tuple(self.table[:3])


@pytest.fixture
def exports(memory_path):
    return Exports(memory_path)


def managed_of(capsule, versioned=True):
    get = C.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = C.c_void_p, (C.py_object, C.c_char_p)
    return get(capsule, NAMES[versioned])


def rename(capsule, name):
    set_name = C.pythonapi.PyCapsule_SetName
    set_name.restype, set_name.argtypes = C.c_int, (C.py_object, C.c_char_p)
    assert set_name(capsule, name) == 0


USED = b"used_dltensor"  # the capsule keeps the address of its name


def take(capsule, versioned=True):
    """Take a managed tensor as a consumer does; give its address and its deleter's."""
    managed = managed_of(capsule, versioned)
    rename(capsule, USED)
    return managed, C.c_void_p.from_address(managed + (16 if versioned else 56)).value


def delete(managed, deleter, held=False):
    """Call a deleter, with the GIL or without."""
    kind = C.PYFUNCTYPE if held else C.CFUNCTYPE
    kind(None, C.c_void_p)(deleter)(managed)


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("consume", [torch.from_dlpack, lambda c: np.from_dlpack(Made(c))])
def test_consumers_share_the_memory(exports, versioned, consume):
    owner = Lender()
    before = sys.getrefcount(owner)
    capsule = exports.lend(owner, versioned=versioned)
    assert sys.getrefcount(owner) == before + 1 and exports.counts() == (1, 0, 0)
    x = consume(capsule)
    assert tuple(x.shape) == (2, 3) and x.tolist() == [[0, 1, 2], [3, 4, 5]]
    owner.values[4] = 70
    assert float(x[1, 1]) == 70
    part = x[1]
    del capsule, x
    gc.collect()
    assert exports.counts() == (1, 0, 0) and sys.getrefcount(owner) == before + 1
    assert part.tolist() == [3, 70, 5]
    del part
    gc.collect()
    assert exports.counts() == (0, 1, 0) and sys.getrefcount(owner) == before


@pytest.mark.parametrize("versioned", [True, False])
def test_a_capsule_that_nobody_takes(exports, versioned):
    owner = Lender()
    before = sys.getrefcount(owner)
    capsule = exports.lend(owner, versioned=versioned)
    del capsule
    assert exports.counts() == (0, 1, 0) and sys.getrefcount(owner) == before


def test_fields(exports):
    owner = Lender(60)
    cases = [((2, 3, 4), (1, 2, 6)), ((), ()), ((0, 5), (5, 1)), ((1,) * 64, (7,) * 64)]
    for (shape, strides), versioned in itertools.product(cases, (True, False)):
        capsule = exports.lend(owner, shape, strides, 3, versioned)
        managed = managed_of(capsule, versioned)
        if versioned:
            assert list((C.c_uint32 * 2).from_address(managed)) == [1, 0]
            assert C.c_uint64.from_address(managed + 24).value == 3
        tensor = managed + (32 if versioned else 0)
        assert C.c_void_p.from_address(tensor).value == owner.values.ctypes.data
        assert list((C.c_int32 * 3).from_address(tensor + 8)) == [1, 0, len(shape)]
        assert list((C.c_uint8 * 4).from_address(tensor + 20)) == [2, 32, 1, 0]
        sizes, steps = (C.c_void_p * 2).from_address(tensor + 24)
        assert tuple((C.c_int64 * len(shape)).from_address(sizes)) == shape
        assert tuple((C.c_int64 * len(shape)).from_address(steps)) == strides
        assert C.c_uint64.from_address(tensor + 40).value == 0


def test_read_only_reaches_the_consumer(exports):
    owner = Lender()
    assert np.from_dlpack(Made(exports.lend(owner))).flags.writeable
    frozen = np.from_dlpack(Made(exports.lend(owner, flags=READ_ONLY)))
    assert not frozen.flags.writeable


@pytest.mark.parametrize("versioned", [True, False])
def test_the_deleter_takes_the_gil_itself(exports, versioned):
    owner = Lender()
    before = sys.getrefcount(owner)
    taken = [take(exports.lend(owner, versioned=versioned), versioned) for _ in range(40)]
    ends = [threading.Thread(target=lambda: delete(*taken.pop())) for _ in range(39)]
    for thread in ends:
        thread.start()
    for thread in ends:
        thread.join()
    assert exports.counts() == (1, 39, 0)
    delete(*taken.pop(), held=True)
    assert exports.counts() == (0, 40, 0) and sys.getrefcount(owner) == before


def test_deleters_inside_deleters(exports):
    inner, outer = Lender(), Lender()
    before = sys.getrefcount(inner)
    first = take(exports.lend(inner))
    second = take(exports.lend(outer))
    outer.at_end = lambda: delete(*first)
    del outer
    delete(*second)
    assert exports.counts() == (0, 2, 0)
    assert sys.getrefcount(inner) == before


def test_a_second_delete_is_counted_and_never_frees(exports):
    owner = Lender()
    before = sys.getrefcount(owner)
    taken = take(exports.lend(owner))
    delete(*taken)
    for _ in range(1023):  # the block is still on its way through the ring
        exports.lend(owner)
    delete(*taken)
    delete(*taken, held=True)
    assert exports.counts() == (0, 1024, 2) and sys.getrefcount(owner) == before


def test_a_second_delete_is_reported(memory_path, run_child):
    out = run_child(
        f"""
        import sys
        sys.path.insert(0, {str(__file__.rsplit("/", 3)[0])!r})
        from tests.bridge.test_core import ERROR, Exports, Lender, delete, take

        exports, owner, seen = Exports({memory_path!r}), Lender(), []
        sys.unraisablehook = lambda report: seen.append((report.exc_type, str(report.exc_value)))
        taken = take(exports.lend(owner))
        delete(*taken)
        delete(*taken)
        print(seen, exports.counts())
        exports.table[ERROR] = id(BufferError)
        delete(*taken)
        try:
            try:
                raise KeyError("first")
            finally:
                delete(*taken, held=True)
        except KeyError as error:
            print(error, error.__context__, len(seen))
        print(seen[0][0].__name__, seen[0][1])
        """
    )
    assert out.splitlines() == [
        "[] (0, 1, 1)",
        "'first' None 2",
        "BufferError a DLPack consumer called the deleter of a tensor twice; "
        "the second call did nothing",
    ]


def test_dead_blocks_are_freed_in_turn(exports):
    owner = Lender()
    for _ in range(1030):
        exports.lend(owner)
    assert exports.table[TURN] == 1030 and exports.counts() == (0, 1030, 0)
    ring = exports.table[8:]
    assert all(ring) and len(set(ring)) == 1024
    for _ in range(20_000):  # a block for each would show in the next line
        exports.lend(owner)
    assert len(set(exports.table[8:])) == 1024


def test_no_wait_for_an_interpreter_that_ends_in_another_thread(exports):
    owner = Lender()
    before = sys.getrefcount(owner)
    taken = take(exports.lend(owner))
    # Any C function stands for Py_IsFinalizing that needs no GIL and does not return 0.
    exports.table[FINALIZING] = C.cast(C.CDLL(None).getpid, C.c_void_p).value
    delete(*taken)
    assert exports.counts() == (1, 0, 0) and sys.getrefcount(owner) == before + 1
    delete(*taken, held=True)
    assert exports.counts() == (0, 1, 0) and sys.getrefcount(owner) == before


def test_exports_outlive_the_interpreter(memory_path, run_child):
    out = run_child(
        f"""
        import builtins, sys
        sys.path.insert(0, {str(__file__.rsplit("/", 3)[0])!r})
        from tests.bridge.test_core import Exports, Lender, delete, take

        exports = Exports({memory_path!r})
        builtins.kept = torch.from_dlpack(exports.lend(Lender()))
        builtins.unused = exports.lend(Lender())
        torch.kept = [torch.from_dlpack(exports.lend(Lender(), versioned=False))]
        print("ends")
        """
    )
    assert out == "ends\n"
