"""Warm-up: runs a model until its first slow calls are over."""

from __future__ import annotations

import contextlib
import contextvars
import statistics
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torchmojo.dtypes import BY_NAME
from torchmojo.errors import ArgumentError
from torchmojo.models.buffers import unchanged_buffers
from torchmojo.models.example import Example, read_examples
from torchmojo.models.mode import training_part

__all__ = ["Warmed", "Warmth", "warm"]

_WINDOW = 3  # runs that must take the same time
_MOST = 50  # runs after which a machine counts as too busy to tell
_FLOOR_MS = 0.05  # differences below this are the clock's and the scheduler's


@dataclass(frozen=True, slots=True)
class Warmed:
    """What the warm-up of one shape took.

    Attributes:
        shape: The inputs, as ``f32[1,3,224,224]``.
        times_ms: Milliseconds of each run.
        steady: Whether the last runs took the same time.
    """

    shape: str
    times_ms: tuple[float, ...]
    steady: bool

    @property
    def first_ms(self) -> float:
        """Milliseconds of the first run."""
        return self.times_ms[0]

    @property
    def steady_ms(self) -> float:
        """Median of the last runs, in milliseconds."""
        return statistics.median(self.times_ms[-_WINDOW:])


class Warmth:
    """A warm-up, finished or under way in another thread.

    Attributes:
        shapes: What is finished, in the order in which it was given.
    """

    def __init__(self) -> None:
        self.shapes: tuple[Warmed, ...] = ()
        self._error: BaseException | None = None
        self._over = threading.Event()

    @property
    def done(self) -> bool:
        """Whether it is over, well or with an error."""
        return self._over.is_set()

    @property
    def steady(self) -> bool:
        """Whether every shape reached its steady state."""
        return self.done and self._error is None and all(one.steady for one in self.shapes)

    @property
    def first_ms(self) -> dict[str, float]:
        """Milliseconds of the first run, by shape."""
        return {one.shape: one.first_ms for one in self.shapes}

    @property
    def steady_ms(self) -> dict[str, float]:
        """Median of the last runs in milliseconds, by shape."""
        return {one.shape: one.steady_ms for one in self.shapes}

    @property
    def runs(self) -> dict[str, int]:
        """Number of runs, by shape."""
        return {one.shape: len(one.times_ms) for one in self.shapes}

    def wait(self, timeout: float | None = None) -> Warmth:
        """Waits until it is over.

        Args:
            timeout: Seconds to wait at most; by default as long as it takes.

        Returns:
            Itself.

        Raises:
            TimeoutError: It is not over yet; it goes on.
            Exception: What the model raised.
        """
        if not self._over.wait(timeout):
            raise TimeoutError(f"warm: wanted the steady state within {timeout} s, not there yet")
        if self._error is not None:
            raise self._error
        return self

    def __repr__(self) -> str:
        if not self.done:
            return f"Warmth(under way, {len(self.shapes)} shapes finished)"
        if self._error is not None:
            return f"Warmth(failed: {type(self._error).__name__})"
        parts = (f"{s.shape}: {s.first_ms:.3g} -> {s.steady_ms:.3g} ms" for s in self.shapes)
        return f"Warmth({', '.join(parts)})"


