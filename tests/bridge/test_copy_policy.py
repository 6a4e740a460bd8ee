"""Who decides whether something is copied, how it is counted and announced, and what fails."""

import asyncio
import gc
import importlib.util
import inspect
import threading
import warnings
import weakref

import numpy as np
import pytest
import torch

import torchmojo
from torchmojo import (
    ArgumentError,
    Copied,
    CopyError,
    CopyReason,
    CopyWarning,
    DTypeError,
    KernelError,
    LayoutError,
)
from torchmojo.bridge.copy import policy
from torchmojo.testing import inject

pytestmark = pytest.mark.copying

END = 'torchmojo.fallback("copy") copies without this warning, "error" refuses'


@pytest.fixture(scope="module")
def kernels(load_kernels):
    return load_kernels("copies")


@pytest.fixture(autouse=True)
def fresh():
    """Count and warn from nothing; nothing that a test puts in force everywhere may outlast it."""
    torchmojo.copies(reset=True)
    before = policy._everywhere
    yield
    policy._everywhere = before
    torchmojo.copies(reset=True)


def view():
    return torch.arange(6.0).reshape(2, 3).t()


def made_in(call):
    """Give the warnings of a call, and what it returned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    return [warning for warning in caught if warning.category is CopyWarning], result


def observed(call):
    """Say which policy a call met: refused, copied with a warning, or copied."""
    torchmojo.copies(reset=True)
    try:
        caught, _ = made_in(call)
    except LayoutError:
        assert torchmojo.copies() == []
        return "error"
    assert len(torchmojo.copies()) == 1
    return "warn" if caught else "copy"


@pytest.fixture
def seen(kernels):
    dst, x = torch.zeros(6), view()
    return lambda: observed(lambda: kernels.seen(dst, x))


@pytest.fixture
def total(kernels):
    x = torch.arange(6.0)[::2]
    return lambda: observed(lambda: kernels.total(x))


# --- which rule holds ---------------------------------------------------------------------------


def test_the_default(seen, total):
    assert (seen(), total()) == ("warn", "warn")


@pytest.mark.parametrize("name", ["error", "warn", "copy"])
def test_everywhere(seen, total, name):
    torchmojo.fallback(name)
    assert (seen(), total()) == (name, name)


def test_a_scope_ends(seen):
    with torchmojo.fallback("error") as scope:
        assert isinstance(scope, torchmojo.bridge.copy.policy.Fallback) and seen() == "error"
    assert seen() == "warn"
    with pytest.raises(ZeroDivisionError), torchmojo.fallback("copy"):
        assert seen() == "copy"
        1 / 0  # noqa: B018
    assert seen() == "warn"


def test_scopes_in_each_other(seen):
    torchmojo.fallback("error")
    with torchmojo.fallback("copy"):
        with torchmojo.fallback("error"):
            assert seen() == "error"
            with torchmojo.fallback("warn"):
                assert seen() == "warn"
            torchmojo.fallback("copy")  # everywhere, which a scope overrules
            assert seen() == "error"
        assert seen() == "copy"
    assert seen() == "copy"


def test_a_scope_may_be_entered_again(seen):
    scope = torchmojo.fallback("copy")
    assert seen() == "copy"
    with scope:
        with scope:
            assert seen() == "copy"
        assert seen() == "copy"
    assert seen() == "warn"  # taken back from everywhere when it was entered
    with scope:
        assert seen() == "copy"


def test_kernels_and_arguments(kernels, seen, total):
    """An argument before its kernel, a kernel before everything; then the innermost, the latest."""
    torchmojo.fallback("copy", kernels.seen)
    assert (seen(), total()) == ("copy", "warn")
    torchmojo.fallback("error", kernels.seen.x)
    assert (seen(), total()) == ("error", "warn")
    torchmojo.fallback("warn")
    torchmojo.fallback("copy", kernels.seen)
    assert (seen(), total()) == ("error", "warn")
    with torchmojo.fallback("copy"):
        assert (seen(), total()) == ("error", "copy")
        with torchmojo.fallback("warn", kernels.seen):
            assert (seen(), total()) == ("error", "copy")
            with torchmojo.fallback("copy", kernels.seen.x, kernels.total):
                assert (seen(), total()) == ("copy", "copy")
            torchmojo.fallback("copy", kernels.seen.dst)
            assert seen() == "error"
    assert (seen(), total()) == ("error", "warn")


def test_the_latest_wins(kernels, seen):
    for name in ("copy", "error", "warn", "copy", "copy", "error"):
        torchmojo.fallback(name)
        assert seen() == name
    with torchmojo.fallback("warn", kernels.seen, kernels.total):
        assert seen() == "warn"
    for name in ("copy", "warn", "copy"):
        torchmojo.fallback(name, kernels.seen.x)
        assert seen() == name


def test_two_kernels_of_one_name(kernels, load_kernels):
    kinds = load_kernels("kinds")
    torchmojo.fallback("error", kinds.total)
    x = torch.arange(6.0)[::2]
    assert observed(lambda: kernels.total(x)) == "warn"
    assert kinds.total.__name__ == kernels.total.__name__


def test_undo(seen):
    first = torchmojo.fallback("copy")
    second = torchmojo.fallback("error")
    assert seen() == "error"
    first.undo()
    assert seen() == "error"  # what was put in force since stays
    second.undo()
    assert seen() == "warn"  # and brings nothing back that was undone
    second.undo()
    assert seen() == "warn"
    first = torchmojo.fallback("copy")
    second = torchmojo.fallback("error")
    second.undo()
    assert seen() == "copy"
    first.undo()
    assert seen() == "warn"


def test_what_is_not_said_stays(kernels, refused):
    """None leaves a field to what ranks lower: first the same target, then the wider ones."""
    dst, wide = torch.zeros(3), torch.arange(3.0).double()
    call = (kernels.assign, dst, wide)
    torchmojo.fallback("error")
    torchmojo.fallback(dtype=True)
    refused(DTypeError, *call)
    torchmojo.fallback("copy")
    kernels.assign(dst, wide)
    with torchmojo.fallback("warn", kernels.assign):
        assert made_in(lambda: kernels.assign(dst, wide))[0]
        with torchmojo.fallback(dtype=False):
            refused(DTypeError, *call)
        with torchmojo.fallback(dtype=False, device=True):
            with torchmojo.fallback("copy", kernels.assign.src, dtype=True):
                kernels.assign(dst, wide)
            refused(DTypeError, *call)
    torchmojo.fallback(None, kernels.assign, dtype=False)
    refused(DTypeError, *call)


def test_a_policy_for_one_argument_of_several(kernels, refused):
    dst, a, b = torch.zeros(3, 2), torch.ones(2, 3), torch.ones(2, 3).t().contiguous().t()
    with torchmojo.fallback("copy"), torchmojo.fallback("error", kernels.mix.dst):
        text = refused(LayoutError, kernels.mix, dst.t(), b, a)
        assert text.startswith("mix: dst: wanted contiguous")
        kernels.mix(dst.reshape(2, 3), b, a)
    with torchmojo.fallback("error"), torchmojo.fallback("copy", kernels.mix.dst):
        text = refused(LayoutError, kernels.mix, dst.t(), b, a)
        assert text.startswith("mix: a: wanted contiguous")
        kernels.mix(dst.t(), a, a)
    assert dst.eq(11).all() and dst._version == 2


def test_error_refuses_as_if_there_were_no_copies(kernels, refused):
    torchmojo.fallback("error")
    dst, x = torch.zeros(6), view()
    assert refused(LayoutError, kernels.seen, dst, x) == (
        "seen: x: wanted contiguous (row-major), given f32[3,2] cpu strides(1,3); write "
        "x.contiguous(), which copies"
    )
    # The first reason is told, also where another one could not be mended.
    leaf = torch.zeros(2, 3, requires_grad=True)
    assert refused(LayoutError, kernels.add_index, leaf.t()) == (
        "add_index: x: wanted contiguous (row-major), given f32[3,2] cpu strides(1,3) "
        "requires_grad; make the output so from the start: what goes into a converted copy is lost"
    )
    assert torchmojo.copies() == []


@pytest.mark.parametrize("name", ["never", "", "Copy", 1, True])
def test_policies_that_are_none(refused, name):
    assert refused(ArgumentError, torchmojo.fallback, name) == (
        f"fallback: policy: wanted 'error', 'warn' or 'copy', given {name!r}"
    )


def test_targets_that_are_none(kernels, refused):
    for target in (kernels, "seen", None, torch.ones(1)):
        assert refused(ArgumentError, torchmojo.fallback, "copy", kernels.seen, target) == (
            "fallback: targets: wanted kernels (kernels.f) or arguments (kernels.f.a), given "
            f"{target!r}"
        )
    assert policy.policy_for(kernels.seen, "x").policy == "warn"


def test_other_threads(seen):
    """A scope is this thread's own; what is in force everywhere reaches all of them."""

    def elsewhere():
        results = []
        thread = threading.Thread(target=lambda: results.append(seen()))
        thread.start()
        thread.join()
        return results[0]

    with torchmojo.fallback("copy"):
        assert (seen(), elsewhere()) == ("copy", "warn")
        torchmojo.fallback("error")
        assert (seen(), elsewhere()) == ("copy", "error")
    with torchmojo.no_copies():
        assert elsewhere() == "error"


