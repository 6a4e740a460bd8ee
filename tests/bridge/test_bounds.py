"""`bounds=True`: an index outside a tensor is reported, and nothing outside is touched."""

import platform

import numpy as np
import pytest
import torch

from torchmojo import ArgumentError, BoundsError, KernelError

from .conftest import load

GUARD = 3.25
MAX = 2**63 - 1
XADD = bytes.fromhex("f0480fc1")


@pytest.fixture(scope="module")
def checked():
    return load("access", bounds=True)


@pytest.fixture(scope="module")
def plain():
    """Give the release build; tests hand it no index outside."""
    return load("access")


class Guarded:
    """Tensors in the middle of a larger one, whose other elements must stay."""

    def __init__(self):
        self.base = torch.full((120,), GUARD)
        self.line = self.base[40:44]
        self.grid = self.base[60:72].view(3, 4)
        self.steps = self.base[80:104:2].view(3, 4)
        self.empty = self.base[50:50]
        self.point = self.base[110]
        for inner in self.inside():
            inner.fill_(1)

    def inside(self):
        return self.line, self.grid, self.steps, self.point

    def untouched(self):
        """Tell whether inner elements are still 1 and outer ones still the guard."""
        return torch.equal(self.base, Guarded().base)


@pytest.fixture
def guarded():
    return Guarded()


LINE = "wanted 0 <= index < 4 on axis 0, given"

# What to call, with which arguments besides the tensor, and what the text says.
LINES = {
    "read past the end": ("get1", (4,), f"x: {LINE} 4"),
    "read before the start": ("get1", (-1,), f"x: {LINE} -1"),
    "read far away": ("get1", (MAX,), f"x: {LINE} {MAX}"),
    "read far below": ("get1", (-MAX - 1,), f"x: {LINE} {-MAX - 1}"),
    "write past the end": ("set1", (4, 9.0), f"x: {LINE} 4"),
    "write before the start": ("set1", (-1, 9.0), f"x: {LINE} -1"),
    "write far away": ("set1", (2**40, 9.0), f"x: {LINE} {2**40}"),
    "change in place": ("add1", (4,), f"x: {LINE} 4"),
    "select": ("select1", (4,), f"x: {LINE} 4"),
    "select below": ("select1", (-1,), f"x: {LINE} -1"),
    "slice, past its end": (
        "slice1",
        (1, 99, 1, 3),
        "x: wanted 0 <= index < 3 on axis 0, given 3 (the first of 2)",
    ),
    "slice with a step": (
        "slice1",
        (1, 99, 2, 2),
        "x: wanted 0 <= index < 2 on axis 0, given 2 (the first of 2)",
    ),
    "slice of nothing": (
        "slice1",
        (3, 1, 1, 0),
        "x: wanted 0 <= index < 0 on axis 0, given 0 (the first of 2)",
    ),
    "in a helper": ("helper_get", (4,), f"x: {LINE} 4"),
    "optional": ("optional_get", (4,), f"x: {LINE} 4"),
    "optional output": ("optional_set", (-1,), f"x: {LINE} -1"),
}
GRIDS = {
    "first axis": ("get2", (3, 0), (3, 0, 3)),
    "second axis": ("get2", (0, 4), (4, 1, 4)),
    "first axis of two wrong ones": ("get2", (-1, 7), (3, 0, -1)),
    "in the memory, but in the next row": ("get2", (0, 5), (4, 1, 5)),
    "write": ("set2", (2, 4, 9.0), (4, 1, 4)),
    "write below": ("set2", (-1, 0, 9.0), (3, 0, -1)),
    "load, last element": ("load4", (0, 1), (4, 1, 4)),
    "load, first element": ("load4", (0, -1), (4, 1, -1)),
    "load, another row": ("load4", (3, 0), (3, 0, 3)),
    "load, far away": ("load4", (0, MAX), (4, 1, MAX)),
    "load, just below the largest": ("load4", (0, MAX - 1), (4, 1, MAX - 1)),
    "store, last element": ("store4", (0, 1), (4, 1, 4)),
    "store, first element": ("store4", (2, -2), (4, 1, -2)),
    "store, far away": ("store4", (0, MAX), (4, 1, MAX)),
    "select on axis 0": ("select2", (0, 3, 0), (3, 0, 3, 3)),
    "select on axis 1": ("select2", (1, -1, 0), (4, 1, -1, 3)),
    "in a selected view": ("select2", (0, 2, 4), (4, 0, 4, 2)),
    "transposed": ("transposed", (4, 0), (4, 0, 4, 2)),
    "transposed, second axis": ("transposed", (3, 3), (3, 1, 3, 2)),
}


