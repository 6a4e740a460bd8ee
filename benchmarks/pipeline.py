"""What do copies at borders cost, and what is a pipeline worth without them?

Two chains, each (a) with a copy at every border, (b) in the usual way by Pillow, NumPy and torch,
(c) by torchmojo. The first makes the input of a classifier such as ResNet-50 of eight photographs;
what it costs to move the finished pixels is measured by itself. The second finds faces with
CenterFace.
"""

import sys
import warnings

import numpy as np
import torch
from PIL import Image

from benchmarks import _measure as measure
from torchmojo import vision

COUNT, SIDE = 8, 224
HEIGHT, WIDTH = 720, 1280
FACES = 640
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BILINEAR = Image.Resampling.BILINEAR

# --- the classifier's input ---------------------------------------------------------------------


def small(frame, size):
    return np.asarray(Image.fromarray(frame).resize(size, BILINEAR))


def move_by_copies(pixels):
    """A list of arrays, an array, a tensor, another layout, another dtype: five memories."""
    batch = np.stack([np.array(picture) for picture in pixels])
    return torch.tensor(batch).permute(0, 3, 1, 2).contiguous().float()


def move_as_usual(pixels):
    return torch.stack([torch.from_numpy(p) for p in pixels]).permute(0, 3, 1, 2).float()


def input_by_copies(frames):
    pictures = []
    for frame in frames:
        levels = np.array(small(np.array(frame), (SIDE, SIDE))).astype(np.float32) / 255
        levels = (levels - np.float32(MEAN)) / np.float32(STD)
        pictures.append(np.array(levels.transpose(2, 0, 1)))
    return torch.tensor(np.stack(pictures)).contiguous().clone()


def input_as_usual(frames):
    x = move_as_usual([small(frame, (SIDE, SIDE)) for frame in frames])
    mean, std = (torch.tensor(value)[:, None, None] for value in (MEAN, STD))
    return x.div_(255).sub_(mean).div_(std)


# --- faces --------------------------------------------------------------------------------------


def letterboxed(frame):
    """Give the picture in the middle of a black square, and how to go back."""
    height, width = frame.shape[:2]
    scale = FACES / max(height, width)
    size = (round(width * scale), round(height * scale))
    left, top = (FACES - size[0]) // 2, (FACES - size[1]) // 2
    square = np.zeros((FACES, FACES, 3), np.uint8)
    square[top : top + size[1], left : left + size[0]] = small(frame, size)
    return square, (left, top), scale


def prepare_by_copies(frame):
    square, corner, scale = letterboxed(np.array(frame))
    levels = np.array(square.astype(np.float32).transpose(2, 0, 1))[None]
    return torch.tensor(levels).contiguous().clone(), corner, scale


def prepare_as_usual(frame):
    square, corner, scale = letterboxed(frame)
    # Without contiguous(): channels last, which torch's convolutions take half the time for.
    x = torch.from_numpy(square).permute(2, 0, 1)[None].float()
    return x, corner, scale


def greedy(boxes, scores, most):
    """Suppress in plain NumPy, which is as fast as torchvision on a CPU."""
    order = np.argsort(-scores, kind="stable")
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept = []
    while len(order):
        best, order = order[0], order[1:]
        kept.append(best)
        low = np.maximum(boxes[order, :2], boxes[best, :2])
        high = np.minimum(boxes[order, 2:], boxes[best, 2:])
        both = (high - low).clip(min=0).prod(1)
        order = order[both / (areas[order] + areas[best] - both) <= most]
    return kept


def decide_plainly(outputs, corner, scale, threshold, copy):
    heat, size, offset, _ = outputs
    if copy:
        heat, size, offset = (torch.tensor(np.array(x.numpy())) for x in (heat, size, offset))
    ys, xs = (heat[0, 0] > threshold).nonzero().T
    high, wide = (size[0, i, ys, xs].exp() * 4 for i in (0, 1))
    cy, cx = (ys + offset[0, 0, ys, xs] + 0.5) * 4, (xs + offset[0, 1, ys, xs] + 0.5) * 4
    boxes = torch.stack((cx - wide / 2, cy - high / 2, cx + wide / 2, cy + high / 2), 1)
    boxes, scores = boxes.numpy(), heat[0, 0, ys, xs].numpy()
    if copy:
        boxes, scores = np.array(boxes.tolist(), np.float32), np.array(scores.tolist(), np.float32)
    kept = greedy(boxes, scores, 0.3)
    back = (boxes[kept] - np.float32((*corner, *corner))) / np.float32(scale)
    return torch.from_numpy(back), torch.from_numpy(scores[kept])


def stages_of(model, threshold):
    """Give three ways to go from a frame to boxes, each with a model of its own."""
    stage = vision.Prepare(FACES, fit="letterbox", antialias=True, scale=1.0, channels_last=True)
    memory = stage.memory_for(1, FACES, FACES)
    decide = vision.HeatMaps(threshold, 0.3)

    def by_copies(frame):
        x, corner, scale = prepare_by_copies(frame)
        return decide_plainly(model(x), corner, scale, threshold, copy=True)

    def as_usual(frame):
        x, corner, scale = prepare_as_usual(frame)
        return decide_plainly(model(x), corner, scale, threshold, copy=False)

    def ours(frame):
        made = stage([frame], out=memory)
        found = decide(model(made.tensor))
        return made.geometry[0].back(found.boxes), found.scores

    return {"copies": by_copies, "usual": as_usual, "ours": ours}


