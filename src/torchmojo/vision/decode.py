"""Files, Pillow images and arrays, all turned into bytes ``[h, w, c]`` by the same rules.

==================  ==========================================================================
what                becomes
==================  ==========================================================================
EXIF orientation    the upright image; boxes are in its frame
palette             its colours
alpha               ignored: the colours under it count, as in ``Image.convert("RGB")``
gray                one channel, which serves for all channels of the model
16 bits             ``round(value / 257)``, so that 65535 is 255; Pillow itself takes the high
                    byte of 16-bit colour files
CMYK, YCbCr, LAB    Pillow's RGB
1 bit               0 and 255
32 bits, float      refused, unless the values are those of 16 bits
more frames         the first
EPS                 refused: Pillow would have Ghostscript run it
==================  ==========================================================================
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchmojo.errors import ArgumentError, DTypeError, ImageError, ShapeError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL import Image

__all__ = ["is_image", "pixels"]

_ORIENTATION = 0x0112


def is_image(thing: object) -> bool:
    """Tells whether an object is one image rather than several.

    Args:
        thing: What ``prepare`` was given.
    """
    return isinstance(thing, (str, os.PathLike)) or _is_pillow(thing) or _axes(thing) in (2, 3)


def _is_pillow(thing: object) -> bool:
    return hasattr(thing, "getexif") and hasattr(thing, "mode")


def _axes(thing: object) -> int | None:
    return getattr(thing, "ndim", None)


def pixels(image: Any, name: str, source: str, channels: str) -> tuple[Any, str]:
    """Gives the bytes of an image, without a copy where they lie in memory already.

    Args:
        image: Path, Pillow image, or array or tensor of uint8 or uint16.
        name: What to call it in messages.
        source: Channel order of arrays: rgb, bgr, gray or rgba.
        channels: ``last`` or ``first``, of arrays with three axes.

    Returns:
        Array or tensor ``[h, w, c]`` of uint8 with 1, 3 or 4 channels, and the order of the colours
        in it: gray, rgb or bgr.

    Raises:
        ArgumentError: It is no image.
        DTypeError: Its dtype is neither uint8 nor uint16.
        ShapeError: It has other axes or channels.
        ImageError: A file is damaged, hostile or of no known format.
        FileNotFoundError: There is no such file.
        ImportError: Pillow is not installed.
    """
    if isinstance(image, (str, os.PathLike)):
        image = _open(Path(image), name)
        source, channels = "rgb", "last"
    elif _is_pillow(image):
        image = _guarded(image, name, "a Pillow image")
        source, channels = "rgb", "last"
    elif _axes(image) is None or not hasattr(image, "dtype"):
        raise ArgumentError(
            f"prepare: {name}: wanted an array, a tensor, a Pillow image or a path, "
            f"given {type(image).__name__}"
        )
    if image.ndim == 2:
        image = image[:, :, None]
    elif image.ndim != 3:
        raise ShapeError(
            f"prepare: {name}: wanted 2 or 3 axes, given {image.ndim}: {tuple(image.shape)}"
        )
    elif channels == "first":
        image = image.transpose(1, 2, 0) if _is_array(image) else image.permute(1, 2, 0)
    return _checked(_bytes(image, name), name, source, channels)


def _is_array(image: Any) -> bool:
    return not hasattr(image, "permute")


def _checked(image: Any, name: str, source: str, channels: str) -> tuple[Any, str]:
    """Compares the channels with what the caller says of them."""
    count = image.shape[2]
    wanted = {"gray": (1,), "rgba": (4,)}.get(source, (1, 3, 4))
    if count not in wanted:
        other = "last" if channels == "first" else "first"
        counts = " or ".join(map(str, wanted))
        raise ShapeError(
            f"prepare: {name}: wanted {counts} channels ({source}, channels {channels}), given "
            f'{count}; pass channels="{other}" if they lie elsewhere, or another source'
        )
    if 0 in image.shape:
        raise ShapeError(f"prepare: {name}: wanted pixels, given {tuple(image.shape)}")
    if count == 1:
        return image, "gray"
    order = "bgr" if source == "bgr" else "rgb"
    if count == 3 and _is_array(image) and image.strides[2] == -1:
        # array[..., ::-1]: as it lies, pixels are packed.
        return image[..., ::-1], order[::-1]
    return image, order


def _bytes(image: Any, name: str) -> Any:
    """Brings 16 bits to 8."""
    dtype = str(image.dtype).removeprefix("torch.")
    if dtype in ("uint8", "|u1"):
        return image
    if dtype not in ("uint16", ">u2", "<u2"):
        raise DTypeError(
            f"prepare: {name}: wanted uint8 or uint16, given {dtype}; "
            "bring the values to 0..255 and convert them"
        )
    if _is_array(image):
        return ((image.astype("uint32") * 255 + 32767) // 65535).astype("uint8")
    import torch

    return ((image.to(torch.int32) * 255 + 32767) // 65535).to(torch.uint8)


def _open(path: Path, name: str) -> NDArray[Any]:
    """Reads a file by Pillow."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            f'prepare: {name}: a file needs Pillow: pip install "torchmojo[vision]" ({error})'
        ) from None
    with path.open("rb") as file:  # a missing file or a folder is the system's own error
        try:
            opened = Image.open(file)
        except Image.UnidentifiedImageError:
            raise ImageError(
                f"prepare: {name}: wanted an image that Pillow reads, given {path}: unknown format"
            ) from None
        except _problems() as error:
            raise _damaged(name, str(path), error) from error
        if opened.format == "EPS":
            raise ImageError(
                f"prepare: {name}: wanted pixels, given {path}: EPS is a program, which Pillow "
                "would have Ghostscript run; convert it first"
            )
        with opened:
            return _guarded(opened, name, str(path))


