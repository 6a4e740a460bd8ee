"""How fast are the demo's filters beside torch and OpenCV, on one 1080p picture?

Contestants of one filter take turns in one process, each on the same threads: a call that is not
counted, then one that is. Before that, their results are compared. Ratios are a contestant's
median time over that of the Mojo kernel: above 1, Mojo is faster.

    ./dev bench filters
    python -m benchmarks.filters --json filters.json
"""

import argparse
import contextlib
import json
import math
import os
import platform
import statistics
import sys
import time
from pathlib import Path

import torch
from torch.nn.functional import conv2d, pad

import torchmojo
from torchmojo import demo
from torchmojo.demo import reference

HEIGHT, WIDTH = 1080, 1920
SIGMA = 1.5  # a window of 11 x 11 pixels
THREADS = (1, 2)

MOJO, NEW, TORCH, SLICES, CV2 = "mojo", "mojo_new", "torch", "slices", "cv2"
TITLES = {
    MOJO: "Mojo",
    NEW: "Mojo, new output",
    TORCH: "torch conv2d",
    SLICES: "torch slices",
    CV2: "OpenCV",
}
NOTES = """\
Mojo and OpenCV write into an output that is there already; "new output" allocates one in each call,
as every route of torch does. Of torch there are two routes: pad + conv2d, and sums of shifted
slices. Gray has no conv2d: torch converts and multiplies by a vector, and OpenCV writes uint8."""


