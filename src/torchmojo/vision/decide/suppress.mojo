"""Suppression of boxes: greedy, in groups, and soft.

A box with a NaN corner or a NaN score is left out: it is not kept and suppresses nothing. A box that
is empty, turned inside out or endless is kept and suppresses nothing, where the threshold is not
negative: its IoUs are 0 or not a number.
"""

from std.utils import IndexList

from torchmojo import OwnedTensor, Tensor

from candidates import Candidates, wide_type, widen
from greedy import Greedy
from order import address_of
from soft import soften


def nms[
    dtype: DType
](
    boxes: Tensor[dtype, 2, "n 4"],
    scores: Tensor[dtype, 1, "n"],
    iou_threshold: Float64,
    max_output: Optional[Int] = None,
    score_threshold: Optional[Float64] = None,
    smaller: Bool = False,
) raises -> OwnedTensor[DType.int64, 1] where dtype.is_floating_point():
    """Keeps the best boxes, and of those that overlap the best only.

    Parameters:
        dtype: Element type; IoUs are float32, or float64 for float64.

    Args:
        boxes: Corners x0 y0 x1 y1 `[n, 4]`.
        scores: Scores `[n]`.
        iou_threshold: Above it, the lesser of two boxes is suppressed.
        max_output: How many boxes to keep at most.
        score_threshold: What a score must exceed.
        smaller: Whether intersections are measured by the smaller box, not by the union.

    Returns:
        Indices of the kept boxes `[k]`, best first, the lower index first where scores are equal.
    """
    comptime wide = wide_type[dtype]()
    var limit = _limit(iou_threshold, max_output, boxes.dim(0))
    var candidates = Candidates[wide](boxes, scores, score_threshold)
    var ranks = _counting(len(candidates))
    var corners = candidates.corners(boxes, ranks)
    var kept = List[Scalar[DType.bool]](length=len(candidates), fill=False)
    var greedy = Greedy[wide](iou_threshold, smaller)
    greedy.run(address_of(corners), len(candidates), limit, address_of(kept))
    _ = corners^
    return _indices(candidates, kept, limit)


def batched_nms[
    dtype: DType
](
    boxes: Tensor[dtype, 2, "n 4"],
    scores: Tensor[dtype, 1, "n"],
    groups: Tensor[DType.int64, 2, "n g"],
    iou_threshold: Float64,
    max_output: Optional[Int] = None,
    score_threshold: Optional[Float64] = None,
    smaller: Bool = False,
) raises -> OwnedTensor[DType.int64, 1] where dtype.is_floating_point():
    """Keeps the best boxes of each group, and of those of a group that overlap the best only.

    Parameters:
        dtype: Element type; IoUs are float32, or float64 for float64.

    Args:
        boxes: Corners x0 y0 x1 y1 `[n, 4]`.
        scores: Scores `[n]`.
        groups: What a box suppresses has the same row `[n, g]`: a class, a picture, or both.
        iou_threshold: Above it, the lesser of two boxes is suppressed.
        max_output: How many boxes of all groups to keep at most.
        score_threshold: What a score must exceed.
        smaller: Whether intersections are measured by the smaller box, not by the union.

    Returns:
        Indices of the kept boxes `[k]` of all groups, ordered as those of `nms`.
    """
    comptime wide = wide_type[dtype]()
    var limit = _limit(iou_threshold, max_output, boxes.dim(0))
    var candidates = Candidates[wide](boxes, scores, score_threshold)
    var ranks = candidates.by_group(groups)
    var corners = candidates.corners(boxes, ranks)
    var marks = List[Scalar[DType.bool]](length=len(ranks), fill=False)
    var greedy = Greedy[wide](iou_threshold, smaller)
    var start = 0
    for end in range(1, len(ranks) + 1):
        if end < len(ranks) and candidates.same_group(groups, ranks[start], ranks[end]):
            continue
        greedy.run(
            address_of(corners).unsafe_offset(4 * start),
            end - start,
            limit,
            address_of(marks).unsafe_offset(start),
        )
        start = end
    _ = corners^
    var kept = List[Scalar[DType.bool]](length=len(ranks), fill=False)
    for i in range(len(ranks)):
        kept[Int(ranks[i])] = marks[i]
    return _indices(candidates, kept, limit)


