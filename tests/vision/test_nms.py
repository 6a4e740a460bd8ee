"""Greedy suppression against a plain loop: content and order, dtypes, strides, and odd boxes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import torchmojo
from torchmojo.errors import ArgumentError, DTypeError, KernelError, ShapeError
from torchmojo.vision import batched_nms, nms

from . import oracle

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
NAN, INF = float("nan"), float("inf")


def make(n, seed, spread=100.0, low=1.0, high=30.0, dtype=torch.float32):
    """Make boxes all over a square."""
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(n, 2, generator=generator, dtype=torch.float64) * spread
    size = torch.rand(n, 2, generator=generator, dtype=torch.float64) * (high - low) + low
    boxes = torch.cat([corner, corner + size], 1)
    return boxes.to(dtype), torch.rand(n, generator=generator).to(dtype)


def check(boxes, scores, threshold, **options):
    """Compare with the loop; give what was kept."""
    keep = nms(boxes, scores, threshold, **options)
    assert keep.dtype == torch.int64
    assert keep.tolist() == oracle.nms(boxes, scores, threshold, **options).tolist()
    return keep


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [0, 1, 2, 7, 16, 17, 48, 49, 63, 257, 2500])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.5, 0.7])
def test_equals_the_loop(dtype, n, threshold):
    check(*make(n, n, dtype=dtype), threshold)


# --- every kind of geometry, where the grid could miss a pair -----------------------------------


def uneven(n, rng):
    """Sides from 0.01 to 1000, side by side and inside one another."""
    size = 10 ** rng.uniform(-2, 3, (n, 2))
    corner = rng.uniform(-500, 500, (n, 2)) * rng.choice([1, 0.01], (n, 1))
    return np.concatenate([corner, corner + size], 1)


def clusters(n, rng):
    """Small variations of a few boxes."""
    centres = rng.uniform(0, 900, (max(n // 25, 1), 2))[rng.integers(0, max(n // 25, 1), n)]
    corner = centres + rng.normal(0, 3, (n, 2))
    return np.concatenate([corner, corner + rng.uniform(20, 60, (n, 2))], 1)


def lattice(n, rng):
    """Whole numbers: many equal boxes, and IoUs that are exactly a fraction."""
    corner = rng.integers(-6, 6, (n, 2))
    return np.concatenate([corner, corner + rng.integers(1, 7, (n, 2))], 1).astype(float)


def thin(n, rng):
    """Long and thin, either way."""
    size = np.where(rng.random((n, 1)) < 0.5, [[300, 2]], [[2, 300]]) * rng.uniform(0.5, 2, (n, 2))
    corner = rng.uniform(-50, 50, (n, 2)) / np.where(size > 50, 5, 1)
    return np.concatenate([corner, corner + size], 1)


def distant(n, rng):
    """Two crowds, far from each other and from the origin, where float32 is coarse."""
    boxes = clusters(n, rng) + rng.choice([-3e6, 4e6], (n, 1))
    return np.round(boxes * 4) / 4


def halves(n, rng):
    """Pairs that have just about one half in common, in one direction."""
    left = rng.integers(0, 40, n) * 8.0
    top = rng.integers(0, 10, n) * 8.0
    width = rng.choice([8.0, 16.0, 16.000002, 15.999999, 24.0], n)
    return np.stack([left, top, left + width, top + 8], 1)


def shrunk(n, rng):
    """Like others, but whose areas are too small for float32 or nearly so."""
    return clusters(n, rng) * 10.0 ** rng.choice([-17, -18, -23])


def grown(n, rng):
    """Areas that float32 cannot hold or nearly so."""
    return clusters(n, rng) * 10.0 ** rng.choice([15, 16.9, 17.5, 30])


def odd(n, rng):
    """Some NaN, endless, empty, and inside out."""
    boxes = lattice(n, rng)
    place = rng.integers(0, 4, n)
    bad = rng.choice([NAN, INF, -INF, 0, 3, -3, 1e38, -1e38], n)
    rows = rng.random(n) < 0.3
    boxes[rows, place[rows]] = bad[rows]
    return boxes


KINDS = (uneven, clusters, lattice, thin, distant, halves, shrunk, grown, odd)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 400),
    threshold=st.sampled_from(
        [0, 0.05, 0.25, 0.3, 1 / 3, 0.5, 0.5 + 1e-9, 0.6, 0.75, 0.95, 1, 1.5]
    ),
    dtype=st.sampled_from(DTYPES[2:]),
    ties=st.booleans(),
)
def test_every_kind_of_geometry(kind, seed, n, threshold, dtype, ties):
    rng = np.random.default_rng(seed)
    boxes = torch.tensor(kind(n, rng)).to(dtype)
    scores = torch.tensor(rng.integers(0, 5, n) / 4 if ties else rng.normal(size=n)).to(dtype)
    check(boxes, scores, threshold)


@given(
    seed=st.integers(0, 2**32),
    threshold=st.sampled_from([-INF, -1, -1e-300, -0.0, 1e-300, INF]),
    kind=st.sampled_from([lattice, odd]),
)
def test_thresholds_beyond_the_usual(seed, threshold, kind):
    rng = np.random.default_rng(seed)
    check(torch.tensor(kind(60, rng)).float(), torch.tensor(rng.normal(size=60)).float(), threshold)


# --- the order ----------------------------------------------------------------------------------


def test_equal_scores_keep_the_lower_index():
    # The right answer of the report that its CPU and GPU kernels differ: torchvision 2157.
    boxes = torch.tensor([[10.0, 10, 30, 30], [11, 10, 31, 30], [50, 50, 60, 60], [10, 11, 30, 31]])
    for _ in range(3):
        assert nms(boxes, torch.full((4,), 0.5), 0.4).tolist() == [0, 2]


def test_signed_zeros_are_equal_scores():
    boxes = torch.tensor([[0.0, 0, 1, 1], [5, 5, 6, 6], [9, 9, 10, 10]])
    assert nms(boxes, torch.tensor([-0.0, 0.0, -0.0]), 0.5).tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scores_of_every_size_are_in_order(dtype):
    info = torch.finfo(dtype)
    values = [INF, info.max, 1.0, info.tiny, info.smallest_normal / 2, 0.0, -1.0, info.min, -INF]
    scores = torch.tensor(values, dtype=torch.float64).to(dtype)
    mixed = torch.tensor([3, 8, 0, 6, 1, 7, 2, 5, 4])
    far = torch.arange(9.0)[:, None] * 10 + torch.tensor([0.0, 0, 1, 1])
    assert nms(far.to(dtype), scores[mixed], 0.5).tolist() == torch.argsort(mixed).tolist()


def test_only_above_the_threshold_suppresses():
    # IoU 1/2 exactly; 1/3 as float32 rounds it, 0.3333333432674408.
    boxes = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 1]])
    scores = torch.tensor([0.9, 0.8])
    assert check(boxes, scores, 0.5).tolist() == [0, 1]
    assert check(boxes, scores, np.nextafter(0.5, 0)).tolist() == [0]
    third = torch.tensor([[0.0, 0, 3, 1], [0, 0, 1, 1]])
    rounded = float(np.float32(1) / np.float32(3))
    assert check(third, scores, rounded).tolist() == [0, 1]
    assert check(third, scores, np.nextafter(rounded, 0)).tolist() == [0]
    assert check(third.double(), scores.double(), 1 / 3).tolist() == [0, 1]


def test_the_formula_is_rounded_step_by_step():
    # Fused into one rounding, `a + b - w * h` gives another IoU for some of these pairs.
    boxes, _ = make(4000, 5, spread=20.0, low=5.0, high=20.0)
    b = boxes.numpy()
    ious = np.array([oracle.overlaps(b[i], b[i + 1 : i + 2])[0] for i in range(0, 4000, 2)])
    scores = torch.tensor([0.9, 0.8])
    for i, iou in enumerate(ious):
        if iou > 0:
            pair = boxes[2 * i : 2 * i + 2]
            assert len(nms(pair, scores, float(iou))) == 2
            assert len(nms(pair, scores, np.nextafter(float(iou), 0))) == 1


# --- boxes that are none ------------------------------------------------------------------------


def test_empty_and_inverted_boxes_are_kept_and_suppress_nothing():
    boxes = torch.tensor([[0.0, 0, 4, 4], [3, 3, 3, 9], [5, 2, 1, 6], [0, 0, 4, 4.5]])
    assert nms(boxes, torch.tensor([0.9, 0.8, 0.7, 0.6]), 0.5).tolist() == [0, 1, 2]
    points = torch.ones(5, 4)
    assert nms(points, torch.ones(5), 0.0).tolist() == [0, 1, 2, 3, 4]
    twice = torch.tensor([[5.0, 5, 1, 1]]).expand(3, 4)
    assert nms(twice, torch.ones(3), 0.1).tolist() == [0, 1, 2]


def test_nan_is_left_out_and_changes_nothing():
    boxes = torch.tensor([[0.0, 0, 10, 10], [NAN, 0, 10, 10], [20, 20, 30, 30], [0, 0, 10, 9]])
    assert nms(boxes, torch.tensor([0.9, 0.95, NAN, 0.8]), 0.5).tolist() == [0]
    assert nms(torch.full((3, 4), NAN), torch.ones(3), 0.5).tolist() == []


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nan_in_each_place(dtype):
    boxes, scores = make(120, 3, dtype=dtype)
    good = oracle.nms(boxes, scores, 0.4)
    for place in range(4):
        extra = boxes.clone()
        extra[:, place] = NAN
        both = torch.cat([extra, boxes])
        keep = nms(both, torch.cat([scores, scores]), 0.4)
        assert keep.tolist() == (good + 120).tolist()


def test_endless_boxes_are_kept_and_suppress_nothing():
    boxes = torch.tensor(
        [[0.0, 0, INF, 10], [0, 0, INF, 10], [-INF, -INF, INF, INF], [0, 0, 10, 10], [1, 0, 10, 10]]
    )
    assert check(boxes, torch.arange(5.0), 0.5).tolist() == [4, 2, 1, 0]
    huge = torch.tensor([[-3e38, 0, 3e38, 1], [-3e38, 0, 3e38, 1]])
    assert check(huge, torch.ones(2), 0.5).tolist() == [0, 1]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_boxes(dtype):
    keep = nms(torch.empty(0, 4, dtype=dtype), torch.empty(0, dtype=dtype), 0.5)
    assert keep.dtype == torch.int64
    assert keep.shape == (0,)


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_output", [0, 1, 5, 1000])
@pytest.mark.parametrize("n", [20, 600])
def test_max_output(n, max_output):
    assert len(check(*make(n, 1), 0.3, max_output=max_output)) <= max_output


def test_score_threshold():
    boxes, scores = make(300, 2)
    check(boxes, scores, 0.3, score_threshold=0.5)
    check(boxes, scores, 0.3, score_threshold=float(scores[17]))
    assert nms(boxes, scores, 0.3, score_threshold=1.0).tolist() == []
    # As torch compares `scores > 0.1`: both are float32 0.1 there.
    assert nms(boxes[:1], torch.tensor([0.1]), 0.3, score_threshold=0.1).tolist() == []
    half = torch.tensor([0.1], dtype=torch.float16)
    assert nms(boxes[:1].half(), half, 0.3, score_threshold=0.1).tolist() == []


@given(seed=st.integers(0, 2**32), threshold=st.sampled_from([0.3, 0.7, 1]))
def test_measured_by_the_smaller_box(seed, threshold):
    rng = np.random.default_rng(seed)
    boxes = torch.tensor(lattice(100, rng)).float()
    check(boxes, torch.tensor(rng.normal(size=100)).float(), threshold, overlap="smaller")


# --- memory -------------------------------------------------------------------------------------


def test_any_strides_without_a_copy():
    boxes, scores = make(200, 4)
    wanted = oracle.nms(boxes, scores, 0.4).tolist()
    table = torch.full((5, 430), NAN)
    table[:4, 3:403:2] = boxes.T
    table[4, 3:403:2] = scores
    strided = table[:4, 3:403:2].T
    with torchmojo.no_copies():
        assert nms(strided, table[4, 3:403:2], 0.4).tolist() == wanted
    assert nms(boxes[:1].expand(50, 4), torch.ones(1).expand(50), 0.4).tolist() == [0]


def test_inputs_are_not_written_and_may_require_grad():
    boxes, scores = make(50, 6)
    kept = boxes.clone(), scores.clone()
    keep = nms(boxes.requires_grad_(), scores.requires_grad_(), 0.4)
    assert not keep.requires_grad
    torch.testing.assert_close((boxes.detach(), scores.detach()), kept, rtol=0, atol=0)


# --- groups -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(seed=st.integers(0, 2**32), n=st.integers(0, 300), groups=st.integers(1, 20))
def test_groups(dtype, seed, n, groups):
    rng = np.random.default_rng(seed)
    boxes = torch.tensor(clusters(n, rng).reshape(n, 4)).to(dtype)
    scores = torch.tensor(rng.integers(0, 9, n)).to(dtype)
    idxs = rng.integers(-groups, groups, n) * int(rng.choice([1, 2**40, -(2**55)]))
    keep = batched_nms(boxes, scores, torch.tensor(idxs), 0.4)
    assert keep.tolist() == oracle.nms(boxes, scores, 0.4, groups=idxs).tolist()


def test_groups_of_two_numbers_and_limits():
    boxes, scores = make(500, 8, spread=40.0)
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 3, (500, 2))
    for options in ({}, {"max_output": 7}, {"score_threshold": 0.6}, {"overlap": "smaller"}):
        keep = batched_nms(boxes, scores, torch.tensor(pairs, dtype=torch.int32), 0.2, **options)
        assert keep.tolist() == oracle.nms(boxes, scores, 0.2, groups=pairs, **options).tolist()
    assert batched_nms(boxes, scores, torch.zeros(500, 0, dtype=torch.int64), 0.2).tolist() == (
        oracle.nms(boxes, scores, 0.2).tolist()
    )


def test_groups_are_not_moved_apart():
    # Moved by class times the greatest corner, float32 rounds these two to one box.
    boxes = torch.tensor([[1e6, 0, 1e6 + 1, 1], [1e6 + 0.5, 0, 1e6 + 1.5, 1]])
    idxs = torch.full((2,), 1000)
    assert batched_nms(boxes, torch.tensor([0.9, 0.8]), idxs, 0.4).tolist() == [0, 1]


# --- refusals -----------------------------------------------------------------------------------


def refused(error, function, *args, **options):
    with pytest.raises(error) as caught:
        function(*args, **options)
    return str(caught.value)


def test_refusals():
    boxes, scores = make(3, 0)
    assert refused(KernelError, nms, boxes, scores, NAN) == (
        "nms: iou_threshold: wanted a number, given nan"
    )
    assert refused(KernelError, nms, boxes, scores, 0.5, max_output=-1) == (
        "nms: max_output: wanted 0 or more, given -1"
    )
    assert refused(ArgumentError, nms, boxes, scores, 0.5, overlap="x") == (
        'nms: overlap: wanted "union" or "smaller", given \'x\'; choose one'
    )
    assert refused(DTypeError, nms, boxes, scores.double(), 0.5).startswith("nms: scores: wanted")
    assert refused(DTypeError, nms, boxes.long(), scores.long(), 0.5).startswith("nms: boxes: want")
    assert refused(ShapeError, nms, boxes[:, :3], scores, 0.5).startswith("nms: boxes: wanted")
    assert refused(ShapeError, nms, boxes, scores[:2], 0.5).startswith("nms: scores: wanted")
    assert refused(DTypeError, batched_nms, boxes, scores, scores, 0.5) == (
        "batched_nms: idxs: wanted integers, given torch.float32; number the groups"
    )
    assert refused(ShapeError, batched_nms, boxes, scores, torch.tensor(1), 0.5) == (
        "batched_nms: idxs: wanted [n] or [n, g], given 0 axes; give one row a box"
    )
    assert refused(ShapeError, batched_nms, boxes, scores, torch.ones(2).long(), 0.5).startswith(
        "batched_nms: groups: wanted"
    )