@pytest.mark.parametrize("name", LINES)
def test_one_axis(checked, guarded, refused, name):
    kernel, args, text = LINES[name]
    call = getattr(checked, kernel)
    assert refused(BoundsError, call, guarded.line, *args) == f"{kernel}: {text}"
    assert guarded.untouched()
    assert refused(BoundsError, call, guarded.line.numpy(), *args) == f"{kernel}: {text}"
    assert guarded.untouched()


@pytest.mark.parametrize("kind", ["grid", "steps"])
@pytest.mark.parametrize("name", GRIDS)
def test_two_axes(checked, guarded, refused, name, kind):
    kernel, args, (size, axis, given, *count) = GRIDS[name]
    times = f" (the first of {count[0]})" if count else ""
    assert refused(BoundsError, getattr(checked, kernel), getattr(guarded, kind), *args) == (
        f"{kernel}: x: wanted 0 <= index < {size} on axis {axis}, given {given}{times}"
    )
    assert guarded.untouched()


@pytest.mark.parametrize("kernel", ["get1", "set1", "add1", "select1", "helper_get", "slice1"])
def test_no_elements(checked, guarded, refused, kernel):
    """A tensor without elements has no memory either: not even index 0 may touch anything."""
    args = {"set1": (0, 9.0), "slice1": (0, 1, 1, 0)}.get(kernel, (0,))
    for empty in (guarded.empty, torch.empty(0)):
        text = refused(BoundsError, getattr(checked, kernel), empty, *args)
        assert text.startswith(f"{kernel}: x: wanted 0 <= index < 0 on axis 0, given 0")
    assert guarded.untouched()


def test_no_elements_on_one_axis(checked, refused):
    empty = torch.empty(3, 0)
    assert refused(BoundsError, checked.select2, empty, 1, 0, 0) == (
        "select2: x: wanted 0 <= index < 0 on axis 1, given 0 (the first of 3)"
    )
    assert refused(BoundsError, checked.load4, empty, 0, 0) == (
        "load4: x: wanted 0 <= index < 0 on axis 1, given 0"
    )


def test_three_axes_bools_and_doubles(checked, refused):
    x = torch.zeros(2, 3, 4)
    assert checked.get3(x, 1, 2, 3) == 0
    assert refused(BoundsError, checked.get3, x, 1, 3, 9) == (
        "get3: x: wanted 0 <= index < 3 on axis 1, given 3"
    )
    assert refused(BoundsError, checked.get_bool, torch.ones(3) > 0, 3) == (
        "get_bool: x: wanted 0 <= index < 3 on axis 0, given 3"
    )
    double = torch.full((9,), GUARD, dtype=torch.float64)
    assert refused(BoundsError, checked.set_double, double[3:6], 3, 1.0) == (
        "set_double: x: wanted 0 <= index < 3 on axis 0, given 3"
    )
    assert double.tolist() == [GUARD] * 9


# --- lists and optional tensors -----------------------------------------------------------------