def crowd():
    """Give a frame with a hundred faces, or None where the package with them is absent."""
    from importlib.metadata import PackageNotFoundError, files

    try:
        [path] = [f.locate() for f in files("scikit-image") if f.name == "lfw_subset.npy"]
    except (PackageNotFoundError, ValueError):
        return None
    faces = np.load(path)[:100].reshape(10, 10, 25, 25).transpose(0, 2, 1, 3).reshape(250, 250)
    gray = Image.fromarray((faces * 255).round().astype(np.uint8)).convert("RGB")
    return np.asarray(gray.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC))


# --- the tables ---------------------------------------------------------------------------------


def micro(taken):
    return {who: None if t is None else t.median * 1e6 for who, t in taken.items()}


def measure_input(quick):
    """Measure the classifier's input."""
    generator = np.random.default_rng(0)
    rough = [
        generator.integers(0, 256, (HEIGHT // 8, WIDTH // 8, 3), np.uint8) for _ in range(COUNT)
    ]
    frames = [small(frame, (WIDTH, HEIGHT)) for frame in rough]
    pixels = [small(frame, (SIDE, SIDE)) for frame in frames]
    stage = vision.Prepare(SIDE, antialias=True, mean=MEAN, std=STD)
    dot = vision.Prepare(1)
    names = {
        **globals(),
        "frames": frames,
        "pixels": pixels,
        "stage": stage,
        "memory": stage.memory_for(COUNT, SIDE, SIDE),
        "dot": dot,
        "dots": [np.zeros((1, 1, 3), np.uint8)] * COUNT,
        "tiny": dot.memory_for(COUNT, 1, 1),
    }
    wanted = input_as_usual(frames)
    for given in (input_by_copies(frames), stage(frames).tensor):
        # Pillow rounds twice to whole levels: 1.6 of them at most.
        torch.testing.assert_close(given, wanted, rtol=0, atol=1.6 / 255 / min(STD))
    move = measure.take_turns(
        {
            "copies": "move_by_copies(pixels)",
            "usual": "move_as_usual(pixels)",
            "ours": "dot(dots, out=tiny)",  # eight calls that borrow and move nothing
        },
        names,
        quick,
    )
    whole = measure.take_turns(
        {
            "copies": "input_by_copies(frames)",
            "usual": "input_as_usual(frames)",
            "ours": "stage(frames, out=memory)",
        },
        names,
        quick,
    )
    return move, whole


def measure_faces(quick):
    """Measure the face pipeline, without and with its model; None where weights are absent."""
    from torchmojo import ModelError
    from torchmojo.vision.ready.centerface import centerface_module

    frame = crowd()
    try:
        module = centerface_module()
    except (ModelError, ImportError) as error:
        measure.console.print(f"faces: not measured: {error}")
        return None, None
    if frame is None:
        measure.console.print("faces: not measured: scikit-image is not installed")
        return None, None
    threshold = 0.3
    with torch.no_grad():
        square = prepare_as_usual(frame)[0]
        outputs = module(square)
        idle = stages_of(lambda x: outputs, threshold)
        run = stages_of(module, threshold)
        results = {who: way(frame) for who, way in idle.items()}
        for boxes, scores in results.values():
            torch.testing.assert_close(boxes, results["usual"][0], rtol=1e-4, atol=1e-2)
            torch.testing.assert_close(scores, results["usual"][1])
        raw = int((outputs[0] > threshold).sum())
        measure.console.print(f"faces: {raw} candidates, {len(results['ours'][0])} kept")
        statements = {who: f"{who}(frame)" for who in idle}
        stages = measure.take_turns(statements, {**idle, "frame": frame}, quick)
        whole = measure.take_turns(statements, {**run, "frame": frame}, quick)
    return stages, whole


def main(argv=None):
    flags = measure.parse(__doc__, argv, two="on two threads; one is steady on busy machines too")
    warnings.filterwarnings("ignore", "The given NumPy array is not writable")
    torch.set_num_threads(2 if flags.two else 1)
    measure.machine()
    move, chain = measure_input(flags.quick)
    stages, whole = measure_faces(flags.quick)
    rows, numbers = [], {}
    for title, name, taken in (
        (f"moving {COUNT} pictures of {SIDE} x {SIDE}", "movement", move),
        (f"their whole way from {WIDTH} x {HEIGHT}", "chain", chain),
        ("faces: prepare and decide", "stages", stages),
        ("faces: end to end", "end_to_end", whole),
    ):
        taken = taken or dict.fromkeys(("copies", "usual", "ours"))
        times = micro(taken)
        numbers |= {f"pipeline.{name}_{who}_us": value for who, value in times.items()}
        numbers[f"pipeline.{name}_copies_ratio"] = measure.ratio(taken["copies"], taken["ours"])
        ratio = measure.ratio(taken["usual"], taken["ours"])
        numbers[f"{name}_ratio"] = ratio
        rows.append((title, times["copies"], times["usual"], times["ours"], ratio))
    measure.table(
        f"Microseconds, {torch.get_num_threads()} thread(s)",
        ("", "copy at each border", "Pillow and torch", "torchmojo", "ratio to usual"),
        rows,
        f"Bars: stages_ratio 3, end_to_end_ratio 1. Load {measure.load()}.",
    )
    measure.write(flags.json, numbers)


if __name__ == "__main__":
    sys.exit(main())
