"""Decoding against plain torch in float64: values, order, strides, dtypes, thresholds, empties."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import torchmojo
from torchmojo.errors import DTypeError, KernelError, ShapeError
from torchmojo.vision import decode_heatmap, decode_mtcnn, decode_ssd, decode_yolo

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
NAN = float("nan")
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def random(seed, *shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator, dtype=torch.float64).to(dtype)


def normal(seed, *shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def scattered(x):
    """Give the same numbers at odd strides, NaN between them."""
    order = list(range(x.ndim))[::-1]
    memory = torch.full([2 * n + 1 for n in reversed(x.shape)], NAN, dtype=x.dtype)
    view = memory.permute(order)[tuple(slice(1, None, 2) for _ in order)]
    view.copy_(x)
    return view


def box(centre, size):
    return torch.cat([centre - size / 2, centre + size / 2], 1)


def check(found, boxes, scores, classes, images, landmarks=None, *, like):
    """Compare detections; boxes are computed in float64, where Mojo's exp is right to 1e-11."""
    wide = torch.float64 if like.dtype == torch.float64 else torch.float32
    tolerance = {"rtol": 1e-10, "atol": 1e-10}
    if wide == torch.float32:
        tolerance = {"rtol": 1.2e-7, "atol": 1e-6}
    torch.testing.assert_close(found.boxes, boxes.to(wide), **tolerance)
    torch.testing.assert_close(found.scores, scores.to(wide), **tolerance)
    assert found.classes.dtype == found.images.dtype == torch.int64
    assert found.classes.tolist() == classes.tolist()
    assert found.images.tolist() == images.tolist()
    if landmarks is None:
        assert found.landmarks is None
    else:
        torch.testing.assert_close(found.landmarks, landmarks.to(wide), **tolerance)


# --- heat maps ----------------------------------------------------------------------------------


def heatmap_oracle(heatmap, scale, offset, landmarks, threshold, stride):
    b, c, y, x = (heatmap > threshold).nonzero().T
    size = scale.double()[b, :, y, x].exp().flip(1) * stride
    place = torch.stack([x, y], 1)
    centre = (offset.double()[b, :, y, x].flip(1) + place + 0.5) * stride
    boxes = box(centre, size)
    points = None
    if landmarks is not None:
        parts = landmarks.double()[b, :, y, x].unflatten(1, (-1, 2)).flip(2)
        points = boxes[:, None, :2] + parts * size[:, None]
    return boxes, heatmap.double()[b, c, y, x], c, b, points


@each_dtype
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 5, 7), (1, 2, 3, 64), (1, 1, 40, 101)])
@pytest.mark.parametrize("points", [None, 0, 5])
def test_heatmap(dtype, shape, points):
    b, _, h, w = shape
    heatmap = random(1, *shape, dtype=dtype)
    scale, offset = (normal(seed, b, 2, h, w, dtype=dtype) for seed in (2, 3))
    landmarks = None if points is None else normal(4, b, 2 * points, h, w, dtype=dtype)
    for threshold in (0.0, 0.9, float(heatmap.flatten()[0]), 1.0):
        wanted = heatmap_oracle(heatmap, scale, offset, landmarks, threshold, 4.0)
        given_ = [heatmap, scale, offset, landmarks]
        found = decode_heatmap(*given_, score_threshold=threshold)
        check(found, *wanted, like=heatmap)
        with torchmojo.no_copies():
            given_ = [x if x is None else scattered(x) for x in given_]
            found = decode_heatmap(*given_, score_threshold=threshold)
        check(found, *wanted, like=heatmap)


def test_heatmap_with_a_nan_score_and_another_stride():
    heatmap = torch.tensor([[[[NAN, 0.75]]]])
    zeros = torch.zeros(1, 2, 1, 2)
    found = decode_heatmap(heatmap, zeros, zeros, score_threshold=-1.0, stride=8.0)
    assert found.boxes.tolist() == [[8.0, 0.0, 16.0, 8.0]]


