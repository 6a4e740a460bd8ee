"""What becomes of a level 0..255: colours in the model's order, mean and scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torchmojo.errors import ArgumentError, ShapeError

__all__ = ["Levels", "planes"]

_PLANES = {
    ("gray", "gray"): [0],
    ("gray", "rgb"): [0, 0, 0],
    ("gray", "bgr"): [0, 0, 0],
    ("rgb", "rgb"): [0, 1, 2],
    ("rgb", "bgr"): [2, 1, 0],
    ("bgr", "rgb"): [2, 1, 0],
    ("bgr", "bgr"): [0, 1, 2],
    # Gray of colours takes red, green and blue, in this order.
    ("rgb", "gray"): [0, 1, 2],
    ("bgr", "gray"): [2, 1, 0],
}


def planes(source: str, order: str) -> list[int]:
    """Gives the source channel of each of the model's channels.

    Args:
        source: gray, rgb or bgr.
        order: gray, rgb or bgr.
    """
    return _PLANES[source, order]


@dataclass(frozen=True, slots=True)
class Levels:
    """For each of the model's channels, ``level * factor + shift``, and the level of padding."""

    factor: list[float]
    shift: list[float]
    fill: list[float]

    @classmethod
    def of(cls, count: int, mean: Any, std: Any, scale: Any, pad: Any) -> Levels:
        """Folds ``(level * scale - mean) / std`` into one product and one sum.

        Args:
            count: Channels of the model.
            mean: Number, one for each channel, or None for 0.
            std: Number, one for each channel, or None for 1.
            scale: Number, or one for each channel.
            pad: Level, or one for each channel.

        Raises:
            ArgumentError: Something is no finite number, or a std is 0.
            ShapeError: Another number of values than channels.
        """
        means = _numbers("mean", 0.0 if mean is None else mean, count)
        stds = _numbers("std", 1.0 if std is None else std, count)
        scales = _numbers("scale", scale, count)
        if 0 in stds:
            raise ArgumentError("prepare: std: wanted numbers other than 0, given 0")
        return cls(
            [a / s for a, s in zip(scales, stds, strict=True)],
            [-m / s for m, s in zip(means, stds, strict=True)],
            _numbers("pad", pad, count),
        )


def _numbers(name: str, value: Any, count: int) -> list[float]:
    """Gives one number for each channel."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    several = isinstance(value, Sequence) and not isinstance(value, str)
    values = list(value) if several else [value] * count
    if len(values) != count:
        raise ShapeError(
            f"prepare: {name}: wanted a number or {count}, one for each channel of the model, "
            f"given {len(values)}"
        )
    for number in values:
        if not isinstance(number, (int, float)) or not math.isfinite(number):
            raise ArgumentError(f"prepare: {name}: wanted finite numbers, given {number!r}")
    return [float(number) for number in values]
