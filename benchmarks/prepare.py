"""How fast do images become a model's input, beside OpenCV, Pillow and torch?

1920 x 1080 to 640 x 640, bilinear, mean and std, float32 planes; and 4000 x 3000 to 224 x 224 with
antialias. All write into an output that is there already where they can. The last table is the
distance from what memory allows: a plain copy of as many bytes as are read and written.

    ./dev bench prepare
    python -m benchmarks.prepare --json prepare.json
"""

import sys
import time

import torch

from benchmarks import _measure as measure
from torchmojo.vision import prepare

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZE, SMALL = 640, 224
BARS = {
    "prepare_1080p_ratio_1t": 1.3,
    "prepare_1080p_ratio_2t": 1.2,
    "prepare_recipe_ratio": 4.0,
    "prepare_antialias_ratio": 1.5,
}
# OpenCV rounds the resized levels to whole ones, and so does Pillow: in units of the output.
TOLERANCE = 0.51 / 255 / min(STD) + 0.01

STATEMENTS = {
    "Mojo": f"prepare(photo, {SIZE}, mean=MEAN, std=STD, out=out)",
    "cv2 resize + split + LUT": f"look_up(cv2, photo, {SIZE}, tables, small, split, planes)",
    "cv2 resize alone": f"cv2.resize(photo, ({SIZE}, {SIZE}), dst=small)",
    "cv2 + NumPy": f"recipe(cv2, photo, {SIZE})",
}
ANTIALIAS = {
    "Mojo": f"prepare(large, {SMALL}, antialias=True, mean=MEAN, std=STD, out=little)",
    "Pillow + torch": f"with_pillow(picture, {SMALL})",
}


def main(argv=None) -> int:
    options = measure.parse(__doc__, argv)
    measure.machine()
    names = give_images()
    numbers = dict.fromkeys(BARS)
    before = torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        if names["cv2"]:
            names["cv2"].setNumThreads(threads)
        numbers |= compare(names, threads, options.quick)
    torch.set_num_threads(1)
    numbers |= against_memory(names, options.quick)
    torch.set_num_threads(before)
    for key, bar in BARS.items():
        value = numbers[key]
        verdict = "not measured" if value is None else "bar met" if value >= bar else "MISSED"
        measure.console.print(f"{key}: {measure.number(value)}, bar {bar}: {verdict}")
    measure.console.print(f"load at the end: {measure.load()}")
    measure.write(options.json, numbers)
    return 0


def give_images():
    """Make what the statements use, and prove that all of them give one result."""
    torch.manual_seed(0)
    names = {
        "prepare": prepare,
        "look_up": look_up,
        "recipe": recipe,
        "with_pillow": with_pillow,
        "torch": torch,
        "MEAN": MEAN,
        "STD": STD,
        "photo": smooth(1080, 1920),
        "large": smooth(3000, 4000),
        "out": torch.empty(1, 3, SIZE, SIZE),
        "little": torch.empty(1, 3, SMALL, SMALL),
        "buffer": torch.empty(1080 * 1920 * 3 + 12 * SIZE * SIZE, dtype=torch.uint8),
        "exps": torch.empty(1, 3, SIZE, SIZE),
        "flush": torch.zeros(64 << 20, dtype=torch.uint8),
        "cv2": None,
        "picture": None,
    }
    names["copied"] = torch.ones_like(names["buffer"])
    levels = torch.arange(256)[:, None] / 255
    tables = ((levels - torch.tensor(MEAN)) / torch.tensor(STD)).T.contiguous()
    names["tables"] = [table.numpy() for table in tables]
    names["small"] = torch.empty(SIZE, SIZE, 3, dtype=torch.uint8).numpy()
    names["split"] = list(torch.empty(3, SIZE, SIZE, dtype=torch.uint8).numpy())
    planes = torch.empty(3, SIZE, SIZE)
    names["planes"] = [plane.numpy() for plane in planes]
    ours = prepare(names["photo"], SIZE, mean=MEAN, std=STD).tensor[0]
    try:
        import cv2
    except ImportError:
        measure.console.print("OpenCV is not installed: its figures are null")
    else:
        names["cv2"] = cv2
        look_up(
            cv2, names["photo"], SIZE, *(names[x] for x in ("tables", "small", "split", "planes"))
        )
        torch.testing.assert_close(planes, ours, rtol=0, atol=TOLERANCE)
        torch.testing.assert_close(recipe(cv2, names["photo"], SIZE), ours, rtol=0, atol=TOLERANCE)
    try:
        from PIL import Image
    except ImportError:
        measure.console.print("Pillow is not installed: its figures are null")
    else:
        names["picture"] = Image.fromarray(names["large"])
        ours = prepare(names["large"], SMALL, antialias=True, mean=MEAN, std=STD).tensor[0]
        theirs = with_pillow(names["picture"], SMALL)
        torch.testing.assert_close(theirs, ours, rtol=0, atol=TOLERANCE)
    return names


def smooth(h, w):
    """Make a picture of slopes: what every way of rounding agrees on."""
    y, x = torch.arange(h)[:, None] / h, torch.arange(w) / w
    planes = torch.stack((y.expand(h, w), x.expand(h, w), (x * y)), dim=2)
    return planes.mul(255).to(torch.uint8).numpy()


