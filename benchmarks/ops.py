"""What does an operator of torch's cost that is a Mojo kernel, beside torch's own and Python's?

Two tensors of one element in, one out, float32, one thread: where all is call. With a formula of
the gradient and without, in grad mode and under no_grad. Then the first call of a fresh process,
and a training step of `examples/03_train_with_a_mojo_op` beside the same network in plain torch.

    ./dev bench ops
    python -m benchmarks.ops --json ops.json
"""

import importlib.util
import json
import statistics
import subprocess
import sys
from pathlib import Path

import torch

import torchmojo
from benchmarks import _measure as measure

ROOT = Path(__file__).parent.parent
SOURCE = Path(__file__).with_name("ops.mojo")
EXAMPLE = ROOT / "examples" / "03_train_with_a_mojo_op" / "main.py"

# Overloads throughout, `torch.ops.NS.NAME.default`, but where the title says otherwise.
CALLS = {
    "op": ("torchmojo.op", "op(a, b)"),
    "op_packet": ("its torch.ops.bench.add", "op_packet(a, b)"),
    "op_object": ("the object that torchmojo.op gives", "op_object(a, b)"),
    "op_out": ("its .out overload, nothing allocated", "op_out(a, b, dst=dst)"),
    "op_nograd": ("torchmojo.op, under no_grad", "op(a, b)"),
    "op_autograd_idle": ("with a formula, nothing requires grad", "op_autograd(a, b)"),
    "op_autograd_nograd": ("with a formula, under no_grad", "op_autograd(a, b)"),
    "op_autograd_recorded": ("with a formula, recorded", "op_autograd(leaf, b)"),
    "torch_add": ("torch.add", "torch.add(a, b)"),
    "torch_add_recorded": ("torch.add, recorded", "torch.add(leaf, b)"),
    "aten_add": ("torch.ops.aten.add.Tensor", "aten_add(a, b)"),
    "python_custom_op": ("torch.library.custom_op round the kernel", "python_op(a, b)"),
    "python_autograd_idle": (
        "the same with register_autograd, nothing requires grad",
        "python_autograd(a, b)",
    ),
    "python_autograd_recorded": ("the same, recorded", "python_autograd(leaf, b)"),
    "floor": ("torch.ops.aten.is_same_size: two tensors, no work", "floor(a, b)"),
    "kernel": ("the kernel itself, called directly", "kernel(dst, a, b)"),
}
# Ratio: whose time, beside whose, and the bar.
BARS = {
    "ratio_torch_add": ("op", "torch_add", 1.4),
    "ratio_aten_add": ("op", "aten_add", 0.8),
    "ratio_python_custom_op": ("op", "python_custom_op", 0.15),
    "ratio_nograd": ("op_autograd_nograd", "op_nograd", 1.3),
    "ratio_idle": ("op_autograd_idle", "python_autograd_idle", 0.5),
}
FIRST_CALL_BAR = 5.0


def main(argv=None) -> int:
    options = measure.parse(__doc__, argv)
    measure.machine()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    numbers = measure_calls(options.quick)
    numbers |= measure_first_call(options.quick)
    numbers |= measure_training(options.quick)
    torch.set_num_threads(threads)
    measure.console.print(f"load at the end: {measure.load()}")
    measure.write(options.json, numbers)
    return 0


# --- one element ----------------------------------------------------------------------------------


