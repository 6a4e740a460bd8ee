"""Where an image lies in the input, and the way back."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchmojo.errors import ShapeError
from torchmojo.vision import Geometry
from torchmojo.vision.geometry import place

SIZES = st.integers(1, 5000)


def blank(h, w, c=3):
    return np.full((h, w, c), 200, dtype=np.uint8)


def test_letterbox_in_whole_numbers(prepare):
    prepared = prepare(blank(417, 1001), 640, fit="letterbox", scale=1, pad=114)
    (geometry,) = prepared.geometry
    assert geometry.content == (0, 186, 640, 453)
    assert geometry.padding == (0, 186, 0, 187)
    assert geometry.scale == (267 / 417, 640 / 1001)
    box = torch.tensor([[0.0, 186, 640, 453], [320, 186, 640, 319.5]])
    back = geometry.back(box)
    assert back.tolist() == [[0, 0, 1001, 417], [500.5, 0, 1001, 208.5]]
    plane = prepared.tensor[0, 0]
    assert (plane[186:453] == 200).all()
    assert (plane[:186] == 114).all()
    assert (plane[453:] == 114).all()


def test_a_letterbox_keeps_a_row_at_least(prepare):
    prepared = prepare(blank(3, 4000), 640, fit="letterbox", scale=1)
    assert prepared.geometry[0].content == (0, 319, 640, 320)
    assert (prepared.tensor[0, :, 319] == 200).all()
    assert prepared.tensor.sum() == 3 * 640 * 200


@pytest.mark.parametrize(
    ("shape", "crop"),
    [
        ((100, 300), (100, 0, 200, 100)),
        ((301, 100), (0, 100, 100, 200)),
        ((2, 3), (0, 0, 2, 2)),
        ((1, 9), (4, 0, 5, 1)),
    ],
)
def test_crop_takes_the_middle(prepare, shape, crop):
    (geometry,) = prepare(blank(*shape), 64, fit="crop").geometry
    assert geometry.crop == crop
    assert geometry.content == (0, 0, 64, 64)
    assert geometry.padding == (0, 0, 0, 0)


def test_a_given_crop_comes_first(prepare):
    image = blank(50, 80)
    image[10:30, 20:60] = 7
    prepared = prepare(image, (10, 40), crop=(20, 10, 60, 30), fit="letterbox", scale=1)
    (geometry,) = prepared.geometry
    assert geometry.crop == (20, 10, 60, 30)
    assert geometry.content == (10, 0, 30, 10)
    assert geometry.back(np.array([10.0, 0, 30, 10])).tolist() == [20, 10, 60, 30]
    assert (prepared.tensor[0, :, :, 10:30] == 7).all()


@given(
    source=st.tuples(SIZES, SIZES),
    size=st.tuples(SIZES, SIZES),
    fit=st.sampled_from(["stretch", "letterbox", "crop"]),
    share=st.lists(st.floats(0, 1), min_size=8, max_size=8),
)
def test_back_is_the_inverse_of_forth(source, size, fit, share):
    geometry = place(source, None, size, fit)
    left, top, right, bottom = geometry.content
    assert 0 <= left < right <= size[1]
    assert 0 <= top < bottom <= size[0]
    left, top, right, bottom = geometry.crop
    assert 0 <= left < right <= source[1]
    assert 0 <= top < bottom <= source[0]
    corners = np.array([[left, top, right, bottom]])
    assert geometry.forth(corners).tolist() == [list(geometry.content)]
    assert geometry.back(geometry.forth(corners)).tolist() == corners.tolist()
    boxes = np.array(share).reshape(2, 4) * ([source[1], source[0]] * 2)
    again = geometry.back(geometry.forth(boxes))
    np.testing.assert_allclose(again, boxes, rtol=1e-12, atol=1e-9)


def test_boxes_points_and_landmarks_of_any_kind():
    geometry = Geometry((20, 40), (0, 0, 40, 20), (5, 0, 45, 20), (20, 50))
    points = torch.tensor([5, 1, 6, 2, 7, 3, 8, 4, 9, 5])
    assert geometry.back(points).tolist() == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert geometry.back(points).dtype == torch.float64
    for dtype in (torch.float16, torch.float32, torch.float64):
        boxes = torch.tensor([[5.0, 0, 45, 20]], dtype=dtype)
        before = boxes.clone()
        assert geometry.back(boxes).dtype == dtype
        assert torch.equal(boxes, before)
        assert geometry.back(boxes).tolist() == [[0, 0, 40, 20]]
    array = np.zeros((3, 2, 4), np.float32)
    assert geometry.back(array).dtype == np.float32
    assert geometry.back(array).shape == (3, 2, 4)
    assert geometry.back(torch.empty(0, 4)).shape == (0, 4)
    nan = geometry.back(torch.tensor([float("nan"), float("inf")]))
    assert nan.isnan().tolist() == [True, False]


@pytest.mark.parametrize("shape", [(), (3,), (2, 5)])
def test_pairs_only(shape):
    geometry = Geometry((1, 1), (0, 0, 1, 1), (0, 0, 1, 1), (1, 1))
    with pytest.raises(ShapeError, match="back: points: wanted pairs x y in the last axis, given"):
        geometry.back(torch.zeros(shape))
