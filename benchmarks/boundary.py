"""What does a call cost, beside NumPy, torch and other ways to call native code on tensors?

Three tensors and a number, `scaled_add(dst, a, b, alpha)`, float32. First one element, where all
is call; then a thousand to a million, where the call must not show. Then the parts of a call: each
question that the glue asks of torch, the GIL, a refused call, borrowed NumPy arrays.

    ./dev bench boundary
    python -m benchmarks.boundary --json boundary.json
"""

import contextlib
import ctypes
import sys
import tempfile

import numpy as np
import torch

import torchmojo
from benchmarks import _measure as measure
from benchmarks import _peers as peers
from torchmojo.bridge import aten

CALLS = {
    "direct": ("torchmojo", "scaled_add(dst, a, b, 0.5)"),
    "direct_attribute": ("torchmojo, through the library", "kernels.scaled_add(dst, a, b, 0.5)"),
    "direct_keyword": ("torchmojo, alpha by name", "scaled_add(dst, a, b, alpha=0.5)"),
    "direct_default": ("torchmojo, alpha left out", "scaled_add(dst, a, b)"),
    "direct_numpy": ("torchmojo on NumPy arrays", "scaled_add(dst_np, a_np, b_np, 0.5)"),
    "np_add": ("np.add(out=)", "np.add(a_np, b_np, out=dst_np)"),
    "torch_add_out": ("torch.add(out=)", "torch.add(a, b, out=dst)"),
    "torch_add_alpha_out": ("torch.add(alpha=, out=)", "torch.add(a, b, alpha=0.5, out=dst)"),
    "tvm_ffi": ("apache-tvm-ffi TensorView", "tvm_ffi(dst, a, b, 0.5)"),
    "raw_c": ("C extension, DLPack table, no checks", "raw_c(dst, a, b, 0.5)"),
    "ctypes": (
        "ctypes, data_ptr(), no checks",
        "with_ctypes(dst.data_ptr(), a.data_ptr(), b.data_ptr(), dst.numel(), 0.5)",
    ),
    "floor": ("C extension that does nothing", "nothing(dst, a, b, 0.5)"),
}
# Ratio: beside whom, the bar, and what would be fine.
BARS = {
    "ratio_np": ("np_add", 1.6, 1.0),
    "ratio_torch": ("torch_add_out", 0.33, 0.25),
    "ratio_tvm_ffi": ("tvm_ffi", 0.8, 0.5),
    "ratio_raw_c": ("raw_c", 2.2, 1.2),
}
SIZES = ((1_000, "thousand"), (100_000, "hundred_thousand"), (1_000_000, "million"))
MILLION_BAR = 1.05
MAX_RANGE = "165 000 to 300 000"  # CustomOpLibrary of max 26.7.0, on other 2-core machines


def main(argv=None) -> int:
    options = measure.parse(__doc__, argv, max="also CustomOpLibrary of the package max")
    measure.machine()
    kernels = torchmojo.load(peers.SOURCE.with_name("kernels.mojo"), dtypes=["float32"])
    names = {"np": np, "torch": torch, "kernels": kernels}
    names |= {kernel.__name__: kernel for kernel in kernels}
    numbers = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="torchmojo-bench-") as folder:
        path = add_peers(names, numbers, folder)
        numbers |= measure_calls(names, options.quick)
        numbers |= measure_sizes(names, options.quick)
        numbers |= measure_questions(names, path, options.quick)
        numbers |= measure_detours(names, options.quick)
        # Last: its threads stay, and slow down what runs beside them.
        numbers |= measure_max(names, folder, options)
    torch.set_num_threads(threads)
    measure.console.print(f"load at the end: {measure.load()}")
    measure.write(options.json, numbers)
    return 0


def add_peers(names, numbers, folder):
    """Build what can be built here; say what cannot, and why."""
    numbers["tvm_ffi_build_s"] = None
    extension = path = None

    @contextlib.contextmanager
    def peer(who):
        try:
            yield
        except peers.Missing as reason:
            measure.console.print(f"not measured here: {who} ({reason})")

    with peer("C extension and ctypes"):
        extension, path = peers.build_c(folder)
        names["nothing"], names["with_ctypes"] = extension.nothing, peers.plain_ctypes(path)
    if extension is not None:
        with peer("C extension over DLPack's table"):
            names["raw_c"] = peers.raw_c(extension)
    with peer("apache-tvm-ffi"):
        names["tvm_ffi"], numbers["tvm_ffi_build_s"] = peers.tvm_ffi(folder)
    return path


