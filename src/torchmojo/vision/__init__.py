"""Pictures around a model: Mojo prepares pixels, torch infers, Mojo decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchmojo.vision.detections import (
    Detections,
    decode_heatmap,
    decode_mtcnn,
    decode_ssd,
    decode_yolo,
)
from torchmojo.vision.geometry import Geometry
from torchmojo.vision.operators import register_operators
from torchmojo.vision.pipeline.pipeline import Pipeline
from torchmojo.vision.pipeline.record import Classes, Record, Summary
from torchmojo.vision.pipeline.results import Results
from torchmojo.vision.pipeline.stages import (
    HeatMaps,
    Prepare,
    TopClasses,
    multiple_of,
    short_side,
)
from torchmojo.vision.prepare import Prepared, prepare
from torchmojo.vision.suppress import batched_nms, nms, soft_nms

if TYPE_CHECKING:
    from torchmojo.vision.ready.blazeface import blazeface
    from torchmojo.vision.ready.centerface import centerface
    from torchmojo.vision.ready.mobilenet import mobilenet_v2
    from torchmojo.vision.ready.mtcnn import mtcnn

__all__ = [
    "Classes",
    "Detections",
    "Geometry",
    "HeatMaps",
    "Pipeline",
    "Prepare",
    "Prepared",
    "Record",
    "Results",
    "Summary",
    "TopClasses",
    "batched_nms",
    "blazeface",
    "centerface",
    "decode_heatmap",
    "decode_mtcnn",
    "decode_ssd",
    "decode_yolo",
    "mobilenet_v2",
    "mtcnn",
    "multiple_of",
    "nms",
    "prepare",
    "register_operators",
    "short_side",
    "soft_nms",
]

_READY = {
    "blazeface": "blazeface",
    "centerface": "centerface",
    "mobilenet_v2": "mobilenet",
    "mtcnn": "mtcnn",
}


def __getattr__(name: str) -> Any:
    """Imports a ready pipeline when it is first asked for."""
    from importlib import import_module

    if name not in _READY:
        raise AttributeError(f"module 'torchmojo.vision' has no attribute {name!r}")
    return getattr(import_module(f"torchmojo.vision.ready.{_READY[name]}"), name)
