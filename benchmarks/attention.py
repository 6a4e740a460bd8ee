"""How fast is attention written in Mojo, beside torch's scaled_dot_product_attention?

The operator of `examples/04_fused_attention`, causal, 8 heads of 64, on views `[b, h, s, d]` of
memory `[b, s, h, d]`; forward under no_grad, and forward with backward; one thread and two.

    ./dev bench attention
    python -m benchmarks.attention --json attention.json
"""

import importlib.util
import sys
from pathlib import Path

import torch

from benchmarks import _measure as measure

EXAMPLE = Path(__file__).parent.parent / "examples" / "04_fused_attention" / "main.py"
SHAPES = ((1, 16), (1, 64), (2, 128), (1, 1024), (1, 2048))
QUICK_SHAPES = ((1, 16), (2, 128))
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
HEADS, WIDTH = 8, 64
# Greatest error that a result and its gradients may have beside torch's own.
LIMITS = {"f32": 1e-4, "bf16": 6e-2}
STATEMENTS = {
    "forward": {"mojo": "forward(mojo, *inputs)", "torch": "forward(own, *inputs)"},
    "train": {"mojo": "train(mojo, *inputs)", "torch": "train(own, *inputs)"},
}


def main(argv=None) -> int:
    options = measure.parse(__doc__, argv)
    measure.machine()
    spec = importlib.util.spec_from_file_location("torchmojo_example_attention", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    threads = torch.get_num_threads()
    numbers = {}
    for count in (1, 2):
        torch.set_num_threads(count)
        numbers |= compare(example, count, options.quick)
    torch.set_num_threads(threads)
    measure.console.print(f"load at the end: {measure.load()}")
    measure.write(options.json, numbers)
    return 0


def compare(example, threads, quick):
    """Time all shapes and dtypes on so many threads; give the flat numbers."""
    numbers, rows = {}, []
    for dtype, torch_dtype in DTYPES.items():
        for b, s in QUICK_SHAPES if quick else SHAPES:
            shape = (b, s, HEADS, WIDTH)
            names = {
                "mojo": example.with_mojo,
                "own": example.with_torch,
                "forward": example.forward_only,
                "train": example.forward_and_backward,
                "inputs": [torch.randn(shape).to(torch_dtype).transpose(1, 2) for _ in range(4)],
            }
            prove_equal(names, LIMITS[dtype])
            for what, statements in STATEMENTS.items():
                taken = measure.take_turns(statements, names, quick)
                gain = measure.ratio(taken["torch"], taken["mojo"])
                key = f"attention.{dtype}_b{b}_s{s}_{what}"
                for who, time in taken.items():
                    numbers[f"{key}_{who}_us_{threads}t"] = time.median * 1e6
                numbers[f"{key}_ratio_torch_{threads}t"] = gain
                cells = [cell for t in taken.values() for cell in (t.median * 1e6, t.spread * 1e6)]
                note = "" if gain >= 1 else "torch is faster"
                rows.append((f"{dtype} b={b} s={s} {what}", *cells, gain, note))
    measure.table(
        f"Causal attention, {HEADS} heads of {WIDTH}, {threads} thread(s), in microseconds",
        ("", "Mojo", "spread", "torch", "spread", "torch / Mojo", "note"),
        rows,
    )
    return numbers


def prove_equal(names, limit):
    """Fail where result or gradients are not torch's."""
    mojo, own = (names["train"](names[who], *names["inputs"]) for who in ("mojo", "own"))
    for given, wanted in zip(mojo, own, strict=True):
        torch.testing.assert_close(given, wanted, rtol=limit, atol=limit)


if __name__ == "__main__":
    sys.exit(main())
