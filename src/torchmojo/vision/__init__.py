"""Pictures around a model: Mojo prepares pixels, torch infers."""

from __future__ import annotations

from torchmojo.vision.geometry import Geometry
from torchmojo.vision.prepare import Prepared, prepare

__all__ = ["Geometry", "Prepared", "prepare"]
