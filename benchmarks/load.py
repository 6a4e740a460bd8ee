"""What does it cost to open a large checkpoint and bind it, beside torch and safetensors?

100 tensors of 1024 x 1024 f32, 400 MB, in the page cache. Each figure is the median of fresh
processes, which have imported their library and made the module on the meta device before the clock
starts. Peers load all tensors and bind nothing, or assign.

    ./dev bench load
    python -m benchmarks.load --json load.json
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks import _measure as measure

ROOT = Path(__file__).parent.parent
COUNT, SIDE, ROUNDS, QUICK_ROUNDS = 100, 1024, 7, 1
BARS = {"torch_load": 0.06, "torch_mmap": 0.8, "safe_open": 1.2}
RSS_BAR, DIGEST_BAR = 0.05, 0.8

CHILD = """
import hashlib, json, sys, time
from pathlib import Path
import torch
who, path, count, side = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

with torch.device("meta"):
    module = torch.nn.ModuleList(torch.nn.Linear(side, side, bias=False) for _ in range(count))
if who.startswith("ours"):
    from torchmojo import open_weights
elif who == "safe_open":
    from safetensors import safe_open
before, start = resident(), time.perf_counter()
if who == "ours_digest":
    kept = open_weights(path)._mapping.sha256(False)
elif who == "ours_safetensors":
    kept = open_weights(path, align=8)
    kept.bind(module)
elif who == "ours":
    kept = open_weights(path)
    kept.bind(module)
elif who == "torch_load":
    kept = torch.load(path, weights_only=True)
elif who == "torch_mmap":
    kept = torch.load(path, weights_only=True, mmap=True)
elif who == "safe_open":
    with safe_open(path, "pt") as opened:
        kept = {key: opened.get_tensor(key) for key in opened.keys()}
elif who == "file_digest":
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:  # as hashlib.file_digest, which is new in 3.11
        room = bytearray(1 << 18)
        while got := file.readinto(room):
            digest.update(memoryview(room)[:got])
    kept = digest.hexdigest()
done, grown = time.perf_counter() - start, resident() - before
if who in ("ours", "ours_safetensors"):
    assert all(float(m.weight[0, 0]) == float(m.weight[-1, -1]) == i for i, m in enumerate(module))
print(json.dumps({"ms": done * 1e3, "rss": grown}))
"""
TITLES = {
    "ours": "open_weights + bind, .pt",
    "ours_safetensors": "open_weights + bind, .safetensors",
    "torch_load": "torch.load",
    "torch_mmap": "torch.load(mmap=True)",
    "safe_open": "safetensors.safe_open, all tensors",
    "ours_digest": "sha256 of the mapping",
    "file_digest": "hashlib.file_digest",
}


def main(argv=None) -> int:
    options = measure.parse(__doc__, argv)
    measure.machine()
    count = 4 if options.quick else COUNT
    with tempfile.TemporaryDirectory(prefix="torchmojo-bench-") as folder:
        files = write(Path(folder), count)
        numbers = measure_loads(files, count, QUICK_ROUNDS if options.quick else ROUNDS)
    measure.console.print(f"load at the end: {measure.load()}")
    measure.write(options.json, numbers)
    return 0


def write(folder, count):
    """Write the checkpoint in both formats; the second is None without the package."""
    state = {f"{i}.weight": torch.full((SIDE, SIDE), float(i)) for i in range(count)}
    torch.save(state, folder / "w.pt")
    try:
        from safetensors.torch import save_file
    except ImportError:
        return folder / "w.pt", None
    save_file(state, folder / "w.safetensors")
    return folder / "w.pt", folder / "w.safetensors"


def run(who, path, count):
    """Run one contestant in a process of its own."""
    command = [sys.executable, "-c", CHILD, who, str(path), str(count), str(SIDE)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{who} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def measure_loads(files, count, rounds):
    plain, safe = files
    paths = {w: safe if w in ("safe_open", "ours_safetensors") else plain for w in TITLES}
    taken = {who: [] for who, path in paths.items() if path is not None}
    for i in range(rounds + 1):
        for who in taken:
            found = run(who, paths[who], count)
            if i:  # the first round warms the page cache
                taken[who].append(found)
    times = {w: statistics.median(f["ms"] for f in found) for w, found in taken.items()}
    grown = {w: statistics.median(f["rss"] for f in found) for w, found in taken.items()}
    size = plain.stat().st_size
    measure.table(
        "A checkpoint of 400 MB in the page cache, one thread, medians of fresh processes",
        ("", "ms", "memory, MB"),
        [(TITLES[w], times[w], grown[w] / 1e6) for w in taken],
    )
    numbers = {f"load.{who}_ms": times.get(who) for who in TITLES}
    for ours in ("ours", "ours_safetensors"):
        for peer, bar in BARS.items():
            ratio = times[ours] / times[peer] if ours in times and peer in times else None
            numbers[f"load.{ours}_ratio_{peer}"] = ratio
            if ratio is not None:
                verdict(f"{TITLES[ours]} / {TITLES[peer]}", ratio, bar)
        numbers[f"load.{ours}_rss"] = grown[ours] / size if ours in grown else None
    verdict("memory before first use / file", numbers["load.ours_rss"], RSS_BAR)
    numbers["load.digest_ratio"] = times["file_digest"] / times["ours_digest"]
    verdict("speed of the digest / file_digest", numbers["load.digest_ratio"], DIGEST_BAR, True)
    return numbers


def verdict(what, value, bar, least=False):
    met = value >= bar if least else value <= bar
    sign = "at least" if least else "at most"
    measure.console.print(f"{what}: {value:.3g}, {sign} {bar}: {'met' if met else 'MISSED'}")


if __name__ == "__main__":
    sys.exit(main())
