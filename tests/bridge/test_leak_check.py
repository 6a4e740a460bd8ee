"""The leak check: every kind of leak is found and named, and nothing else; counts after calls."""

import array
import ctypes
import gc
import sys
import textwrap

import numpy as np
import pytest
import torch

import torchmojo
from torchmojo import LeakError, TorchmojoError, leak_check, live_handles, share
from torchmojo.bridge import doors
from torchmojo.bridge.lend import borrow
from torchmojo.bridge.share.leak import tally
from torchmojo.testing import inject

from .conftest import Producer, load

VALUES = [1.0, 2.0, 3.0, 4.0]


@pytest.fixture(autouse=True, scope="module")
def only_what_is_new():
    """Let collections pass over what torch and others hold for ever, which takes them long."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def line():
    """Tell the place of the caller, as a handle does."""
    frame = sys._getframe(1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def told(body, *objects):
    """Run a leak check round a function; what it says, without its first words."""
    with pytest.raises(LeakError) as caught, leak_check(*objects):
        body()
    head = "leak_check: wanted nothing held, given "
    text = str(caught.value)
    assert text.startswith(head)
    return text[len(head) :].split("; ")


def test_the_error():
    assert issubclass(LeakError, AssertionError) and issubclass(LeakError, TorchmojoError)


# --- what is found ------------------------------------------------------------------------------


def test_a_handle_of_torch():
    kept = []
    (text,) = told(lambda: kept.append(share(torch.zeros(2, 3))))
    assert (
        text
        == repr(kept[0])
        == (f"<handle borrowed f32[2,3] cpu strides(3,1) of torch.Tensor, made at {kept[0].place}>")
    )
    assert kept[0].place.startswith(f"{__file__}:")


def test_handles_with_an_export():
    kept, places = [], []

    def body():
        kept.append(share(bytearray(4)))
        places.append(line())
        kept.append(share(Producer(VALUES, (4,)).capsule()))
        kept.append(share(kept[0]))

    first, second, third = told(body)  # an export is said with the handle that holds it
    assert first.startswith("<handle borrowed u8[4] cpu strides(1) of bytearray, made at ")
    number = int(places[0].rsplit(":", 1)[1])
    assert [text.rsplit(":", 1)[1] for text in (first, second, third)] == [
        f"{number - 1}>",
        f"{number + 1}>",
        f"{number + 2}>",
    ]
    assert second.startswith("<handle owned f32[4] cpu strides(1), made at ")


def test_an_export_beside_a_handle():
    """What no handle explains is told by itself."""
    kept = []
    with share(bytearray(1)) as old:

        def body():
            kept.append(share(bytearray(4)))
            kept.append(share(old))  # holds what was held before
            kept.extend(borrow(bytearray(2), "test") for _ in range(2))

        first, second, exports = told(body)
    assert first.startswith("<handle ") and second.startswith("<handle ")
    assert exports == "2 buffer exports or hand-overs of handles more than before"
    for thing in kept:
        thing.release()


def test_an_export_whose_handle_is_gone():
    kept = []

    def body():
        with share(bytearray(4)) as handle:
            kept.append(np.from_dlpack(handle))
            kept.append(handle.__dlpack__())

    assert told(body) == [
        "1 buffer export or hand-over of handles more than before",
        "2 DLPack exports more than before",
    ]


def test_a_copy_that_somebody_keeps():
    kept = []
    with share(np.arange(3.0)) as handle:
        assert told(lambda: kept.append(handle.__dlpack__(copy=True))) == [
            "1 DLPack export more than before"
        ]
    kept.clear()
    torchmojo.copies(reset=True)


def test_a_borrower_that_gives_nothing_back():
    kept = []
    assert told(lambda: kept.append(borrow(bytearray(2), "test"))) == [
        "1 buffer export or hand-over of handles more than before"
    ]
    kept.pop().release()


def test_an_export_of_a_call():
    """Glue never forgets one; the check would see it."""
    count = doors.word(doors.EXPORTS)
    try:
        assert told(lambda: doors.set_word(doors.EXPORTS, count + 3)) == [
            "3 buffer exports of calls more than before"
        ]
    finally:
        doors.set_word(doors.EXPORTS, count)


def test_references():
    x, y, kept = torch.zeros(1), bytearray(1), []
    assert told(lambda: kept.append(x), x, y) == ["a Tensor with 1 reference more than before"]
    assert told(lambda: kept.extend([y, x, x]), x, y) == [
        "a Tensor with 2 references more than before",
        "a bytearray with 1 reference more than before",
    ]
    assert told(kept.clear, y, x) == [
        "a bytearray with 1 reference fewer than before",
        "a Tensor with 3 references fewer than before",
    ]


def test_a_new_handle_where_an_old_one_was():
    """An address is used again: a handle is known by itself, not by where it lies."""
    x = torch.zeros(1)
    old = share(x)
    kept, number = [], id(old)

    def body():
        nonlocal old
        old.release()
        del old
        for _ in range(100):
            kept.append(share(x))
            if id(kept[-1]) == number:
                return
        pytest.fail("the address was not used again")

    texts = told(body)
    assert len([text for text in texts if text.startswith("<handle ")]) == len(kept)


def test_what_garbage_refers_to_is_not_missed():
    """References out of garbage that was there before may go in the block: nobody lost them."""
    x = torch.zeros(1)
    circle = [x]
    circle.append(circle)
    del circle
    with leak_check(x):
        gc.collect()


def test_what_was_held_before_may_stay_or_go():
    one, two, lender = share(bytearray(1)), share(b"ab"), bytearray(3)
    got = np.from_dlpack(one)
    with leak_check(lender):
        two.release()
        del got
    with leak_check() as check:
        pass
    assert check.before == check.after == tally()
    one.release()


def test_circles_are_no_leak():
    class Circle(bytearray):
        pass

    with leak_check():
        circle = Circle(8)
        circle.me, circle.handle = circle, share(circle)
        circle.export = np.from_dlpack(circle.handle)
        del circle.export  # held by C code, which no collector sees into
        del circle


def test_the_error_of_the_block_is_the_news():
    check = leak_check()
    with pytest.raises(KeyError), check:
        kept = share(b"abc")
        raise KeyError
    assert check.after.handles == check.before.handles + 1
    kept.release()


def test_checks_inside_checks():
    with leak_check():
        with pytest.raises(LeakError):
            with leak_check():
                kept = share(b"abc")
        with leak_check():
            kept.release()


def test_a_check_can_be_used_again():
    check = leak_check()
    for _ in range(2):
        with check:
            share(b"abc").release()
    kept = []
    with pytest.raises(LeakError), check:
        kept.append(share(b"abc"))
    with check:  # it was there before
        pass


def test_the_tally():
    before = tally()
    handles = [share(bytearray(1)), share(torch.zeros(1)), share(b"a")]
    exports = [np.from_dlpack(handles[0]), torch.from_dlpack(handles[1])]  # the second is torch's
    now = tally()
    assert now == before._replace(
        handles=before.handles + 3, leases=before.leases + 2, exports=before.exports + 1
    )
    exports.clear()
    for handle in handles:
        handle.release()
    assert tally() == before._replace(deleters=before.deleters + 1)


# --- the fixture --------------------------------------------------------------------------------


def test_the_fixture(tmp_path, run_child):
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["torchmojo.testing.plugin"]\n')
    (tmp_path / "test_them.py").write_text(
        textwrap.dedent("""
        import torchmojo

        kept = []

        def test_good(leak_check):
            with torchmojo.share(bytearray(4)):
                pass
            assert leak_check.before.handles == 0 and leak_check.after is None

        def test_bad(leak_check):
            kept.append(torchmojo.share(bytearray(4)))

        def test_blind():
            kept.append(torchmojo.share(bytearray(4)))

        def test_good_again(leak_check):
            assert leak_check.before.handles == 2
        """)
    )
    code = f"""
    import pytest
    code = pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", {str(tmp_path)!r},
                        {str(tmp_path)!r}])
    assert code == 1
    """
    text = run_child(code)
    assert "4 passed, 1 error" in text
    assert "ERROR" in text and "test_bad" in text
    assert (
        "torchmojo.LeakError: leak_check: wanted nothing held, given <handle borrowed u8[4] cpu "
        "strides(1) of bytearray, made at "
    ) in text
    assert "test_them.py:12>\n" in text


def test_a_program_that_leaks(run_child):
    code = """
    held = []
    def work():
        handle = torchmojo.share(bytearray(16))
        held.append(torch.from_dlpack(handle))
    try:
        with torchmojo.leak_check():
            work()
    except torchmojo.LeakError as error:
        print(error)
    print(torchmojo.live_handles())
    """
    assert run_child(code).splitlines() == [
        "leak_check: wanted nothing held, given 1 buffer export or hand-over of handles more than "
        "before; 1 DLPack export more than before",
        "[]",
    ]


# --- nothing is held after a thousand calls -----------------------------------------------------


@pytest.fixture(scope="module")
def running():
    return load("running")


class Sub(torch.Tensor):
    pass


class Interface:
    def __init__(self, source):
        self.source, self.__array_interface__ = source, source.__array_interface__


def packed():
    return np.zeros(4, dtype=[("a", "u1"), ("b", "<f4")])["b"]


# Every route of an argument into a kernel.
ROUTES = {
    "torch": lambda: torch.zeros(4),
    "subclass": lambda: torch.zeros(4).as_subclass(Sub),
    "parameter": lambda: torch.nn.Parameter(torch.zeros(4)),
    "numpy": lambda: np.zeros(4, dtype=np.float32),
    "read-only": lambda: np.frombuffer(bytes(16), dtype=np.float32),
    "array": lambda: array.array("f", VALUES),
    "memoryview": lambda: memoryview(bytearray(16)).cast("f"),
    "ctypes": lambda: (ctypes.c_float * 4)(),
    "dlpack": lambda: Producer(VALUES, (4,)),
    "interface": lambda: Interface(np.zeros(4, dtype=np.float32)),
}
COPIED = {
    "big-endian": lambda: np.zeros(4, dtype=">f4"),
    "steps of bytes": packed,
    "neg bit": lambda: torch._neg_view(torch.zeros(4)),
}


def assert_nothing_stays(call, *things):
    """Call a thousand times inside a leak check; all counts are the same at the end."""
    call()
    gc.collect()
    with leak_check(*things):
        for _ in range(1000):
            call()


def forget(lender):
    if isinstance(lender, Producer):  # it keeps what it made, to count deletes
        assert lender.deletes() == [1] * len(lender.made)
        lender.made.clear()


@pytest.mark.parametrize("way", ["itself", "handle", "immutable handle", "list", "keyword"])
@pytest.mark.parametrize("name", [*ROUTES, *COPIED])
def test_a_thousand_calls(kinds, name, way):
    lender = {**ROUTES, **COPIED}[name]()
    handle = None
    if "handle" in way or way == "keyword":
        handle = share(lender, "borrowed_immutable" if "immutable" in way else None)
    given = lender if handle is None else handle
    x = torch.zeros(4)
    call = {
        "list": lambda: kinds.sum_list(x, [x, given, given]),
        "keyword": lambda: kinds.pick_first(x=given),
    }.get(way, lambda: kinds.total_float32(given))
    with torchmojo.fallback("copy"):
        assert_nothing_stays(call, lender, x, *([] if handle is None else [handle, handle.shape]))
    if handle is not None:
        handle.release()
    forget(lender)
    torchmojo.copies(reset=True)


@pytest.mark.parametrize("name", [name for name in ROUTES if name not in ("read-only",)])
def test_a_thousand_writes(kinds, name):
    lender = ROUTES[name]()
    with share(lender) as handle, torch.no_grad():
        assert_nothing_stays(lambda: kinds.scale(handle, 1.0), lender, handle)
    forget(lender)


@pytest.mark.parametrize("name", [*ROUTES, *COPIED])
def test_a_thousand_refusals(kinds, name):
    lender = {**ROUTES, **COPIED}[name]()
    handle = share(lender)
    released = share(lender)
    released.release()
    x = torch.zeros(3)

    def call():
        for wrong in (
            lambda: kinds.total(handle),  # the dtype
            lambda: kinds.add(x, x, handle),  # the size
            lambda: kinds.scale(released, 2.0),
            lambda: kinds.echo_int(handle),
        ):
            try:
                wrong()
            except TorchmojoError:
                continue
            raise AssertionError("not refused")

    with torchmojo.fallback("copy"):
        call()
        gc.collect()
        with leak_check(lender, handle, released, x):
            for _ in range(250):
                call()
    handle.release()
    forget(lender)
    torchmojo.copies(reset=True)


@pytest.mark.parametrize("name", ["torch", "subclass", "parameter"])
def test_a_thousand_calls_where_torch_is_unknown(kinds, name):
    lender = ROUTES[name]()
    with inject("door"), share(lender) as handle:
        assert_nothing_stays(lambda: kinds.total_float32(handle), lender, handle)
        assert_nothing_stays(lambda: kinds.total_float32(lender), lender, handle)


def test_a_thousand_capsules(kinds):
    lender, made = torch.zeros(4), Producer(VALUES, (4,), version=(1, 0))
    array_ = np.zeros(4, dtype=np.float32)

    def call():
        kinds.total_float32(lender.__dlpack__())
        kinds.total_float32(made.capsule())
        kinds.total_float32(array_.__dlpack__())
        share(made.capsule()).release()
        share(array_, "owned").release()
        with share(array_) as handle:
            kinds.total_float32(handle.__dlpack__(max_version=(1, 0)))

    assert_nothing_stays(call, lender, array_)
    assert made.deletes() == [1] * len(made.made) == [1] * 2002
    made.made.clear()


def test_a_thousand_handles_that_are_refused():
    lender, frozen = torch.zeros(3).to_sparse(), b"abc"
    emptied = torch.zeros(3)
    emptied.untyped_storage().resize_(0)

    def call():
        for wrong, mode in (
            (lender, None),
            (emptied, None),
            (frozen, "borrowed"),
            (frozen, "owned"),
            (frozen, "what"),
            (object(), None),
            (np.array([None]), None),
        ):
            try:
                share(wrong, mode)
            except TorchmojoError:
                continue
            raise AssertionError("not refused")

    assert_nothing_stays(call, lender, frozen, emptied)
    assert live_handles() == []
