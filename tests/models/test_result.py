"""What a call gives back: tensors of its own, in the form that forward has."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import torchmojo
from torchmojo.models.result import Owning


def storage(value):
    return value.untyped_storage().data_ptr()


def library(inputs):
    """Answer as a compiled model does: views of inputs, and memory of its own."""
    x, y = inputs
    own = x + y[0, 0]
    return [x, x.t(), y[0].expand(3, 5), own, own.t(), torch.empty(0)]


def test_an_output_in_an_inputs_memory_is_copied():
    x, y = torch.randn(3, 4), torch.randn(2, 5)
    before = x.clone(), y.clone()
    owning = Owning(library)
    for turn in range(4):
        if turn == 2:
            owning.replace(lambda inputs: library(inputs))
        results = owning.run([x, y])
        wanted = library([x, y])
        assert all(torch.equal(a, b) for a, b in zip(results, wanted, strict=True))
        assert not {storage(result) for result in results} & {storage(x), storage(y)}
        assert storage(results[3]) == storage(results[4])  # as forward's own
        for result in results[:3]:
            result.fill_(torch.nan)
        assert torch.equal(x, before[0]) and torch.equal(y, before[1])


def test_a_library_with_memory_of_its_own_is_called_as_it_is():
    def inner(inputs):
        return [inputs[0] + 1]

    def other(inputs):
        return [inputs[0] + 2]

    owning = Owning(inner)
    owning.run([torch.zeros(3)])
    assert owning.run is inner
    owning.replace(other)
    assert owning.run is other


def test_a_way_that_is_replaced_during_the_first_call_stays_replaced():
    entered, leave = threading.Event(), threading.Event()

    def inner(inputs):
        entered.set()
        assert leave.wait(10)
        return [inputs[0] + 1]

    def other(inputs):
        return [inputs[0] + 2]

    owning = Owning(inner)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(owning.run, [torch.zeros(3)])
        assert entered.wait(10)
        owning.replace(other)
        leave.set()
        first.result()
    assert owning.run is other


class Echo(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("c", torch.arange(3.0))

    def forward(self, x):
        return x, (x.t(), self.c), x + 1


@pytest.mark.slow
def test_a_prepared_model_gives_tensors_of_its_own(tmp_path):
    net, x = Echo().eval(), torch.randn(3, 4)
    try:
        model = torchmojo.Model(torchmojo.prepare(net, x, tmp_path / "echo", threads=1))
    except torchmojo.CompilerNotFoundError as error:
        pytest.skip(str(error))
    before = x.clone()
    for _ in range(6):
        same, (turned, c), more = model(x)
        for given, wanted in zip((same, turned, c, more), (x, x.t(), net.c, x + 1), strict=True):
            assert torch.equal(given, wanted)
            given.fill_(torch.nan)
        assert torch.equal(x, before)