def warm(
    model: Any,
    shapes: Sequence[Any] | None = None,
    inputs: Sequence[Any] | None = None,
    *,
    runs: int | None = None,
    background: bool = False,
    tolerance: float = 0.1,
) -> Warmth:
    """Runs a model until a call takes no longer than the next one.

    The first calls of a model are slow: memory is touched for the first time, kernels and libraries
    are looked up, TorchScript records the first run and optimises in the second. Each shape is run
    until three runs in a row take the same time. No gradient is computed; inputs are copied first,
    buffers that the model changes get their values back, and so do torch's random numbers.

    Args:
        model: Module in evaluation mode, scripted module, `torchmojo.Model`, or any function of
            tensors. It is held until the warm-up is over.
        shapes: Shapes that will come: for each, sizes such as ``(1, 3, 224, 224)``, a text such as
            ``"1,3,224,224:float32"``, or a list of these for a model with several inputs. They are
            filled with seeded numbers, on the device and in the dtype of the model's weights.
        inputs: Inputs that will come: for each, a tensor, or a tuple of what the model takes.
        runs: Run each shape exactly so often, steady or not.
        background: Return at once, and run in a thread; the program's end waits for it. torch's
            random numbers are not restored then, as other threads may draw some. Memory that this
            thread's calls touch is not all that other threads will touch.
        tolerance: Largest difference of the last three runs from their median, as a part of it.

    Returns:
        What it took; with ``background``, what is under way: see `Warmth.wait`.

    Raises:
        ArgumentError: Neither shapes nor inputs are given or they mean nothing, the model cannot be
            called or is in training mode, where a run would change it, or a number is too small.
        Exception: What the model raises; in the background, it is raised by `Warmth.wait`.

    Example:
        >>> import torch, torchmojo
        >>> model = torch.nn.Linear(4, 2).eval()
        >>> torchmojo.warm(model, shapes=[(1, 4), (8, 4)], runs=3).runs
        {'f32[1,4]': 3, 'f32[8,4]': 3}
    """
    _check(model, runs, tolerance)
    calls = _calls(model, shapes, inputs)
    job = _Job(model, calls, runs, tolerance)
    warmth = Warmth()
    if not background:
        import torch

        with torch.random.fork_rng(devices=job.cuda):
            job.run(warmth)
        warmth._over.set()
        return warmth
    context, optimize = contextvars.copy_context(), _optimizes()

    def work() -> None:
        try:
            with _optimizer(optimize):
                context.run(job.run, warmth)
        except BaseException as error:
            warmth._error = error
        finally:
            job.forget()  # the model belongs to the caller again
            warmth._over.set()

    threading.Thread(target=work, name="torchmojo.warm").start()
    return warmth


def _check(model: Any, runs: Any, tolerance: Any) -> None:
    """Refuses what cannot be warmed without a change, and numbers that mean nothing."""
    if not callable(model):
        raise ArgumentError(
            f"warm: model: wanted a module or a function, given {type(model).__name__}"
        )
    if part := training_part(model):
        raise ArgumentError(
            f"warm: model: wanted evaluation mode, given {part} in training mode, where a run "
            "changes statistics and draws random numbers; call model.eval() first"
        )
    if runs is not None and (not isinstance(runs, int) or isinstance(runs, bool) or runs < 1):
        raise ArgumentError(f"warm: runs: wanted 1 or more, given {runs!r}")
    if not isinstance(tolerance, (int, float)) or not tolerance > 0:
        raise ArgumentError(
            f"warm: tolerance: wanted a part of the time such as 0.1, given {tolerance!r}"
        )


def _calls(
    model: Any, shapes: Sequence[Any] | None, inputs: Sequence[Any] | None
) -> list[tuple[str, tuple[Any, ...]]]:
    """Returns the arguments of each call that will come, with their name."""
    import torch

    if shapes is None and inputs is None:
        raise ArgumentError(
            "warm: shapes: wanted shapes or inputs that will come, given neither; write "
            "shapes=[(1, 3, 224, 224)]"
        )
    shapes, inputs = _listed(shapes, "shapes"), _listed(inputs, "inputs")
    if isinstance(shapes, str) or any(isinstance(shape, int) for shape in shapes):
        raise ArgumentError(
            f"warm: shapes: wanted a list of shapes, given {shapes!r}; write shapes=[{shapes!r}]"
        )
    if isinstance(inputs, torch.Tensor):
        raise ArgumentError("warm: inputs: wanted a list, given a tensor; write inputs=[x]")
    from torch.utils._pytree import tree_map

    def copied(value: Any) -> Any:
        return value.detach().clone() if torch.is_tensor(value) else value

    device, dtype = _home(model)
    found: list[tuple[Any, ...]] = []
    for shape in shapes:
        examples = read_examples(shape, "warm", "shapes", dtype)
        found.append(tuple(example.tensor(device) for example in examples))
    for given in inputs:
        args = given if isinstance(given, (tuple, list)) else (given,)
        found.append(tuple(tree_map(copied, arg) for arg in args))  # lists and dictionaries too
    if not found:
        raise ArgumentError("warm: shapes: wanted at least one shape or input, given none")
    names: list[str] = []
    for args in found:
        name = ", ".join(map(_outline, args))
        same = sum(other == name or other.startswith(f"{name} (") for other in names)
        names.append(f"{name} ({same + 1})" if same else name)
    return list(zip(names, found, strict=True))


