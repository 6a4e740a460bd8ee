"""Detections straight from a model's outputs: heat maps, anchors, rows, and MTCNN's first net.

Each kernel reads its tensors as they lie, looks at scores first, and makes one table. Its rows are
x0 y0 x1 y1, score, class, picture, then what the model says besides, in the order in which the
model's output lists them. Scores are compared as torch compares `scores > score_threshold`; what is
not a number never passes.
"""

from std.math import exp, floor
from std.sys import simd_width_of

from torchmojo import OptionalTensor, OwnedTensor, Tensor

from candidates import wide_type
from rows import Rows, sigmoid

comptime Pair = SIMD[DType.float64, 2]


def decode_heatmap[
    dtype: DType
](
    heatmap: Tensor[dtype, 4, "b c h w"],
    scale: Tensor[dtype, 4, "b 2 h w"],
    offset: Tensor[dtype, 4, "b 2 h w"],
    score_threshold: Float64,
    stride: Float64 = 4.0,
    landmarks: OptionalTensor[dtype, 4, "b l h w"] = None,
) raises -> OwnedTensor[DType.float64, 2] where dtype.is_floating_point():
    """Reads boxes off a heat map, as CenterFace makes it.

    Parameters:
        dtype: Element type; boxes are float64.

    Args:
        heatmap: Probability that the middle of a box of a class is there `[b, c, h, w]`.
        scale: Logarithm of height and width, in cells `[b, 2, h, w]`.
        offset: Where in its cell the middle is, down and across, less one half `[b, 2, h, w]`.
        score_threshold: What a probability must exceed.
        stride: Pixels of a cell.
        landmarks: Down and across of each point, in parts of the box `[b, 2 * p, h, w]`.

    Returns:
        Detections `[k, 7 + 2 * p]`; points are across and down, in pixels.
    """
    comptime lanes = 32
    var points = 0
    if landmarks:
        points = landmarks.value().dim(1) // 2
        if landmarks.value().dim(1) % 2 != 0:
            raise Error(
                t"landmarks: wanted two maps a point, given {landmarks.value().dim(1)} maps"
            )
    var rows = Rows(2 * points)
    var least = Scalar[dtype](score_threshold)
    for b in range(heatmap.dim(0)):
        for c in range(heatmap.dim(1)):
            for y in range(heatmap.dim(2)):
                var x = 0
                while x < heatmap.dim(3):
                    if x + lanes <= heatmap.dim(3):
                        # Nearly everywhere there is nothing.
                        if not heatmap.load[lanes](b, c, y, x).gt(least).reduce_or():
                            x += lanes
                            continue
                    var end = min(x + lanes, heatmap.dim(3))
                    while x < end:
                        if heatmap[b, c, y, x] > least:
                            var size = exp(
                                Pair(
                                    scale[b, 1, y, x].cast[DType.float64](),
                                    scale[b, 0, y, x].cast[DType.float64](),
                                )
                            )
                            size *= stride
                            var centre = Pair(
                                offset[b, 1, y, x].cast[DType.float64](),
                                offset[b, 0, y, x].cast[DType.float64](),
                            )
                            centre = (centre + Pair(Float64(x), Float64(y)) + 0.5) * stride
                            var score = heatmap[b, c, y, x].cast[DType.float64]()
                            rows.add(centre, size, score, c, b)
                            for p in range(points):
                                var marks = landmarks.value()
                                var across = marks[b, 2 * p + 1, y, x].cast[DType.float64]()
                                var down = marks[b, 2 * p, y, x].cast[DType.float64]()
                                var point = centre + (Pair(across, down) - 0.5) * size
                                rows.more(point[0])
                                rows.more(point[1])
                        x += 1
    return rows^.finish()


def decode_ssd[
    dtype: DType, anchor: DType
](
    regressions: Tensor[dtype, 3, "b a r"],
    scores: Tensor[dtype, 3, "b a c"],
    anchors: Tensor[anchor, 2, "a 4"],
    score_threshold: Float64,
    centre_variance: Float64 = 0.1,
    size_variance: Float64 = 0.2,
    exponential: Bool = True,
    logits: Bool = False,
) raises -> OwnedTensor[DType.float64, 2] where dtype.is_floating_point() and (
    anchor == DType.float32 or anchor == DType.float64
):
    """Moves and stretches anchors, as SSD and BlazeFace do.

    Parameters:
        dtype: Element type; boxes are float64.
        anchor: Element type of the anchors.

    Args:
        regressions: Shift across and down, change of width and height, then shifts of points
            `[b, a, 4 + 2 * p]`.
        scores: Scores of classes `[b, a, c]`.
        anchors: Middle across and down, width and height `[a, 4]`.
        score_threshold: What a score must exceed.
        centre_variance: Shifts of 1 are this part of an anchor's side.
        size_variance: Changes of 1 are this.
        exponential: Whether sides are `anchor * exp(change)`, else `anchor * change`.
        logits: Whether scores are put through the sigmoid first.

    Returns:
        Detections `[k, 7 + 2 * p]` in the anchors' unit: an anchor's best class.
    """
    comptime wide = wide_type[dtype]()
    if regressions.dim(2) < 4 or regressions.dim(2) % 2 != 0:
        raise Error(
            t"regressions: wanted 4 numbers an anchor and 2 a point, given {regressions.dim(2)}"
        )
    var points = regressions.dim(2) // 2 - 2
    var rows = Rows(2 * points)
    var least = Scalar[wide](Scalar[dtype](score_threshold))
    for b in range(scores.dim(0)):
        for a in range(scores.dim(1)):
            var best, label = _best(scores, b, a, 0)
            if label < 0:
                continue
            var score = best.cast[wide]()
            if logits:
                score = sigmoid(score)
            if not score > least:
                continue
            var middle = Pair(
                anchors[a, 0].cast[DType.float64](), anchors[a, 1].cast[DType.float64]()
            )
            var side = Pair(
                anchors[a, 2].cast[DType.float64](), anchors[a, 3].cast[DType.float64]()
            )
            var size = _pair(regressions, b, a, 2) * size_variance
            if exponential:
                size = exp(size)
            var centre = middle + _pair(regressions, b, a, 0) * centre_variance * side
            rows.add(centre, size * side, score.cast[DType.float64](), label, b)
            for p in range(points):
                var shift = _pair(regressions, b, a, 4 + 2 * p)
                var point = middle + shift * centre_variance * side
                rows.more(point[0])
                rows.more(point[1])
    return rows^.finish()


