"""Handles, exports and lenders in any order: what a model says is what memory holds."""

import array
import gc
import threading

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from torchmojo import HandleError, NoDataError, ReadOnlyError, leak_check, live_handles, share
from torchmojo.bridge.share.leak import tally

from .conftest import Producer, load

KINDS = ["torch", "parameter", "numpy", "frozen", "array", "bytearray", "producer"]
FACTORS = st.sampled_from([2.0, 0.5, -1.0])
MODES = st.sampled_from([None, "borrowed", "borrowed_immutable"])


@pytest.fixture(autouse=True, scope="module")
def only_what_is_new():
    """Let collections pass over what torch and others hold for ever, which takes them long."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


class Lender:
    """An object that lends, and what its memory should hold."""

    def __init__(self, kind, size):
        self.kind, self.values = kind, np.arange(1.0, size + 1).astype(np.float32)
        self.moves = 0  # handles made before the last one are dead
        self.handles, self.exports = [], 0
        self.source = None
        numbers = self.values.copy()
        if kind == "torch":
            self.thing = torch.arange(1.0, size + 1)
        elif kind == "parameter":
            self.thing = torch.nn.Parameter(torch.arange(1.0, size + 1), requires_grad=False)
        elif kind == "numpy":
            self.thing = np.ndarray((size,), np.float32)
            self.thing[:] = numbers
        elif kind == "frozen":
            self.thing = np.frombuffer(numbers.tobytes(), np.float32)
        elif kind == "array":
            self.thing = array.array("f", numbers)
        elif kind == "bytearray":
            self.source = bytearray(numbers.tobytes())
            self.thing = memoryview(self.source).cast("f")
        else:
            self.thing = Producer(numbers, (size,), version=(1, 0))

    @property
    def writable(self):
        return self.kind != "frozen"

    @property
    def held(self):
        return bool(self.handles) or self.exports > 0

    def is_moved(self, held):
        return held.moves != self.moves


class Held:
    """An open handle or an export, and what it should say."""

    def __init__(self, thing, lender, frozen, owned=False):
        self.thing, self.lender, self.frozen, self.owned = thing, lender, frozen, owned
        self.moves = lender.moves


def elsewhere(call):
    """Run a call on another thread; its result or its error."""
    result = []

    def work():
        try:
            result.append((call(), None))
        except Exception as error:
            result.append((None, error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    value, error = result[0]
    if error is not None:
        raise error
    return value


class Handles(RuleBasedStateMachine):
    """Any order of making, sharing, exporting, moving and releasing."""

    lenders, handles, exports = Bundle("lenders"), Bundle("handles"), Bundle("exports")

    @initialize()
    def start(self):
        self.kinds = load("kinds")
        self.check = leak_check()
        self.check.__enter__()
        self.before, self.open = live_handles(), []
        self.made, self.live_exports = [], 0

    # -- rules -----------------------------------------------------------------------------------

    @rule(target=lenders, kind=st.sampled_from(KINDS), size=st.integers(0, 5))
    def create(self, kind, size):
        lender = Lender(kind, max(size, 1) if kind == "producer" else size)
        self.made.append(lender)
        return lender

    @rule(target=handles, lender=lenders, mode=MODES)
    def share(self, lender, mode):
        if mode == "borrowed" and not lender.writable:
            with pytest.raises(ReadOnlyError):
                share(lender.thing, mode)
            return multiple()
        frozen = mode == "borrowed_immutable" or not lender.writable
        return self.opened(share(lender.thing, mode), lender, frozen, False)

    @rule(target=handles, lender=lenders)
    def hand_over(self, lender):
        if lender.kind not in ("torch", "numpy", "producer"):
            return multiple()
        return self.opened(share(lender.thing, "owned"), lender, False, True)

    @rule(target=handles, held=handles, mode=MODES)
    def again(self, held, mode):
        if not self.may(held, lambda: share(held.thing, mode)):
            return multiple()
        if mode == "borrowed" and held.frozen:
            with pytest.raises(ReadOnlyError):
                share(held.thing, mode)
            return multiple()
        frozen = held.frozen or mode == "borrowed_immutable"
        return self.opened(share(held.thing, mode), held.lender, frozen, held.owned and not mode)

    @rule(target=handles, held=handles)
    def own_an_export(self, held):
        """A capsule of a handle is handed over to a handle of its own."""
        if not self.may(held, lambda: held.thing.__dlpack__(max_version=(1, 0))):
            return multiple()
        capsule = held.thing.__dlpack__(max_version=(1, 0))
        return self.opened(share(capsule), held.lender, held.frozen, True)

    @rule(held=handles, thread=st.booleans())
    def read(self, held, thread):
        def call():
            return self.kinds.total_float32(held.thing)

        if self.may(held, call):
            got = elsewhere(call) if thread else call()
            assert got == held.lender.values.sum(dtype=np.float64)
            assert held.thing.address == held.thing.address
            assert held.thing.shape == held.lender.values.shape

    @rule(held=handles, factor=FACTORS, thread=st.booleans())
    def write(self, held, factor, thread):
        def call():
            self.kinds.scale(held.thing, factor)

        if held.frozen and not held.thing.released:
            with pytest.raises((ReadOnlyError, NoDataError)):
                call()
        elif self.may(held, call):
            elsewhere(call) if thread else call()
            held.lender.values *= np.float32(factor)

    @rule(target=exports, held=handles, torchs=st.booleans())
    def export(self, held, torchs):
        take = torch.from_dlpack if torchs else np.from_dlpack
        if not self.may(held, lambda: take(held.thing)):
            return multiple()
        held.lender.exports += 1
        return Held(take(held.thing), held.lender, held.frozen)

    @rule(export=exports, factor=FACTORS)
    def use_an_export(self, export, factor):
        if export.thing is None:
            return
        assert export.thing.tolist() == export.lender.values.tolist()
        if not export.frozen:
            export.thing *= factor
            export.lender.values *= np.float32(factor)

    @rule(export=consumes(exports), thread=st.booleans())
    def drop_an_export(self, export, thread):
        box = [export.thing]
        export.thing = None
        elsewhere(box.clear) if thread else box.clear()
        export.lender.exports -= 1

    @rule(held=handles, way=st.sampled_from(["call", "thread", "with"]))
    def release(self, held, way):
        if held.thing.released:
            with pytest.raises(HandleError, match="wanted an open handle, given one that was"):
                held.thing.release() if way != "with" else held.thing.__enter__()
            return
        if way == "call":
            held.thing.release()
        elif way == "thread":
            elsewhere(held.thing.release)
        else:
            with held.thing:
                pass
        self.open.remove(held)
        held.lender.handles.remove(held)

    @rule(lender=lenders)
    def move(self, lender):
        """Moves the memory, where that takes no export from under a consumer."""
        if lender.exports or any(h.owned for h in lender.handles):
            return
        before = lender.values
        if lender.kind in ("torch", "parameter"):
            lender.thing.untyped_storage().resize_(before.nbytes + 4096)
            lender.moves += bool(len(before))
        elif lender.kind == "numpy":
            lender.thing.resize(len(before) + 1000, refcheck=False)
            lender.values = np.concatenate([before, np.zeros(1000, np.float32)])
            lender.moves += 1
        elif lender.kind in ("array", "bytearray"):
            grow = (
                (lambda: lender.thing.append(7.0))
                if lender.kind == "array"
                else (lambda: lender.source.extend(b"more"))
            )
            if lender.kind == "bytearray" or lender.held:
                with pytest.raises(BufferError):
                    grow()
            else:
                grow()
                lender.values = np.append(before, np.float32(7))

    @rule()
    def collect(self):
        gc.collect()

    # -- what holds always -----------------------------------------------------------------------

    @invariant()
    def the_open_handles_are_those_of_the_model(self):
        if hasattr(self, "open"):
            assert live_handles() == [*self.before, *(held.thing for held in self.open)]

    @invariant()
    def memory_holds_what_the_model_says(self):
        for lender in getattr(self, "made", ()):
            thing = lender.thing
            if lender.kind == "producer":
                assert np.frombuffer(thing.buffer, np.float32).tolist() == lender.values.tolist()
                # A hand-over is given back with its last holder, a borrowed capsule with its lease.
                open_ones = len(thing.deletes()) - sum(thing.deletes())
                assert set(thing.deletes()) <= {0, 1}
                assert (open_ones > 0) == lender.held
            else:
                # torch pins a storage that NumPy has seen, so each is asked in its own way.
                assert thing.tolist() == lender.values.tolist()

    def teardown(self):
        if not hasattr(self, "open"):
            return
        for held in self.open:
            held.thing.release()
        for lender in self.made:
            lender.handles.clear()
        exports = self.bundles.get("exports", [])
        for name in [reference.name for reference in exports]:
            self.names_to_values[name].thing = None
        for lender in self.made:
            if lender.kind == "producer":
                assert lender.thing.deletes() == [1] * len(lender.thing.made)
            elif lender.kind == "bytearray":
                lender.thing.release()
                lender.source.append(0)
        self.check.__exit__(None, None, None)
        assert tally().twice == self.check.before.twice

    # -- help ------------------------------------------------------------------------------------

    def opened(self, handle, lender, frozen, owned):
        held = Held(handle, lender, frozen, owned)
        assert handle.state == (
            "owned" if owned else "borrowed_immutable" if frozen else "borrowed"
        )
        self.open.append(held)
        lender.handles.append(held)
        return held

    def may(self, held, call):
        """Tell whether a use of a handle works; a use that must not is tried here."""
        if held.thing.released:
            with pytest.raises(HandleError, match="wanted an open handle, given one that was"):
                call()
            return False
        if held.lender.is_moved(held):
            with pytest.raises(NoDataError, match="has moved or changed since"):
                call()
            return False
        return True


TestHandles = Handles.TestCase
TestHandles.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