def torch_blur(src, window):
    padded = pad(src[None, None], (window.numel() // 2,) * 4, mode="reflect")
    return conv2d(conv2d(padded, window.view(1, 1, 1, -1)), window.view(1, 1, -1, 1))[0, 0]


def torch_sobel(src, window):
    gradient = conv2d(pad(src[None, None], (1,) * 4, mode="replicate"), window)[0]
    return torch.hypot(gradient[0], gradient[1])


def contestants(kernels, cv2):
    """Give each filter's contestants: functions without arguments that return the result."""
    torch.manual_seed(0)
    image = torch.randint(0, 256, (HEIGHT, WIDTH, 3), dtype=torch.uint8)
    src = torch.rand(HEIGHT, WIDTH)
    outs = [torch.empty(HEIGHT, WIDTH) for _ in range(3)]

    def mojo(name, out, *arguments):
        getattr(kernels, name)(out, *arguments)
        return out

    def both(name, out, *arguments):
        return {
            MOJO: lambda: mojo(name, out, *arguments),
            NEW: lambda: mojo(name, torch.empty(HEIGHT, WIDTH), *arguments),
        }

    radius = math.ceil(3 * SIGMA)
    window = torch.exp(-0.5 * (torch.arange(-radius, radius + 1) / SIGMA) ** 2)
    window /= window.sum()
    along_x = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    gradient = torch.stack((along_x, along_x.T))[:, None]
    found = {
        "gray": {
            **both("grayscale", outs[0], image),
            TORCH: lambda: reference.grayscale(image),
        },
        "blur": {
            **both("gaussian_blur", outs[1], src, SIGMA),
            TORCH: lambda: torch_blur(src, window),
            SLICES: lambda: reference.gaussian_blur(src, SIGMA),
        },
        "sobel": {
            **both("sobel", outs[2], src),
            TORCH: lambda: torch_sobel(src, gradient),
            SLICES: lambda: reference.sobel(src),
        },
    }
    if cv2 is not None:
        for name, call in opencv(cv2, image.numpy(), src.numpy(), radius).items():
            found[name][CV2] = call
    return found


def opencv(cv2, image, src, radius):
    """Give OpenCV's functions, with their outputs allocated beforehand."""
    levels = torch.empty(HEIGHT, WIDTH, dtype=torch.uint8).numpy()
    blurred, gx, gy, length = (torch.empty(HEIGHT, WIDTH).numpy() for _ in range(4))
    size = (2 * radius + 1,) * 2

    def gray():
        cv2.cvtColor(image, cv2.COLOR_RGB2GRAY, dst=levels)
        return torch.from_numpy(levels)

    def blur():
        cv2.GaussianBlur(src, size, SIGMA, dst=blurred, borderType=cv2.BORDER_REFLECT_101)
        return torch.from_numpy(blurred)

    def sobel():
        for dst, order in ((gx, (1, 0)), (gy, (0, 1))):
            cv2.Sobel(src, cv2.CV_32F, *order, dst=dst, borderType=cv2.BORDER_REPLICATE)
        cv2.magnitude(gx, gy, length)
        return torch.from_numpy(length)

    return {"gray": gray, "blur": blur, "sobel": sobel}


def compare(name, calls):
    """Fail where contestants do not do the same work."""
    expected = calls[MOJO]().clone()
    for who, call in calls.items():
        actual = call()
        if actual.dtype == torch.uint8:
            actual = actual / 255
        tolerance = 0.51 / 255 if (name, who) == ("gray", CV2) else 1e-5
        torch.testing.assert_close(
            actual, expected, rtol=0, atol=tolerance, msg=lambda text, w=who: f"{name} {w}: {text}"
        )


def take_times(calls, rounds):
    """Give each contestant's median time, spread (half of the middle 50 %) and best time, in ms."""
    times = {who: [] for who in calls}
    for _ in range(rounds):
        for who, call in calls.items():
            call()
            start = time.perf_counter()
            call()
            times[who].append((time.perf_counter() - start) * 1e3)
    result = {}
    for who, taken in times.items():
        low, _, high = statistics.quantiles(taken, n=4)
        result[who] = (statistics.median(taken), (high - low) / 2, min(taken))
    return result


def print_table(threads, measured):
    print(f"\n{threads} thread{'s' if threads > 1 else ''}")
    print(f"{'':6} {'':18} {'ms':>9} {'spread':>8} {'best':>8}   {'time / Mojo':>11}")
    lost = []
    for name, times in measured.items():
        for who, (median, spread, best) in times.items():
            ratio = median / times[MOJO][0]
            title = TITLES[who].replace(" conv2d", "") if name == "gray" else TITLES[who]
            print(f"{name:6} {title:18} {median:9.3f} {spread:8.3f} {best:8.3f}   {ratio:9.2f} x")
            if ratio < 1 and who != NEW:
                lost.append(f"{name}: {title} takes {ratio:.2f} of Mojo's time")
    print("Mojo loses: " + ("; ".join(lost) if lost else "nowhere in this table"))


def summary(threads, measured):
    """Give the flat numbers for --json; a busy machine spoils ratios of best times the least."""
    numbers = {}
    for name, times in measured.items():
        mojo_median, _, mojo_best = times[MOJO]
        for who, (median, _, best) in times.items():
            numbers[f"{name}_ms_{who}_{threads}t"] = round(median, 4)
            if who != MOJO:
                numbers[f"{name}_ratio_{who}_{threads}t"] = round(median / mojo_median, 3)
                numbers[f"{name}_best_ratio_{who}_{threads}t"] = round(best / mojo_best, 3)
    return numbers


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too")
    parser.add_argument("--rounds", type=int, default=15, help="counted calls of each contestant")
    options = parser.parse_args(argv)

    cv2 = None
    with contextlib.suppress(ImportError):
        import cv2
    print(f"{HEIGHT} x {WIDTH}, blur with sigma {SIGMA}, medians of {options.rounds} calls in turn")
    versions = f"torch {torch.__version__}, OpenCV {cv2.__version__ if cv2 else 'not installed'}"
    print(f"{versions}, {os.cpu_count()} x {platform.machine()}")

    found = contestants(torchmojo.load(demo.KERNELS), cv2)
    numbers = {}
    before = torch.get_num_threads()
    for threads in THREADS:
        torch.set_num_threads(threads)
        if cv2 is not None:
            cv2.setNumThreads(threads)
        measured = {}
        for name, calls in found.items():
            compare(name, calls)
            measured[name] = take_times(calls, options.rounds)
        print_table(threads, measured)
        busy = os.getloadavg()[0]
        if busy > os.cpu_count():
            print(
                f"Load {busy:.1f} on {os.cpu_count()} CPUs: threads wait for each other; see best"
            )
        numbers.update(summary(threads, measured))
    torch.set_num_threads(before)
    print("\n" + NOTES)
    if options.json:
        options.json.write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