def test_scopes_of_many_threads_leave_nothing(seen):
    """Entering takes away its own entry alone, whatever other threads do between."""
    start = threading.Barrier(4)

    def work():
        start.wait()
        for _ in range(300):
            with torchmojo.fallback("error"), torchmojo.fallback("copy"):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert policy._everywhere == () and seen() == "warn"


def test_two_scopes_that_are_made_before_either_is_entered(seen):
    one, two = torchmojo.fallback("error"), torchmojo.fallback("copy")
    with one, two:
        assert seen() == "copy"
    assert seen() == "warn"


def test_tasks(seen):
    async def scoped(name, mine, other):
        with torchmojo.fallback(name):
            mine.set()
            await other.wait()
            return seen()

    async def main():
        one, two = asyncio.Event(), asyncio.Event()
        found = await asyncio.gather(scoped("copy", one, two), scoped("error", two, one))
        with torchmojo.fallback("copy"):
            task = asyncio.create_task(asyncio.to_thread(seen))  # starts from a copy of ours
            found.append(await task)
        return [*found, seen()]

    assert asyncio.run(main()) == ["copy", "error", "copy", "warn"]


def test_policies_in_a_loop_take_no_memory(kernels, seen):
    for i in range(100):
        torchmojo.fallback("copy" if i % 2 else "error", kernels.seen)
        torchmojo.fallback(dtype=bool(i % 2))
    assert len(policy._everywhere) <= 2
    assert seen() == "copy"
    kept = torchmojo.fallback("warn", kernels.seen)
    for _ in range(100):
        torchmojo.fallback("error")
    assert seen() == "warn" and len(policy._everywhere) <= 4
    kept.undo()
    assert seen() == "copy"