def _listed(given: Any, argument: str) -> Any:
    """Returns a list of what an iterable gives, once; texts and tensors as they are."""
    if given is None:
        return ()
    if isinstance(given, str) or hasattr(given, "dtype"):
        return given
    if not isinstance(given, Iterable):
        raise ArgumentError(
            f"warm: {argument}: wanted a list, given {given!r}; write {argument}=[...]"
        )
    return given if isinstance(given, (tuple, list)) else list(given)


def _outline(value: Any) -> str:
    """Prints a tensor as ``f32[2,3]``, and another value by its type."""
    dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
    if dtype not in BY_NAME:
        return type(value).__name__
    return str(Example(tuple(value.shape), dtype))


def _home(model: Any) -> tuple[str, str]:
    """Returns device and dtype of the first weights that are floats."""
    for weight in model.parameters() if hasattr(model, "parameters") else ():
        if weight.is_floating_point():
            return str(weight.device), str(weight.dtype).removeprefix("torch.")
    return "cpu", "float32"


class _Job:
    """The runs of all shapes.

    Attributes:
        cuda: Indices of the CUDA devices that the inputs live on.
    """

    def __init__(
        self,
        model: Any,
        calls: list[tuple[str, tuple[Any, ...]]],
        runs: int | None,
        tolerance: float,
    ) -> None:
        self._model, self._calls, self._runs, self._tolerance = model, calls, runs, tolerance
        devices = {getattr(arg, "device", None) for _, args in calls for arg in args}
        self.cuda = [d.index or 0 for d in devices if d is not None and d.type == "cuda"]
        self._fewest = _WINDOW + 1 + _profiled_runs(model)

    def forget(self) -> None:
        """Drops the model and the inputs."""
        self._model, self._calls = None, []

    def run(self, warmth: Warmth) -> None:
        """Warms one shape after the other."""
        import torch

        with torch.no_grad(), unchanged_buffers(self._model):
            for name, args in self._calls:
                times: list[float] = []
                while not self._enough(times):
                    times.append(self._time(args))
                one = Warmed(name, tuple(times), _level(times, self._tolerance))
                warmth.shapes = (*warmth.shapes, one)

    def _enough(self, times: list[float]) -> bool:
        if self._runs is not None:
            return len(times) >= self._runs
        if len(times) < self._fewest:
            return False
        return len(times) >= _MOST or _level(times, self._tolerance)

    def _time(self, args: tuple[Any, ...]) -> float:
        import torch

        start = time.perf_counter()
        self._model(*args)
        for device in self.cuda:
            torch.cuda.synchronize(device)
        return (time.perf_counter() - start) * 1e3


def _level(times: list[float], tolerance: float) -> bool:
    """Returns whether the last runs took the same time."""
    last = times[-_WINDOW:]
    middle = statistics.median(last)
    allowed = max(tolerance * middle, _FLOOR_MS)
    return len(last) == _WINDOW and all(abs(t - middle) <= allowed for t in last)


def _profiled_runs(model: Any) -> int:
    """Returns how many runs a scripted module records before it optimises; 0 for other models."""
    import torch

    if not isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        return 0
    count = torch._C._jit_set_num_profiled_runs(1)  # there is no other way to read it
    torch._C._jit_set_num_profiled_runs(count)
    return int(count)


def _optimizes() -> bool:
    import torch

    return bool(torch._C._get_graph_executor_optimize())


@contextlib.contextmanager
def _optimizer(on: bool) -> Iterator[None]:
    """Sets TorchScript's optimizer, a switch of each thread, as it is in the caller's."""
    import torch

    torch._C._set_graph_executor_optimize(on)
    yield
