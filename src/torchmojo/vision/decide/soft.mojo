"""Soft suppression: scores that are lowered instead of boxes that are dropped."""

from std.math import exp, iota
from std.sys import simd_width_of

from greedy import round_down
from order import address_of


def soften[
    wide: DType
](
    corners: List[Scalar[wide]],
    mut scores: List[Scalar[wide]],
    iou_threshold: Float64,
    sigma: Float64,
    least: Scalar[wide],
    gaussian: Bool,
) -> List[Int32]:
    """Takes boxes one by one, the best first, and lowers the scores of the others.

    Parameters:
        wide: float32 or float64.

    Args:
        corners: Four numbers a box, without NaN.
        scores: One a box, above `least`; those of boxes that were taken are final on return.
        iou_threshold: Above it, the linear rule lowers by `1 - IoU`.
        sigma: The Gaussian rule lowers by `exp(-IoU^2 / sigma)`.
        least: What a score must exceed.
        gaussian: Which rule.

    Returns:
        The boxes that were taken, in that order.
    """
    comptime assert wide.is_floating_point(), "scores are floats"
    comptime lanes = simd_width_of[wide]()
    comptime Vector = SIMD[wide, lanes]
    comptime endless = Scalar[wide](1) / Scalar[wide](0)
    var n = len(scores)
    var room = (n + lanes - 1) // lanes * lanes
    # Left, top, right, bottom, area and score, each of all boxes; a box that is out has -inf.
    var memory = List[Scalar[wide]](length=6 * room, fill=-endless)
    for i in range(n):
        for side in range(4):
            memory[side * room + i] = corners[4 * i + side]
        memory[4 * room + i] = (corners[4 * i + 2] - corners[4 * i]) * (
            corners[4 * i + 3] - corners[4 * i + 1]
        )
        memory[5 * room + i] = scores[i]
    var p = address_of(memory)
    var threshold = round_down[wide](iou_threshold)
    var slope = Scalar[wide](-1 / sigma)
    var taken = List[Int32]()
    var best = _first_greatest(scores)
    while best >= 0:
        var score = p[unsafe_offset=5 * room + best]
        scores[best] = score
        taken.append(Int32(best))
        p[unsafe_offset=5 * room + best] = -endless
        var left = Vector(p[unsafe_offset=best])
        var top = Vector(p[unsafe_offset=room + best])
        var right = Vector(p[unsafe_offset=2 * room + best])
        var bottom = Vector(p[unsafe_offset=3 * room + best])
        var area = Vector(p[unsafe_offset=4 * room + best])
        var greatest = Vector(-endless)
        var where_ = SIMD[DType.int32, lanes](-1)
        for i in range(0, room, lanes):
            var old = p.unsafe_load[width=lanes](5 * room + i)
            var width = min(p.unsafe_load[width=lanes](2 * room + i), right) - max(
                p.unsafe_load[width=lanes](i), left
            )
            var height = min(p.unsafe_load[width=lanes](3 * room + i), bottom) - max(
                p.unsafe_load[width=lanes](room + i), top
            )
            width = width.gt(0).select(width, 0)
            height = height.gt(0).select(height, 0)
            var common = width * height
            var iou = common / (area + p.unsafe_load[width=lanes](4 * room + i) - common)
            var factor: Vector
            if gaussian:
                factor = iou.gt(0).select(exp(iou * iou * slope), 1)
            else:
                factor = iou.gt(threshold).select(1 - iou, 1)
            var new = old * factor
            # False for NaN too, as of an endless score times 0.
            new = new.gt(least).select(new, -endless)
            p.unsafe_store(5 * room + i, new)
            var better = new.gt(greatest)
            greatest = better.select(new, greatest)
            where_ = better.select(iota[DType.int32, lanes](Int32(i)), where_)
        best = _first_lane(greatest, where_)
    _ = memory^
    return taken^


def _first_greatest[wide: DType](scores: List[Scalar[wide]]) -> Int:
    """Returns where the greatest score is, the first of equal ones; -1 of none."""
    var best = -1
    for i in range(len(scores)):
        if best < 0 or scores[i] > scores[best]:
            best = i
    return best


def _first_lane[
    wide: DType, lanes: Int
](values: SIMD[wide, lanes], places: SIMD[DType.int32, lanes]) -> Int:
    """Returns the place of the greatest value, the lowest place of equal ones; -1 of none."""
    var equal = values.eq(values.reduce_max()) & places.ge(0)
    var lowest = equal.select(places, Int32.MAX).reduce_min()
    return -1 if lowest == Int32.MAX else Int(lowest)
