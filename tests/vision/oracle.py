"""What tests of decisions compare with: plain loops over NumPy arrays, one pair at a time."""

import numpy as np
import torch

HALVES = (torch.float16, torch.bfloat16)


def arrays(boxes, scores):
    """Give the numbers as they are compared: float32, or float64 for float64."""
    wide = torch.float64 if boxes.dtype == torch.float64 else torch.float32
    return boxes.to(wide).numpy(), scores.to(wide).numpy()


def candidates(b, s, score_threshold=None):
    """Give the rows that count, best first, the lower index first where scores are equal."""
    rows = [i for i in range(len(s)) if not (np.isnan(b[i]).any() or np.isnan(s[i]))]
    if score_threshold is not None:
        rows = [i for i in rows if s[i] > score_threshold]
    return sorted(rows, key=lambda i: (-s[i], i))


def overlaps(box, others, smaller=False):
    """Give the IoU of one box with others, each step rounded as in torchvision's loop."""
    with np.errstate(all="ignore"):
        area = (box[2] - box[0]) * (box[3] - box[1])
        areas = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
        width = np.minimum(box[2], others[:, 2]) - np.maximum(box[0], others[:, 0])
        height = np.minimum(box[3], others[:, 3]) - np.maximum(box[1], others[:, 1])
        common = np.where(width > 0, width, 0) * np.where(height > 0, height, 0)
        return common / (np.minimum(area, areas) if smaller else area + areas - common)


def nms(
    boxes,
    scores,
    iou_threshold,
    max_output=None,
    score_threshold=None,
    groups=None,
    overlap="union",
):
    """Suppress greedily; groups are numbers, or rows of them, one a box."""
    b, s = arrays(boxes, scores)
    left = np.array(candidates(b, s, score_threshold), dtype=np.int64)
    numbers = np.zeros(len(s), np.int64) if groups is None else groups
    numbers = numbers[:, None] if numbers.ndim == 1 else numbers
    keep = []
    while left.size:
        best, left = left[0], left[1:]
        keep.append(int(best))
        iou = overlaps(b[best], b[left], overlap == "smaller")
        alike = (numbers[left] == numbers[best]).all(1)
        left = left[~(alike & (iou.astype(np.float64) > iou_threshold))]
    return torch.tensor(keep[:max_output], dtype=torch.int64)


def soft_nms(boxes, scores, iou_threshold, sigma, score_threshold, method):
    """Suppress softly; the lowest index comes first where scores are equal."""
    b, s = arrays(boxes, scores)
    s = s.copy()
    left = np.array(sorted(candidates(b, s, score_threshold)), dtype=np.int64)
    keep, values = [], []
    while left.size:
        at = int(np.argmax(s[left]))
        best, left = left[at], np.delete(left, at)
        keep.append(int(best))
        values.append(s[best])
        iou = overlaps(b[best], b[left])
        with np.errstate(all="ignore"):
            if method == "linear":
                factor = np.where(iou.astype(np.float64) > iou_threshold, 1 - iou, 1)
            else:
                factor = np.where(iou > 0, np.exp(iou * iou * s.dtype.type(-1 / sigma)), 1)
            s[left] = s[left] * factor.astype(s.dtype)
        left = left[s[left] > score_threshold]
    return torch.tensor(keep, dtype=torch.int64), torch.tensor(np.array(values, s.dtype))
