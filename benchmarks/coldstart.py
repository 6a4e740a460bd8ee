"""How long until a ResNet-50 has answered: a Mojo program, a prepared model, TorchScript, eager?

Every figure is the median of fresh processes on one thread, which take turns. A total counts from
the start of the process to the first result; "load + first" leaves out Python and `import torch`.

    ./dev bench coldstart
    python -m benchmarks.coldstart --json coldstart.json
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import torchmojo
from benchmarks import _measure as measure
from benchmarks import _resnet as resnet

ROOT = Path(__file__).parent.parent
MOJO_PACKAGE = Path(torchmojo.__file__).parent / "mojo"
LIBTORCH = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
ROUNDS, FORWARDS = 5, 31
MOJO_BAR, PREPARED_BAR, CALL_BAR = 0.35, 0.6, 1.5
KINDS = {
    "mojo": "Mojo program, prepared model",
    "script": "Python, TorchScript",
    "prepared": "Python, prepared model, digests checked",
    "unchecked": "Python, prepared model, digests not checked",
    "eager": "Python, eager",
}


def main(argv=None) -> int:
    options = measure.parse(__doc__, argv)
    measure.machine()
    with tempfile.TemporaryDirectory(prefix="torchmojo-bench-") as place:
        numbers = measure_resnet(Path(place), 1 if options.quick else ROUNDS)
        numbers |= measure_steady(Path(place), options.quick)
        numbers |= measure_calls(Path(place), options.quick)
    measure.console.print(f"load at the end: {measure.load()}")
    measure.write(options.json, numbers)
    return 0


def measure_resnet(folder, rounds):
    commands = make(folder)
    taken = {kind: [] for kind in commands}
    for _ in range(rounds + 1):
        for kind, command in commands.items():
            taken[kind].append(fresh(command))
    # The first round reads files from disk.
    middle = {
        kind: {key: statistics.median(run[key] for run in runs[1:]) for key in runs[0]}
        for kind, runs in taken.items()
    }
    scores = {run["score"] for runs in taken.values() for run in runs}
    assert max(scores) - min(scores) < 1e-5, scores
    keys = ("total", "load", "first", "second")
    measure.table(
        "ResNet-50, one image, one thread, in milliseconds",
        ("", "process start to first result", "load", "first", "second"),
        [(KINDS[kind], *(found.get(key) for key in keys)) for kind, found in middle.items()],
    )
    script, prepared, unchecked = (middle[k] for k in ("script", "prepared", "unchecked"))
    numbers = {
        "mojo_total_ms": middle["mojo"]["total"],
        "script_total_ms": script["total"],
        "script_load_first_ms": script["load"] + script["first"],
        "prepared_load_first_ms": prepared["load"] + prepared["first"],
        "unchecked_load_first_ms": unchecked["load"] + unchecked["first"],
        "eager_load_first_ms": middle["eager"]["load"] + middle["eager"]["first"],
        "first_ms": prepared["first"],
    }
    numbers["ratio_mojo"] = paired(taken, "mojo", ("total",))
    for key in ("prepared", "unchecked"):
        numbers[f"ratio_{key}"] = paired(taken, key, ("load", "first"))
    verdict("Mojo program / Python with TorchScript", numbers["ratio_mojo"], MOJO_BAR)
    verdict("prepared / TorchScript, load + first", numbers["ratio_prepared"], PREPARED_BAR)
    return numbers


def paired(taken, kind, keys):
    """Give the median over rounds of a time beside TorchScript's in the same round.

    Load comes and goes in seconds here: neighbours in time are hit alike.
    """
    return statistics.median(
        sum(mine[key] for key in keys) / sum(theirs[key] for key in keys)
        for mine, theirs in zip(taken[kind][1:], taken["script"][1:], strict=True)
    )


def measure_steady(folder, quick):
    """Time warm forwards, which take turns in this process: load elsewhere hits all alike."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    runs = {"prepared": torchmojo.Model(folder / "prepared"), "eager": resnet.resnet50()}
    runs["script"] = torch.jit.load(folder / "script.pt").eval()
    x = resnet.image()
    with torch.inference_mode():
        for run in runs.values():
            for _ in range(3):
                run(x)
        times = {who: [] for who in runs}
        for _ in range(3 if quick else FORWARDS):
            for who, run in runs.items():
                start = time.perf_counter()
                run(x)
                times[who].append((time.perf_counter() - start) * 1e3)
    torch.set_num_threads(threads)
    middle = {who: statistics.median(found) for who, found in times.items()}
    measure.table(
        "Warm forwards of ResNet-50, one thread, in milliseconds", ("", "ms"), list(middle.items())
    )
    value = statistics.median(
        mine / theirs for mine, theirs in zip(times["prepared"], times["eager"], strict=True)
    )
    verdict("steady state, prepared / eager", value, 1.0)
    numbers = {f"{who}_steady_ms": found for who, found in middle.items()}
    return numbers | {"steady_ms": middle["prepared"], "ratio_steady": value}