def test_a_policy_outlasts_a_reload(tmp_path, kernels):
    """A kernel keeps its policy when its library compiles the source again."""
    source = 'from torchmojo import Layout, Tensor\ndef f(x: Tensor[DType.int8, 1, "", Layout.ROW'
    source += "_MAJOR]) -> Int:\n    return {}\n"
    path = tmp_path / "again.mojo"
    path.write_text(source.format(1))
    library = torchmojo.load(path)
    x = torch.zeros(4, dtype=torch.int8)[::2]
    torchmojo.fallback("error", library.f.x)
    torchmojo.fallback("copy")
    assert observed(lambda: library.f(x)) == "error"
    path.write_text(source.format(2))
    library.reload()
    assert library.f(torch.zeros(1, dtype=torch.int8)) == 2
    assert observed(lambda: library.f(x)) == "error"


def test_a_scope_keeps_no_library(load_kernels):
    library = load_kernels("owned")
    gone = weakref.ref(library)
    with torchmojo.fallback("copy", *library):
        pass
    del library
    gc.collect()
    assert gone() is None


# --- warnings -----------------------------------------------------------------------------------


def test_one_warning_a_line(kernels):
    dst, x = torch.zeros(6), view()

    def calls():
        for _ in range(5):
            kernels.seen(dst, x)
        kernels.seen(dst, x)

    caught, _ = made_in(calls)
    _, start = inspect.getsourcelines(calls)
    assert [(warning.filename, warning.lineno) for warning in caught] == [
        (__file__, start + 2),
        (__file__, start + 3),
    ]
    assert made_in(calls)[0] == []
    torchmojo.copies(reset=True)
    assert len(made_in(calls)[0]) == 2


def test_one_warning_for_each_kernel_argument_and_reason(kernels):
    dst, a = torch.zeros(3, 2).t(), torch.ones(3, 2).t()
    xs = [a, a, a.numpy()[::-1], a.numpy().astype(">f4"), a]

    def calls():
        for x in (a, a.numpy()[:, ::-1], a, a.numpy()):
            kernels.mix(dst, x, a), kernels.mix(dst, x, a), kernels.stack(dst, xs)

    told = [str(warning.message).split(": wanted")[0] for warning in made_in(calls)[0]]
    assert told == ["mix: dst", "mix: a", "stack: dst", "stack: xs[0]", *told[4:]]
    assert sorted(told[4:]) == ["mix: a", "stack: xs[2]", "stack: xs[3]"]


