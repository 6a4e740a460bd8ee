"""Warm-up: how often a model runs, what is left as it was, and how it fails."""

import gc
import io
import threading
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import torchmojo
from torchmojo.dtypes import BY_NAME
from torchmojo.models import warm as module
from torchmojo.models.example import Example, read_examples


class Clock:
    """A clock for `time.perf_counter`: between two readings passes the next of given times."""

    def __init__(self, times_ms):
        self._times, self._now, self._inside = iter(times_ms), 0.0, False

    def perf_counter(self):
        if self._inside:
            self._now += next(self._times) / 1e3
        self._inside = not self._inside
        return self._now


@pytest.fixture
def clock(monkeypatch):
    """Give a function that sets how long each run takes."""
    return lambda *times_ms: monkeypatch.setattr(module, "time", Clock(times_ms))


class Stateful(torch.nn.Module):
    """Changes one buffer in place, replaces another, and draws random numbers."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.register_buffer("calls", torch.zeros(1))
        self.inner = torch.nn.Module()
        self.inner.register_buffer("last", torch.full((4,), float("nan")))

    def forward(self, x):
        self.calls += 1
        self.inner.last = x * self.weight
        return torch.nn.functional.dropout(self.inner.last, 0.5, training=True)


# --- how often ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "runs"),
    [
        ([90, 10, 10, 10], 4),
        ([10, 10, 10, 10], 4),  # the first run counts for nothing, however quick
        ([90, 50, 10, 10, 10], 5),
        ([90, 10, 11.5, 10, 10, 10], 6),
        ([90, 10, 10.9, 10], 4),  # within a tenth
        ([0.9, 0.02, 0.05, 0.01], 4),  # differences that no clock can be trusted with
    ],
)
def test_runs_until_three_take_the_same_time(clock, times, runs):
    clock(*times)
    seen = []
    warmth = torchmojo.warm(seen.append, shapes=[(2, 3)])
    assert warmth.done and warmth.steady and warmth.wait() is warmth
    assert len(seen) == runs == warmth.runs["f32[2,3]"]
    assert warmth.shapes[0].times_ms == pytest.approx(times)
    assert warmth.first_ms == pytest.approx({"f32[2,3]": times[0]})
    assert warmth.steady_ms == pytest.approx({"f32[2,3]": sorted(times[-3:])[1]})


def test_a_machine_that_is_too_busy_is_said_to_be(clock):
    clock(*(10 * (1 + n % 2) for n in range(99)))
    warmth = torchmojo.warm(lambda x: x, shapes=[(1,)])
    assert warmth.runs == {"f32[1]": 50} and not warmth.steady


def test_tolerance(clock):
    clock(90, 10, 13, 10)
    assert torchmojo.warm(lambda x: x, shapes=[(1,)], tolerance=0.5).runs == {"f32[1]": 4}


def test_a_given_number_of_runs(clock):
    clock(90, 10)
    warmth = torchmojo.warm(lambda x: x, shapes=[(1,)], runs=2)
    assert warmth.runs == {"f32[1]": 2} and not warmth.steady
    assert repr(warmth) == "Warmth(f32[1]: 90 -> 50 ms)"


@pytest.mark.parametrize("profiled", [1, 3])
def test_torchscript_has_recorded_and_optimised(clock, profiled):
    clock(*[10] * 40)
    file = io.BytesIO()
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()).eval()
    torch.jit.save(torch.jit.script(model), file)
    file.seek(0)
    scripted = torch.jit.load(file)  # modules that are scripted here share what was recorded
    before = torch._C._jit_set_num_profiled_runs(profiled)
    try:
        warmth = torchmojo.warm(scripted, shapes=[(2, 3)])
        assert torch._C._jit_set_num_profiled_runs(profiled) == profiled
        with torch.no_grad():
            scripted(torch.rand(2, 3))
        graph = str(torch._C._last_executed_optimized_graph())
    finally:
        torch._C._jit_set_num_profiled_runs(before)
    assert warmth.runs == {"f32[2,3]": profiled + 1 + 3}
    assert "prim::profile" not in graph


def test_shapes_and_inputs_in_their_order():
    seen = []

    def model(x, index=None):
        seen.append((str(x.dtype), tuple(x.shape), index))

    x = torch.ones(2, 0, dtype=torch.float16)
    warmth = torchmojo.warm(
        model, shapes=[(2, 3), "4:int64"], inputs=[x, (x, "word"), torch.ones(2, 3)], runs=1
    )
    assert list(warmth.runs) == ["f32[2,3]", "i64[4]", "f16[2,0]", "f16[2,0], str", "f32[2,3] (2)"]
    assert [s[:2] for s in seen[:2]] == [("torch.float32", (2, 3)), ("torch.int64", (4,))]
    assert seen[3] == ("torch.float16", (2, 0), "word")


def test_several_inputs_in_the_dtype_of_the_weights():
    seen = []

    class Two(torch.nn.Bilinear):
        def forward(self, a, b):
            seen.append((a, b))
            return super().forward(a, b)

    model = Two(3, 4, 5, dtype=torch.float64).eval()
    warmth = torchmojo.warm(model, shapes=[[(7, 3), (7, 4)]], runs=1)
    assert warmth.runs == {"f64[7,3], f64[7,4]": 1}
    a = seen[0][0]
    assert 0 <= a.min() and a.max() <= 1 and a.unique().numel() > 1


# --- what is left as it was -----------------------------------------------------------------


@pytest.mark.parametrize("scripted", [False, True])
def test_buffers_and_random_numbers_are_left(scripted):
    model = Stateful().eval()
    if scripted:
        model = torch.jit.script(model)
    calls, last = model.calls, model.inner.last
    torch.manual_seed(3)
    state = torch.get_rng_state()
    warmth = torchmojo.warm(model, shapes=[(4,)], runs=3)
    assert warmth.runs == {"f32[4]": 3}
    assert torch.equal(torch.get_rng_state(), state)
    assert model.calls is calls and calls.item() == 0
    assert model.inner.last is last and last.isnan().all()
    model(torch.ones(4))  # the model does change them
    assert model.calls.item() == 1 and not model.inner.last.isnan().any()


def test_buffers_are_given_back_after_an_error():
    model = Stateful().eval()
    with pytest.raises(RuntimeError):
        torchmojo.warm(model, shapes=[(4,), (3,)], runs=2)
    assert model.calls.item() == 0


def test_inputs_and_gradients_are_left():
    x = torch.zeros(3, requires_grad=True)
    graded = []

    def model(x):
        graded.append((x.requires_grad, torch.is_grad_enabled()))
        x += 1

    torchmojo.warm(model, inputs=[x], runs=2)
    assert x.sum() == 0 and graded == [(False, False)] * 2
    assert torch.is_grad_enabled()


def test_an_exported_model_has_the_mode_of_its_export():
    model = torch.export.export(torch.nn.Linear(3, 2).eval(), (torch.ones(1, 3),)).module()
    assert model.training  # whatever it says
    assert torchmojo.warm(model, shapes=[(1, 3)], runs=1).runs == {"f32[1,3]": 1}


def test_a_frozen_model_has_no_mode():
    model = torch.jit.freeze(torch.jit.script(torch.nn.Linear(3, 2).eval()))
    assert torchmojo.warm(model, shapes=[(1, 3)], runs=1).runs == {"f32[1,3]": 1}


@pytest.mark.parametrize("whole", [False, True])
def test_a_model_in_training_is_refused(whole):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    if not whole:
        model.eval()[1].train()
    name = "Sequential" if whole else "BatchNorm1d (1)"
    with pytest.raises(torchmojo.ArgumentError) as caught:
        torchmojo.warm(model, shapes=[(2, 3)])
    assert str(caught.value) == (
        f"warm: model: wanted evaluation mode, given {name} in training mode, where a run changes "
        "statistics and draws random numbers; call model.eval() first"
    )
    assert model[1].num_batches_tracked == 0


# --- in the background ----------------------------------------------------------------------


def test_in_the_background():
    go, seen = threading.Event(), []

    def model(x):
        go.wait(60)
        seen.append((threading.current_thread().name, torch._C._get_graph_executor_optimize()))

    torch._C._set_graph_executor_optimize(False)
    try:
        warmth = torchmojo.warm(model, shapes=[(1,)], runs=2, background=True)
    finally:
        torch._C._set_graph_executor_optimize(True)
    assert not warmth.done and not warmth.steady
    assert repr(warmth) == "Warmth(under way, 0 shapes finished)"
    with pytest.raises(TimeoutError) as caught:
        warmth.wait(0.01)
    assert str(caught.value) == "warm: wanted the steady state within 0.01 s, not there yet"
    go.set()
    assert warmth.wait(60).runs == {"f32[1]": 2} and warmth.done
    assert seen == [("torchmojo.warm", False)] * 2  # TorchScript's switch is the caller's


def test_an_error_in_the_background_waits_for_who_waits():
    def model(x):
        raise ZeroDivisionError("mine")

    warmth = torchmojo.warm(model, shapes=[(1,)], background=True)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="mine"):
            warmth.wait(60)
    assert warmth.done and not warmth.steady
    assert repr(warmth) == "Warmth(failed: ZeroDivisionError)"


@pytest.mark.parametrize("background", [False, True])
def test_the_model_is_not_held_afterwards(background):
    model = torch.nn.Linear(2, 2).eval()
    gone = weakref.ref(model)
    warmth = torchmojo.warm(model, shapes=[(1, 2)], runs=1, background=background).wait(60)
    del model
    gc.collect()
    assert gone() is None and warmth.done


# --- what means nothing ---------------------------------------------------------------------

SIZES = 'sizes such as (1, 3, 224, 224) or "1,3,224,224:float32"'


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            {},
            "warm: shapes: wanted shapes or inputs that will come, given neither; write "
            "shapes=[(1, 3, 224, 224)]",
        ),
        ({"shapes": []}, "warm: shapes: wanted at least one shape or input, given none"),
        (
            {"shapes": (1, 3)},
            "warm: shapes: wanted a list of shapes, given (1, 3); write shapes=[(1, 3)]",
        ),
        ({"shapes": "1"}, "warm: shapes: wanted a list of shapes, given '1'; write shapes=['1']"),
        ({"shapes": [(1, -3)]}, f"warm: shapes: wanted {SIZES}, given (1, -3)"),
        ({"shapes": [(1, 2.5)]}, f"warm: shapes: wanted {SIZES}, given 1"),
        ({"shapes": [()]}, f"warm: shapes: wanted {SIZES}, given ()"),
        ({"shapes": ["1,x"]}, f"warm: shapes: wanted {SIZES}, given '1,x'"),
        ({"shapes": [None]}, f"warm: shapes: wanted {SIZES}, given None"),
        (
            {"shapes": ["1:float"]},
            "warm: shapes: wanted a dtype such as float32, int64 or bool, given 'float'",
        ),
        (
            {"inputs": torch.ones(1)},
            "warm: inputs: wanted a list, given a tensor; write inputs=[x]",
        ),
        ({"shapes": [(1,)], "runs": 0}, "warm: runs: wanted 1 or more, given 0"),
        ({"shapes": [(1,)], "runs": True}, "warm: runs: wanted 1 or more, given True"),
        (
            {"shapes": [(1,)], "tolerance": 0},
            "warm: tolerance: wanted a part of the time such as 0.1, given 0",
        ),
        (
            {"shapes": [(1,)], "tolerance": float("nan")},
            "warm: tolerance: wanted a part of the time such as 0.1, given nan",
        ),
    ],
)
def test_wrong_arguments(words, text):
    with pytest.raises(torchmojo.ArgumentError) as caught:
        torchmojo.warm(lambda x: x, **words)
    assert str(caught.value) == text


def test_what_cannot_be_called():
    with pytest.raises(torchmojo.ArgumentError) as caught:
        torchmojo.warm("model.pt", shapes=[(1,)])
    assert str(caught.value) == "warm: model: wanted a module or a function, given str"


# --- examples -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@given(st.lists(st.integers(0, 999), min_size=1, max_size=6), st.sampled_from(sorted(BY_NAME)))
def test_sizes_in_every_spelling(sizes, dtype):
    word = ",".join(map(str, sizes))
    expected = (Example(tuple(sizes), dtype),)
    tensor = torch.empty(sizes, dtype=getattr(torch, dtype), device="meta")
    for value in (f"{word}:{dtype}", f" ({word}): {dtype}", tensor):
        assert read_examples(value, "o", "a") == expected
    assert read_examples(sizes, "o", "a", dtype) == expected
    assert read_examples([sizes, word], "o", "a", dtype) == expected * 2
    assert str(expected[0]) == f"{BY_NAME[dtype].short}[{word}]"


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", sorted(BY_NAME))
@pytest.mark.parametrize("sizes", [(3, 5), (0, 2)])
def test_values_are_seeded_and_draw_nothing(dtype, sizes):
    state = torch.get_rng_state()
    tensor, again = (Example(sizes, dtype).tensor() for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert str(tensor.dtype) == f"torch.{dtype}" and tuple(tensor.shape) == sizes
    assert torch.equal(tensor.to(torch.complex128), again.to(torch.complex128))
    if BY_NAME[dtype].kind in "iub":
        assert not tensor.any()


def test_lists_may_be_generators():
    warmth = torchmojo.warm(
        lambda x: x + 1,
        shapes=((n, 3) for n in (1, 2)),
        inputs=(torch.zeros(n) for n in (4, 5)),
        runs=1,
    )
    assert list(warmth.runs) == ["f32[1,3]", "f32[2,3]", "f32[4]", "f32[5]"]


@pytest.mark.parametrize("words", [{"shapes": 3}, {"inputs": 3}, {"shapes": 1.5}])
def test_what_is_no_list(words):
    with pytest.raises(torchmojo.ArgumentError, match="wanted a list, given"):
        torchmojo.warm(lambda x: x, **words)


@pytest.mark.parametrize(
    "text", ["1_0,3", "((1,3", "(1,3", "1,3)", "1,,3", ",", "+1,3", "\N{ARABIC-INDIC DIGIT ONE},3"]
)
def test_sizes_that_are_slips(text):
    with pytest.raises(torchmojo.ArgumentError, match="shapes: wanted sizes such as"):
        torchmojo.warm(lambda x: x, shapes=[text])


@pytest.mark.parametrize("text", ["1,3", "(1,3)", " ( 1 , 3, ) ", "1,3,:float32"])
def test_sizes_in_their_spellings(text):
    assert torchmojo.warm(lambda x: x, shapes=[text], runs=1).runs == {"f32[1,3]": 1}


def test_tensors_inside_of_inputs_are_copied():
    def model(x, more):
        for value in (x, more["a"], more["b"][0]):
            value.add_(1)

    x, a, b = (torch.zeros(2) for _ in range(3))
    more = {"a": a, "b": [b]}
    torchmojo.warm(model, inputs=[(x, more)], runs=3)
    assert more["a"] is a and more["b"][0] is b
    assert not any(value.any() for value in (x, a, b))


class Changes(torch.nn.Module):
    """Buffers of every kind, each changed in a way of its own."""

    def __init__(self):
        super().__init__()
        self.register_buffer("sparse", torch.eye(3).to_sparse())
        self.register_buffer("meta", torch.empty(3, device="meta"))
        self.register_buffer("complex", torch.tensor([1 + 2j]))
        self.register_buffer("complex32", torch.tensor([1 + 2j]).to(torch.complex32))
        self.register_buffer("resized", torch.arange(3.0))
        self.register_buffer("filled", None)
        self.register_buffer("still", torch.tensor([1.0]).expand(5))

    def forward(self, x):
        self.sparse.mul_(2)
        self.complex.add_(1)
        self.complex32.copy_(torch.tensor([9j]))
        self.resized.resize_(5).fill_(7)
        self.filled = x.clone()
        return x


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_buffers_of_every_kind_are_given_back():
    model, before = Changes().eval(), Changes()
    kept = dict(model.named_buffers())
    torchmojo.warm(model, shapes=[(2,)], runs=2)
    assert model.filled is None and dict(model.named_buffers()).keys() == kept.keys()
    for name, buffer in model.named_buffers():
        wanted = getattr(before, name)
        assert buffer is kept[name] and buffer.shape == wanted.shape
        if not buffer.is_meta:
            same = [t.to_dense() if t.is_sparse else t for t in (buffer, wanted)]
            assert torch.equal(*(t.to(torch.complex64) for t in same))
