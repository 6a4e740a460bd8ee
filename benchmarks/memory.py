"""What do handles, checks and fallback copies cost, beside torch's and NumPy's own ways?

./dev bench memory
python -m benchmarks.memory --json memory.json
"""

import sys
from pathlib import Path

import numpy as np
import torch

import torchmojo
from benchmarks import _measure as measure
from torchmojo.bridge import core
from torchmojo.bridge.copy.gather import gather
from torchmojo.dtypes import BY_NAME

HANDLES = {
    "from_dlpack": ("torch.from_dlpack(x)", "torch.from_dlpack(x)"),
    "handle": ("share(x), release", "share(x).release()"),
    "handle_with": ("with share(x)", "with share(x): pass"),
    "numpy_from_dlpack": ("np.from_dlpack(a)", "np.from_dlpack(a)"),
    "memoryview": ("memoryview(a), release", "memoryview(a).release()"),
    "handle_numpy": ("share(a) of NumPy, release", "share(a).release()"),
    "handle_to_torch": ("torch.from_dlpack(handle)", "torch.from_dlpack(h)"),
    "handle_to_numpy": ("np.from_dlpack(handle of NumPy)", "np.from_dlpack(ha)"),
    "call_tensor": ("kernel(x)", "one(x)"),
    "call_handle": ("kernel(handle)", "one(h)"),
    "made": ("kernel that makes a tensor", "made(16)"),
    "torch_empty": ("torch.empty(16)", "torch.empty(16)"),
}
HANDLE_BAR, CHECK_BAR_NS, COPY_BAR = 1.5, 60, 1.0


def layouts():
    """Give five ways in which a tensor is not contiguous."""
    n = 2048
    return {
        "transposed": torch.randn(n, n).t(),
        "channels_last": torch.randn(8, 64, 96, 96).to(memory_format=torch.channels_last),
        "step_2": torch.randn(n, 2 * n)[:, ::2],
        "permuted_4d": torch.randn(32, 48, 64, 40).permute(2, 0, 3, 1),
        "expanded": torch.randn(n, 1).expand(n, n),
    }


def main(argv=None) -> int:
    options = measure.parse(__doc__, argv)
    measure.machine()
    kernels = torchmojo.load(Path(__file__).with_name("memory.mojo"))
    core.memory()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    numbers = measure_handles(kernels, options.quick)
    numbers |= measure_checks(kernels, options.quick)
    numbers |= measure_copies(options.quick)
    numbers |= measure_calls(kernels, options.quick)
    torch.set_num_threads(threads)
    measure.console.print(f"load at the end: {measure.load()}")
    measure.write(options.json, numbers)
    return 0


def measure_handles(kernels, quick):
    x, a = torch.zeros(16), np.zeros(16, np.float32)
    names = {"torch": torch, "np": np, "share": torchmojo.share, "x": x, "a": a}
    names |= {"h": torchmojo.share(x), "ha": torchmojo.share(a)}
    names |= {"one": kernels.one, "made": kernels.made}
    taken = measure.take_turns({who: text for who, (_, text) in HANDLES.items()}, names, quick)
    names["h"].release()
    names["ha"].release()
    base = taken["from_dlpack"]
    rows = [
        (title, taken[who].median * 1e9, taken[who].spread * 1e9, measure.ratio(taken[who], base))
        for who, (title, _) in HANDLES.items()
    ]
    measure.table(
        "Handles, in nanoseconds, one thread", ("", "ns", "spread", "time / from_dlpack"), rows
    )
    numbers = {f"{who}_ns": t.median * 1e9 for who, t in taken.items()}
    numbers["handle_ratio"] = measure.ratio(taken["handle"], base)
    verdict("handle created and released / torch.from_dlpack", numbers["handle_ratio"], HANDLE_BAR)
    return numbers


def verdict(what, value, bar, least=False):
    met = value >= bar if least else value <= bar
    sign = "at least" if least else "at most"
    measure.console.print(f"{what}: {value:.3g}, {sign} {bar}: {'met' if met else 'MISSED'}")


def measure_checks(kernels, quick):
    """Time a call with one tensor and with five: the difference is four times the checks."""
    names = {"one": kernels.one, "five": kernels.five, "x": torch.zeros(16)}
    names["a"] = names["x"].numpy()
    statements = {
        "one": "one(x)",
        "five": "five(x, x, x, x, x)",
        "one_numpy": "one(a)",
        "five_numpy": "five(a, a, a, a, a)",
    }
    taken = measure.take_turns(statements, names, quick)
    check = (taken["five"].median - taken["one"].median) / 4 * 1e9
    check_numpy = (taken["five_numpy"].median - taken["one_numpy"].median) / 4 * 1e9
    measure.table(
        "Checks of one tensor, in nanoseconds",
        ("", "ns"),
        [("a torch tensor", check), ("a NumPy array, borrowed and given back", check_numpy)],
    )
    verdict("checks of the fast door, ns a tensor", check, CHECK_BAR_NS)
    return {"check_ns": check, "check_numpy_ns": check_numpy}


def measure_copies(quick):
    """Time the copy that a fallback makes, allocation and release included, as torch's is."""
    info = BY_NAME["float32"]
    numbers, rows = {}, []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for name, x in layouts().items():
            copy = gather(x, info, "any", False)
            holder = torch.from_dlpack(torchmojo.share(capsule_of(copy.stand_in)))
            torch.testing.assert_close(holder, x, rtol=0, atol=0)
            del holder
            copy.release()
            names = {"gather": gather, "x": x, "info": info}
            statements = {
                "ours": "gather(x, info, 'any', False).release()",
                "torch": "x.contiguous()",
            }
            taken = measure.take_turns(statements, names, quick)
            ratio = measure.ratio(taken["torch"], taken["ours"])
            numbers[f"copy_{name}_ratio_{threads}t"] = ratio
            rows.append(
                (name, threads, taken["ours"].median * 1e3, taken["torch"].median * 1e3, ratio)
            )
    torch.set_num_threads(1)
    measure.table(
        "Strided copies into new memory, in milliseconds",
        ("", "threads", "torchmojo", ".contiguous()", "theirs / ours"),
        rows,
    )
    numbers["copy_ratio_min"] = min(v for k, v in numbers.items() if k.startswith("copy_"))
    verdict("slowest of them, .contiguous() / ours", numbers["copy_ratio_min"], COPY_BAR, True)
    return numbers


def capsule_of(lease):
    """Lend a copy on, so that torch can compare it."""
    from torchmojo.bridge.share.export import _of_lease

    return _of_lease(lease, True, 0)


def measure_calls(kernels, quick):
    """Time whole calls: what a small tensor pays for the detour through Python."""
    x = torch.zeros(64, 64).t()
    names = {"rows": kernels.rows, "x": x, "y": x.contiguous(), "torchmojo": torchmojo}
    statements = {
        "direct": "rows(y)",
        "contiguous": "rows(x.contiguous())",
        "fallback": "rows(x)",
    }
    with torchmojo.fallback("copy"):
        taken = measure.take_turns(statements, names, quick)
    measure.table(
        "A call with a transposed 64 x 64 matrix, in microseconds",
        ("", "us"),
        [
            ("already contiguous", taken["direct"].median * 1e6),
            ("x.contiguous() by hand", taken["contiguous"].median * 1e6),
            ("fallback: looked at, copied, counted", taken["fallback"].median * 1e6),
        ],
    )
    return {f"call_{who}_us": t.median * 1e6 for who, t in taken.items()}


if __name__ == "__main__":
    sys.exit(main())