def soft_nms[
    dtype: DType
](
    boxes: Tensor[dtype, 2, "n 4"],
    scores: Tensor[dtype, 1, "n"],
    iou_threshold: Float64,
    sigma: Float64,
    score_threshold: Float64,
    gaussian: Bool,
) raises -> OwnedTensor[DType.float64, 2] where dtype.is_floating_point():
    """Takes the best box again and again, and lowers the scores of those that overlap it.

    Parameters:
        dtype: Element type; scores are lowered in float32, or float64 for float64.

    Args:
        boxes: Corners x0 y0 x1 y1 `[n, 4]`.
        scores: Scores `[n]`.
        iou_threshold: Above it, the linear rule lowers by `1 - IoU`.
        sigma: The Gaussian rule lowers by `exp(-IoU^2 / sigma)`.
        score_threshold: What a score must exceed, before and after.
        gaussian: Which rule.

    Returns:
        Index and lowered score of the boxes that were taken `[k, 2]`, in that order.
    """
    _ = _limit(iou_threshold, None, 0)
    if not sigma > 0:
        raise Error(t"sigma: wanted a number above 0, given {sigma}")
    comptime wide = wide_type[dtype]()
    var candidates = Candidates[wide](boxes, scores, score_threshold)
    candidates.index = _ascending(candidates.index)
    var corners = candidates.corners(boxes, _counting(len(candidates)))
    var values = List[Scalar[wide]](length=len(candidates), fill=0)
    for i in range(len(candidates)):
        values[i] = widen[wide](scores[Int(candidates.index[i])])
    var taken = soften(
        corners,
        values,
        iou_threshold,
        sigma,
        Scalar[dtype](score_threshold).cast[wide](),
        gaussian,
    )
    var made = OwnedTensor[DType.float64, 2](IndexList[2](len(taken), 2))
    var view = made.view()
    for i in range(len(taken)):
        view[i, 0] = Float64(candidates.index[Int(taken[i])])
        view[i, 1] = values[Int(taken[i])].cast[DType.float64]()
    return made^


def _limit(iou_threshold: Float64, max_output: Optional[Int], n: Int) raises -> Int:
    """Returns how many boxes may be kept; refuses what makes no sense."""
    if iou_threshold != iou_threshold:
        raise Error("iou_threshold: wanted a number, given nan")
    if n > Int(Int32.MAX):
        raise Error(t"boxes: wanted fewer than 2^31, given {n}")
    var limit = max_output.or_else(n)
    if limit < 0:
        raise Error(t"max_output: wanted 0 or more, given {limit}")
    return limit


def _counting(n: Int) -> List[Int32]:
    """Returns 0, 1, ... n - 1."""
    var numbers = List[Int32](length=n, fill=0)
    for i in range(n):
        numbers[i] = Int32(i)
    return numbers^


def _ascending(indices: List[Int32]) -> List[Int32]:
    """Returns indices in the order of the boxes."""
    var sorted = indices.copy()
    sort(sorted)
    return sorted^


def _indices[
    wide: DType
](candidates: Candidates[wide], kept: List[Scalar[DType.bool]], limit: Int) raises -> OwnedTensor[
    DType.int64, 1
]:
    """Returns the indices of candidates that are marked, at most `limit`."""
    var count = 0
    for i in range(len(kept)):
        count += 1 if kept[i] else 0
    count = min(count, limit)
    var made = OwnedTensor[DType.int64, 1](IndexList[1](count))
    var view = made.view()
    var at = 0
    var i = 0
    while at < count:
        if kept[i]:
            view[at] = Int64(candidates.index[i])
            at += 1
        i += 1
    return made^
