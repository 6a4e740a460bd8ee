"""Long calls leave Python's lock to other threads; short ones keep to torch's loader."""

import gc
import sys
import threading
import time
import weakref

import pytest
import torch

import torchmojo
from torchmojo.models import unlocked as module
from torchmojo.models.unlocked import choose


@pytest.fixture
def settled(small, inputs):
    """Give a model that has settled for calls without the lock."""
    model = torchmojo.Model(small)
    for _ in range(3):
        model(*inputs())
    assert isinstance(model._owning.run.__self__, module.Unlocked)
    return model


def turns_of_another_thread(run, calls):
    """Count how often another thread gets Python's lock in calls; it is taken from nobody."""
    count, stop = [0], threading.Event()

    def other():
        while not stop.is_set():
            count[0] += 1
            time.sleep(0)

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=other)
    thread.start()
    time.sleep(0.01)
    sys.setswitchinterval(1000)
    try:
        before = count[0]
        for _ in range(calls):
            run()
        return count[0] - before
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()


class Long(torch.nn.Module):
    def forward(self, x):
        for _ in range(6):
            x = torch.tanh(x @ x)
        return x


@pytest.mark.slow
def test_the_lock_is_free_during_a_call(tmp_path):
    x = torch.zeros(700, 700)
    model = torchmojo.Model(torchmojo.prepare(Long().eval(), x, tmp_path / "long"))
    for _ in range(3):
        model(x)
    assert isinstance(model._owning.run.__self__, module.Unlocked)
    # torch's loader gives it up once on its way; then it keeps it for all of the computation.
    assert turns_of_another_thread(lambda: model._runner.run([x]), 5) <= 10
    assert turns_of_another_thread(lambda: model(x), 5) > 50


def test_gives_the_same(settled, small_module, inputs):
    for n in (1, 4, 9):
        for name, value in settled(*inputs(n)).items():
            wanted = small_module(*inputs(n))[name]
            torch.testing.assert_close(value, wanted, rtol=1e-5, atol=1e-5)


def test_a_changed_weight_shows(settled, inputs):
    before = settled(*inputs())["sum"]
    settled.weights["scale"].fill_(0)
    assert not torch.equal(settled(*inputs())["sum"], before)


def test_outputs_and_inputs_are_freed(settled, inputs):
    values = inputs()
    alive = [weakref.ref(value) for value in values]
    results = [weakref.ref(value) for value in settled(*values).values()]
    del values
    gc.collect()
    assert [ref() for ref in (*alive, *results)] == [None] * 6


def test_torchs_words_reach_the_caller(settled, inputs):
    x, y, image = inputs()
    with pytest.raises(RuntimeError, match="API call failed at"):
        settled._owning.run([x.double(), y, image])
    assert settled(x, y, image)["sum"].shape == (2, 3)


@pytest.mark.parametrize(
    ("seconds", "varies", "free"), [(0.001, False, True), (0, False, False), (0, True, True)]
)
def test_the_choice(seconds, varies, free):
    chosen = []

    def locked(inputs):
        if seconds:
            time.sleep(seconds)
        return inputs

    class Made:
        def run(self, inputs):
            return "free"

    run = choose(locked, Made, chosen.append, varies)
    assert [run(n) for n in range(5)] == [0, 1, 2, 3, 4]
    assert len(chosen) == 1
    assert (chosen[0](7) == "free") == free