def look_up(cv2, photo, size, tables, small, split, planes):
    cv2.resize(photo, (size, size), dst=small, interpolation=cv2.INTER_LINEAR)
    for levels, table, plane in zip(cv2.split(small, split), tables, planes, strict=True):
        cv2.LUT(levels, table, dst=plane)


def recipe(cv2, photo, size):
    import numpy as np

    small = cv2.resize(photo, (size, size)).astype(np.float32) / 255
    small = (small - np.array(MEAN, np.float32)) / np.array(STD, np.float32)
    return torch.from_numpy(np.ascontiguousarray(small.transpose(2, 0, 1)))


def with_pillow(picture, size):
    import numpy as np
    from PIL import Image

    small = torch.from_numpy(np.array(picture.resize((size, size), Image.Resampling.BILINEAR)))
    values = small.permute(2, 0, 1).to(torch.float32, memory_format=torch.contiguous_format)
    column = [torch.tensor(v).view(3, 1, 1) for v in (MEAN, STD)]
    return values.div_(255).sub_(column[0]).div_(column[1])


def compare(names, threads, quick):
    """Time the peers of both pictures on so many threads; give the flat numbers."""
    numbers = {}
    has = {"cv2": names["cv2"], "Pillow": names["picture"]}
    for title, statements in (
        ("1920 x 1080 to 640", STATEMENTS),
        ("4000 x 3000 to 224", ANTIALIAS),
    ):
        missing = [who for who in statements if has.get(who.split()[0], True) is None]
        statements = {who: None if who in missing else text for who, text in statements.items()}
        taken = (take_blocks if threads > 1 else measure.take_turns)(statements, names, quick)
        ratios = {who: measure.ratio(times, taken["Mojo"]) for who, times in taken.items()}
        rows = [
            (
                who,
                *((t.median * 1e3, t.spread * 1e3, t.best * 1e3) if t else (None,) * 3),
                ratios[who],
            )
            for who, t in taken.items()
        ]
        measure.table(
            f"{title}, {threads} thread{'s' if threads > 1 else ''}",
            ("", "ms", "spread", "best", "time / Mojo"),
            rows,
        )
        if statements.keys() == STATEMENTS.keys():
            numbers[f"prepare_1080p_ms_{threads}t"] = taken["Mojo"].median * 1e3
            peer = taken["cv2 resize + split + LUT"]
            numbers[f"prepare_1080p_ratio_{threads}t"] = measure.ratio(peer, taken["Mojo"])
            numbers[f"prepare_1080p_best_ratio_{threads}t"] = (
                peer and peer.best / taken["Mojo"].best
            )
            if threads == 1:
                numbers["prepare_recipe_ratio"] = ratios["cv2 + NumPy"]
                numbers |= from_memory(statements, names, quick)
        elif threads == 1:
            numbers["prepare_antialias_ratio"] = ratios["Pillow + torch"]
    if threads == 2 and alone_is_faster(names, quick):
        measure.console.print(
            "torch gains nothing by a second thread now, for other processes have the cores: "
            "the figures for two threads say nothing"
        )
        numbers |= {"prepare_1080p_ratio_2t": None, "prepare_1080p_ms_2t": None}
    return numbers


def take_blocks(statements, names, quick):
    """Time statements that use threads: in blocks of one each, which take turns.

    Threads that one library has left spin for a while, on the core that the other one waits for.
    """
    blocks = {who: [] for who in statements}
    for _ in range(1 if quick else 5):
        for who, text in statements.items():
            time.sleep(0.05)
            blocks[who] += measure.take_turns({who: text}, names, quick).values()
    return {
        who: None if None in taken else sorted(taken, key=lambda t: t.median)[len(taken) // 2]
        for who, taken in blocks.items()
    }


def from_memory(statements, names, quick):
    """Time the same where no cache holds the image or the output."""
    setups = dict.fromkeys(statements, "flush.add_(1)")
    taken = measure.take_turns(statements, names, quick, setups, short=True)
    ratio = measure.ratio(taken["cv2 resize + split + LUT"], taken["Mojo"])
    measure.console.print(
        f"out of all caches, Mojo takes {taken['Mojo'].median * 1e3:.3g} ms, and "
        f"cv2 resize + split + LUT {measure.number(ratio)} times as long"
    )
    return {"prepare_1080p_cold_ratio_1t": ratio}


def alone_is_faster(names, quick):
    """Tell whether torch's own loops are no faster on two threads than on one."""
    times = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        taken = take_blocks({"exp": "torch.exp(out, out=exps)"}, names, quick)
        times.append(taken["exp"])
    return measure.ratio(times[1], times[0]) > 0.9


def against_memory(names, quick):
    """Compare with a copy that reads and writes as many bytes in all, half of them each."""
    half = (names["photo"].nbytes + names["out"].nbytes) // 2
    names = names | {"source": names["buffer"][:half], "target": names["copied"][:half]}
    statements = {"Mojo": STATEMENTS["Mojo"], "copy": "target.copy_(source)"}
    taken = measure.take_turns(statements, names, quick, short=True)
    share = measure.ratio(taken["copy"], taken["Mojo"])
    measure.console.print(
        f"\n{2 * half / 1e6:.1f} MB are read and written: a plain copy takes "
        f"{taken['copy'].median * 1e3:.3g} ms, {share:.0%} of the time of prepare"
    )
    return {"bandwidth_share": share}


if __name__ == "__main__":
    sys.exit(main())
