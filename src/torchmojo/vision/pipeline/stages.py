"""The stages that ready pipelines are made of: prepare, run a model, decide."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchmojo.errors import ArgumentError, ShapeError
from torchmojo.vision.detections import Detections, decode_heatmap
from torchmojo.vision.pipeline.record import Classes
from torchmojo.vision.prepare import Prepared, prepare
from torchmojo.vision.suppress import batched_nms

if TYPE_CHECKING:
    import torch

    from torchmojo.vision.geometry import Geometry

__all__ = ["HeatMaps", "Prepare", "TopClasses", "as_model", "multiple_of", "short_side", "suppress"]

_MOST_PIXELS = 1 << 26
"""An image of one row is made as high as a model asks for, and as wide as that makes it."""

Sizes = Callable[[int, int], tuple[int, int]]


class Prepare:
    """The stage before a model: `torchmojo.vision.prepare` with its settings.

    Attributes:
        size: Height and width of the input, both as one number, or a function that gives them of
            those of the image.
        centre: Height and width of the middle that is cut out of that, or None for all of it.
        channels_last: Whether the channels of a pixel lie together in memory, which torch's
            convolutions on CPUs are fastest with; the shape is the same. For prepared models only
            if their example was so.
        options: The other settings of ``prepare``.

    Example:
        >>> import torch
        >>> from torchmojo.vision import Prepare
        >>> stage = Prepare(64, fit="letterbox", scale=1.0)
        >>> stage([torch.zeros(30, 40, 3, dtype=torch.uint8)]).tensor.shape
        torch.Size([1, 3, 64, 64])
    """

    def __init__(
        self,
        size: int | tuple[int, int] | Sizes,
        *,
        centre: int | None = None,
        channels_last: bool = False,
        **options: Any,
    ) -> None:
        """Keeps the settings.

        Args:
            size: See the attribute.
            centre: See the attribute.
            channels_last: See the attribute.
            **options: Of ``prepare``, all but ``out``.
        """
        self.size = size
        self.centre = centre
        self.channels_last = channels_last
        self.options: Mapping[str, Any] = options

    def size_for(self, height: int, width: int) -> tuple[int, int]:
        """Gives height and width of the input of an image; images of one batch have the same.

        Args:
            height: Of the image.
            width: Of the image.
        """
        if callable(self.size):
            return self.size(height, width)
        return self.size if isinstance(self.size, tuple) else (self.size, self.size)

    def memory_for(self, count: int, height: int, width: int, memory: Any = None) -> torch.Tensor:
        """Gives an input to write into.

        Args:
            count: Images.
            height: Of the input, as ``size_for`` gives it.
            width: Of the input.
            memory: Flat tensor to take it from; one that is too short, or None, is left aside.
        """
        import torch

        if height * width > _MOST_PIXELS:
            raise ShapeError(
                f"Prepare: size: wanted an input of at most {_MOST_PIXELS} pixels, given "
                f"{height} x {width}; crop the image first"
            )
        channels = 1 if self.options.get("order") == "gray" else 3
        dtype = self.options.get("dtype") or torch.float32
        needed = count * channels * height * width
        if memory is None or len(memory) < needed or memory.dtype != dtype:
            memory = torch.empty(needed, dtype=dtype)
        flat = memory[:needed]
        last = self.options.get("layout", "nchw") == "nhwc"
        if last or self.channels_last:
            pixels = flat.view(count, height, width, channels)
            return pixels if last else pixels.permute(0, 3, 1, 2)
        return flat.view(count, channels, height, width)

    def __call__(self, images: Sequence[Any], out: torch.Tensor | None = None) -> Prepared:
        """Prepares images that ``size_for`` gives one size for.

        Args:
            images: As for ``prepare``.
            out: Where to, as ``memory_for`` gives it.
        """
        size = self.size_for(*height_and_width(images[0], self.options))
        if out is None:
            out = self.memory_for(len(images), *size)
        made = prepare(list(images), size, out=out, **self.options)
        return made if self.centre is None else self._cut(made, self.centre)

    def _cut(self, made: Prepared, side: int) -> Prepared:
        """Takes the middle as a view."""
        high, wide = made.geometry[0].size
        if side > min(high, wide):
            raise ArgumentError(
                f"Prepare: centre: wanted at most {min(high, wide)}, the shorter side of the input "
                f"of {high} x {wide}, given {side}"
            )
        top, left = round((high - side) / 2), round((wide - side) / 2)
        rows, columns = slice(top, top + side), slice(left, left + side)
        last = self.options.get("layout", "nchw") == "nhwc"
        tensor = made.tensor[:, rows, columns] if last else made.tensor[..., rows, columns]
        return Prepared(tensor, [_shifted(place, left, top, side) for place in made.geometry])


def _shifted(place: Geometry, left: int, top: int, side: int) -> Geometry:
    x0, y0, x1, y1 = place.content
    return replace(place, content=(x0 - left, y0 - top, x1 - left, y1 - top), size=(side, side))


def height_and_width(image: Any, options: Mapping[str, Any]) -> tuple[int, int]:
    """Gives the size of an array or tensor.

    Args:
        image: ``[h, w]``, ``[h, w, c]`` or ``[c, h, w]``.
        options: Those of ``prepare``, which say where the channels are.
    """
    first = len(image.shape) == 3 and options.get("channels", "last") == "first"
    height, width = image.shape[1:3] if first else image.shape[:2]
    return int(height), int(width)


def multiple_of(step: int) -> Sizes:
    """Gives a size that makes images no smaller, and a multiple of a number.

    Args:
        step: The number.

    Example:
        >>> from torchmojo.vision import multiple_of
        >>> multiple_of(32)(600, 512)
        (608, 512)
    """
    return _Multiple(step)


def short_side(length: int) -> Sizes:
    """Gives a size that keeps the aspect, and whose shorter side has a length.

    Args:
        length: Of the shorter side.

    Example:
        >>> from torchmojo.vision import short_side
        >>> short_side(256)(300, 451)
        (256, 385)
    """
    return _Short(length)


# Classes and no closures: a pipeline goes to other processes.
@dataclass(frozen=True, slots=True)
class _Multiple:
    step: int

    def __call__(self, height: int, width: int) -> tuple[int, int]:
        step = self.step
        return (math.ceil(height / step) * step, math.ceil(width / step) * step)


@dataclass(frozen=True, slots=True)
class _Short:
    length: int

    def __call__(self, height: int, width: int) -> tuple[int, int]:
        least = min(height, width)
        return (round(self.length * height / least), round(self.length * width / least))


def as_model(model: Any) -> Callable[[Any], Any]:
    """Gives what runs a model: itself, or a prepared folder opened.

    Args:
        model: Module, prepared model, path of a prepared model, or any callable.

    Raises:
        ArgumentError: It is none of these.
        ModelError: The folder cannot be used.
    """
    if isinstance(model, (str, Path)):
        from torchmojo.models.model import Model

        return Model(model)
    if not callable(model):
        raise ArgumentError(
            "Pipeline: model: wanted a module, a prepared model or its folder, or a callable, "
            f"given {type(model).__name__}"
        )
    return model  # type: ignore[no-any-return]


def suppress(found: Detections, iou: float) -> Detections:
    """Keeps the best of overlapping boxes, within pictures and classes.

    Args:
        found: What a decoder gave.
        iou: Above it, the lesser of two boxes is dropped.
    """
    import torch

    groups = torch.stack((found.images, found.classes), 1)
    kept = batched_nms(found.boxes, found.scores, groups, iou)
    return Detections(*(None if part is None else part[kept] for part in found))


@dataclass(frozen=True, slots=True)
class HeatMaps:
    """Decides for CenterFace and its like: reads heat maps, and drops lesser boxes that overlap.

    Attributes:
        threshold: What a score must exceed.
        iou: Above it, the lesser of two boxes is dropped.
        stride: Pixels of a cell.
    """

    threshold: float = 0.5
    iou: float = 0.3
    stride: float = 4.0

    def __call__(self, outputs: Sequence[torch.Tensor]) -> Detections:
        """Decides.

        Args:
            outputs: Heat map ``[b, c, h, w]``, scale, offset and perhaps landmarks.
        """
        found = decode_heatmap(*outputs[:4], score_threshold=self.threshold, stride=self.stride)
        return suppress(found, self.iou)


@dataclass(frozen=True, slots=True)
class TopClasses:
    """Decides for a classifier: the likeliest classes.

    Attributes:
        top: How many.
        threshold: Which share a class must exceed.
    """

    top: int = 5
    threshold: float = 0.0

    def __call__(self, outputs: torch.Tensor) -> Classes:
        """Decides.

        Args:
            outputs: Logits ``[b, c]``.
        """
        import torch

        shares, classes = outputs.softmax(1).topk(min(self.top, outputs.shape[1]), dim=1)
        images = torch.arange(len(outputs))[:, None].expand_as(classes)
        kept = shares > self.threshold
        return Classes(shares[kept], classes[kept], images[kept])
