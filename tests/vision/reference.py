"""`prepare` a second time, in plain torch and float64: one step after another, each with a copy."""

from fractions import Fraction

import torch
from torch.nn.functional import interpolate

MODES = {"nearest": "nearest-exact", "bilinear": "bilinear", "area": "area"}


def reference(
    image,
    size,
    *,
    resize="bilinear",
    antialias=False,
    fit="stretch",
    crop=None,
    mean=0.0,
    std=1.0,
    scale=1 / 255,
    order="rgb",
    source="rgb",
    pad=0.0,
):
    """Prepares an image [h, w, c] of bytes; returns [c, h, w] of float64."""
    x = torch.from_numpy(image.copy()).permute(2, 0, 1).double()
    if len(x) > 1:
        x = x[:3]
        red, green, blue = x.flip(0) if source == "bgr" else x
    else:
        red = green = blue = x[0]
    if order == "gray":
        gray = len(x) == 1
        x = (red if gray else 0.299 * red + 0.587 * green + 0.114 * blue)[None]
    else:
        x = torch.stack((red, green, blue) if order == "rgb" else (blue, green, red))
    if crop is not None:
        x = x[:, crop[1] : crop[3], crop[0] : crop[2]]
    height, width = x.shape[1:]
    target, place = size, (0, 0)
    if fit == "letterbox":
        shrink = min(Fraction(size[0], height), Fraction(size[1], width))
        target = tuple(max(1, half_up(length * shrink)) for length in (height, width))
        place = tuple((outer - inner) // 2 for outer, inner in zip(size, target, strict=True))
    if fit == "crop":
        shrink = min(Fraction(height, size[0]), Fraction(width, size[1]))
        kept = tuple(max(1, half_up(length * shrink)) for length in size)
        y, x0 = (height - kept[0]) // 2, (width - kept[1]) // 2
        x = x[:, y : y + kept[0], x0 : x0 + kept[1]]
    options = {"antialias": True} if antialias else {}
    if antialias and target[1] == 1:
        # Torch 2.13 repeats the first row of a picture that is one column wide; a row is right.
        x = x.transpose(1, 2).contiguous()
        x = interpolate(x[None], target[::-1], mode=MODES[resize], **options)[0].transpose(1, 2)
    else:
        x = interpolate(x[None], target, mode=MODES[resize], **options)[0]
    outer = torch.full((len(x), *size), float(pad), dtype=torch.float64)
    outer[:, place[0] : place[0] + target[0], place[1] : place[1] + target[1]] = x
    column = [torch.as_tensor(v, dtype=torch.float64).reshape(-1, 1, 1) for v in (scale, mean, std)]
    return (outer * column[0] - column[1]) / column[2]


def half_up(value):
    return int(value + Fraction(1, 2))
