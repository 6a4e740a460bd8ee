"""Does anything leak, crash or go wrong in ten million exchanges with random failures?

Handles, calls, refusals, raising kernels, copies, exports and hand-overs follow each other
in random order. Every few thousand steps all counts must be back and the sums right;
at the end memory must not have grown. Ends with status 1 where it has.

    ./dev bench soak
    python -m benchmarks.soak --json soak.json
"""

import gc
import os
import random
import sys
import time
from pathlib import Path

import numpy as np
import torch

import torchmojo
from benchmarks import _measure as measure
from torchmojo.bridge.share.leak import tally

STEPS, QUICK_STEPS = 10_000_000, 100_000
LAP = 20_000
GROWTH = 16 * 2**20  # bytes; the allocator's own ups and downs


class Soak:
    """Tensors and arrays, what their sums must be, and one method per kind of exchange."""

    def __init__(self, kernels):
        self.kernels = kernels
        self.x, self.sum_x = torch.zeros(16), 0
        self.a, self.sum_a = np.zeros(16, np.float32), 0
        self.one, self.one_np = torch.ones(16), np.ones(16, np.float32)
        self.column = torch.zeros(8, 4).t()
        self.bytes = bytearray(64)
        self.swapped = np.ones(16, ">f4")
        self.refusals = 0

    def call_torch(self):
        self.kernels.add(self.x, self.one)
        self.sum_x += 1

    def call_numpy(self):
        self.kernels.add(self.a, self.one_np)
        self.sum_a += 1

    def call_handle(self):
        with torchmojo.share(self.x) as handle:
            self.kernels.add(handle, self.one)
        self.sum_x += 1

    def share_torch(self):
        torchmojo.share(self.x).release()

    def share_and_drop(self):
        torchmojo.share(self.bytes)

    def export(self):
        handle = torchmojo.share(self.bytes)
        kept = torch.from_dlpack(handle)
        handle.release()
        assert kept.numel() == 64

    def export_unused(self):
        with torchmojo.share(self.a) as handle:
            handle.__dlpack__(max_version=(1, 0))

    def hand_over(self):
        handle = torchmojo.share(self.x.__dlpack__(max_version=(1, 0)))
        self.kernels.add(handle, self.one)
        handle.release()
        self.sum_x += 1

    def made(self):
        assert self.kernels.made(1000).numel() == 1000

    def fallback_in(self):
        self.kernels.add(self.x, self.swapped)
        self.sum_x += 1

    def fallback_rows(self):
        self.kernels.rows(self.column)

    def raises(self):
        self.expect(torchmojo.KernelError, self.kernels.fails, self.a[:0], 0)

    def refused_shape(self):
        self.expect(torchmojo.ShapeError, self.kernels.add, self.x, self.column)

    def refused_dtype(self):
        self.expect(
            torchmojo.DTypeError, self.kernels.add, self.x, torch.ones(16, dtype=torch.int8)
        )

    def refused_released(self):
        handle = torchmojo.share(self.x)
        handle.release()
        self.expect(torchmojo.HandleError, self.kernels.add, handle, self.one)

    def refused_immutable(self):
        with torchmojo.share(self.x, "borrowed_immutable") as handle:
            self.expect(torchmojo.ReadOnlyError, self.kernels.add, handle, self.one)

    def refused_moved(self):
        y = torch.ones(4)
        with torchmojo.share(y) as handle:
            y.resize_(4000)
            self.expect(torchmojo.NoDataError, self.kernels.one, handle)

    def refused_twice(self):
        capsule = self.one.__dlpack__()
        self.kernels.one(capsule)
        self.expect(torchmojo.NoDataError, self.kernels.one, capsule)

    def expect(self, error, call, *args):
        try:
            call(*args)
        except error:
            self.refusals += 1
            return
        raise SystemExit(f"wanted {error.__name__} from {call}, given a result")

    def check(self):
        """Compare the sums, then start them again before float32 cannot count any more."""
        for values, total in ((self.x, self.sum_x), (torch.from_numpy(self.a), self.sum_a)):
            if not bool((values == total).all()):
                raise SystemExit(f"wanted {total} in every element, given {values}")
        self.x.zero_()
        self.a[:] = 0
        self.sum_x = self.sum_a = 0


# Often what is fast, seldom what is slow: a refusal looks for words, for tens of microseconds.
WEIGHTS = {
    "call_torch": 500,
    "call_numpy": 300,
    "share_torch": 60,
    "call_handle": 30,
    "made": 30,
    "share_and_drop": 15,
    "export": 8,
    "export_unused": 8,
    "hand_over": 10,
    "raises": 10,
    "fallback_in": 2,
    "fallback_rows": 2,
    "refused_shape": 3,
    "refused_dtype": 3,
    "refused_released": 4,
    "refused_immutable": 4,
    "refused_moved": 3,
    "refused_twice": 4,
}


def main(argv=None) -> int:
    options = measure.parse(__doc__, argv)
    measure.machine()
    torch.set_num_threads(1)
    soak = Soak(torchmojo.load(Path(__file__).with_name("memory.mojo")))
    steps = QUICK_STEPS if options.quick else STEPS
    chance = random.Random(0)
    methods = [getattr(soak, name) for name in WEIGHTS]
    with torchmojo.fallback("copy"):
        run(soak, methods, chance, LAP)  # first touches of everything
        start, before, began = resident(), tally(), time.perf_counter()
        for lap in range(steps // LAP):
            run(soak, methods, chance, LAP)
            now = tally()
            if (now.handles, now.leases, now.buffers, now.exports, now.twice) != (
                before.handles,
                before.leases,
                before.buffers,
                before.exports,
                before.twice,
            ):
                raise SystemExit(f"lap {lap}: wanted {before}, given {now}")
    seconds, growth = time.perf_counter() - began, resident() - start
    measure.table(
        "Soak",
        ("", "figure"),
        [
            ("exchanges", steps),
            ("of them refused or raised", soak.refusals),
            ("exports freed by their consumer", now.deleters - before.deleters),
            ("seconds", seconds),
            ("memory more than after the first lap, MiB", growth / 2**20),
        ],
    )
    measure.write(
        options.json,
        {
            "soak_steps": steps,
            "soak_refusals": soak.refusals,
            "soak_deleters": now.deleters - before.deleters,
            "soak_s": seconds,
            "soak_growth_mib": growth / 2**20,
        },
    )
    if growth > GROWTH:
        measure.console.print(f"memory grew by {growth} bytes, more than {GROWTH}")
        return 1
    return 0


def run(soak, methods, chance, count):
    for method in chance.choices(methods, WEIGHTS.values(), k=count):
        method()
    soak.check()
    gc.collect()


def resident():
    """Give the bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


if __name__ == "__main__":
    sys.exit(main())
