"""Where an image lies in a model's input: whole numbers, and the way back from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchmojo.errors import ShapeError

__all__ = ["Geometry", "place"]


@dataclass(frozen=True, slots=True)
class Geometry:
    """What became of one image; every field is a whole number of pixels.

    The rectangle ``crop`` of the source became the rectangle ``content`` of the input; the rest of
    the input is padding. A file's or Pillow image's source is the upright one.

    Attributes:
        source: Height and width of the source.
        crop: Left, top, right and bottom of what was taken from the source.
        content: Left, top, right and bottom of it in the input.
        size: Height and width of the input.
    """

    source: tuple[int, int]
    crop: tuple[int, int, int, int]
    content: tuple[int, int, int, int]
    size: tuple[int, int]

    @property
    def scale(self) -> tuple[float, float]:
        """Input pixels for each source pixel, downwards and across."""
        crop, content = self.crop, self.content
        return (
            (content[3] - content[1]) / (crop[3] - crop[1]),
            (content[2] - content[0]) / (crop[2] - crop[0]),
        )

    @property
    def padding(self) -> tuple[int, int, int, int]:
        """Rows and columns of padding: left, top, right and bottom."""
        left, top, right, bottom = self.content
        return (left, top, self.size[1] - right, self.size[0] - bottom)

    def back(self, points: Any) -> Any:
        """Maps boxes or points of the input to the source.

        Args:
            points: Torch tensor or NumPy array ``[..., x y x y ...]``: boxes ``[n, 4]``, points
                ``[n, 2]`` or landmarks ``[n, 10]``, in pixels; 0 is the edge of the first pixel.

        Returns:
            The same in the source's pixels, a new tensor or array of the same kind and floating
            dtype (whole numbers become float64). The sums are made in float64 from the whole
            numbers that the image was resized by, and are not clipped to the image.

        Raises:
            ShapeError: The last axis does not hold pairs.

        Example:
            >>> import torch
            >>> from torchmojo.vision import Geometry
            >>> geometry = Geometry((417, 1001), (0, 0, 1001, 417), (0, 186, 640, 453), (640, 640))
            >>> geometry.back(torch.tensor([[0.0, 186.0, 640.0, 453.0]]))
            tensor([[   0.,    0., 1001.,  417.]])
        """
        return _map("back", points, self.content, self.crop)

    def forth(self, points: Any) -> Any:
        """Maps boxes or points of the source to the input: the inverse of ``back``.

        Args:
            points: As for ``back``, in the source's pixels.

        Returns:
            The same in the input's pixels.

        Raises:
            ShapeError: The last axis does not hold pairs.
        """
        return _map("forth", points, self.crop, self.content)


def _map(name: str, points: Any, here: tuple[int, ...], there: tuple[int, ...]) -> Any:
    """Maps pairs from one rectangle to another."""
    if not points.ndim or points.shape[-1] % 2:
        raise ShapeError(
            f"{name}: points: wanted pairs x y in the last axis, given {tuple(points.shape)}"
        )
    import numpy as np
    import torch

    made: Any
    if isinstance(points, torch.Tensor):
        made = points.to(torch.float64, copy=True)
        dtype = points.dtype if points.is_floating_point() else torch.float64
    else:
        made = np.array(points, dtype=np.float64)
        dtype = points.dtype if points.dtype.kind == "f" else np.float64
    for axis in (0, 1):
        line = made[..., axis::2]
        line -= here[axis]
        line *= there[axis + 2] - there[axis]
        line /= here[axis + 2] - here[axis]
        line += there[axis]
    return made.to(dtype) if isinstance(made, torch.Tensor) else made.astype(dtype)


def place(
    source: tuple[int, int],
    crop: tuple[int, int, int, int] | None,
    size: tuple[int, int],
    fit: str,
) -> Geometry:
    """Decides where an image goes.

    Args:
        source: Height and width of the image, 1 or more.
        crop: Rectangle inside it, or None for all of it.
        size: Height and width of the input, 1 or more.
        fit: ``stretch``, ``letterbox`` or ``crop``.
    """
    left, top, right, bottom = crop or (0, 0, source[1], source[0])
    width, height = right - left, bottom - top
    content = (0, 0, size[1], size[0])
    if fit == "crop":
        # The largest rectangle of the input's aspect, in the middle.
        kept = (
            min(height, _share(width, size[0], size[1])),
            min(width, _share(height, size[1], size[0])),
        )
        left += (width - kept[1]) // 2
        top += (height - kept[0]) // 2
        right, bottom = left + kept[1], top + kept[0]
    elif fit == "letterbox":
        rows = min(size[0], _share(height, size[1], width))
        columns = min(size[1], _share(width, size[0], height))
        x, y = (size[1] - columns) // 2, (size[0] - rows) // 2
        content = (x, y, x + columns, y + rows)
    return Geometry(source, (left, top, right, bottom), content, size)


def _share(length: int, up: int, down: int) -> int:
    """Rounds ``length * up / down``, halves upwards, to 1 at least."""
    return max(1, (2 * length * up + down) // (2 * down))
