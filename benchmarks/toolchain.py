"""What does torchmojo cost before the first call: import, first compilation, later loads?

Every figure is taken in fresh processes, on top of `import torch`. A cold load compiles the kernels
of the demo into an empty cache; a warm one finds them there.

    ./dev bench toolchain
    python -m benchmarks.toolchain --json toolchain.json
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import _measure as measure
from torchmojo import demo

ROOT = Path(__file__).parent.parent
ONE_KERNEL = Path(__file__).with_name("one_kernel.mojo")
IMPORT_BAR, WARM_BAR, WARM_GOAL = 10.0, 50.0, 35.0


def main(argv=None) -> int:
    options = measure.parse(__doc__, argv)
    measure.machine()
    with tempfile.TemporaryDirectory(prefix="torchmojo-bench-") as folder:
        numbers = measure_cold(Path(folder), options.quick)
        child = Child(Path(folder, "cold_load-0"))
        source = ONE_KERNEL if options.quick else demo.KERNELS
        numbers |= measure_warm(child, source, options.quick)
        if not options.quick:
            measure_steps(child, source)
            numbers |= measure_calls(child, source)
    measure.console.print(f"load at the end: {measure.load()}")
    measure.write(options.json, numbers)
    return 0


class Child:
    """Fresh processes that share one folder of caches."""

    def __init__(self, cache):
        self.environment = {
            **os.environ,
            "TORCHMOJO_CACHE_DIR": str(cache),
            "MODULAR_CACHE_DIR": str(cache / "modular"),
        }
        # A user's modules have bytecode beside them: pip writes it.
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def run(self, *words):
        command = [sys.executable, "-m", "benchmarks._child", *map(str, words)]
        done = subprocess.run(
            command, cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        return json.loads(done.stdout.splitlines()[-1])


# --- cold -----------------------------------------------------------------------------------------


def measure_cold(folder, quick):
    """Compile with an empty cache: a file of one kernel for one dtype, and the demo's file."""
    rounds = 1 if quick else 3
    floor = middle([Child(folder / "floor").run("floor") for _ in range(rounds)])
    numbers = {"cold_floor_s": floor["seconds"], "cold_floor_cpu_s": floor["cpu_seconds"]}
    for key, title, source in (
        ("cold_small", "one kernel for one dtype", ONE_KERNEL),
        ("cold_load", "the demo's kernels", demo.KERNELS),
    ):
        # Shows that it runs; only the small file is quick.
        source = ONE_KERNEL if quick else source
        run = middle([Child(folder / f"{key}-{n}").run("cold", source) for n in range(rounds)])
        numbers |= {f"{key}_s": run["seconds"], f"{key}_cpu_s": run["cpu_seconds"]}
        show_cold(title, run, rounds)
    measure.console.print(
        f"mojo build of a file with one line of work: {floor['seconds']:.1f} s by the clock, "
        f"{floor['cpu_seconds']:.1f} s of CPU"
    )
    return numbers


def middle(runs):
    """Give the run of median time."""
    return sorted(runs, key=lambda run: run["seconds"])[len(runs) // 2]


def show_cold(title, run, rounds):
    rows = [(what, seconds, "") for what, seconds in run["steps"].items()]
    names = {"doc": "mojo doc: signatures", "build": "mojo build: glue and kernels"}
    for process in sorted(run["processes"], key=lambda process: process["begin"]):
        note = f"from {process['begin']:.1f} s on"
        if process["failed"]:
            note += "; refused: a dtype that was only tried"
        rows.append((names.get(process["what"], process["what"]), process["seconds"], note))
    rows.append(("together, by the clock", run["seconds"], ""))
    rows.append(("together, CPU", run["cpu_seconds"], ""))
    measure.table(
        f"Cold load of {title} ({run['kernels']}), Mojo {run['compiler']}, in seconds",
        ("", "s", "note"),
        rows,
        f"the middle one of {rounds}",
    )


# --- warm -----------------------------------------------------------------------------------------


def measure_warm(child, source, quick):
    """Import and load, in turns, each time in a process of its own."""
    rounds = 2 if quick else 15
    taken = {"import": [], "load": []}
    for task in taken:
        child.run(task, source)  # bytecode and page cache are there from now on
    for _ in range(rounds):
        for task, times in taken.items():
            times.append(child.run(task, source))
    numbers, rows = {}, []
    bars = {"import": (IMPORT_BAR, IMPORT_BAR), "load": (WARM_BAR, WARM_GOAL)}
    titles = {"import": "import torchmojo", "load": "load, nothing to compile"}
    for task, key in (("import", "import"), ("load", "warm_load")):
        wall = measure.Taken.of([times["wall_ms"] for times in taken[task]])
        cpu = statistics.median(times["cpu_ms"] for times in taken[task])
        numbers[f"{key}_ms"], numbers[f"{key}_cpu_ms"] = wall.median, cpu
        bar, goal = bars[task]
        verdict = (
            "goal met" if wall.median <= goal else "bar met" if wall.median <= bar else "MISSED"
        )
        rows.append((titles[task], wall.median, wall.spread, cpu, bar, goal, verdict))
    measure.table(
        f"In a fresh process after import torch, in milliseconds; medians of {rounds}",
        ("", "ms", "spread", "CPU ms", "at most", "goal", "note"),
        rows,
        "CPU time hardly depends on what else the machine does",
    )
    return numbers


def measure_steps(child, source):
    """Show what a warm load does with its time."""
    runs = [child.run("steps", source) for _ in range(9)]
    rows = [
        (step, *(statistics.median(run[step][key] for run in runs) for key in times))
        for step, times in runs[0].items()
    ]
    rows.append(("together", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    measure.table("Where a warm load spends its time, in milliseconds", ("", "ms", "CPU ms"), rows)


def measure_calls(child, source):
    """Show that a shape or dtype that was not met before costs no compilation."""
    runs = [child.run("calls", source) for _ in range(5)]
    medians = {title: statistics.median(run[title] for run in runs) for title in runs[0]}
    measure.table(
        "Calls of gaussian_blur on 16 x 16 pixels in a fresh process, in microseconds",
        ("", "us"),
        medians.items(),
        "a compiler started here would fail the benchmark",
    )
    extra = {"new_shape_us": "new shape", "new_dtype_us": "new dtype"}
    return {key: medians[title] for key, title in extra.items()}


if __name__ == "__main__":
    sys.exit(main())