def test_the_callers_line_in_another_file(kernels, tmp_path):
    path = tmp_path / "far_away.py"
    path.write_text("def apply(kernel, dst, x):\n    return [kernel(dst, x) for _ in range(2)]\n")
    spec = importlib.util.spec_from_file_location("far_away", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def nested():
        return module.apply(kernels.seen, torch.zeros(6), view())

    for times in (1, 0):
        caught, _ = made_in(nested)
        assert [(w.filename, w.lineno) for w in caught] == [(str(path), 2)] * times
    place = f"{path}:2"
    assert [(c.place, c.count) for c in torchmojo.copies()] == [(place, 4)]
    with torchmojo.fallback("copy"):  # from a function of C, the line that called it
        list(map(kernels.seen, [torch.zeros(6)], [view()]))
    here = inspect.currentframe().f_lineno - 1
    assert f"{__file__}:{here}" in [c.place for c in torchmojo.copies()]


def test_a_foreign_argument_is_announced_at_the_same_line(kernels, producer):
    def calls():
        kernels.total(producer([1, 2, 3], (2,), (2,)))
        with torchmojo.share(np.arange(4, dtype="f4")[::2]) as handle:
            kernels.total(handle)

    _, start = inspect.getsourcelines(calls)
    assert [warning.lineno - start for warning in made_in(calls)[0]] == [1, 3]


def test_a_warning_that_is_an_error_changes_nothing(kernels):
    base, a, src = torch.full((3, 2), 5.0), torch.ones(2, 3), np.ones((2, 3), dtype=">f4")
    for _ in range(2):  # it stays an error at the same line
        with pytest.raises(CopyWarning, match="mix: dst: wanted contiguous"):
            kernels.mix(base.t(), a, a)
    with torchmojo.fallback("copy", kernels.mix.dst), pytest.raises(CopyWarning, match="mix: b"):
        kernels.mix(base.t(), a, src)  # the output has been copied then
    assert base.eq(5).all() and base._version == 0
    assert [(c.argument, c.count) for c in torchmojo.copies()] == [("dst", 1)]


def test_filters_of_users(kernels):
    dst, x = torch.zeros(6), view()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", category=torchmojo.TorchmojoWarning, module=__name__)
        kernels.seen(dst, x)
    assert caught == [] and torchmojo.copies()[0].count == 1


def swapped(*values):
    return np.array(values, dtype=">f4")


def record(*values):
    data = np.zeros(len(values), dtype="u1,<f4")
    data["f1"] = values
    return data["f1"]


def odd(*values):
    raw = np.zeros(4 * len(values) + 1, dtype=np.uint8)
    raw[1:].view("f4")[:] = values
    return raw[1:].view("f4")


TEXTS = {
    "layout": (
        lambda k: k.total(torch.ones(4)[::2]),
        "total: x: wanted contiguous (row-major), given f32[2] cpu strides(2): copied on its way; "
        "write x.contiguous(), which copies; ",
    ),
    "layout of an array": (
        lambda k: k.total(np.ones(4, dtype="f4")[::2]),
        "total: x: wanted contiguous (row-major), given f32[2] cpu strides(2): copied on its way; "
        "write numpy.ascontiguousarray(x), which copies; ",
    ),
    "channels-last": (
        lambda k: k.seen_channels_last(torch.zeros(8), torch.ones(1, 2, 2, 2)),
        "seen_channels_last: x: wanted channels-last, given f32[1,2,2,2] cpu strides(8,4,2,1): "
        "copied on its way; write x.contiguous(memory_format=torch.channels_last), which copies; ",
    ),
    "negative stride": (
        lambda k: k.total(np.ones(2, dtype="f4")[::-1]),
        "total: x: wanted contiguous (row-major), given f32[2] cpu strides(-1): copied on its way; "
        "write numpy.ascontiguousarray(x), which copies; ",
    ),
    "byte order": (
        lambda k: k.total(swapped(1, 2)),
        "total: x: wanted native byte order, given f32[2] cpu strides(1) big-endian: copied on its "
        "way; write x.astype(x.dtype.newbyteorder('=')), which copies; ",
    ),
    "alignment": (
        lambda k: k.total(odd(1, 2)),
        "total: x: wanted an address that is a multiple of 4, given f32[2] cpu strides(1): copied "
        "on its way; write x.copy(); ",
    ),
    "step": (
        lambda k: k.total(record(1, 2)),
        "total: x: wanted strides that are multiples of the element size, given f32[2] cpu "
        "steps(5) bytes: copied on its way; write x.copy(); ",
    ),
    "neg bit": (
        lambda k: k.total(torch._neg_view(torch.ones(2))),
        "total: x: wanted values as they lie in memory, given f32[2] cpu strides(1) neg bit: "
        "copied on its way; write x.resolve_neg(), which copies; ",
    ),
    "conj bit": (
        lambda k: k.seen_complex(torch.zeros(4), torch.ones(2, dtype=torch.complex64).conj()),
        "seen_complex: z: wanted values as they lie in memory, given c64[2] cpu strides(1) conj "
        "bit: copied on its way; write x.resolve_conj(), which copies; ",
    ),
    "an output": (
        lambda k: k.add_index(torch.ones(2, 3).t()),
        "add_index: x: wanted contiguous (row-major), given f32[3,2] cpu strides(1,3): copied in "
        "and back; make it so from the start; ",
    ),
    "one of a list": (
        lambda k: k.spread([torch.ones(2, 3), torch.ones(2, 3).t()], 1.0),
        "spread: xs[1]: wanted contiguous (row-major), given f32[3,2] cpu strides(1,3): copied in "
        "and back; make it so from the start; ",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_words_of_a_warning(kernels, name):
    call, text = TEXTS[name]
    caught, _ = made_in(lambda: call(kernels))
    assert [str(warning.message) for warning in caught] == [text + END]
    with pytest.raises(CopyError) as error, torchmojo.no_copies():
        call(kernels)
    head, _, rest = text.partition(": wanted ")
    given = rest.partition(", given ")[2].rpartition(": copied")[0]
    reason = torchmojo.copies()[0].reason.value
    assert str(error.value) == f"{head}: wanted no copy, given {given}: {reason}"
    assert reason == name or name not in set(CopyReason)


def test_words_of_a_warning_for_dtypes(kernels):
    with torchmojo.fallback(dtype=True):
        caught, _ = made_in(lambda: kernels.total(torch.ones(2, dtype=torch.float64)))
        assert str(caught[0].message) == (
            "total: x: wanted f32, given f64[2] cpu strides(1): copied as f32 on its way; write "
            f"x.to(torch.float32), which copies; {END}"
        )
        caught, _ = made_in(lambda: kernels.assign(torch.zeros(2), torch.ones(2).half()))
        assert str(caught[0].message) == (
            "assign: src: wanted the dtype of the others, given f16[2] cpu strides(1): copied as "
            f"f32 on its way; {END}"
        )
        caught, _ = made_in(lambda: kernels.double(torch.ones(2)))
        assert str(caught[0].message) == (
            "double: x: wanted f64, given f32[2] cpu strides(1): copied in as f64 and back; make "
            f"it so from the start; {END}"
        )


# --- counting -----------------------------------------------------------------------------------


def test_counts(kernels):
    torchmojo.fallback("copy")
    dst, x = torch.zeros(6), view()
    line = inspect.currentframe().f_lineno
    for _ in range(3):
        kernels.seen(dst, x)
    kernels.add_index(x), kernels.total(torch.ones(100)[::2])
    found = torchmojo.copies()
    assert found == [
        Copied(f"{__file__}:{line + 3}", "total", "x", CopyReason.LAYOUT, 1, 200),
        Copied(f"{__file__}:{line + 2}", "seen", "x", CopyReason.LAYOUT, 3, 72),
        Copied(f"{__file__}:{line + 3}", "add_index", "x", CopyReason.LAYOUT, 1, 24),
    ]
    assert torchmojo.copies(reset=True) == found
    assert torchmojo.copies() == []
    kernels.seen(dst, x)
    assert torchmojo.copies()[0].count == 1
    assert found[0].reason == "layout" and str(found[0].reason) == "layout"


def test_counts_of_exports():
    torchmojo.fallback("copy")
    with torchmojo.share(np.arange(3.0)[::-1]) as handle:
        assert torch.from_dlpack(handle).tolist() == [2, 1, 0]
        np.from_dlpack(handle, copy=True)
    with torchmojo.share(torch.arange(4.0)) as handle:
        handle.__dlpack__(copy=True)
        handle.__dlpack__()
    found = [(c.kernel, c.argument, c.reason.value, c.count, c.nbytes) for c in torchmojo.copies()]
    assert sorted(found) == [
        ("__dlpack__", "x", "asked", 1, 16),
        ("__dlpack__", "x", "asked", 1, 24),
        ("__dlpack__", "x", "negative stride", 1, 24),
    ]


def test_threads_count_together(kernels):
    torchmojo.fallback("copy")
    x = torch.ones(4)[::2]

    def work():
        for _ in range(200):
            kernels.total(x)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(c.count, c.nbytes) for c in torchmojo.copies()] == [(800, 6400)]


def test_a_refused_call_counts_what_was_copied(kernels, refused):
    torchmojo.fallback("copy")
    refused(DTypeError, kernels.mix, torch.zeros(3, 2).t(), torch.ones(2, 3).double(), 5)
    refused(KernelError, kernels.pair, torch.zeros(4)[::2], torch.zeros(2), True)
    assert [(c.argument, c.count) for c in torchmojo.copies() if c.kernel == "pair"] == [("a", 1)]


def test_no_copies(kernels, refused):
    base = torch.zeros(3, 2)
    for name in ("error", "warn", "copy"):
        with torchmojo.fallback(name, kernels.add_index), torchmojo.no_copies():
            assert refused(CopyError, kernels.add_index, base.t()) == (
                "add_index: x: wanted no copy, given f32[2,3] cpu strides(1,2): layout"
            )
            kernels.add_index(base)
            with torchmojo.fallback("copy"), torchmojo.no_copies():
                refused(CopyError, kernels.seen, torch.zeros(6), view())
            refused(CopyError, kernels.seen, torch.zeros(6), view())
    assert base._version == 3 and torchmojo.copies() == []
    with pytest.raises(CopyError, match="negative stride"), torchmojo.no_copies():
        torchmojo.share(np.ones(2)[::-1]).__dlpack__()
    torchmojo.fallback("copy")
    kernels.add_index(base.t())


def test_dtypes_and_devices_are_asked_for(kernels, refused):
    dst, wide = torch.zeros(2), torch.ones(2).double()
    text = (
        "assign: src: wanted the dtype of dst, f32[2] cpu strides(1), given f64[2] cpu strides(1); "
        "write x.to(torch.float32), which copies"
    )
    meta = torch.zeros(2, device="meta")
    for name in ("error", "warn", "copy"):
        with torchmojo.fallback(name):
            assert refused(DTypeError, kernels.assign, dst, wide) == text
            with torchmojo.fallback(dtype=True, device=True):
                assert refused(torchmojo.DeviceError, kernels.total, meta) == (
                    "total: x: wanted cpu, given f32[2] meta strides(1); a meta tensor has no "
                    "data; call the kernel on real tensors"
                )
    assert dst.tolist() == [0, 0]
    with torchmojo.fallback("copy", dtype=True):
        kernels.assign(dst, wide)
    assert dst.tolist() == [1, 1]
    with torchmojo.fallback("copy", kernels.assign.dst, dtype=True):  # of another argument
        assert refused(DTypeError, kernels.assign, dst, wide) == text


# --- failures on purpose ------------------------------------------------------------------------


def outcomes(kernels):
    """Give what every kind of call does: values, versions, counts, or the error and its words."""
    base = torch.arange(6.0).reshape(2, 3)
    swapped_ = np.arange(6, dtype=">f4").reshape(3, 2)
    leaf = torch.ones(2, 3, requires_grad=True)
    z = torch.tensor([1 + 2j, 3 - 4j])
    calls = {
        "input": lambda o: kernels.seen(o, base.t()),
        "parameter": lambda o: kernels.seen(o, torch.nn.Parameter(base).t()),
        "negated": lambda o: kernels.seen(o, torch._neg_view(base)),
        "conjugated": lambda o: kernels.seen_complex(o, z.conj()),
        "output": lambda o: kernels.add_index(o[:4].view(2, 2).t()),
        "negated output": lambda o: kernels.add_index(torch._neg_view(o[:4].view(2, 2))),
        "dense": lambda o: kernels.add_index(o.view(2, 3)),
        "several": lambda o: kernels.mix(o.view(3, 2).t(), base, swapped_.T),
        "a list": lambda o: kernels.spread([o[:4:2, None].t(), o[3:, None]], 1.0),
        "an optional": lambda o: kernels.put_maybe(o.view(3, 2).t(), 4.0),
        "none": lambda o: kernels.put_maybe(None, 4.0),
        "raise": lambda o: kernels.pair(o[::2], o[1::2], True),
        "in place": lambda o: kernels.mix(o.view(3, 2).t(), o.view(3, 2).t(), base),
        "handle": lambda o: kernels.seen(o, torchmojo.share(base.t())),
        "capsule": lambda o: kernels.mix(o.view(3, 2).t(), base.t().t().__dlpack__(), base),
        "dtype": lambda o: kernels.assign(o[::2], torch.arange(3)),
        "dtype of an output": lambda o: kernels.double(o[::2]),
        "overflow": lambda o: kernels.assign(o.char(), torch.full((6,), 300)),
        "leaf": lambda o: kernels.add_index(leaf.t()),
        "expanded": lambda o: kernels.add_index(o[:1].expand(2, 3)),
        "twice": lambda o: kernels.pair(o[::2], o[::2]),
        "axes": lambda o: kernels.mix(o.view(3, 2).t(), base.t(), base),
        "rank": lambda o: kernels.mix(o.view(3, 2).t(), base[0], base),
        "meta": lambda o: kernels.mix(o.view(3, 2).t(), base, base.to("meta")),
        "sparse": lambda o: kernels.total(o.to_sparse()),
        "text": lambda o: kernels.mix(o.view(2, 3), base.t().t(), "text"),
    }
    told = {}
    for name, call in calls.items():
        out = torch.zeros(6)
        try:
            told[name] = call(out)
        except torchmojo.TorchmojoError as error:
            told[name] = (type(error), str(error).partition("; ")[0])  # advice knows no torch then
        counts = sorted(
            (c.argument, c.reason.value, c.count, c.nbytes) for c in torchmojo.copies(reset=True)
        )
        told[name] = (told[name], out.tolist(), out._version, counts)
    assert base.tolist() == [[0, 1, 2], [3, 4, 5]] and leaf._version == 0
    return told


@pytest.mark.parametrize("dtype", [False, True])
@pytest.mark.parametrize("name", ["error", "copy"])
def test_the_door_is_no_shortcut(kernels, name, dtype):
    """Where torch cannot be read by the fast way, all values, counts and words are the same."""
    with torchmojo.fallback(name, dtype=dtype):
        wanted = outcomes(kernels)
        with inject("door"):
            assert outcomes(kernels) == wanted
        assert outcomes(kernels) == wanted
        assert sum(isinstance(result[0], tuple) for result in wanted.values()) >= 9
        with inject("door"), torchmojo.no_copies(), pytest.raises(CopyError):
            kernels.total(torch.ones(4)[::2])


def test_the_door_and_warnings(kernels):
    x = torch.ones(4)[::2]

    def call():
        return kernels.total(x)

    with inject("door"):
        caught, result = made_in(call)
        assert result == 2.0 and caught[0].lineno == inspect.getsourcelines(call)[1] + 1
        assert made_in(call) == ([], 2.0)
        x = torch.ones(2, 3, requires_grad=True)
        y = x * 1.0
        loss = (y * y).sum()
        with torch.no_grad(), torchmojo.fallback("copy"):
            kernels.add_index(y.t())
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_no_memory(kernels, refused):
    torchmojo.fallback("copy")
    base, a = torch.full((3, 2), 5.0), torch.ones(2, 3)
    swapped_ = np.ones((2, 3), dtype=">f4")
    with inject("allocation"):
        assert refused(MemoryError, kernels.mix, base.t(), a, a) == (
            "mix: dst: no memory for a copy (injected)"
        )
        assert refused(MemoryError, kernels.stack, base.reshape(2, 3), [a, swapped_]) == (
            "stack: xs[1]: no memory for a copy (injected)"
        )
        kernels.mix(base.reshape(2, 3), a, a)  # needs none
    assert torchmojo.copies() == [] and base._version == 1
    base.fill_(5)
    with inject("allocation", times=1):
        refused(MemoryError, kernels.add_index, base.t())
        kernels.add_index(base.t(), 1)
    with torchmojo.fallback("copy"), inject("door"), inject("allocation"):
        refused(MemoryError, kernels.add_index, base.t())
    assert base.eq(5).all()
    with pytest.raises(ValueError, match="out of the block"), inject("allocation"):
        raise ValueError("out of the block")
    kernels.add_index(base.t(), 1)


def test_failures_that_are_none(refused):
    def enter(name):
        with inject(name):
            raise AssertionError("entered")

    for name in ("gpu", None):
        assert refused(ArgumentError, enter, name) == (
            f"inject: failure: wanted 'door', 'allocation' or 'compiler', given {name!r}"
        )


def test_no_compiler(run_child, tmp_path):
    """Copies are then made by torch or NumPy, in more passes; the first of them says so."""
    out = run_child(
        """
        import os, sys, warnings
        from torchmojo.testing import inject
        kernels = torchmojo.load(KERNELS / "copies.mojo")
        os.environ["TORCHMOJO_CACHE_DIR"] = os.environ["EMPTY"]
        torchmojo.fallback("copy", dtype=True)
        warnings.simplefilter("always")
        def packed(x):
            data = np.zeros(x.shape, dtype=[("gap", "u1"), ("value", x.dtype)])
            data["value"] = x
            return data["value"]
        def refused(error, call, *args):
            try:
                call(*args)
            except error as caught:
                return str(caught)
            raise AssertionError("not refused")
        base = torch.arange(6.0).reshape(2, 3)
        z = torch.tensor([1 + 2j, 3 - 4j])
        dst = torch.zeros(24)
        with warnings.catch_warnings(record=True) as told, inject("compiler"):
            for x in (
                base.t(), base[:, 1:], base[:, 1].expand(3, 2), torch._neg_view(base),
                torch.nn.Parameter(base).t(), base.numpy()[::-1, ::-1],
                base.numpy().astype(">f4"), packed(base.numpy()),
                packed(base.numpy().astype(">f4")),
            ):
                kernels.seen(dst.zero_(), x)
                wanted = torch.as_tensor(np.array(x, dtype="f4")) if type(x) is np.ndarray else x
                assert dst[: wanted.numel()].tolist() == wanted.flatten().tolist(), x
            kernels.seen_complex(dst, torch._neg_view(z.conj()))
            assert dst[:4].tolist() == [-1, 2, -3, -4]
            image = torch.arange(24.0).reshape(1, 2, 3, 4)
            for x in (image, image.numpy(), image.numpy()[..., ::-1]):
                kernels.seen_channels_last(dst, x)
                assert dst.tolist() == np.transpose(np.asarray(x), (0, 2, 3, 1)).ravel().tolist()
            torchmojo.copies(reset=True)
            out = torch.zeros(3, 2)
            kernels.add_index(out.t(), 4)
            assert out.t().flatten().tolist() == [0, 1, 2, 3, 0, 0] and out._version == 1
            kernels.add_index(torch._neg_view(out))
            assert out.flatten().tolist() == [0, 2, -1, -3, -2, -5] and out._version == 2
            for array in (np.zeros((2, 3), ">f4"), packed(np.zeros((2, 3), "f4"))):
                kernels.add_index(array, 4)
                assert array.ravel().tolist() == [0, 1, 2, 3, 0, 0]
            line = np.zeros(4, ">f4")
            text = refused(torchmojo.KernelError, kernels.pair, out[:, 0], line[::2], True)
            assert text == "pair: half of it" and line.tolist() == [2, 0, 0, 0]
            assert out[:, 0].tolist() == [1, 1, 1] and out._version == 3
            print(len(torchmojo.copies()), sum(c.nbytes for c in torchmojo.copies()))
            kernels.assign(dst[:3], torch.tensor([1, 2, 3]))
            assert dst[:3].tolist() == [1, 2, 3]
            narrow = torch.zeros(3, dtype=torch.int8)
            for x in (
                torch.tensor([1, 300, 3]), np.array([1, 2**40, 3]), np.array([1, 2, 200], "u1"),
                torch.tensor([1, 2, 2**63 + 1], dtype=torch.uint64),
            ):
                print(refused(torchmojo.DTypeError, kernels.assign, narrow, x))
            for wide in (torch.zeros(3, dtype=torch.int32), np.zeros(3, "i4")):
                kernels.give(torch.tensor([1, 2, 3]), wide)
                assert wide.tolist() == [1, 2, 3]
                src = torch.tensor([5, 2**31, 7])
                print(refused(torchmojo.DTypeError, kernels.give, src, wide))
                assert wide.tolist() == [1, 2, 3]
            assert narrow.tolist() == [0, 0, 0] and narrow._version == 0
            view = memoryview(bytes(16)).cast("f")[::-1]  # neither torch nor NumPy knows its lender
            print(refused(torchmojo.CompilerNotFoundError, kernels.total, view))
        print(*[f"{w.category.__name__} {w.filename} {w.message}" for w in told], sep="\\n")
        """,
        EMPTY=str(tmp_path),
    )
    unfit = "assign: src: wanted integers that fit i8, given {} in a tensor of {}"
    back = (
        "give: dst: wanted integers that fit i32, given 2147483648 in a tensor of i64; nothing of "
        "it was written back"
    )
    assert out.splitlines() == [
        "6 116",
        unfit.format(300, "i64"),
        unfit.format(2**40, "i64"),
        unfit.format(200, "u8"),
        unfit.format(2**63 + 1, "u64"),
        back,
        back,
        "mojo: wanted a compiler, given none (injected)",
        "TorchmojoWarning <string> torchmojo: copies are made by torch or NumPy: mojo: wanted a "
        "compiler, given none (injected)",
    ]


def test_a_process_without_torch(run_child):
    """The copy lies in memory of Python's then; nothing imports torch."""
    out = run_child(
        """
        import sys
        import numpy as np
        import torchmojo
        kernels = torchmojo.load(KERNELS / "copies.mojo")
        torchmojo.fallback("copy", dtype=True)
        x = np.arange(6, dtype=">f4").reshape(2, 3)
        dst = np.zeros(6, dtype=np.float32)
        kernels.seen(dst, x.T[::-1])
        print(dst.tolist())
        kernels.add_index(x[:, ::2], 2)
        print(x.ravel().tolist())
        kernels.assign(dst[::2], np.arange(3))
        print(dst.tolist(), [(c.argument, c.reason.value, c.nbytes) for c in torchmojo.copies()])
        try:
            kernels.total(np.broadcast_to(np.float32(1), 2**50))
        except MemoryError as error:
            print(error)
        print("torch" in sys.modules)
        """,
        bare=True,
    )
    assert out.splitlines() == [
        "[2.0, 5.0, 1.0, 4.0, 0.0, 3.0]",
        "[0.0, 1.0, 3.0, 3.0, 4.0, 5.0]",
        "[0.0, 5.0, 1.0, 4.0, 2.0, 3.0] [('x', 'byte order', 24), ('x', 'byte order', 16), "
        "('src', 'dtype', 12)]",
        f"total: x: no memory for a copy of {2**52} bytes",
        "False",
    ]
