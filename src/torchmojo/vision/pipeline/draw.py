"""Draws what was found into a picture, by Pillow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torchmojo.vision.decode import pixels
from torchmojo.vision.pipeline.record import Record

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["annotate"]

# Told apart by people who see colours in another way, too (Okabe and Ito, 2008).
COLOURS = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7")


def annotate(
    record: Record,
    names: Sequence[str] | None = None,
    source: str = "rgb",
    channels: str = "last",
) -> Image.Image:
    """Draws a record's boxes, landmarks, labels and scores.

    Args:
        record: With its image, which is not changed.
        names: Of classes; by default a box has its score alone, and a class its number.
        source: Colours of the image, if it is an array: rgb, bgr, gray or rgba.
        channels: Where the array has them: last or first.

    Returns:
        A picture of its own memory, RGB, as large as the image.
    """
    from PIL import ImageDraw, ImageFont

    picture = _picture(record.image, source, channels)
    draw = ImageDraw.Draw(picture)
    unit = max(1, round(min(picture.size) / 200))
    font: Any = ImageFont.load_default(max(10, 6 * unit))
    labels = [] if record.labels is None else record.labels.tolist()
    scores = [] if record.scores is None else record.scores.tolist()
    boxes = None if record.boxes is None else record.boxes.tolist()
    points = None if record.landmarks is None else record.landmarks.tolist()
    for place, (label, score) in enumerate(zip(labels, scores, strict=True)):
        colour = COLOURS[label % len(COLOURS)]
        name = names[label] if names else "" if boxes is not None else f"class {label}"
        text = f"{name} {score:.2f}".strip()
        if boxes is None:
            corner = (2.0 * unit, 2.0 * unit + place * 8 * unit)
        else:
            x0, y0, x1, y1 = boxes[place]
            if not all(map(math.isfinite, boxes[place])):
                continue  # nowhere to draw it
            if x0 <= x1 and y0 <= y1:  # Pillow refuses others
                draw.rectangle((x0, y0, x1, y1), outline=colour, width=2 * unit)
            corner = (x0, y0 - 8 * unit if y0 >= 8 * unit else y0)
        draw.text(corner, text, fill=colour, font=font, stroke_width=1, stroke_fill="black")
        for x, y in points[place] if points is not None else ():
            draw.ellipse((x - unit, y - unit, x + unit, y + unit), fill=colour)
    return picture


def _picture(image: Any, source: str, channels: str) -> Image.Image:
    """Gives an image a picture of its own."""
    import numpy as np
    from PIL import Image

    found, order = pixels(image, "image", source, channels)
    array = np.asarray(found)
    if order == "gray":
        return Image.fromarray(np.ascontiguousarray(array[:, :, 0])).convert("RGB")
    colours = array[:, :, 2::-1] if order == "bgr" else array[:, :, :3]
    return Image.fromarray(np.ascontiguousarray(colours))
