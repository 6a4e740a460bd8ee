"""Soft suppression against a plain loop."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchmojo.errors import ArgumentError, KernelError
from torchmojo.vision import soft_nms

from . import oracle
from .test_nms import DTYPES, INF, NAN, clusters, lattice, odd


def check(boxes, scores, threshold, sigma, least, method):
    keep, values = soft_nms(boxes, scores, threshold, sigma, least, method)
    wanted, lowered = oracle.soft_nms(boxes, scores, threshold, sigma, least, method)
    assert keep.tolist() == wanted.tolist()
    # Nothing where scores are multiplied only; a few roundings of exp, again and again.
    tolerance = 0 if method == "linear" else (1e-9 if values.dtype == torch.float64 else 1e-5)
    torch.testing.assert_close(values, lowered, rtol=tolerance, atol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("method", ["linear", "gaussian"])
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(0, 90),
    threshold=st.sampled_from([0.0, 0.3, 0.5]),
    least=st.sampled_from([0.0, 0.001, 0.25]),
)
def test_equals_the_loop(dtype, method, seed, n, threshold, least):
    rng = np.random.default_rng(seed)
    boxes = torch.tensor(clusters(n, rng).reshape(n, 4)).to(dtype)
    # Far enough from each other that an order does not hang on the last bit of exp.
    scores = torch.tensor(rng.permutation(n) + 1.0).to(dtype) / 128
    least = float(torch.tensor(least, dtype=dtype))
    check(boxes, scores, threshold, 0.5, least, method)


@given(seed=st.integers(0, 2**32), kind=st.sampled_from([lattice, odd]))
def test_ties_and_odd_boxes(seed, kind):
    rng = np.random.default_rng(seed)
    boxes = torch.tensor(kind(50, rng)).float()
    scores = torch.tensor(rng.choice([0.25, 0.5, 1, NAN], 50)).float()
    check(boxes, scores, 0.25, 0.5, 0.0625, "linear")


def test_scores_without_end():
    boxes = torch.tensor([[0.0, 0, 4, 4]]).expand(3, 4)
    keep, values = soft_nms(boxes, torch.tensor([1.0, INF, INF]), 0.3)
    assert (keep.tolist(), values.tolist()) == ([1], [INF])
    keep, values = soft_nms(boxes, torch.tensor([-1.0, -INF, -2.0]), 1.0, score_threshold=-INF)
    assert (keep.tolist(), values.tolist()) == ([0, 2], [-1.0, -2.0])


def test_many_equal_scores_come_in_their_order():
    boxes = torch.arange(100.0)[:, None] * 9 + torch.tensor([0.0, 0, 5, 5])
    assert soft_nms(boxes, torch.full((100,), 0.5))[0].tolist() == list(range(100))


def test_scores_are_not_changed():
    boxes = torch.tensor([[0.0, 0, 8, 8], [0, 0, 8, 4]])
    scores = torch.tensor([0.75, 0.5])
    assert soft_nms(boxes, scores)[1].tolist() == [0.75, 0.25]
    assert scores.tolist() == [0.75, 0.5]


def test_refusals():
    boxes, scores = torch.ones(1, 4), torch.ones(1)
    with pytest.raises(ArgumentError) as caught:
        soft_nms(boxes, scores, method="soft")
    assert str(caught.value) == (
        'soft_nms: method: wanted "linear" or "gaussian", given \'soft\'; choose one'
    )
    for sigma in (0.0, -1.0, NAN):
        with pytest.raises(KernelError, match="soft_nms: sigma: wanted a number above 0, given "):
            soft_nms(boxes, scores, sigma=sigma)