def test_scores_are_compared_as_in_torch():
    for dtype in DTYPES:
        heatmap = torch.tensor([[[[0.1]]]], dtype=dtype)
        zeros = torch.zeros(1, 2, 1, 1, dtype=dtype)
        assert not (heatmap > 0.1).any()
        assert len(decode_heatmap(heatmap, zeros, zeros, score_threshold=0.1).boxes) == 0


# --- anchors ------------------------------------------------------------------------------------


def ssd_oracle(regressions, scores, anchors, threshold, variances, exponential, logits):
    best, classes = scores.double().max(2)
    if logits:
        best = best.sigmoid()
    b, a = (best > threshold).nonzero().T
    r, anchors = regressions.double()[b, a], anchors.double()[a]
    size = r[:, 2:4] * variances[1]
    size = (size.exp() if exponential else size) * anchors[:, 2:]
    boxes = box(anchors[:, :2] + r[:, :2] * variances[0] * anchors[:, 2:], size)
    points = None
    if r.shape[1] > 4:
        shifts = r[:, 4:].unflatten(1, (-1, 2)) * variances[0]
        points = anchors[:, None, :2] + shifts * anchors[:, None, 2:]
    return boxes, best[b, a], classes[b, a], b, points


@each_dtype
@pytest.mark.parametrize("points", [0, 6])
@pytest.mark.parametrize("exponential", [False, True])
@pytest.mark.parametrize("logits", [False, True])
def test_ssd(dtype, points, exponential, logits):
    regressions = normal(1, 2, 37, 4 + 2 * points, dtype=dtype)
    scores = normal(2, 2, 37, 3, dtype=dtype)
    anchors = random(3, 37, 4, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    options = {"variances": (0.125, 0.25), "exponential": exponential, "logits": logits}
    wanted = ssd_oracle(regressions, scores, anchors, 0.5, **options)
    for change in (lambda x: x, scattered):
        with torchmojo.no_copies():
            given_ = [change(x) for x in (regressions, scores, anchors)]
            found = decode_ssd(*given_, score_threshold=0.5, **options)
        check(found, *wanted, like=regressions)


def test_ssd_prefers_the_lower_class_and_skips_nan():
    scores = torch.tensor([[[0.5, 0.75, 0.75], [NAN, 0.25, 0.5], [NAN, NAN, NAN]]])
    found = decode_ssd(torch.zeros(1, 3, 4), scores, torch.ones(3, 4), score_threshold=-1.0)
    assert found.classes.tolist() == [1, 2]
    none = decode_ssd(
        torch.zeros(2, 3, 4), torch.ones(2, 3, 0), torch.ones(3, 4), score_threshold=0
    )
    assert len(none.boxes) == 0


# --- rows ---------------------------------------------------------------------------------------


def yolo_oracle(predictions, threshold, objectness):
    wide = torch.float64 if predictions.dtype == torch.float64 else torch.float32
    first = 5 if objectness else 4
    p = predictions.to(wide)
    score = p[..., 4] if objectness else torch.ones_like(p[..., 0])
    classes = torch.zeros(p.shape[:2], dtype=torch.int64)
    if p.shape[2] > first:
        best, classes = p[..., first:].max(2)
        score = score * best
    b, a = (score > threshold).nonzero().T
    r = p.double()[b, a]
    return box(r[:, :2], r[:, 2:4]), score[b, a], classes[b, a], b


@each_dtype
@pytest.mark.parametrize(("columns", "objectness"), [(5, True), (6, True), (25, True), (5, False)])
def test_yolo(dtype, columns, objectness):
    predictions = random(5, 3, 71, columns, dtype=dtype)
    for threshold in (-1.0, 0.0, 0.25, 0.8125):
        wanted = yolo_oracle(predictions, threshold, objectness)
        for given_ in (predictions, scattered(predictions)):
            with torchmojo.no_copies():
                found = decode_yolo(given_, score_threshold=threshold, objectness=objectness)
            check(found, *wanted, like=predictions)


def test_yolo_as_channels_first():
    predictions = random(6, 2, 12, 50)
    found = decode_yolo(predictions.transpose(1, 2), score_threshold=0.5, objectness=False)
    wanted = yolo_oracle(predictions.transpose(1, 2).contiguous(), 0.5, False)
    check(found, *wanted, like=predictions)


def test_yolo_with_nan():
    rows = torch.tensor([[[1.0, 1, 2, 2, NAN, 1], [1, 1, 2, 2, 1, NAN], [NAN, 1, 2, 2, 1, 1]]])
    found = decode_yolo(rows, score_threshold=-1.0)
    assert found.scores.tolist() == [1.0]
    assert found.boxes[0].isnan().tolist() == [True, False, True, False]


# --- MTCNN --------------------------------------------------------------------------------------


@each_dtype
@given(seed=st.integers(0, 99), scale=st.sampled_from([1.0, 0.6, 0.709 * 0.6, 1 / 3]))
def test_mtcnn(dtype, seed, scale):
    probabilities = random(seed, 2, 5, 9, dtype=dtype)
    offsets = normal(seed, 2, 4, 5, 9, dtype=dtype)
    found, corrections = decode_mtcnn(
        scattered(probabilities), scattered(offsets), score_threshold=0.6, scale=scale
    )
    b, y, x = (probabilities > 0.6).nonzero().T
    corner = torch.stack([x, y], 1).double() * 2
    boxes = torch.cat([((corner + 1) / scale).floor(), ((corner + 12) / scale).floor()], 1)
    scores = probabilities.double()[b, y, x]
    check(found, boxes, scores, torch.zeros_like(b), b, like=probabilities)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    torch.testing.assert_close(corrections, offsets[b, :, y, x].to(wide), rtol=0, atol=0)


# --- nothing, and what is refused ---------------------------------------------------------------


@each_dtype
def test_nothing(dtype):
    def empty(*shape):
        return torch.empty(shape, dtype=dtype)

    wide = torch.float64 if dtype == torch.float64 else torch.float32
    anchors = torch.empty(0, 4)
    found = [
        decode_heatmap(
            empty(0, 1, 4, 4), empty(0, 2, 4, 4), empty(0, 2, 4, 4), score_threshold=0.5
        ),
        decode_heatmap(
            empty(1, 1, 0, 4), empty(1, 2, 0, 4), empty(1, 2, 0, 4), score_threshold=0.5
        ),
        decode_ssd(empty(1, 0, 16), empty(1, 0, 1), anchors, score_threshold=0.5),
        decode_yolo(empty(2, 0, 85), score_threshold=0.5),
        decode_mtcnn(empty(1, 0, 0), empty(1, 4, 0, 0), score_threshold=0.5)[0],
    ]
    for detections in found:
        assert (detections.boxes.shape, detections.boxes.dtype) == ((0, 4), wide)
        assert (detections.classes.shape, detections.classes.dtype) == ((0,), torch.int64)
    assert found[2].landmarks.shape == (0, 6, 2)


def refused(error, function, *args, **options):
    with pytest.raises(error) as caught:
        function(*args, **options)
    return str(caught.value)


def test_refusals():
    ones = torch.ones
    text = refused(KernelError, decode_yolo, ones(1, 2, 4), score_threshold=0.5)
    assert text == "decode_yolo: predictions: wanted 5 numbers a row or more, given 4"
    args = ones(1, 3, 5), ones(1, 3, 1), ones(3, 4)
    assert refused(KernelError, decode_ssd, *args, score_threshold=0.5) == (
        "decode_ssd: regressions: wanted 4 numbers an anchor and 2 a point, given 5"
    )
    maps = ones(1, 1, 2, 2), ones(1, 2, 2, 2), ones(1, 2, 2, 2), ones(1, 3, 2, 2)
    assert refused(KernelError, decode_heatmap, *maps, score_threshold=0.5) == (
        "decode_heatmap: landmarks: wanted two maps a point, given 3 maps"
    )
    assert refused(
        ShapeError, decode_heatmap, maps[0], ones(1, 2, 2, 3), maps[2], score_threshold=0.5
    ).startswith("decode_heatmap: scale: wanted")
    assert refused(DTypeError, decode_yolo, ones(1, 2, 7).int(), score_threshold=0.5).startswith(
        "decode_yolo: predictions: wanted"
    )