def verdict(what, value, bar):
    measure.console.print(
        f"{what}: {value:.3g}, at most {bar}: {'met' if value <= bar else 'MISSED'}"
    )


def make(folder):
    """Write the model in all forms; give the command of each kind."""
    model, x = resnet.resnet50(), resnet.image()
    source = folder / "input.raw"
    source.write_bytes(x.numpy().tobytes())
    torch.save(model.state_dict(), folder / "eager.pt")
    with torch.no_grad():
        torch.jit.save(torch.jit.trace(model, x), folder / "script.pt")
    prepared = torchmojo.prepare(model, x, folder / "prepared", threads=1)
    program = folder / "coldstart"
    mojo = shutil.which("mojo", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    source_code = Path(__file__).with_suffix(".mojo")
    command = [mojo, "build", "-I", MOJO_PACKAGE, "-o", program, source_code]
    subprocess.run(command, check=True, capture_output=True)
    python = [sys.executable, "-m", "benchmarks._coldstart"]
    return {
        "mojo": [program, prepared, source, LIBTORCH],
        "script": [*python, "script", folder / "script.pt", source],
        "prepared": [*python, "prepared", prepared, source],
        "unchecked": [*python, "unchecked", prepared, source],
        "eager": [*python, "eager", folder / "eager.pt", source],
    }


def fresh(command):
    """Run a process; give the time to its first result, and what it says of itself."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    start = time.perf_counter()
    with subprocess.Popen(
        list(map(str, command)), cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        line = process.stdout.readline()
        total = (time.perf_counter() - start) * 1e3
        rest = process.stdout.read()
    assert process.returncode == 0 and line.startswith("first "), line + rest
    found = {"total": total, "score": float(line.split()[1])}
    return found | (json.loads(rest) if rest.strip() else {})


def measure_calls(folder, quick):
    """Time calls of a model that does next to nothing, beside torch's own loader in C++."""
    model, x = torch.nn.Linear(4, 4).eval().requires_grad_(False), torch.zeros(1, 4)
    prepared = torchmojo.Model(torchmojo.prepare(model, x, folder / "tiny", threads=1))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    names = {"model": prepared, "loader": prepared._runner, "x": x, "eager": model}
    statements = {"model": "model(x)", "loader": "loader.run([x])", "eager": "eager(x)"}
    taken = measure.take_turns(statements, names, quick, short=True)
    torch.set_num_threads(threads)
    measure.table(
        "A call of a tiny model, in microseconds",
        ("", "us", "spread"),
        [(who, found.median * 1e6, found.spread * 1e6) for who, found in taken.items()],
    )
    value = measure.ratio(taken["model"], taken["loader"])
    verdict("a call of Model / torch's loader", value, CALL_BAR)
    numbers = {f"tiny_{who}_us": found.median * 1e6 for who, found in taken.items()}
    return numbers | {"ratio_call": value}


if __name__ == "__main__":
    sys.exit(main())