def _guarded(image: Image.Image, name: str, what: str) -> NDArray[Any]:
    try:
        return _decode(image, name, what)
    except ImageError:
        raise
    except _problems() as error:
        raise _damaged(name, what, error) from error


def _problems() -> tuple[type[Exception], ...]:
    """What Pillow's readers raise on files that are not what they say."""
    import struct

    from PIL import Image

    return (
        OSError,
        SyntaxError,
        ValueError,
        EOFError,
        IndexError,
        KeyError,
        TypeError,
        OverflowError,
        struct.error,
        Image.DecompressionBombError,
    )


def _damaged(name: str, what: str, error: Exception) -> ImageError:
    return ImageError(
        f"prepare: {name}: wanted a whole image, given {what}: "
        f"{type(error).__name__}: {str(error).rstrip('.')}"
    )


def _decode(image: Image.Image, name: str, what: str) -> NDArray[Any]:
    """Turns a Pillow image into an array of one of the kinds that arrays have too."""
    import numpy as np
    from PIL import ImageOps

    if image.getexif().get(_ORIENTATION, 1) != 1:
        image = ImageOps.exif_transpose(image)
    mode = image.mode
    if mode in ("L", "RGB", "RGBA", "RGBX") or mode.startswith("I;16"):
        return np.asarray(image)
    if mode == "I":
        wide = np.asarray(image)
        if wide.size and wide.min() >= 0 and wide.max() <= 65535:
            return wide.astype("uint16")
    if mode in ("I", "F"):
        raise ImageError(
            f"prepare: {name}: wanted 8 or 16 bits a channel, given {what} of mode {mode}; "
            "bring the values to 0..255 and pass an array"
        )
    if mode in ("1", "LA", "La"):
        return np.asarray(image.convert("L" if mode != "La" else "LA").convert("L"))
    if mode in ("P", "PA", "RGBa"):
        return np.asarray(image.convert("RGBA"))
    return np.asarray(image.convert("RGB"))
