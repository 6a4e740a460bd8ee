"""Real detectors' outputs on photographs: CenterFace and MTCNN, with results known to be right."""

import pytest
import torch
import torch.nn.functional as F

from benchmarks import _centerface as centerface
from torchmojo.vision import decode_heatmap, decode_mtcnn, nms
from torchmojo.vision.ready.centerface import WEIGHTS

from . import oracle

PNET_SHA256 = "a2a71925e0b9996a42f63e47efc1ca19043e69558b5c523b978d611dfae49c8f"


@pytest.fixture(scope="module")
def network(asset):
    pytest.importorskip("onnx", reason="onnx reads the weights")
    pytest.importorskip("PIL", reason="Pillow reads the pictures")
    asset(WEIGHTS.package, WEIGHTS.file, WEIGHTS.sha256)
    return centerface.load()


def detect(network, image, score_threshold):
    maps = network(centerface.prepare(image))
    return decode_heatmap(*maps, score_threshold=score_threshold)


def test_the_face_of_the_astronaut(network, astronaut):
    from PIL import Image

    with Image.open(astronaut) as image:
        found = detect(network, image, 0.5)
    assert len(found.boxes) == 16
    keep = nms(found.boxes, found.scores, 0.3)
    assert keep.tolist() == oracle.nms(found.boxes, found.scores, 0.3).tolist()
    wanted = torch.tensor([[181.5, 58.2, 269.9, 177.8]])
    torch.testing.assert_close(found.boxes[keep], wanted, rtol=0, atol=0.5)
    torch.testing.assert_close(found.scores[keep], torch.tensor([0.9291]), rtol=0, atol=1e-3)
    # Eyes, nose and corners of the mouth, as MTCNN sees them.
    points = torch.tensor(
        [[205.0, 101.7], [246.8, 103.7], [224.7, 129], [201.7, 139.2], [245, 142]]
    )
    torch.testing.assert_close(found.landmarks[keep][0], points, rtol=0, atol=5.0)


@pytest.mark.slow
def test_a_hundred_faces(network):
    found = detect(network, centerface.mosaic(), 0.05)
    assert len(found.boxes) == 6342
    for threshold, count in ((0.3, 109), (0.5, 125), (0.7, 636)):
        keep = nms(found.boxes, found.scores, threshold)
        assert len(keep) == count
        assert keep.tolist() == oracle.nms(found.boxes, found.scores, threshold).tolist()


# --- MTCNN's first net, on a pyramid of pictures: counts of facenet_pytorch.MTCNN itself ----------


class FirstNet(torch.nn.Module):
    """P-Net, as facenet-pytorch's weights have it."""

    def __init__(self, path):
        super().__init__()
        self.conv1, self.prelu1 = torch.nn.Conv2d(3, 10, 3), torch.nn.PReLU(10)
        self.conv2, self.prelu2 = torch.nn.Conv2d(10, 16, 3), torch.nn.PReLU(16)
        self.conv3, self.prelu3 = torch.nn.Conv2d(16, 32, 3), torch.nn.PReLU(32)
        self.conv4_1, self.conv4_2 = torch.nn.Conv2d(32, 2, 1), torch.nn.Conv2d(32, 4, 1)
        self.load_state_dict(torch.load(path, weights_only=True))

    @torch.no_grad()
    def forward(self, x):
        x = F.max_pool2d(self.prelu1(self.conv1(x)), 2, 2, ceil_mode=True)
        x = self.prelu3(self.conv3(self.prelu2(self.conv2(x))))
        return self.conv4_1(x).softmax(1)[:, 1], self.conv4_2(x)


def test_windows_of_mtcnn(asset, astronaut):
    image = pytest.importorskip("PIL.Image", reason="Pillow reads the picture")
    net = FirstNet(asset("facenet-pytorch", "data/pnet.pt", PNET_SHA256))
    with image.open(astronaut) as file:
        pixels = torch.frombuffer(bytearray(file.convert("RGB").tobytes()), dtype=torch.uint8)
    pixels = pixels.view(1, 512, 512, 3).permute(0, 3, 1, 2).float()
    scale, count = 12 / 20, 0
    while 512 * scale >= 12:
        small = F.interpolate(pixels, size=(int(512 * scale + 1),) * 2, mode="area")
        maps = net((small - 127.5) / 128)
        found, _ = decode_mtcnn(*maps, score_threshold=0.6, scale=scale)
        keep = nms(found.boxes, found.scores, 0.5)
        assert keep.tolist() == oracle.nms(found.boxes, found.scores, 0.5).tolist()
        count += len(found.boxes)
        scale *= 0.709
    assert count == 299
