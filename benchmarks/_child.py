"""What toolchain.py and ops.py run in fresh processes: `python -m benchmarks._child TASK ARGUMENT`.

The last line of its output is the result as JSON. torch is always imported first: what is measured
is what torchmojo adds.
"""

import contextlib
import json
import resource
import sys
import tempfile
import threading
import time
from functools import wraps
from pathlib import Path


def clock():
    """Give wall time and this thread's CPU time, in seconds."""
    return time.perf_counter(), time.thread_time()


def since(start):
    """Give the milliseconds of wall and CPU time since `clock()`."""
    wall, cpu = clock()
    return {"wall_ms": (wall - start[0]) * 1e3, "cpu_ms": (cpu - start[1]) * 1e3}


def task_import(_):
    import torch  # noqa: F401

    start = clock()
    import torchmojo  # noqa: F401

    return since(start)


def task_load(source):
    import torch  # noqa: F401

    import torchmojo

    start = clock()
    library = torchmojo.load(source)
    return {**since(start), "kernels": len(library)}


def task_steps(source):
    """Load with the wall and CPU time of each step, in milliseconds; the steps do not overlap."""
    import torch  # noqa: F401

    import torchmojo

    steps = {}

    def add(title, begin):
        for key, milliseconds in since(begin).items():
            step = steps.setdefault(title, {"wall_ms": 0.0, "cpu_ms": 0.0})
            step[key] += milliseconds

    start = clock()
    load = torchmojo.load  # imports the part of torchmojo that loads
    add("import that part of torchmojo", start)

    from torchmojo import library
    from torchmojo.toolchain import cache
    from torchmojo.toolchain import library as toolchain
    from torchmojo.toolchain.compile import sources

    def watch(place, name, title):
        function = getattr(place, name, None)
        if function is None:  # torchmojo has changed: the rest still holds
            return

        @wraps(function)
        def watched(*arguments, **keywords):
            begin = clock()
            try:
                return function(*arguments, **keywords)
            finally:
                add(title, begin)

        setattr(place, name, watched)

    watch(library, "open_door", "prove torch's functions")
    watch(toolchain, "find_compiler", "find the compiler")
    watch(sources, "closure", "find imports of the source")
    watch(toolchain, "build_key", "hash sources, compiler and CPU")
    watch(cache.Cache, "entry", "look into the cache")
    watch(toolchain, "open_folder", "read the contract")
    watch(library.ctypes, "PyDLL", "open the shared library")
    watch(library, "make_kernel", "make the kernels")
    start = clock()
    load(source)
    total = since(start)
    known = list(steps.values())[1:]
    steps["the rest"] = {key: total[key] - sum(step[key] for step in known) for key in total}
    return steps


def task_cold(source):
    """Compile and load; give the time of each step and of each process."""
    import torch  # noqa: F401

    import torchmojo
    from torchmojo.toolchain import library
    from torchmojo.toolchain.compile import build, compiler
    from torchmojo.toolchain.describe import glue, signature

    ran, steps = [], {}
    run = build.run

    def watched_run(used, arguments, *rest, **keywords):
        begin = time.perf_counter()
        done = run(used, arguments, *rest, **keywords)
        program = keywords.get("program")
        ran.append(
            {
                "what": "link" if program else str(arguments[0]),
                "begin": begin,
                "seconds": time.perf_counter() - begin,
                "thread": threading.current_thread().name,
                "failed": done.returncode != 0,
            }
        )
        return done

    def watch(place, name, title):
        function = getattr(place, name, None)
        if function is None:
            return

        @wraps(function)
        def watched(*arguments, **keywords):
            begin = time.perf_counter()
            try:
                return function(*arguments, **keywords)
            finally:
                steps[title] = steps.get(title, 0.0) + time.perf_counter() - begin

        setattr(place, name, watched)

    build.run = watched_run
    watch(library, "find_compiler", "find the compiler")
    watch(signature, "read_contract", "read signatures")
    watch(glue, "write_glue", "write glue")
    before, start = children(), time.perf_counter()
    loaded = torchmojo.load(source)
    seconds = time.perf_counter() - start
    for item in ran:
        item["begin"] -= start
    return {
        "seconds": seconds,
        "cpu_seconds": children() - before,
        "steps": steps,
        "processes": ran,
        "kernels": len(loaded),
        "compiler": compiler.find_compiler().version,
    }


def children():
    """Give the CPU seconds of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def task_floor(_):
    """Time the compiler on a file with one line of work: what no kernel can be compiled below."""
    from torchmojo.toolchain.compile.compiler import find_compiler, run

    text = '@export("f")\ndef f(x: Int) abi("C") -> Int:\n    return x + 1\n'
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "f.mojo").write_text(text, encoding="utf-8")
        before, start = children(), time.perf_counter()
        run(find_compiler(), ["build", "--emit", "object", "-o", "f.o", "f.mojo"], Path(folder))
        return {"seconds": time.perf_counter() - start, "cpu_seconds": children() - before}


def task_calls(source):
    """Call a loaded kernel with new shapes and dtypes; give microseconds of each first call."""
    import torch

    import torchmojo
    from torchmojo.toolchain.compile import build

    def forbidden(*arguments, **keywords):
        raise AssertionError("a compiler was started")

    kernels = torchmojo.load(source)
    build.run = forbidden
    blur = kernels.gaussian_blur
    result = {}
    for title, shape, dtype in (
        ("first call", (16, 16), torch.float32),
        ("same again", (16, 16), torch.float32),
        ("new shape", (17, 19), torch.float32),
        ("new strides", (19, 17), torch.float32),
        ("new dtype", (16, 16), torch.float64),
    ):
        src = torch.rand(shape, dtype=dtype)
        if title == "new strides":
            src = src.T
        dst = torch.empty_like(src)
        start = time.perf_counter()
        blur(dst, src, 0.5)
        result[title] = (time.perf_counter() - start) * 1e6
    return result


def task_op(source):
    """Make an operator and call it for the first time, in milliseconds."""
    import torch

    import torchmojo

    kernel = torchmojo.load(source).add
    a, leaf, dynamo = torch.ones(1), torch.ones(1, requires_grad=True), "torch._dynamo"
    before = dynamo in sys.modules
    start = time.perf_counter()
    add = torchmojo.op("bench::first", kernel)(lambda a, b: torch.empty_like(a))
    add.backward(lambda ctx, grad: (grad, grad), save=())
    registered = time.perf_counter()
    add(a, a)
    called = time.perf_counter()
    imported = dynamo in sys.modules and not before
    add(leaf, a).backward()
    end = time.perf_counter()
    return {
        "register_op_ms": (registered - start) * 1e3,
        "first_call_ms": (called - registered) * 1e3,
        "first_grad_ms": (end - called) * 1e3,
        "first_call_imports_dynamo": int(imported),
    }


def main():
    task = globals()[f"task_{sys.argv[1]}"]
    with contextlib.redirect_stdout(sys.stderr):
        result = task(sys.argv[2] if len(sys.argv) > 2 else "")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
