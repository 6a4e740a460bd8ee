"""One fresh process: ``python -m torchmojo.inspect.coldstart.child JOB RESULT``, two JSON files."""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchmojo.inspect.coldstart.child.steps import Recorder, fault_ms

STARTED = time.monotonic_ns()  # a clock that all processes of a machine share
SECOND_SHAPE = 5


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Does the job: prepares what the measurements need, or measures."""
    sys.path[:] = job["search"]  # what the asking process finds, this one finds
    steps = Recorder()
    with steps.step("import"):
        import torch
    torch.set_num_threads(job["threads"])
    if job["device"] != "cpu":
        steps.sync = torch.cuda.synchronize
        with steps.step("context"):
            torch.zeros(1, device=job["device"])
    with torch.no_grad():
        return make(job) if job["what"] == "make" else measure(job, steps)


def measure(job: dict[str, Any], steps: Recorder) -> dict[str, Any]:
    """Loads the model, and takes the time of its first runs and of later ones."""
    import torch

    from torchmojo.inspect.coldstart.child.load import LOADERS, SWITCHES

    for option in job["options"]:
        if option in SWITCHES:
            SWITCHES[option](torch)
    inputs = tensors(job["inputs"], job["device"])
    model = LOADERS[job["kind"]](job, steps)
    result: dict[str, Any] = {"start_ms": (STARTED - job["asked_ns"]) / 1e6}
    if "warm" in job["options"]:
        from torchmojo.models.warm import warm

        with steps.step("warm"):
            warmth = warm(model, inputs=[inputs])
        result["warm_runs"] = sum(warmth.runs.values())
    profiled = []
    for index in range(job["forwards"]):
        with steps.step(("first", "second", "third")[index] if index < 3 else "later"):
            model(*inputs)
        if index < 3:
            profiled.append(records_profile())
    later = steps.steps[-(job["forwards"] - 3) :]
    del steps.steps[-len(later) :]
    result["steady_ms"] = statistics.median(step["ms"] for step in later)
    result["steady_minor"] = statistics.median(step["minor"] for step in later)
    result["profiled_runs"] = sum(profiled) if job["kind"] == "script" else 0
    result["compile_ms"] = compile_ms()
    if job["inspect"]:
        result.update(inspect(job, model))
    result["steps"] = steps.steps
    return result


def inspect(job: dict[str, Any], model: Callable[..., Any]) -> dict[str, Any]:
    """Finds causes, once all that counts was measured: what a second copy and shape still take."""
    from torchmojo.inspect.coldstart.child.load import LOADERS

    found: dict[str, Any] = {"fault_ms": fault_ms(), "weights_ms": weights_ms(job)}
    if job["other"]:
        steps = Recorder()
        inputs = tensors(job["other"], job["device"])
        for _ in range(SECOND_SHAPE):
            with steps.step("run"):
                model(*inputs)
        found["other_ms"] = [step["ms"] for step in steps.steps]
    try:
        copy = Recorder()
        model = LOADERS[job["kind"]](job, copy)
        count, inputs = len(copy.steps), tensors(job["inputs"], job["device"])
        for _ in range(2):
            with copy.step("run"):
                model(*inputs)
    except Exception:  # some models can be loaded once only: then there is less to say
        return found
    return {**found, "again_ms": [step["ms"] for step in copy.steps[count:]]}


def tensors(outlines: list[Any], device: str) -> tuple[Any, ...]:
    """Makes inputs of sizes and dtypes."""
    from torchmojo.models.example import Example

    return tuple(Example(tuple(sizes), dtype).tensor(device) for sizes, dtype in outlines)


def records_profile() -> bool:
    """Tells whether TorchScript recorded the last run, to optimise the next."""
    import torch

    try:
        return "prim::profile" in str(torch._C._last_executed_optimized_graph())
    except RuntimeError:  # none was run
        return False


def compile_ms() -> float:
    """Gives the time that torch.compile took in this process."""
    utils = sys.modules.get("torch._dynamo.utils")
    times = getattr(utils, "compilation_time_metrics", {})
    return 1e3 * float(sum(times.get("_compile.compile_inner", ())))


def weights_ms(job: dict[str, Any]) -> float | None:
    """Gives the time that torch's reader takes for the weights in an archive."""
    import torch

    if job["kind"] not in ("script", "exported"):
        return None
    reader = torch._C.PyTorchFileReader(job["path"])
    wanted = ("data/", "constants/")
    names = [name for name in reader.get_all_records() if name.startswith(wanted)]
    start = time.perf_counter()
    for name in names:
        reader.get_record(name)
    return (time.perf_counter() - start) * 1e3


def make(job: dict[str, Any]) -> dict[str, Any]:
    """Looks at the model, runs it once, and writes what the remedies load."""
    import torch

    from torchmojo.inspect.coldstart.child.load import LOADERS, example_of, public

    outlines = job["inputs"] or example_of(job)
    facts: dict[str, Any] = {"torch": str(torch.__version__), "inputs": outlines}
    fixed = [all(isinstance(size, int) for size in sizes) for sizes, _ in outlines or ()]
    if not outlines or not all(fixed):
        return {**facts, "inputs": None}
    steps = Recorder()
    model = LOADERS[job["kind"]](job, steps)
    facts["training"] = steps.training
    try:
        for some in (outlines, job["other"]):
            if some:
                model(*tensors(some, job["device"]))
    except Exception as error:
        return {**facts, "refused": f"{type(error).__name__}: {error}"}
    failed = facts["failed"] = {}
    for name, path in job["artefacts"].items():
        try:
            if name == "frozen":
                torch.jit.save(torch.jit.freeze(model), path)
            elif name == "state":
                torch.save(model.state_dict(), path)  # type: ignore[attr-defined]
            else:
                source = job["path"] if job["kind"] != "factory" else model
                examples = tensors(outlines, job["device"])
                words = {"threads": job["threads"], "trusted": True}
                public("prepare")(source, examples, path, **words)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"
    return facts


if __name__ == "__main__":
    answer = main(json.loads(Path(sys.argv[1]).read_text("utf-8")))
    Path(sys.argv[2]).write_text(json.dumps(answer), "utf-8")
