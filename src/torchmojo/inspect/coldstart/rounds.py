"""The fresh processes: what each is asked, in which order, and what they say together."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torchmojo.errors import ArgumentError, ModelError
from torchmojo.inspect.coldstart.causes import causes_of
from torchmojo.inspect.coldstart.plan import AS_IT_IS, Plan, Remedy, plan
from torchmojo.inspect.coldstart.report import ColdStart, Measured, Step
from torchmojo.models.example import Example
from torchmojo.models.text import plain

__all__ = ["coldstart"]

_CHILD = "torchmojo.inspect.coldstart.child"


def coldstart(
    model: Any,
    *,
    input: Any = None,
    then: Any = None,
    runs: int = 5,
    forwards: int = 10,
    threads: int = 1,
    remedies: bool | Sequence[str] = True,
    prepare: bool = False,
    device: str = "cpu",
    trusted: bool = False,
    timeout: float = 600.0,
    progress: Callable[[int, int, str], object] | None = None,
) -> ColdStart:
    """Finds out where the time to a model's first result goes, and what shortens it.

    Each measurement is a fresh Python process, which imports torch, loads the model and runs it.
    Remedies are measured in the same rounds as the model as it is, one process after the other, so
    that a busy machine is busy for all of them. Files are read once before.

    Args:
        model: A TorchScript file, an exported program (``.pt2``), an AOTInductor package, a folder
            of ``torchmojo.prepare``, a scripted module, or ``"module:factory"``: a function without
            arguments that returns a module, or a module and its example inputs.
        input: Sizes of the input, such as ``(1, 3, 224, 224)`` or ``"1,3,224,224:float32"``, or a
            list of these for a model with several inputs. Not needed where the model brings an
            example along: exported programs, prepared folders, some factories.
        then: Other sizes of the same inputs: what a second shape costs.
        runs: Fresh processes for each remedy; times are medians.
        forwards: Runs of the model in each process, 5 or more.
        threads: Threads of torch: the number that the program will use.
        remedies: Measure all that fit the kind of model, none, or those of these names.
        prepare: Measure ``torchmojo.prepare`` too, which takes a minute and a C++ compiler.
        device: ``cpu``, ``cuda`` or ``cuda:1``. Calls are waited for.
        trusted: Files **can carry code that runs when they are loaded**. They are refused unless
            this is True. Say so only of files whose origin you know.
        timeout: Seconds after which a process is ended that has not measured yet.
        progress: Called with processes done, processes in all, and what comes next.

    Returns:
        Times, causes and advice; printed, a table.

    Raises:
        ArgumentError: An argument means nothing, or the model refuses the input.
        FileNotFoundError: There is no such file.
        ModelError: The file is not trusted, is no model, cannot be loaded, or does not come to an
            end.

    Example:
        >>> import torchmojo
        >>> print(torchmojo.coldstart("model.pt", input=(1, 3, 224, 224), trusted=True).advice)
        ... # doctest: +SKIP
    """
    given: Any = timeout
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not given > 0:
        raise ArgumentError(f"coldstart: timeout: wanted seconds, more than 0, given {timeout!r}")
    with tempfile.TemporaryDirectory(prefix="torchmojo-coldstart-") as name:
        folder = Path(name)
        asked = plan(
            model,
            folder,
            input=input,
            then=then,
            runs=runs,
            forwards=forwards,
            threads=threads,
            remedies=remedies,
            prepare=prepare,
            device=device,
            trusted=trusted,
        )
        title = str(model) if isinstance(model, (str, Path)) else type(model).__name__
        return _Rounds(asked, folder, title, progress or (lambda *_: None), timeout).run()


class _Rounds:
    """All processes of a diagnosis."""

    def __init__(
        self,
        asked: Plan,
        folder: Path,
        title: str,
        progress: Callable[[int, int, str], object],
        timeout: float,
    ) -> None:
        self._plan, self._folder, self._title, self._progress = asked, folder, title, progress
        self._timeout = timeout
        self._remedies = (AS_IT_IS, *asked.remedies)
        self._count = 0
        self._failed: dict[str, str] = {}
        self._inputs: Any = None if asked.inputs is None else _outlines(asked.inputs)

    def run(self) -> ColdStart:
        """Asks one process after the other."""
        busy = os.getloadavg()[0]
        facts = self._make()
        answers: dict[str, list[dict[str, Any]]] = {r.name: [] for r in self._remedies}
        for number in range(self._plan.runs):
            # Another one begins each round, so that none always follows the same.
            usable = [remedy for remedy in self._remedies if remedy.name not in self._failed]
            shift = number % len(usable)
            for remedy in (*usable[shift:], *usable[:shift]):
                self._measure(remedy, answers[remedy.name])
        base = answers[AS_IT_IS.name]
        baseline = _together(AS_IT_IS, base)
        remedies = {
            remedy.name: Measured(remedy.name, remedy.does, failed=self._failed[remedy.name])
            if remedy.name in self._failed
            else _together(remedy, answers[remedy.name])
            for remedy in self._plan.remedies
        }
        plain = remedies.get("optimizer off")
        return ColdStart(
            model=self._title,
            kind=self._plan.kind,
            inputs=tuple(str(Example(tuple(sizes), dtype)) for sizes, dtype in self._inputs),
            device=self._plan.device,
            threads=self._plan.threads,
            runs=self._plan.runs,
            forwards=self._plan.forwards,
            torch=facts["torch"],
            load=(busy, os.getloadavg()[0]),
            baseline=baseline,
            remedies=tuple(remedies.values()),
            training=facts.get("training", ""),
            causes=causes_of(baseline, base, plain if plain and not plain.failed else None),
        )

    def _make(self) -> dict[str, Any]:
        """Makes what remedies load; the first process also reads all files into memory."""
        wanted = {r.artefact: str(self._folder / r.artefact) for r in self._remedies if r.artefact}
        facts = self._ask("make", AS_IT_IS, artefacts=wanted)
        if facts["inputs"] is None:
            raise ArgumentError(
                "coldstart: input: wanted sizes of the model's input, given none, and the model "
                "has no example with fixed sizes; write input=(1, 3, 224, 224) (--input "
                "1,3,224,224)"
            )
        self._inputs = facts["inputs"]
        if "refused" in facts:
            shown = ", ".join(str(Example(tuple(sizes), dtype)) for sizes, dtype in self._inputs)
            reason = plain(facts["refused"].strip().splitlines()[-1])
            raise ArgumentError(
                f"coldstart: input: wanted what the model takes, given {shown}; it raises: {reason}"
            )
        for remedy in self._remedies:
            if reason := facts["failed"].get(remedy.artefact):
                self._failed[remedy.name] = plain(reason.strip().splitlines()[0])
        return facts

    def _measure(self, remedy: Remedy, answers: list[dict[str, Any]]) -> None:
        artefact = str(self._folder / remedy.artefact) if remedy.artefact else ""
        try:
            answers.append(self._ask("measure", remedy, artefact=artefact))
        except ModelError as error:
            if remedy is AS_IT_IS:
                raise
            self._failed[remedy.name] = str(error).partition("; it says: ")[2] or str(error)

    def _ask(self, what: str, remedy: Remedy, **more: Any) -> dict[str, Any]:
        """Runs one process, and returns its answer."""
        total = 1 + self._plan.runs * len(self._remedies)
        self._progress(self._count, total, remedy.name)
        self._count += 1
        job = {
            "what": what,
            "kind": remedy.kind or self._plan.kind,
            "path": self._plan.model,
            "artefact": "",
            "options": remedy.options,
            "inputs": self._inputs,
            "other": _outlines(self._plan.other or ()),
            "forwards": self._plan.forwards,
            "threads": self._plan.threads,
            "device": self._plan.device,
            "inspect": remedy is AS_IT_IS,
            "search": sys.path,
            **more,
        }
        question, answer = self._folder / "job.json", self._folder / "answer.json"
        answer.unlink(missing_ok=True)
        threads = str(self._plan.threads)
        env = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        job["asked_ns"] = time.monotonic_ns()
        question.write_text(json.dumps(job), "utf-8")
        try:
            done = subprocess.run(
                [sys.executable, "-m", _CHILD, str(question), str(answer)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                env=env,
                timeout=self._timeout,
            )
        except subprocess.TimeoutExpired:
            raise ModelError(
                f"coldstart: {self._title}: wanted a model that loads and runs, given one whose "
                f"process was not done after {self._timeout:g} s, and was ended; give it more by "
                "timeout= (--timeout)"
            ) from None
        if done.returncode or not answer.is_file():
            said = plain((done.stderr.strip().splitlines() or ["nothing"])[-1])
            raise ModelError(
                f"coldstart: {self._title}: wanted a model that loads and runs, given one whose "
                f"process ended with status {done.returncode}; it says: {said}"
            )
        result: dict[str, Any] = json.loads(answer.read_text("utf-8"))
        return result


def _outlines(examples: Sequence[Example]) -> list[Any]:
    return [[list(example.sizes), example.dtype] for example in examples]


def _together(remedy: Remedy, answers: list[dict[str, Any]]) -> Measured:
    """Returns the medians over the processes."""
    steps = []
    for same in zip(*(answer["steps"] for answer in answers), strict=True):
        numbers = {
            key: statistics.median(step[key] for step in same)
            for key in ("ms", "minor", "major", "imports_ms", "modules")
        }
        steps.append(Step(same[0]["name"], **numbers, libraries=tuple(same[0]["libraries"])))
    return Measured(
        name=remedy.name,
        does=remedy.does,
        start_ms=statistics.median(answer["start_ms"] for answer in answers),
        steps=tuple(steps),
        steady_ms=statistics.median(answer["steady_ms"] for answer in answers),
        spread_ms=_spread(answers),
        warm_runs=max(answer.get("warm_runs", 0) for answer in answers),
        profiled_runs=max(answer["profiled_runs"] for answer in answers),
    )


def _spread(answers: list[dict[str, Any]]) -> tuple[float, float]:
    """Returns the least and greatest time to the first result."""
    until = ("context", "load", "weights", "warm", "first")
    times = [sum(s["ms"] for s in answer["steps"] if s["name"] in until) for answer in answers]
    return min(times), max(times)
