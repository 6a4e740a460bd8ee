"""Which boxes stay: greedy suppression, the same within groups, and the soft one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchmojo.errors import ArgumentError, DTypeError, ShapeError
from torchmojo.vision.operators import call

if TYPE_CHECKING:
    import torch

__all__ = ["batched_nms", "nms", "soft_nms"]


def nms(
    boxes: torch.Tensor,
    scores: torch.Tensor,
    iou_threshold: float,
    *,
    max_output: int | None = None,
    score_threshold: float | None = None,
    overlap: str = "union",
) -> torch.Tensor:
    """Keeps the best boxes, and of those that overlap the best only.

    The result equals that of ``torchvision.ops.nms`` in content and order: a box is dropped where
    its IoU with a kept one is above the threshold, not where it equals it. Beyond that: boxes and
    scores with a NaN are left out; empty, inverted and endless boxes are kept and drop nothing
    (where the threshold is not negative). The inputs are read as they lie, with any strides.

    Args:
        boxes: float16, bfloat16, float32 or float64 ``[n, 4]``, x0 y0 x1 y1. IoUs are computed in
            float32, or in float64 for float64.
        scores: Of the same dtype ``[n]``.
        iou_threshold: Above it, the lesser of two boxes is dropped.
        max_output: How many boxes to keep at most; the best stay.
        score_threshold: Boxes stay out unless ``scores > score_threshold``.
        overlap: What an intersection is measured by: ``"union"``, or ``"smaller"`` for the smaller
            of the two boxes, as in MTCNN's last step; this one compares all pairs.

    Returns:
        Indices of the kept boxes, int64 ``[k]``, new memory: greatest score first, lowest index
        first where scores are equal. It has no gradient.

    Raises:
        ArgumentError: ``overlap`` is another word.
        DTypeError: A dtype is another one, or the two differ.
        ShapeError: Shapes are others.
        KernelError: A number makes no sense: a NaN threshold, a negative ``max_output``.

    Example:
        >>> import torch
        >>> from torchmojo.vision import nms
        >>> boxes = torch.tensor([[0.0, 0, 9, 9], [1, 0, 10, 9], [20, 0, 29, 9]])
        >>> nms(boxes, torch.tensor([0.5, 0.9, 0.7]), 0.5)
        tensor([1, 2])
    """
    smaller = _by_smaller("nms", overlap)
    return call(
        "nms", _plain(boxes), _plain(scores), iou_threshold, max_output, score_threshold, smaller
    )


def batched_nms(
    boxes: torch.Tensor,
    scores: torch.Tensor,
    idxs: torch.Tensor,
    iou_threshold: float,
    *,
    max_output: int | None = None,
    score_threshold: float | None = None,
    overlap: str = "union",
) -> torch.Tensor:
    """Keeps the best boxes of each group: of each class, of each picture, or both.

    Boxes are compared where they are. ``torchvision.ops.batched_nms`` moves them apart first, which
    rounds their corners; its result can differ where an IoU is next to the threshold.

    Args:
        boxes: As for ``nms``, ``[n, 4]``.
        scores: As for ``nms``, ``[n]``.
        idxs: Group of each box, integers ``[n]``; or ``[n, g]``, such as class and picture: boxes
            whose rows differ never drop one another.
        iou_threshold: Above it, the lesser of two boxes of a group is dropped.
        max_output: How many boxes to keep at most, of all groups together.
        score_threshold: Boxes stay out unless ``scores > score_threshold``.
        overlap: What an intersection is measured by: ``"union"``, or ``"smaller"`` for the smaller
            of the two boxes, as in MTCNN's last step; this one compares all pairs.

    Returns:
        Indices of the kept boxes of all groups, int64 ``[k]``, ordered as those of ``nms``.

    Raises:
        ArgumentError: ``overlap`` is another word.
        DTypeError: A dtype is another one; ``idxs`` are no integers.
        ShapeError: Shapes are others.
        KernelError: A number makes no sense, as for ``nms``.

    Example:
        >>> import torch
        >>> from torchmojo.vision import batched_nms
        >>> boxes = torch.tensor([[0.0, 0, 9, 9], [1, 0, 10, 9], [20, 0, 29, 9]])
        >>> batched_nms(boxes, torch.tensor([0.5, 0.9, 0.7]), torch.tensor([0, 1, 1]), 0.5)
        tensor([1, 2, 0])
    """
    import torch

    if idxs.dtype.is_floating_point or idxs.dtype.is_complex:
        raise DTypeError(
            f"batched_nms: idxs: wanted integers, given {idxs.dtype}; number the groups"
        )
    if idxs.ndim not in (1, 2):
        raise ShapeError(
            f"batched_nms: idxs: wanted [n] or [n, g], given {idxs.ndim} axes; give one row a box"
        )
    groups = idxs.to(torch.int64)
    if groups.ndim == 1:
        groups = groups.unsqueeze(1)
    return call(
        "batched_nms",
        _plain(boxes),
        _plain(scores),
        groups,
        iou_threshold,
        max_output,
        score_threshold,
        _by_smaller("batched_nms", overlap),
    )


def soft_nms(
    boxes: torch.Tensor,
    scores: torch.Tensor,
    iou_threshold: float = 0.3,
    sigma: float = 0.5,
    score_threshold: float = 0.001,
    method: str = "linear",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Takes the best box again and again, and lowers the scores of those that overlap it.

    Args:
        boxes: As for ``nms``, ``[n, 4]``.
        scores: As for ``nms``, ``[n]``; they are not changed.
        iou_threshold: ``linear`` lowers a score by the factor ``1 - IoU`` where IoUs are above it.
        sigma: ``gaussian`` lowers a score by the factor ``exp(-IoU ** 2 / sigma)``; above 0.
        score_threshold: Boxes are out as soon as their score is not above it.
        method: ``"linear"`` or ``"gaussian"``.

    Returns:
        Indices int64 ``[k]`` in the order in which boxes were taken, the lowest index first where
        scores are equal; and their scores at that time ``[k]``, float32, or float64 for float64.

    Raises:
        ArgumentError: The method is another one.
        DTypeError: A dtype is another one, or the two differ.
        ShapeError: Shapes are others.
        KernelError: A number makes no sense: a NaN threshold, ``sigma`` not above 0.

    Example:
        >>> import torch
        >>> from torchmojo.vision import soft_nms
        >>> boxes = torch.tensor([[0.0, 0, 8, 8], [0, 0, 8, 4], [20, 0, 29, 9]])
        >>> soft_nms(boxes, torch.tensor([0.75, 0.5, 0.625]))
        (tensor([0, 2, 1]), tensor([0.7500, 0.6250, 0.2500]))
    """
    import torch

    if method not in ("linear", "gaussian"):
        raise ArgumentError(
            f'soft_nms: method: wanted "linear" or "gaussian", given {method!r}; choose one'
        )
    rows = call(
        "soft_nms",
        _plain(boxes),
        _plain(scores),
        iou_threshold,
        sigma,
        score_threshold,
        method == "gaussian",
    )
    wide = torch.float64 if boxes.dtype == torch.float64 else torch.float32
    return rows[:, 0].to(torch.int64), rows[:, 1].to(wide)


def _by_smaller(operation: str, overlap: str) -> bool:
    """Tells which measure a word stands for."""
    if overlap not in ("union", "smaller"):
        raise ArgumentError(
            f'{operation}: overlap: wanted "union" or "smaller", given {overlap!r}; choose one'
        )
    return overlap == "smaller"


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Gives the same memory without autograd: which boxes stay has no gradient."""
    return tensor.detach() if tensor.requires_grad else tensor