def test_index_in_a_tensor_of_a_list(checked, guarded, refused):
    xs = [guarded.line, guarded.base[46:49]]
    assert refused(BoundsError, checked.list_get, xs, 1, 3) == (
        "list_get: xs: wanted 0 <= index < 3 on axis 0, given 3"
    )
    xs[1].fill_(GUARD)
    assert refused(BoundsError, checked.list_set, xs, 1, -1) == (
        "list_set: xs: wanted 0 <= index < 3 on axis 0, given -1"
    )
    assert guarded.untouched()


@pytest.mark.parametrize("k", [2, -1, MAX, -MAX - 1])
def test_index_of_a_list(checked, guarded, refused, k):
    """The list is outside, and so is every element of what it gives there."""
    xs = [guarded.line, guarded.base[46:49].fill_(GUARD)]
    for kernel in ("list_get", "list_set"):
        assert refused(BoundsError, getattr(checked, kernel), xs, k, 0) == (
            f"{kernel}: xs: wanted 0 <= index < 2 in the list, given {k} (the first of 2)"
        )
    assert guarded.untouched()


def test_index_of_a_list_of_single_elements(checked, guarded, refused):
    xs = [guarded.point]
    assert checked.list_get0(xs, 0) == 1
    for kernel in ("list_get0", "list_set0"):
        for k in (1, -1):
            assert refused(BoundsError, getattr(checked, kernel), xs, k) == (
                f"{kernel}: xs: wanted 0 <= index < 1 in the list, given {k}"
            )
        assert refused(BoundsError, getattr(checked, kernel), [], 0) == (
            f"{kernel}: xs: wanted 0 <= index < 0 in the list, given 0"
        )
    assert guarded.untouched()


def test_optional(checked, guarded):
    assert checked.optional_get(None, 99) == -1
    assert checked.optional_set(None, 99) is None
    assert checked.optional_get(guarded.line, 3) == 1


def test_the_argument_is_named(checked, refused):
    a, b = torch.zeros(4), torch.zeros(2)
    assert checked.second_argument(a, b, 1) == 0
    assert refused(BoundsError, checked.second_argument, a, b, 3) == (
        "second_argument: b: wanted 0 <= index < 2 on axis 0, given 3"
    )
    assert refused(BoundsError, checked.second_argument, b=b, i=-3, a=a) == (
        "second_argument: b: wanted 0 <= index < 2 on axis 0, given -3"
    )
    # Both are outside: the first argument is told.
    assert refused(BoundsError, checked.second_argument, torch.zeros(0), b, 2) == (
        "second_argument: a: wanted 0 <= index < 0 on axis 0, given 0"
    )


# --- axes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [2, -1, MAX])
def test_axes_that_are_not_there(checked, guarded, refused, axis):
    """A wrong axis would give a stride from nowhere, with which every index passes its check."""
    for kernel in ("told", "slice_axis", "transpose_axis"):
        assert refused(BoundsError, getattr(checked, kernel), guarded.grid, axis) == (
            f"{kernel}: x: wanted 0 <= axis < 2, given {axis} (the first of 2)"
        )
    assert refused(BoundsError, checked.select2, guarded.grid, axis, 0, 0) == (
        f"select2: x: wanted 0 <= axis < 2, given {axis} (the first of 3)"
    )
    assert guarded.untouched()


# --- how often, and what else happens -----------------------------------------------------------


def test_all_are_counted(checked, guarded, refused):
    assert refused(BoundsError, checked.many, guarded.line, -2, 8) == (
        "many: x: wanted 0 <= index < 4 on axis 0, given -2 (the first of 6)"
    )
    assert guarded.line.tolist() == [9] * 4  # what was inside has been written
    guarded.line.fill_(1)
    assert guarded.untouched()
    assert refused(BoundsError, checked.sixteen, guarded.grid) == (
        "sixteen: x: wanted 0 <= index < 3 on axis 0, given 4 (the first of 16)"
    )
    assert guarded.untouched()