def decode_yolo[
    dtype: DType
](
    predictions: Tensor[dtype, 3, "b a r"], score_threshold: Float64, objectness: Bool = True
) raises -> OwnedTensor[DType.float64, 2] where dtype.is_floating_point():
    """Reads rows of a box, whether there is something, and what.

    Parameters:
        dtype: Element type; boxes are float64, scores are float32, or float64 for float64.

    Args:
        predictions: Middle across and down, width, height, objectness, scores of classes
            `[b, a, 5 + c]`; without objectness `[b, a, 4 + c]`. No class is one class of score 1.
        score_threshold: What objectness times the best class's score must exceed.
        objectness: Whether rows have it.

    Returns:
        Detections `[k, 7]`: a row's best class.
    """
    comptime wide = wide_type[dtype]()
    var first = 5 if objectness else 4
    if predictions.dim(2) < 5:
        raise Error(t"predictions: wanted 5 numbers a row or more, given {predictions.dim(2)}")
    var rows = Rows(0)
    var least = Scalar[wide](Scalar[dtype](score_threshold))
    var classes = predictions.dim(2) - first
    for b in range(predictions.dim(0)):
        for a in range(predictions.dim(1)):
            var score = Scalar[wide](1)
            if objectness:
                score = predictions[b, a, 4].cast[wide]()
            var label = 0
            if classes > 0:
                # No class is likelier than 1, so most rows end here.
                if objectness and least >= 0 and not score > least:
                    continue
                var best: Scalar[dtype]
                best, label = _best(predictions, b, a, first)
                if label < 0:
                    continue
                score *= best.cast[wide]()
            if score > least:
                rows.add(
                    _pair(predictions, b, a, 0),
                    _pair(predictions, b, a, 2),
                    score.cast[DType.float64](),
                    label,
                    b,
                )
    return rows^.finish()


def decode_mtcnn[
    dtype: DType
](
    probabilities: Tensor[dtype, 3, "b h w"],
    offsets: Tensor[dtype, 4, "b 4 h w"],
    score_threshold: Float64,
    scale: Float64 = 1.0,
) raises -> OwnedTensor[DType.float64, 2] where dtype.is_floating_point():
    """Reads the windows off the maps of MTCNN's first net, which sees 12 pixels every 2.

    Parameters:
        dtype: Element type; boxes are float64.

    Args:
        probabilities: Probability of a face `[b, h, w]`.
        offsets: Corrections of x0 y0 x1 y1, in parts of the window `[b, 4, h, w]`.
        score_threshold: What a probability must exceed.
        scale: Size of the picture that the net saw, in parts of the original.

    Returns:
        Detections `[k, 11]`: whole pixels of the original, and the corrections.
    """
    var rows = Rows(4)
    var least = Scalar[dtype](score_threshold)
    for b in range(probabilities.dim(0)):
        for y in range(probabilities.dim(1)):
            for x in range(probabilities.dim(2)):
                var score = probabilities[b, y, x]
                if not score > least:
                    continue
                var corner = Pair(Float64(2 * x), Float64(2 * y))
                rows.corners(
                    floor((corner + 1) / scale),
                    floor((corner + 12) / scale),
                    score.cast[DType.float64](),
                    0,
                    b,
                )
                for k in range(4):
                    rows.more(offsets[b, k, y, x].cast[DType.float64]())
    return rows^.finish()


def _best[
    dtype: DType
](scores: Tensor[dtype, 3], b: Int, a: Int, first: Int) -> Tuple[Scalar[dtype], Int]:
    """Returns the greatest score of a row and its class, the first of equal ones; -1 of none."""
    var best = Scalar[dtype](0)
    var label = -1
    for c in range(first, scores.dim(2)):
        var score = scores[b, a, c]
        if score == score and (label < 0 or score > best):
            best = score
            label = c - first
    return (best, label)


def _pair[dtype: DType](rows: Tensor[dtype, 3], b: Int, a: Int, first: Int) -> Pair:
    """Returns two neighbours of a row."""
    return Pair(
        rows[b, a, first].cast[DType.float64](), rows[b, a, first + 1].cast[DType.float64]()
    )
