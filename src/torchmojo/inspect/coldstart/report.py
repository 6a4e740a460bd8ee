"""What a diagnosis found, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from torchmojo.inspect.coldstart.advice import advise

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Cause", "ColdStart", "Measured", "Step"]


@dataclass(frozen=True, slots=True)
class Step:
    """A step on the way to the first result; medians over the processes.

    Attributes:
        name: ``import`` (of torch), ``context`` (CUDA), ``load``, ``weights``, ``warm``, ``first``,
            ``second`` or ``third``.
        ms: Milliseconds.
        minor: Page faults without a disk: memory touched for the first time.
        major: Page faults that read a disk.
        imports_ms: Milliseconds of imports in it.
        modules: Modules that it imported.
        libraries: Shared libraries that it loaded.
    """

    name: str
    ms: float
    minor: float
    major: float
    imports_ms: float
    modules: float
    libraries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """The start with one remedy, or with none.

    Attributes:
        name: The remedy.
        does: What to write in one's own program to have it.
        start_ms: From the request for a process to its first line.
        steps: The steps up to the third run.
        steady_ms: Median of the runs after the third.
        spread_ms: Least and greatest of ``first_result_ms`` over the processes.
        warm_runs: Runs of the warm-up.
        profiled_runs: Runs that TorchScript recorded, to optimise in the one after them.
        failed: Why it could not be measured, or nothing.
    """

    name: str
    does: str
    start_ms: float = 0.0
    steps: tuple[Step, ...] = ()
    steady_ms: float = 0.0
    spread_ms: tuple[float, float] = (0.0, 0.0)
    warm_runs: int = 0
    profiled_runs: int = 0
    failed: str = ""

    def ms(self, *names: str) -> float:
        """Returns the milliseconds of some steps together.

        Args:
            names: Names of steps; those that there are not take no time.
        """
        return sum(step.ms for step in self.steps if step.name in names)

    @property
    def load_ms(self) -> float:
        """Loading: library, graph and weights."""
        return self.ms("load", "weights")

    @property
    def first_result_ms(self) -> float:
        """From an imported torch to the first result: loading, warm-up and first run."""
        return self.ms("context", "load", "weights", "warm", "first")

    @property
    def total_ms(self) -> float:
        """From the request for a process to the first result."""
        return self.start_ms + self.ms("import") + self.first_result_ms


@dataclass(frozen=True, slots=True)
class Cause:
    """Where time goes that a later run does not take.

    Attributes:
        name: What it is.
        ms: Milliseconds.
        where: The step that it is a part of.
        detail: How it was found, or what is behind it.
    """

    name: str
    ms: float
    where: str
    detail: str


@dataclass(frozen=True, slots=True)
class ColdStart:
    """Where the time to the first result goes, and what shortens it.

    Printed, it is a table. All times are milliseconds, medians over fresh processes; files were
    read before, so that no disk is waited for.

    Attributes:
        model: What was measured.
        kind: Its kind.
        inputs: Its inputs, as ``f32[1,3,224,224]``.
        device: Where it ran.
        threads: Threads of torch.
        runs: Processes for each remedy.
        forwards: Runs in each process.
        torch: Version of torch.
        load: The machine's load average before and after: on a busy machine, times are longer.
        baseline: The model as it is.
        remedies: The same with each remedy.
        causes: What the baseline's time went into.
        training: Part of the model that came in training mode, which was left before measuring; or
            nothing.
    """

    model: str
    kind: str
    inputs: tuple[str, ...]
    device: str
    threads: int
    runs: int
    forwards: int
    torch: str
    load: tuple[float, float]
    baseline: Measured
    remedies: tuple[Measured, ...]
    causes: tuple[Cause, ...]
    training: str = ""

    @property
    def profiled_runs(self) -> int:
        """Runs that TorchScript recorded, to optimise in the one after them."""
        return self.baseline.profiled_runs

    @property
    def warm_up_runs(self) -> int:
        """First runs that are no measure of later ones: those recorded, and the next."""
        if self.profiled_runs:
            return self.profiled_runs + 1
        return int(self.baseline.ms("first") > 1.1 * self.baseline.steady_ms)

    @property
    def advice(self) -> str:
        """Which remedy to take, and what it buys."""
        return advise(self)

    def to_json(self) -> dict[str, Any]:
        """Returns plain data for ``json.dumps``; `from_json` reads it."""
        data = asdict(self)
        for entry in (data["baseline"], *data["remedies"]):
            measured = _measured(entry)
            entry["first_result_ms"] = measured.first_result_ms
            entry["total_ms"] = measured.total_ms
        return {**data, "warm_up_runs": self.warm_up_runs, "advice": self.advice}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ColdStart:
        """Reads what `to_json` returned, also after a way through a file.

        Args:
            data: The data.
        """
        return cls(
            **{
                **{name: data[name] for name in cls.__dataclass_fields__ if name in data},
                "inputs": tuple(data["inputs"]),
                "load": tuple(data["load"]),
                "baseline": _measured(data["baseline"]),
                "remedies": tuple(_measured(entry) for entry in data["remedies"]),
                "causes": tuple(Cause(**entry) for entry in data["causes"]),
            }
        )

    def save(self, path: str | Path) -> None:
        """Writes a report with a picture: the file is whole, or not written.

        Args:
            path: ``.html`` is a page that needs no other file; ``.png`` is the picture alone, and
                takes Matplotlib (``pip install "torchmojo[plot]"``).

        Raises:
            ArgumentError: Another ending, or there is no Matplotlib.
        """
        from torchmojo.inspect.coldstart.picture import save

        save(self, path)

    def __str__(self) -> str:
        """Returns the table, causes and advice as text."""
        from torchmojo.inspect.coldstart.table import text

        return text(self)


def _measured(entry: dict[str, Any]) -> Measured:
    names = Measured.__dataclass_fields__
    steps = (Step(**{**step, "libraries": tuple(step["libraries"])}) for step in entry["steps"])
    return Measured(
        **{
            **{name: entry[name] for name in names},
            "steps": tuple(steps),
            "spread_ms": tuple(entry["spread_ms"]),
        }
    )
