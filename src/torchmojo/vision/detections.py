"""Detections from the outputs of detectors: heat maps, anchors, rows, and MTCNN's first net."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torchmojo.vision.operators import FIXED, call

if TYPE_CHECKING:
    import torch

__all__ = ["Detections", "decode_heatmap", "decode_mtcnn", "decode_ssd", "decode_yolo"]


class Detections(NamedTuple):
    """What was found in a batch of pictures; float32, or float64 where the model's outputs are.

    Attributes:
        boxes: ``[k, 4]``, x0 y0 x1 y1, in pixels or whatever unit the model has.
        scores: ``[k]``, those that the score threshold was compared with.
        classes: int64 ``[k]``.
        images: int64 ``[k]``: place of the picture in the batch.
        landmarks: ``[k, p, 2]``, x and y of each point, or None where the model has none.
    """

    boxes: torch.Tensor
    scores: torch.Tensor
    classes: torch.Tensor
    images: torch.Tensor
    landmarks: torch.Tensor | None = None


def decode_heatmap(
    heatmap: torch.Tensor,
    scale: torch.Tensor,
    offset: torch.Tensor,
    landmarks: torch.Tensor | None = None,
    *,
    score_threshold: float,
    stride: float = 4.0,
) -> Detections:
    """Reads boxes off a heat map, as CenterFace makes it.

    Every cell whose score exceeds the threshold is a box, ``exp(scale) * stride`` large, whose
    middle is ``(cell + offset + 0.5) * stride``. The maps are read as they lie, with any strides.

    Args:
        heatmap: Probabilities ``[b, c, h, w]``.
        scale: Logarithm of height and width, in cells ``[b, 2, h, w]``.
        offset: Of the middle, down and across ``[b, 2, h, w]``.
        landmarks: Down and across of each point, in parts of the box, from its top left corner
            ``[b, 2 * p, h, w]``.
        score_threshold: A cell is a box where ``heatmap > score_threshold``.
        stride: Pixels of a cell.

    Returns:
        Boxes by picture, class, row and column, in pixels of what the model saw; new memory.

    Raises:
        DTypeError: The maps are not all float16, bfloat16, float32 or float64.
        ShapeError: Shapes do not fit each other.
        KernelError: There is an odd number of maps of landmarks.

    Example:
        >>> import torch
        >>> from torchmojo.vision import decode_heatmap
        >>> heatmap = torch.zeros(1, 1, 8, 8)
        >>> heatmap[0, 0, 2, 5] = 0.875
        >>> maps = torch.zeros(1, 2, 8, 8)
        >>> decode_heatmap(heatmap, maps, maps, score_threshold=0.5).boxes
        tensor([[20.,  8., 24., 12.]])
    """
    rows = call(
        "decode_heatmap",
        heatmap.detach(),
        scale.detach(),
        offset.detach(),
        score_threshold,
        stride,
        None if landmarks is None else landmarks.detach(),
    )
    return _detections(rows, heatmap, None if landmarks is None else landmarks.shape[1] // 2)


def decode_ssd(
    regressions: torch.Tensor,
    scores: torch.Tensor,
    anchors: torch.Tensor,
    *,
    score_threshold: float,
    variances: tuple[float, float] = (0.1, 0.2),
    exponential: bool = True,
    logits: bool = False,
) -> Detections:
    """Moves and stretches anchors, as SSD and BlazeFace do.

    A box's middle is ``anchor + shift * variances[0] * side`` and its side is ``side * exp(change *
    variances[1])``, or without ``exp`` where ``exponential`` is False. For BlazeFace on 128 x 128
    pixels: ``variances=(1 / 128, 1 / 128), exponential=False, logits=True`` and anchors of side 1.

    Args:
        regressions: Shift across and down, change of width and height, then shifts of points,
            across and down ``[b, a, 4 + 2 * p]``.
        scores: Scores of the classes ``[b, a, c]``, without one for the background.
        anchors: Middle across and down, width and height, float32 or float64 ``[a, 4]``.
        score_threshold: An anchor is a box where its best score is above it.
        variances: Of the middle, and of the sides.
        exponential: Whether changes are logarithms.
        logits: Whether scores are put through the sigmoid first.

    Returns:
        Boxes by picture and anchor, in the unit of the anchors: each of its best class, the lower
        one where two are equal; new memory.

    Raises:
        DTypeError: Tensors of the model are not all float16, bfloat16, float32 or float64.
        ShapeError: Shapes do not fit each other.
        KernelError: ``regressions`` has an odd number of columns, or fewer than 4.

    Example:
        >>> import torch
        >>> from torchmojo.vision import decode_ssd
        >>> anchors = torch.tensor([[0.5, 0.5, 0.25, 0.25]])
        >>> outputs = torch.zeros(1, 1, 4), torch.ones(1, 1, 2)
        >>> found = decode_ssd(*outputs, anchors, score_threshold=0.5)
        >>> found.boxes, found.classes
        (tensor([[0.3750, 0.3750, 0.6250, 0.6250]]), tensor([0]))
    """
    rows = call(
        "decode_ssd",
        regressions.detach(),
        scores.detach(),
        anchors.detach(),
        score_threshold,
        variances[0],
        variances[1],
        exponential,
        logits,
    )
    points = regressions.shape[2] // 2 - 2
    return _detections(rows, regressions, points or None)


def decode_yolo(
    predictions: torch.Tensor, *, score_threshold: float, objectness: bool = True
) -> Detections:
    """Reads rows of a box, how likely it is something, and how likely each class.

    Args:
        predictions: Middle across and down, width, height, objectness, scores of classes
            ``[b, a, 5 + c]``; without objectness ``[b, a, 4 + c]``. With any strides: where the
            model gives ``[b, 4 + c, a]``, pass ``.transpose(1, 2)``.
        score_threshold: A row is a box where objectness times its best class's score is above it,
            multiplied in float32, or in float64 for float64.
        objectness: Whether rows have it.

    Returns:
        Boxes by picture and row, in the model's unit: each of its best class, the lower one where
        two are equal; new memory.

    Raises:
        DTypeError: ``predictions`` is not float16, bfloat16, float32 or float64.
        ShapeError: It does not have three axes.
        KernelError: Rows are shorter than 5.

    Example:
        >>> import torch
        >>> from torchmojo.vision import decode_yolo
        >>> rows = torch.tensor([[[50.0, 40, 20, 10, 0.5, 0.25, 1]]])
        >>> decode_yolo(rows, score_threshold=0.4)[:3]
        (tensor([[40., 35., 60., 45.]]), tensor([0.5000]), tensor([1]))
    """
    rows = call("decode_yolo", predictions.detach(), score_threshold, objectness)
    return _detections(rows, predictions, None)


def decode_mtcnn(
    probabilities: torch.Tensor,
    offsets: torch.Tensor,
    *,
    score_threshold: float,
    scale: float = 1.0,
) -> tuple[Detections, torch.Tensor]:
    """Reads the windows off the maps of MTCNN's first net, which sees 12 pixels every 2.

    Args:
        probabilities: Of a face ``[b, h, w]``.
        offsets: Corrections of x0 y0 x1 y1, in parts of the window ``[b, 4, h, w]``.
        score_threshold: A window is one where ``probabilities > score_threshold``.
        scale: Size of what the net saw, in parts of the original picture.

    Returns:
        Windows by picture, row and column, in whole pixels of the original; and their corrections
        ``[k, 4]``. New memory.

    Raises:
        DTypeError: The maps are not all float16, bfloat16, float32 or float64.
        ShapeError: Shapes do not fit each other.

    Example:
        >>> import torch
        >>> from torchmojo.vision import decode_mtcnn
        >>> found, offsets = decode_mtcnn(
        ...     torch.eye(2)[None], torch.zeros(1, 4, 2, 2), score_threshold=0.5, scale=0.5
        ... )
        >>> found.boxes
        tensor([[ 2.,  2., 24., 24.],
                [ 6.,  6., 28., 28.]])
    """
    rows = call("decode_mtcnn", probabilities.detach(), offsets.detach(), score_threshold, scale)
    return _detections(rows, probabilities, None), _wide(rows[:, FIXED:], probabilities)


def _detections(rows: torch.Tensor, like: torch.Tensor, points: int | None) -> Detections:
    """Takes a kernel's table apart."""
    import torch

    return Detections(
        boxes=_wide(rows[:, :4], like),
        scores=_wide(rows[:, 4], like),
        classes=rows[:, 5].to(torch.int64),
        images=rows[:, 6].to(torch.int64),
        landmarks=None
        if points is None
        else _wide(rows[:, FIXED:], like).unflatten(1, (points, 2)),
    )


def _wide(numbers: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Gives the dtype of results."""
    import torch

    return numbers.to(torch.float64 if like.dtype == torch.float64 else torch.float32)
