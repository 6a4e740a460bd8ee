"""Runs the three kernels on a picture, checks them and takes their time."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchmojo.demo.report import Report, Row, Sight, show

if TYPE_CHECKING:
    import torch

__all__ = ["KERNELS", "main", "run"]

KERNELS = Path(__file__).with_name("kernels.mojo")
"""The kernels' source."""

SIGMA = 2.0
ROUNDS = 15

# Each bound is the sum of the roundings to float32 that a pixel goes through, at half a unit in
# the last place (6e-8) of the largest value on the way.
TOLERANCES = {
    "grayscale": 1e-6,  # 7 roundings below 1
    "gaussian_blur": 2e-6,  # 28 roundings below 1: 13 taps, twice
    "sobel": 4e-6,  # 10 roundings below 4, and a square root
}


def main(out: Path | str = "torchmojo-demo.png", threads: int = 1) -> int:
    """Run the demo and print what it found out.

    Args:
        out: PNG file to write.
        threads: Threads for torch and Mojo; times on one are steady on busy machines too.

    Returns:
        0, or 1 where a kernel's result is not the one of plain torch.
    """
    from rich.console import Console

    console = Console()
    try:
        import torch  # noqa: F401
    except ImportError:
        console.print('The demo needs torch: pip install "torchmojo[torch]"', markup=False)
        return 1
    report = run(Path(out), threads)
    show(report, console)
    return 0 if report.ok else 1


def run(out: Path, threads: int = 1) -> Report:
    """Filter a picture with the Mojo kernels, and check and time each against plain torch.

    Args:
        out: PNG file to write: gray, blurred and edges side by side. Beside it, faces that are
            found are drawn into a second picture, whose name ends in ``-faces``.
        threads: Threads for torch and Mojo; times on one are steady on busy machines too.

    Returns:
        What was found out.
    """
    import torch

    import torchmojo
    from torchmojo.demo import reference
    from torchmojo.demo.faces import find_faces
    from torchmojo.demo.picture import find_picture, write_png

    start = time.perf_counter()
    kernels = torchmojo.load(KERNELS)
    first_load = time.perf_counter() - start

    picture = find_picture()
    out.parent.mkdir(parents=True, exist_ok=True)
    image = picture.pixels
    gray, blurred, edges = (torch.empty(image.shape[:2]) for _ in range(3))
    with _threads(threads):
        rows = (
            _measure(
                kernels,
                "grayscale",
                (gray, image),
                lambda: reference.grayscale(image),
                lambda: reference.grayscale(image, torch.float64),
            ),
            _measure(
                kernels,
                "gaussian_blur",
                (blurred, gray, SIGMA),
                lambda: reference.gaussian_blur(gray, SIGMA),
                lambda: reference.gaussian_blur(gray.double(), SIGMA),
            ),
            _measure(
                kernels,
                "sobel",
                (edges, blurred),
                lambda: reference.sobel(blurred),
                lambda: reference.sobel(blurred.double()),
            ),
        )
        faces = find_faces(picture.path, out.with_name(f"{out.stem}-faces.png"))
    write_png(out, torch.cat((gray, blurred, edges / edges.max()), dim=1))
    return Report(
        picture=picture.origin,
        note=picture.note,
        size=(image.shape[0], image.shape[1]),
        threads=threads,
        first_load=first_load,
        next_load=_load_elsewhere(),
        rows=rows,
        output=out.absolute(),
        faces=faces,
    )


def _measure(
    kernels: Any,
    name: str,
    arguments: tuple[Any, ...],
    in_torch: Callable[[], torch.Tensor],
    exact: Callable[[], torch.Tensor],
) -> Row:
    """Run one kernel beside its twin in torch; the kernel's output is the first argument."""
    kernel = getattr(kernels, name)
    dst, src = arguments[:2]
    dst.fill_(float("nan"))
    copied = _bytes_made(lambda: kernel(*arguments))
    difference = (dst - exact()).abs().max().item()
    mojo_ms, torch_ms = _take_times(lambda: kernel(*arguments), in_torch)
    return Row(
        kernel=name,
        sights=(_sight(kernels, "out", dst), _sight(kernels, "in", src)),
        copied=copied,
        difference=difference,
        tolerance=TOLERANCES[name],
        mojo_ms=mojo_ms,
        torch_ms=torch_ms,
    )


def _take_times(*calls: Callable[[], object]) -> list[float]:
    """Give each call's median time in milliseconds; they take turns, each after one to warm up."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for taken, call in zip(times, calls, strict=True):
            call()
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) * 1e3 for taken in times]


def _bytes_made(call: Callable[[], object]) -> int:
    """Sum up the memory of all tensors that torch makes during a call, copies of arguments too."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Counter(TorchDispatchMode):  # type: ignore[misc]
        total = 0

        def __torch_dispatch__(
            self, op: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> object:
            result = op(*args, **(kwargs or {}))
            self.total += sum(getattr(made, "nbytes", 0) for made in tree_leaves(result))
            return result

    with Counter() as counter:
        call()
    return int(counter.total)


def _sight(kernels: Any, name: str, x: torch.Tensor) -> Sight:
    """Ask both sides where a picture lies; the first colour stands for all three."""
    plane = x if x.ndim == 2 else x[..., 0]
    return Sight(name, torch=x.data_ptr(), mojo=kernels.address(plane))


def _load_elsewhere() -> float:
    """Time ``torchmojo.load`` in a new process, where the kernels come from the cache."""
    program = (
        "import sys, time, torch, torchmojo\n"
        "start = time.perf_counter()\n"
        "torchmojo.load(sys.argv[1])\n"
        "print(time.perf_counter() - start)"
    )
    command = [sys.executable, "-c", program, str(KERNELS)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """Set torch's threads, and give them back afterwards."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
