"""Where the demo's picture comes from, and the file that it leaves behind."""

from __future__ import annotations

import hashlib
import importlib.metadata
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["Picture", "find_picture", "write_png"]

# A photograph of the astronaut Eileen Collins: NASA, public domain.
PACKAGE = "scikit-image"
FILE = "skimage/data/astronaut.png"
SHA256 = "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5"
VERSION = "0.26.0" if sys.version_info >= (3, 11) else "0.25.2"  # both hold the same file
INSTALL = f"pip install pillow && pip install --no-deps {PACKAGE}=={VERSION}"


class _AbsentError(Exception):
    """There is no photograph to show; the text says why."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture in torch's memory.

    Attributes:
        pixels: uint8 ``[h, w, 3]``, RGB.
        origin: What it is.
        note: Why it is not the photograph, and how to get that; empty where it is.
        path: The photograph's file.
    """

    pixels: torch.Tensor
    origin: str
    note: str = ""
    path: Path | None = None


def find_picture() -> Picture:
    """Read the photograph that scikit-image holds, or draw a test picture in its place.

    scikit-image itself is never imported: its file is found by the package's metadata, and read
    only if it has the sha256 that this module names.

    Returns:
        The photograph, or a drawing with a note on why.
    """
    try:
        path = _locate()
        return Picture(_decode(path), f"{path.name} of {PACKAGE}", path=path)
    except _AbsentError as error:
        note = f"{error}; for the photograph: {INSTALL}"
        return Picture(_draw(512), "a drawing", note)


def _locate() -> Path:
    """Return the photograph's path once its content is known to be the right one."""
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        raise _AbsentError(f"{PACKAGE} is not installed") from None
    paths = [Path(str(file.locate())) for file in files if file.as_posix().endswith(FILE)]
    if not paths or not paths[0].is_file():
        raise _AbsentError(f"the installed {PACKAGE} has no {FILE}")
    found = hashlib.sha256(paths[0].read_bytes()).hexdigest()
    if found != SHA256:
        raise _AbsentError(f"{paths[0]} has sha256 {found}, not {SHA256}")
    return paths[0]


def _decode(path: Path) -> torch.Tensor:
    """Decode a picture with Pillow into memory that torch owns."""
    import torch

    try:
        from PIL import Image
    except ImportError:
        raise _AbsentError("Pillow is not installed") from None
    with Image.open(path) as file:
        image = file.convert("RGB")
    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    return pixels.reshape(image.height, image.width, 3)


def _draw(size: int) -> torch.Tensor:
    """Draw rings on a chequered ramp of colours: smooth parts, corners and curves."""
    import torch

    across = torch.linspace(0, 1, size).expand(size, size)
    down = across.T
    rings = torch.hypot(across - 0.6, down - 0.4).mul(40).sin().gt(0.3)
    squares = (across * 8).floor().add((down * 8).floor()).remainder(2).bool()
    red = torch.where(squares, across, 0.2)
    green = torch.where(rings, 0.9, down)
    blue = torch.where(squares ^ rings, 1 - across, 0.4)
    return torch.stack((red, green, blue), dim=2).mul(255).round().to(torch.uint8)


def write_png(path: Path, gray: torch.Tensor) -> None:
    """Write a gray PNG.

    Args:
        path: File to write; its folder is made where it does not exist.
        gray: Picture ``[h, w]``, 0 (black) to 1 (white); what is outside is clipped.

    Raises:
        ImportError: Pillow is not installed; the text says how to get it.
    """
    import torch

    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            f"demo: writing a picture needs Pillow: pip install pillow ({error})"
        ) from None
    levels = gray.clamp(0, 1).mul(255).round().to(torch.uint8).contiguous()
    height, width = levels.shape
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.frombytes("L", (width, height), bytes(levels.flatten().tolist())).save(path)