def give_tensors(names, count):
    """Put tensors of a size where the statements find them, and NumPy arrays on their memory."""
    for name in ("dst", "a", "b"):
        names[name] = torch.rand(count)
        names[f"{name}_np"] = names[name].numpy()


def compare(statements, names):
    """Fail where two contestants do not do the same work."""
    for who, text in statements.items():
        if text is None or "nothing" in text:
            continue
        names["dst"].fill_(-1)
        exec(text, names)
        alpha = 0.5 if "0.5" in text else 1.0
        expected = names["a"] + alpha * names["b"]
        torch.testing.assert_close(names["dst"], expected, msg=lambda m, w=who: f"{w}: {m}")


# --- one element --------------------------------------------------------------------------------


def measure_calls(names, quick):
    give_tensors(names, 1)
    here = {
        who: text if text.split("(")[0].split(".")[0] in names else None
        for who, (_, text) in CALLS.items()
    }
    compare(here, names)
    taken = measure.take_turns(here, names, quick)
    direct = taken["direct"]
    measure.table(
        "Call with one element, one thread, in nanoseconds",
        ("", "ns", "spread", "time / torchmojo"),
        [
            (title, *ns(taken[who]), measure.ratio(taken[who], direct))
            for who, (title, _) in CALLS.items()
        ],
    )
    numbers = {f"{who}_ns": t and t.median * 1e9 for who, t in taken.items()}
    rows = []
    for key, (who, bar, goal) in BARS.items():
        numbers[key] = measure.ratio(direct, taken[who])
        verdict = against(numbers[key], bar, goal)
        rows.append((f"torchmojo / {CALLS[who][0]}", numbers[key], *verdict))
    measure.table("Bars", ("", "ratio", "at most", "goal", "note"), rows)
    return numbers


def ns(taken):
    return (None, None) if taken is None else (taken.median * 1e9, taken.spread * 1e9)


def against(ratio, bar, goal):
    """Say how a ratio stands to its bar and its goal."""
    verdict = "not measured"
    if ratio is not None:
        verdict = "goal met" if ratio <= goal else "bar met" if ratio <= bar else "MISSED"
    return (bar, goal, verdict)


# --- more elements ------------------------------------------------------------------------------


def measure_sizes(names, quick):
    numbers = {}
    for size, name in SIZES:
        give_tensors(names, size)
        numbers |= measure_size(names, name, quick)
    return numbers


