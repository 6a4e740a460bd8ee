"""How fast is suppression beside the plain NumPy loop, OpenCV and torchvision, with equal results?

Three sets of boxes: those of a real detector on a hundred faces, 10,000 all over a square, and
10,000 in a hundred clusters; and 100,000 of each of the last two for ourselves alone, as a loop
takes half a minute for them. All run on one thread. Before that, results are compared: those of the
loop and of torchvision in content and order, those of OpenCV in content.

    ./dev bench nms
    python -m benchmarks.nms --json nms.json
"""

import contextlib
import os
import sys
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks import _centerface as centerface
from benchmarks import _measure as measure
from torchmojo.vision import decode_heatmap, nms

BARS = {
    "nms_real_ratio": 4,
    "nms_1e4_ratio": 10,
    "nms_clustered_ratio": 4,
    "nms_cv2_ratio": 5,
    "nms_torchvision_ratio": 4,
}


@dataclass(frozen=True)
class Case:
    """Boxes, and what stands for them in the names of numbers."""

    name: str
    title: str
    boxes: torch.Tensor
    scores: torch.Tensor
    threshold: float


def uniform(count, generator):
    corner = torch.rand(count, 2, generator=generator) * 1000
    size = torch.rand(count, 2, generator=generator) * 100 + 20
    return torch.cat([corner, corner + size], 1)


def clustered(count, generator):
    boxes = uniform(100, generator)[torch.randint(100, (count,), generator=generator)]
    return boxes + torch.randn(count, 4, generator=generator) * 3


def real():
    """Give what CenterFace sees in a picture of a hundred faces, above a score of 0.05."""
    maps = centerface.load()(centerface.prepare(centerface.mosaic()))
    found = decode_heatmap(*maps, score_threshold=0.05)
    return found.boxes, found.scores


def cases(large):
    generator = torch.Generator().manual_seed(0)
    makers = {"1e4": (uniform, "uniform"), "clustered": (clustered, "in 100 clusters")}
    made = []
    count = 100_000 if large else 10_000
    for name, (make, title) in makers.items():
        boxes = make(count, generator)
        scores = torch.rand(count, generator=generator)
        made.append(Case(name, f"{count:,} {title}", boxes, scores, 0.5))
    return made


def loop(boxes, scores, threshold):
    """Suppress in NumPy, as everybody writes it."""
    x0, y0, x1, y1 = boxes.T
    areas = (x1 - x0) * (y1 - y0)
    order = np.argsort(-scores, kind="stable")
    keep = []
    while order.size:
        i, order = order[0], order[1:]
        keep.append(i)
        width = np.maximum(0, np.minimum(x1[i], x1[order]) - np.maximum(x0[i], x0[order]))
        height = np.maximum(0, np.minimum(y1[i], y1[order]) - np.maximum(y0[i], y0[order]))
        common = width * height
        order = order[common / (areas[i] + areas[order] - common) <= threshold]
    return keep


def contestants(case, cv2, torchvision):
    """Give the texts to time, and the names that they use; compare the results first."""
    names = {
        "nms": nms,
        "loop": loop,
        "boxes": case.boxes,
        "scores": case.scores,
        "b": case.boxes.numpy(),
        "s": case.scores.numpy(),
        "t": case.threshold,
    }
    texts = {"mojo": "nms(boxes, scores, t)", "loop": "loop(b, s, t)"}
    if torchvision is not None:
        names["peer"] = torchvision.ops.nms
        texts["torchvision"] = "peer(boxes, scores, t)"
    if cv2 is not None:
        names["rects"] = torch.cat([case.boxes[:, :2], case.boxes[:, 2:] - case.boxes[:, :2]], 1)
        names["rects"] = names["rects"].numpy()
        names["suppress"] = cv2.dnn.NMSBoxes
        texts["cv2"] = "suppress(rects, s, 0.0, t)"
    kept = {who: [int(i) for i in eval(text, names)] for who, text in texts.items()}
    for who in ("loop", "torchvision"):
        if who in kept and kept[who] != kept["mojo"]:
            raise RuntimeError(f"{case.title}: {who} keeps other boxes, or in another order")
    if "cv2" in kept and (other := set(kept["cv2"]) ^ set(kept["mojo"])):
        # It rounds IoUs in another way, so boxes next to the threshold fall either way.
        measure.console.print(f"{case.title}: OpenCV differs in {len(other)} boxes")
    return texts, names, len(kept["mojo"])


def main(argv=None) -> int:
    options = measure.parse(__doc__, argv)
    cv2 = torchvision = None
    with contextlib.suppress(ImportError):
        import cv2

        cv2.setNumThreads(1)
    with contextlib.suppress(ImportError):
        import torchvision
    torch.set_num_threads(1)
    measure.machine()
    if torchvision is None:
        measure.console.print("torchvision is not installed: nms_torchvision_ratio is null")
    if cv2 is None:
        measure.console.print("OpenCV is not installed: nms_cv2_ratio is null")

    measured = cases(large=False)
    try:
        boxes, scores = real()
        measured.insert(0, Case("real", f"{len(boxes):,} of CenterFace", boxes, scores, 0.3))
    except (centerface.AbsentError, ImportError) as error:
        measure.console.print(f"no real boxes, {error}: nms_real_ratio is null")

    rows, numbers = [], {"nms_real_ratio": None}
    ratios = {"cv2": [], "torchvision": []}
    for case in measured:
        texts, names, kept = contestants(case, cv2, torchvision)
        taken = measure.take_turns(texts, names, options.quick)
        times = {who: taken.get(who) for who in ("mojo", "loop", "cv2", "torchvision")}
        found = {who: measure.ratio(t, taken["mojo"]) for who, t in times.items()}
        milliseconds = [None if t is None else t.median * 1e3 for t in times.values()]
        rows.append((case.title, kept, *milliseconds, found["loop"], found["cv2"]))
        numbers[f"nms_{case.name}_ms"] = taken["mojo"].median * 1e3
        numbers[f"nms_{case.name}_ratio"] = found["loop"]
        for who, all_of_them in ratios.items():
            if found[who] is not None:
                all_of_them.append(found[who])
                numbers[f"nms_{case.name}_ratio_{who}"] = found[who]
    for case in cases(large=True):
        texts, names = {"mojo": "nms(boxes, scores, t)"}, {"nms": nms, **vars(case)}
        taken = measure.take_turns(texts, {**names, "t": case.threshold}, options.quick)["mojo"]
        kept = len(nms(case.boxes, case.scores, case.threshold))
        rows.append((case.title, kept, taken.median * 1e3, None, None, None, None, None))
        name = "1e5" if case.name == "1e4" else f"{case.name}_1e5"
        numbers[f"nms_{name}_ms"] = taken.median * 1e3
    for who, all_of_them in ratios.items():
        numbers[f"nms_{who}_ratio"] = min(all_of_them, default=None)

    columns = ("", "kept", "Mojo ms", "loop", "OpenCV", "torchvision", "loop / Mojo", "cv2 / Mojo")
    measure.table("Suppression on one thread, medians", columns, rows)
    measure.console.print(
        "A peer's ratio in the JSON, nms_cv2_ratio and nms_torchvision_ratio, is the least of its "
        f"sets. Load now {os.getloadavg()[0]:.1f}."
    )
    for name, bar in BARS.items():
        if numbers[name] is not None:
            sign = "met" if numbers[name] >= bar else "MISSED"
            measure.console.print(f"{name}: {numbers[name]:.3g}, at least {bar}: {sign}")
    measure.write(options.json, numbers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
