"""How the benchmarks measure: contestants take turns in one process, and medians are compared.

On a shared machine a clock alone says little. So all contestants of one table run in every round,
in an order that changes, and what is compared is the ratio of medians over rounds.
"""

import argparse
import contextlib
import json
import os
import platform
import random
import statistics
import sys
import timeit
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)

ROUNDS, QUICK_ROUNDS = 31, 3
SECONDS_A_ROUND, QUICK_SECONDS_A_ROUND = 4e-3, 2e-4
# For calls of microseconds on busy cores: as long together, but few rounds are interrupted.
SHORT_ROUNDS, SHORT_SECONDS_A_ROUND = 401, 3e-4


@dataclass(frozen=True)
class Taken:
    """Time of one call in seconds: median over rounds, half of the middle 50 %, and the best."""

    median: float
    spread: float
    best: float

    @classmethod
    def of(cls, times):
        low, median, high = statistics.quantiles(times, n=4)
        return cls(median, (high - low) / 2, min(times))


def parse(doc, argv, **flags):
    """Read the command line: --json, --quick, and further flags with their help."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too")
    parser.add_argument("--quick", action="store_true", help="few short rounds: shows that it runs")
    for name, text in flags.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)
    return parser.parse_args(argv)


def take_turns(statements, names, quick=False, setups=None, short=False):
    """Time statements in turns.

    Statements are texts, as for `timeit`, so that a function around the call is not measured too;
    one that has no peer here is None and gives None. The empty loop is about 7 ns of each. A setup
    is another text, which runs before each round of its statement and is not counted. `short` takes
    many short rounds.
    """
    timers = {
        who: timeit.Timer(text, (setups or {}).get(who, "pass"), globals=names)
        for who, text in statements.items()
        if text
    }
    rounds, aim = (SHORT_ROUNDS, SHORT_SECONDS_A_ROUND) if short else (ROUNDS, SECONDS_A_ROUND)
    if quick:
        rounds, aim = QUICK_ROUNDS, QUICK_SECONDS_A_ROUND
    counts = {who: _calibrate(timer, aim) for who, timer in timers.items()}
    order, times = list(timers), {who: [] for who in timers}
    shuffle = random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)  # or one would always run after the same other one
        for who in order:
            times[who].append(timers[who].timeit(counts[who]) / counts[who])
    return {who: Taken.of(times[who]) if who in times else None for who in statements}


def _calibrate(timer, aim):
    timer.timeit(1)  # imports and first touches of memory are no part of a call
    count = 1
    while (seconds := timer.timeit(count)) < aim / 2:
        count *= 2 if seconds > aim / 20 else 10
    return max(1, round(count * aim / seconds))


def ratio(one, other):
    """Give how many times longer one takes than another, None where one is missing."""
    return None if one is None or other is None else one.median / other.median


# --- what is shown ------------------------------------------------------------------------------


def machine():
    """Print what was measured on, and how busy it is: a figure without it means nothing."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        facts = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        for line in facts.splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    console.print(
        f"{os.cpu_count()} x {model}, Python {platform.python_version()}, "
        f"torch {torch.__version__}, load {load()}"
    )


def load():
    """Give the machine's load average over one minute."""
    return f"{os.getloadavg()[0]:.1f}"


def number(value, digits=3):
    """Write a number with few digits, a missing one as a dash."""
    if value is None:
        return "–"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.{digits}g}"


def table(title, columns, rows, note=""):
    """Print a table: text columns to the left, numbers to the right."""
    made = Table()
    for column in columns:
        made.add_column(column, justify="left" if column in ("", "note") else "right")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, str) else number(cell) for cell in row))
    console.print(f"\n[bold]{title}[/bold]")
    console.print(made)
    if note:
        console.print(note)


def write(path, numbers):
    """Write the flat numbers for --json, rounded to four digits."""
    if path is None:
        return
    kept = {
        name: float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in numbers.items()
    }
    path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