def measure_size(names, size, quick):
    """Time one size on one thread and on two, each against torch on as many."""
    statements = {
        "serial": "scaled_add(dst, a, b, 0.5)",
        "loop": "scaled_add_loop(dst, a, b, 0.5)",
        "parallel": "scaled_add_parallel(dst, a, b, 0.5)",
        "reference": "scaled_add_reference(dst, a, b, 0.5)",
        "torch": "torch.add(a, b, alpha=0.5, out=dst)",
    }
    compare(statements, names)
    taken = {}
    for threads in (1, 2):
        # Threads apart: those that a loop has left spin for a while on the other core.
        torch.set_num_threads(threads)
        if threads == 2:
            statements = {who: statements[who] for who in ("parallel", "torch")}
        for who, times in measure.take_turns(statements, names, quick).items():
            taken[who, threads] = times
    torch.set_num_threads(1)
    numbers = {f"{size}_{who}_{n}t_us": times.median * 1e6 for (who, n), times in taken.items()}
    rows = []
    for title, key, who, threads in (
        ("load and store, one thread", f"{size}_ratio_1t", "serial", 1),
        ("plain loop, one thread", f"{size}_loop_ratio_1t", "loop", 1),
        ("parallel_for, one thread", f"{size}_parallel_ratio_1t", "parallel", 1),
        ("its captures by reference", f"{size}_reference_ratio_1t", "reference", 1),
        ("parallel_for, two threads", f"{size}_ratio_2t", "parallel", 2),
    ):
        mojo, rival = taken[who, threads], taken["torch", threads]
        numbers[key] = measure.ratio(mojo, rival)
        verdict = ""
        if size == "million" and who not in ("loop", "reference"):
            verdict = against(numbers[key], MILLION_BAR, 1.0)[2]
        times = (mojo.median * 1e6, mojo.spread * 1e6, rival.median * 1e6)
        rows.append((title, *times, numbers[key], verdict))
    measure.table(
        f"A {size.replace('_', ' ')} elements, in microseconds; torch is torch.add(alpha=, out=)",
        ("", "us", "spread", "torch us", "time / torch", "note"),
        rows,
        f"the bar is {MILLION_BAR} of torch's time" if size == "million" else "",
    )
    if size == "million":
        gain = measure.ratio(taken["parallel", 2], taken["parallel", 1])
        rival = measure.ratio(taken["torch", 2], taken["torch", 1])
        measure.console.print(f"two threads take {gain:.2f} of the time of one (torch {rival:.2f})")
        numbers["parallel_ratio_2t"] = gain
        if rival > 0.9:
            measure.console.print(
                "torch gains nothing by a second thread now, for other processes have the cores: "
                "the figures for two threads say nothing"
            )
            numbers |= dict.fromkeys(("million_ratio_2t", "parallel_ratio_2t"))
    return numbers


# --- the parts of a call ------------------------------------------------------------------------

# Name, function of libtorch, how often for three tensors of which one is written: an input is read
# through the const pointer, an output through the mutable one.
QUESTIONS = {
    "layout": ("aoti_torch_get_layout", 3),
    "device": ("aoti_torch_get_device_type", 3),
    "dtype": ("aoti_torch_get_dtype", 3),
    "dim": ("aoti_torch_get_dim", 3),
    "sizes": ("aoti_torch_get_sizes", 3),
    "strides": ("aoti_torch_get_strides", 3),
    "storage_size": ("aoti_torch_get_storage_size", 3),
    "storage_offset": ("aoti_torch_get_storage_offset", 3),
    "const_data": ("torch_get_const_data_ptr", 2),
    "mutable_data": ("torch_get_mutable_data_ptr", 1),
    "is_neg": ("_ZN2at6native6is_negERKNS_6TensorE", 3),
    "requires_grad": ("_ZNK3c1010TensorImpl13requires_gradEv", 1),
    "grad_mode": ("_ZN3c108GradMode10is_enabledEv", 0),
    "is_inference": ("_ZN2at6native12is_inferenceERKNS_6TensorE", 1),
    "bump_version": ("_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE", 1),
}
WHY = {
    "layout": "sparse and nested tensors have no strides",
    "device": "memory that the CPU reaches",
    "storage_size": "a storage shorter than the shape says",
    "is_neg": "torch's lazy minus sign",
    "requires_grad": "a write that autograd would miss",
    "grad_mode": "only asked where requires_grad says yes",
    "is_inference": "a write outside inference mode",
    "bump_version": "tells autograd of the write",
}


