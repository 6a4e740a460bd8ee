"""Pictures in and boxes out: what a detector needs before and after its model."""

from torchmojo.vision.decode import (
    Detections,
    decode_heatmap,
    decode_mtcnn,
    decode_ssd,
    decode_yolo,
)
from torchmojo.vision.operators import register_operators
from torchmojo.vision.suppress import batched_nms, nms, soft_nms

__all__ = [
    "Detections",
    "batched_nms",
    "decode_heatmap",
    "decode_mtcnn",
    "decode_ssd",
    "decode_yolo",
    "nms",
    "register_operators",
    "soft_nms",
]