@pytest.mark.parametrize("threads", [1, 2])
def test_all_are_counted_by_all_threads(checked, guarded, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for _ in range(300):
            with pytest.raises(BoundsError) as caught:
                checked.parallel(guarded.line, 400)
            text = str(caught.value)
            head, given = "parallel: x: wanted 0 <= index < 4 on axis 0, given ", text.split()[-5]
            assert text == f"{head}{given} (the first of 396)" and 4 <= int(given) < 400
    finally:
        torch.set_num_threads(before)
    guarded.line.fill_(1)
    assert guarded.untouched()


def test_what_is_read_outside_is_zero(checked):
    x, out = torch.ones(4), torch.ones(1)
    with pytest.raises(BoundsError, match=r"given 4 \(the first of 2\)"):
        checked.after_stray(x, 4, out)
    assert out.item() == 0 and x.tolist() == [1] * 4
    checked.after_stray(x, 3, out)
    assert out.item() == 9


def test_an_index_outside_comes_before_what_the_kernel_raised(checked, refused):
    x = torch.zeros(4)
    assert refused(BoundsError, checked.raises_after, x, 4).endswith("given 4")
    assert refused(KernelError, checked.raises_after, x, 3) == "raises_after: after the index"


def test_the_error_is_an_index_error_and_the_next_call_works(checked, refused):
    x = torch.arange(4.0)
    with pytest.raises(IndexError):
        checked.get1(x, 4)
    assert checked.get1(x, 3) == 3
    assert refused(ArgumentError, checked.get1, x, 2.5).startswith("get1: i: wanted an int")


def test_memory_is_given_back(checked, refused):
    """The export of a bytearray ends also where an index was outside."""
    data = bytearray(np.zeros(4, dtype=np.float32).tobytes())
    view = memoryview(data).cast("f")
    refused(BoundsError, checked.set1, view, 4, 1.0)
    refused(BoundsError, checked.list_set, [view, torch.zeros(2)], 0, 4)
    view.release()
    data.append(0)
    assert data == bytes(17)


# --- inside -------------------------------------------------------------------------------------


def test_inside_both_builds_agree(checked, plain):
    results = []
    for kernels in (checked, plain):
        x = torch.arange(12.0).view(3, 4)
        y = torch.arange(24.0)[::2].view(3, 4).t()
        told = [kernels.told(x, axis) for axis in (0, 1)]
        for i in range(3):
            for j in range(4):
                told += [kernels.get2(x, i, j), kernels.get2(y, j, i)]
        told += [kernels.get0(torch.tensor(5.0)), kernels.get1(x[1], 2), kernels.load4(x, 2, 0)]
        told += [kernels.load4(y.t(), 1, 0), kernels.list_get([x[0], x[1]], 1, 3)]
        kernels.set1(x[2], 3, -1.0)
        kernels.set2(y, 3, 2, -1.0)
        kernels.add1(x[0], 0)
        kernels.store4(x, 1, 0)
        told += [kernels.select1(x[:, 0], 2), kernels.select2(y, 0, 3, 1)]
        told += [kernels.slice1(x[0], 1, 4, 2, 1), kernels.transposed(y, 1, 1)]
        kernels.slice_axis(x, 1)
        kernels.transpose_axis(y, 1)
        kernels.many(x[2], 1, 3)
        long = torch.zeros(1000)
        kernels.parallel(long, 1000)
        results.append((told, x.tolist(), y.tolist(), long.tolist()))
    assert results[0] == results[1]


def test_release_builds_hold_no_checks(checked, plain):
    """The key of the cache holds the option, and without it no trap is compiled in."""
    assert checked._built.folder != plain._built.folder
    code, traps = plain._built.library.read_bytes(), checked._built.library.read_bytes()
    assert len(code) < len(traps)
    if platform.machine() == "x86_64":
        # `lock xadd`, with which a trap counts; nothing else in these kernels is atomic.
        assert XADD not in code and XADD in traps
    assert [str(kernel) for kernel in checked] == [str(kernel) for kernel in plain]