def measure_questions(names, path, quick):
    """Call each C function of libtorch in a C loop, as the glue calls it."""
    keys = [*(f"check_{name}_ns" for name in QUESTIONS), "check_gil_ns", "checks_of_a_call_ns"]
    door = aten.open_door()
    if path is None or not door.open:
        return dict.fromkeys(keys)
    give_tensors(names, 1)
    loops = ctypes.PyDLL(str(path))
    addresses = aten.symbols()
    tensor = names["dst"]
    tasks = {"empty": (loops.loop_get, ctypes.cast(loops.empty, ctypes.c_void_p).value, id(tensor))}
    for name, (symbol, _) in QUESTIONS.items():
        # requires_grad is a method of the TensorImpl, the others take the at::Tensor that holds it.
        at = tensor._cdata if name == "requires_grad" else id(tensor) + door.offset
        loop = loops.loop_ask if symbol.startswith("_Z") else loops.loop_get
        tasks[name] = (loop, addresses[symbol], at)
    count, rounds = (10**4, 3) if quick else (10**6, 11)
    taken = time_loops(tasks, loops.loop_gil, count, rounds)
    gil = taken["gil"]
    numbers, rows, total = {}, [], 0.0
    for name, (_, times) in QUESTIONS.items():
        each = taken[name]
        total += each * times
        numbers[f"check_{name}_ns"] = each
        rows.append((name.replace("_", " "), each, str(times), each * times, WHY.get(name, "")))
    numbers["check_gil_ns"] = gil
    numbers["checks_of_a_call_ns"] = total
    rows.append(("GIL: give and take", gil, "1", gil, "other Python threads run meanwhile"))
    rows.append(("together", "", "", total + gil, ""))
    measure.table(
        "What the glue asks of torch in one call of scaled_add, in nanoseconds",
        ("", "ns", "times", "ns a call", "note"),
        rows,
        f"each with the call itself; a C function that does nothing takes {taken['empty']:.1f} ns",
    )
    return numbers


def time_loops(tasks, gil, count, rounds):
    """Give the median time of one call in nanoseconds, from loops that take turns."""
    for loop, _, _ in tasks.values():
        loop.restype = ctypes.c_int64
        loop.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    gil.restype, gil.argtypes = ctypes.c_int64, (ctypes.c_int64,)
    times = {name: [] for name in (*tasks, "gil")}
    for _ in range(rounds):
        for name, (loop, function, tensor) in tasks.items():
            times[name].append(loop(function, tensor, count) / count)
        times["gil"].append(gil(count) / count)
    return {name: float(np.median(taken)) for name, taken in times.items()}


def measure_detours(names, quick):
    """Time the calls that leave the fast way: errors, and memory that is not torch's."""
    give_tensors(names, 1)
    names |= {
        "wrong": torch.zeros(1, dtype=torch.int8),
        "foreign": Foreign(names["b_np"]),
        "error": torchmojo.TorchmojoError,
    }
    attempt = "try: scaled_add(dst, a, {})\nexcept error: pass"
    statements = {
        "one_numpy": "scaled_add(dst, a, b_np, 0.5)",
        "one_dlpack": "scaled_add(dst, a, foreign, 0.5)",
        "refuse_dtype": attempt.format("wrong, 0.5"),
        "refuse_count": attempt.format("b, 0.5, 1"),
    }
    titles = {
        "one_numpy": "one NumPy array of three",
        "one_dlpack": "one object with __dlpack__ of three",
        "refuse_dtype": "refused: wrong dtype",
        "refuse_count": "refused: an argument too many",
    }
    taken = measure.take_turns(statements, names, quick)
    measure.table(
        "Detours, in microseconds",
        ("", "us", "spread"),
        [(titles[who], t.median * 1e6, t.spread * 1e6) for who, t in taken.items()],
    )
    return {f"{who}_us": t.median * 1e6 for who, t in taken.items()}


def measure_max(names, folder, options):
    """Time MAX's way to call Mojo on tensors, where it is asked for."""
    numbers = {"custom_op_ns": None, "ratio_custom_op": None}
    reason = "large wheels; ask with --max"
    if options.max:
        try:
            names["custom_op"] = peers.custom_op_library(folder)
            give_tensors(names, 1)
            statements = {"direct": CALLS["direct"][1], "custom_op": "custom_op(dst, a, b)"}
            taken = measure.take_turns(statements, names, options.quick)
            numbers["custom_op_ns"] = taken["custom_op"].median * 1e9
            numbers["ratio_custom_op"] = measure.ratio(taken["direct"], taken["custom_op"])
            measure.console.print(
                f"max CustomOpLibrary: {measure.number(numbers['custom_op_ns'])} ns a call, "
                f"{1 / numbers['ratio_custom_op']:.0f} times torchmojo's"
            )
            return numbers
        except peers.Missing as missing:
            reason = missing
    measure.console.print(
        f"not measured here: max CustomOpLibrary ({reason}); {MAX_RANGE} ns a call are known of it"
    )
    return numbers


class Foreign:
    """An object that lends memory through DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


if __name__ == "__main__":
    sys.exit(main())