def make_names():
    """Register every contestant; give the names that the statements use."""
    kernel = torchmojo.load(SOURCE).add

    @torchmojo.op("bench::add", kernel)
    def add(a, b):
        return torch.empty_like(a)

    @torchmojo.op("bench::add_autograd", kernel)
    def add_autograd(a, b):
        return torch.empty_like(a)

    add_autograd.backward(lambda ctx, grad: (grad, grad), save=())

    def add_in_python(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        dst = torch.empty_like(a)
        kernel(dst, a, b)
        return dst

    custom = {}
    for name in ("bench::python_add", "bench::python_add_autograd"):
        custom[name] = torch.library.custom_op(name, add_in_python, mutates_args=())
        custom[name].register_fake(lambda a, b: torch.empty_like(a))
    custom[name].register_autograd(lambda ctx, grad: (grad, grad))
    bench = torch.ops.bench
    return {
        "torch": torch,
        "kernel": kernel,
        "op": bench.add.default,
        "op_packet": bench.add,
        "op_object": add,
        "op_out": bench.add.out,
        "op_autograd": bench.add_autograd.default,
        "floor": torch.ops.aten.is_same_size.default,
        "aten_add": torch.ops.aten.add.Tensor,
        "python_op": bench.python_add.default,
        "python_autograd": bench.python_add_autograd.default,
        "a": torch.rand(1),
        "b": torch.rand(1),
        "dst": torch.empty(1),
        "leaf": torch.rand(1, requires_grad=True),
        "keep": (add, add_autograd, custom),
    }


def compare(names):
    """Fail where a contestant does not add, or records what it should not."""
    for who, (_, text) in CALLS.items():
        if who == "floor":
            continue
        with torch.set_grad_enabled("nograd" not in who):
            result = eval(text, names)
        result = names["dst"] if result is None else result
        first = names["leaf" if "recorded" in who else "a"]
        torch.testing.assert_close(result, first + names["b"], msg=lambda m, w=who: f"{w}: {m}")
        assert result.requires_grad == ("recorded" in who), who


def measure_calls(quick):
    names = make_names()
    compare(names)
    statements = {who: text for who, (_, text) in CALLS.items()}
    setups = {who: f"torch.set_grad_enabled({'nograd' not in who})" for who in CALLS}
    taken = measure.take_turns(statements, names, quick, setups, short=True)
    torch.set_grad_enabled(True)
    measure.table(
        "Call with one element, one thread, in nanoseconds",
        ("", "ns", "spread", "time / torchmojo.op"),
        [
            (title, t.median * 1e9, t.spread * 1e9, measure.ratio(t, taken["op"]))
            for (title, _), t in zip(CALLS.values(), taken.values(), strict=True)
        ],
    )
    numbers = {f"{who}_ns": t.median * 1e9 for who, t in taken.items()}
    rows = []
    for key, (who, rival, bar) in BARS.items():
        numbers[key] = measure.ratio(taken[who], taken[rival])
        rows.append((f"{who} / {rival}", numbers[key], bar, verdict(numbers[key], bar)))
    measure.table("Bars", ("", "ratio", "at most", "note"), rows)
    return numbers


def verdict(value, bar):
    return "bar met" if value <= bar else "MISSED"


# --- the first call -------------------------------------------------------------------------------


def measure_first_call(quick):
    """Take the first call in fresh processes, the kernel being in the cache."""
    command = [sys.executable, "-m", "benchmarks._child", "op", str(SOURCE)]
    runs = []
    for _ in range(1 if quick else 7):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    numbers = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    numbers["first_call_imports_dynamo"] = max(run["first_call_imports_dynamo"] for run in runs)
    first = numbers["first_call_ms"]
    dynamo = "imported" if numbers["first_call_imports_dynamo"] else "not imported"
    measure.table(
        "In a fresh process, in milliseconds",
        ("", "ms", "at most", "note"),
        [
            ("torchmojo.op: read, register", numbers["register_op_ms"], "", ""),
            ("first call", first, FIRST_CALL_BAR, verdict(first, FIRST_CALL_BAR)),
            ("first call that is recorded, and its backward", numbers["first_grad_ms"], "", ""),
        ],
        f"torch._dynamo is {dynamo} by these; medians of {len(runs)} processes",
    )
    return numbers


# --- a training step ------------------------------------------------------------------------------


def measure_training(quick):
    """Time the example's step with Mojo's operators and with torch's, both eager."""
    spec = importlib.util.spec_from_file_location("torchmojo_example_training", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    names = {
        "x": torch.rand(example.BATCH, 64),
        "target": torch.arange(example.BATCH) % 10,
        "mojo": example.Training(example.with_mojo),
        "own": example.Training(example.with_torch),
    }
    for _ in range(3):
        losses = [names[who].step(names["x"], names["target"]) for who in ("mojo", "own")]
        torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-4)
    statements = {"mojo": "mojo.step(x, target)", "own": "own.step(x, target)"}
    taken = measure.take_turns(statements, names, quick)
    gain = measure.ratio(taken["mojo"], taken["own"])
    measure.table(
        f"A training step of {example.BATCH} digits, one thread, eager, in microseconds",
        ("", "us", "spread", "time / torch"),
        [
            ("bias_gelu and smooth_cross_entropy in Mojo", *us(taken["mojo"]), gain),
            ("torch's operators", *us(taken["own"]), 1.0),
        ],
    )
    return {
        "training_step_mojo_us": taken["mojo"].median * 1e6,
        "training_step_torch_us": taken["own"].median * 1e6,
        "ratio_training_step": gain,
    }


def us(taken):
    return taken.median * 1e6, taken.spread * 1e6


if __name__ == "__main__":
    sys.exit(main())
