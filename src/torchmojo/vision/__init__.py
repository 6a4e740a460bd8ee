"""Pictures around a model: Mojo prepares pixels, torch infers, Mojo decides."""

from __future__ import annotations

from torchmojo.vision.detections import (
    Detections,
    decode_heatmap,
    decode_mtcnn,
    decode_ssd,
    decode_yolo,
)
from torchmojo.vision.geometry import Geometry
from torchmojo.vision.operators import register_operators
from torchmojo.vision.prepare import Prepared, prepare
from torchmojo.vision.suppress import batched_nms, nms, soft_nms

__all__ = [
    "Detections",
    "Geometry",
    "Prepared",
    "batched_nms",
    "decode_heatmap",
    "decode_mtcnn",
    "decode_ssd",
    "decode_yolo",
    "nms",
    "prepare",
    "register_operators",
    "soft_nms",
]
