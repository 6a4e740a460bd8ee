"""Images to a model's input: crop, resize, colours, levels, layout and dtype in one pass."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torchmojo.bridge.refuse.extent import extent_of
from torchmojo.bridge.refuse.facts import show
from torchmojo.bridge.refuse.overlap import overlap_each_other, overlaps_itself
from torchmojo.errors import AliasError, ArgumentError, DTypeError, ShapeError
from torchmojo.library import load
from torchmojo.vision.decode import is_image, pixels
from torchmojo.vision.geometry import Geometry, place
from torchmojo.vision.levels import Levels, planes

__all__ = ["Prepared", "prepare"]

_SOURCE = Path(__file__).with_name("kernels") / "prepare" / "prepare.mojo"
_MODES = {"nearest": 0, "bilinear": 1, "area": 3}
_ANTIALIAS = 2
_DTYPES = {
    torch.uint8: "uint8",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
}
_CHOICES = {
    "resize": tuple(_MODES),
    "fit": ("stretch", "letterbox", "crop"),
    "order": ("rgb", "bgr", "gray"),
    "source": ("rgb", "bgr", "gray", "rgba"),
    "channels": ("last", "first"),
    "layout": ("nchw", "nhwc"),
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """Images as a model takes them.

    Attributes:
        tensor: The model's input ``[n, c, h, w]`` or ``[n, h, w, c]``; the ``out`` that was given.
        geometry: For each image, where it lies in the input.
    """

    tensor: torch.Tensor
    geometry: list[Geometry]


def prepare(
    images: Any,
    size: int | tuple[int, int],
    *,
    resize: str = "bilinear",
    antialias: bool = False,
    fit: str = "stretch",
    crop: Any = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    scale: float | Sequence[float] | None = None,
    order: str = "rgb",
    source: str = "rgb",
    channels: str = "last",
    layout: str = "nchw",
    dtype: torch.dtype | None = None,
    pad: float | Sequence[float] = 0.0,
    out: torch.Tensor | None = None,
) -> Prepared:
    """Makes a model's input of images, in one pass over memory.

    Each value is ``(level * scale - mean) / std``, where a level is 0 to 255.

    Args:
        images: One image or a list of them, of any sizes: uint8 arrays or tensors ``[h, w, c]``,
            ``[c, h, w]`` or ``[h, w]`` with any strides, which are not copied; Pillow images; paths
            of files. Four axes are several images. See ``torchmojo.vision.decode`` for alpha,
            palettes, 16 bits and the orientation of photographs.
        size: Height and width of the input, or both as one number.
        resize: ``bilinear`` (``interpolate`` of torch with ``align_corners=False``), ``nearest``
            (its ``nearest-exact``) or ``area`` (its ``area``).
        antialias: For ``bilinear``: reads all pixels where it shrinks, as torch's and Pillow's.
        fit: ``stretch``; ``letterbox`` keeps the aspect and pads on both sides alike; ``crop``
            keeps the aspect and takes the largest rectangle in the middle.
        crop: Left, top, right and bottom of what is taken from the image, whole numbers; or one
            such for each image. The pixels outside do not count.
        mean: Number, or one for each channel of the model.
        std: Number, or one for each channel of the model.
        scale: Number, or one for each channel; by default 1/255, and 1 for uint8.
        order: The model's channels: ``rgb``, ``bgr`` or ``gray`` (Rec. 601).
        source: The channels of arrays: ``rgb``, ``bgr``, ``gray`` or ``rgba``. Under ``rgb`` and
            ``bgr``, one channel is gray and a fourth is alpha. Files and Pillow images say their
            own.
        channels: ``last`` or ``first``: where arrays of three axes have them.
        layout: ``nchw`` or ``nhwc``.
        dtype: uint8, float16, bfloat16 or float32; by default that of ``out``, else float32. A
            uint8 is rounded once, to the nearest, halves to even, and limited to 0..255.
        pad: Level of what a letterbox leaves, 0 to 255, treated as a pixel of it would be.
        out: Tensor to write into, of the right sizes, dtype and layout, with any strides.

    Returns:
        The tensor, and the geometry of each image.

    Raises:
        ArgumentError: An argument is none of the choices, or no image.
        ShapeError: Sizes, axes or channels do not fit.
        DTypeError: An image or the output has another dtype.
        AliasError: The output shares memory with an image, or with itself.
        ImageError: A file is damaged, hostile or of no known format.

    Example:
        >>> import torch
        >>> from torchmojo.vision import prepare
        >>> photo = torch.zeros(480, 640, 3, dtype=torch.uint8)
        >>> prepared = prepare(photo, 320, fit="letterbox", pad=114)
        >>> prepared.tensor.shape, prepared.geometry[0].padding
        (torch.Size([1, 3, 320, 320]), (0, 40, 0, 40))
    """
    given = {"resize": resize, "fit": fit, "order": order, "source": source}
    for name, value in {**given, "channels": channels, "layout": layout}.items():
        if value not in _CHOICES[name]:
            wanted = ", ".join(_CHOICES[name])
            raise ArgumentError(f"prepare: {name}: wanted one of {wanted}, given {value!r}")
    if antialias and resize != "bilinear":
        raise ArgumentError(
            f"prepare: antialias: wanted resize bilinear, given {resize}; area needs none"
        )
    mode = _ANTIALIAS if antialias else _MODES[resize]
    height, width = _size(size)
    count = 1 if order == "gray" else 3
    dtype = _dtype(dtype, out)
    if scale is None:
        scale = 1.0 if dtype == torch.uint8 else 1 / 255
    levels = Levels.of(count, mean, std, scale, pad)
    batch, names = _batch(images)
    crops = _crops(crop, len(batch))
    tensor = _output(out, (len(batch), count, height, width), layout, dtype)
    if out is not None:
        _stand_apart(out, batch, names)
    pictures = tensor if layout == "nchw" else tensor.permute(0, 3, 1, 2)
    kernel = _kernel(dtype)
    geometries = []
    for picture, image, name, rectangle in zip(pictures, batch, names, crops, strict=True):
        found, colours = pixels(image, name, source, channels)
        whole = tuple(found.shape[:2])
        geometry = place(whole, _inside(rectangle, whole, name), (height, width), fit)
        left, top, right, bottom = geometry.crop
        x0, y0, x1, y1 = geometry.content
        kernel(
            picture,
            found[top:bottom, left:right],
            mode,
            y0,
            x0,
            y1 - y0,
            x1 - x0,
            planes(colours, order),
            levels.factor,
            levels.shift,
            levels.fill,
        )
        geometries.append(geometry)
    return Prepared(tensor, geometries)


@functools.cache
def _kernel(dtype: torch.dtype) -> Any:
    """Compiles or opens the kernel of one output dtype, when it is first asked for."""
    return load(_SOURCE, dtypes=[_DTYPES[dtype]])["prepare"]


def _size(size: Any) -> tuple[int, int]:
    """Reads height and width."""
    try:
        both = tuple(map(operator.index, size if isinstance(size, Sequence) else (size, size)))
    except TypeError:
        both = ()
    if len(both) != 2 or min(both) < 1:
        raise ArgumentError(
            f"prepare: size: wanted a height and a width of 1 or more, given {size!r}"
        )
    return (both[0], both[1])


def _dtype(dtype: torch.dtype | None, out: torch.Tensor | None) -> torch.dtype:
    """Chooses the dtype of the output."""
    if out is not None and not isinstance(out, torch.Tensor):
        raise ArgumentError(f"prepare: out: wanted a torch tensor, given {type(out).__name__}")
    if dtype is None:
        dtype = torch.float32 if out is None else out.dtype
    if dtype not in _DTYPES:
        raise DTypeError(
            f"prepare: dtype: wanted one of {', '.join(_DTYPES.values())}, given {dtype}"
        )
    if out is not None and out.dtype != dtype:
        raise DTypeError(f"prepare: out: wanted {_DTYPES[dtype]}, given {out.dtype}")
    return dtype


def _output(
    out: torch.Tensor | None, shape: tuple[int, int, int, int], layout: str, dtype: torch.dtype
) -> torch.Tensor:
    """Makes the output, or checks the one that was given."""
    n, c, h, w = shape
    wanted = (n, c, h, w) if layout == "nchw" else (n, h, w, c)
    if out is None:
        return torch.empty(wanted, dtype=dtype)
    if tuple(out.shape) != wanted:
        raise ShapeError(f"prepare: out: wanted {wanted} ({layout}), given {tuple(out.shape)}")
    return out


def _stand_apart(out: torch.Tensor, images: list[Any], names: list[str]) -> None:
    """Refuses an output that an image lies in: writing the first would change the second."""
    if overlaps_itself(out.shape, out.stride()):
        raise AliasError(
            f"prepare: out: wanted memory of its own for each number, given {show(out)}; give one "
            "that is not expanded"
        )
    whole = extent_of(out)
    for image, name in zip(images, names, strict=True):
        # Files and Pillow images are decoded into memory of their own.
        given = extent_of(image) if hasattr(image, "dtype") else None
        if whole is not None and given is not None and overlap_each_other(whole, given):
            raise AliasError(
                f"prepare: out: wanted memory apart from {name}, given {show(out)} over it; give "
                "another"
            )


def _batch(images: Any) -> tuple[list[Any], list[str]]:
    """Lists the images, and what to call each in messages."""
    if is_image(images):
        return [images], ["images"]
    if not isinstance(images, (list, tuple)) and getattr(images, "ndim", None) != 4:
        raise ArgumentError(
            "prepare: images: wanted an image or a list of images, given "
            f"{type(images).__name__}; an image is an array, a tensor, a Pillow image or a path"
        )
    batch = list(images)
    return batch, [f"images[{i}]" for i in range(len(batch))]


def _crops(crop: Any, count: int) -> list[Any]:
    """Gives one crop for each image."""
    if crop is None:
        return [None] * count
    if hasattr(crop, "tolist"):
        crop = crop.tolist()
    if not isinstance(crop, Sequence):
        raise ArgumentError(f"prepare: crop: wanted left, top, right and bottom, given {crop!r}")
    if len(crop) == 4 and not isinstance(crop[0], Sequence):
        return [crop] * count
    if len(crop) != count:
        raise ShapeError(f"prepare: crop: wanted one, or {count}, given {len(crop)}")
    return list(crop)


def _inside(crop: Any, whole: tuple[int, ...], name: str) -> tuple[int, int, int, int] | None:
    """Checks that a crop lies inside its image."""
    if crop is None:
        return None
    try:
        left, top, right, bottom = map(operator.index, crop)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"prepare: crop: wanted left, top, right and bottom as whole numbers, given {crop!r}"
        ) from None
    if not (0 <= left < right <= whole[1] and 0 <= top < bottom <= whole[0]):
        raise ShapeError(
            f"prepare: crop: wanted a rectangle inside {name}, {whole[0]} x {whole[1]}, "
            f"given {(left, top, right, bottom)}"
        )
    return (left, top, right, bottom)
