"""The operators ``torch.ops.torchmojo_vision.*``: compiled and registered when first needed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchmojo.library import load
from torchmojo.ops.op import op

__all__ = ["FIXED", "call", "register_operators"]

NAMESPACE = "torchmojo_vision"
FOLDER = Path(__file__).with_name("decide")
DTYPES = ("float16", "bfloat16", "float32", "float64")
FIXED = 7  # columns of every table of detections

_FILES = {
    "nms": "suppress",
    "batched_nms": "suppress",
    "soft_nms": "suppress",
    "decode_heatmap": "decode",
    "decode_ssd": "decode",
    "decode_yolo": "decode",
    "decode_mtcnn": "decode",
}
_operators: dict[str, Any] = {}
_lock = threading.RLock()


def register_operators() -> None:
    """Registers all operators, which the functions of this package do by themselves.

    A program calls it before it loads an exported one that holds them, or names them itself, as in
    ``torch.ops.torchmojo_vision.nms``. The first time on a machine it compiles them, for some 20 s.

    Raises:
        CompilerNotFoundError: There is no Mojo compiler.

    Example:
        >>> import torch, torchmojo.vision                                  # doctest: +SKIP
        >>> torchmojo.vision.register_operators()                           # doctest: +SKIP
        >>> program = torch.export.load("detector.pt2").module()            # doctest: +SKIP
    """
    for name in _FILES:
        _is_registered(name)


def call(name: str, *args: Any) -> Any:
    """Calls an operator, registered with those of its file when the first of them is called.

    Args:
        name: Such as ``nms``.
        *args: Its arguments.

    Raises:
        CompilerNotFoundError: There is no Mojo compiler.
    """
    assert _is_registered(name)
    return _operators[name](*args)


# torch.compile does not trace it: it calls it.
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator, unused-ignore]
def _is_registered(name: str) -> bool:
    """Registers an operator, unless it is; returns True."""
    if name not in _operators:
        with _lock:
            if name not in _operators:
                file = _FILES[name]
                kernels = load(FOLDER / f"{file}.mojo", dtypes=DTYPES)
                _operators.update(_suppress(kernels) if file == "suppress" else _decode(kernels))
    return True


# --- what each takes, and what it makes of how many rows nobody knows beforehand ----------------


def _some(like: Tensor, *sizes: int, dtype: torch.dtype) -> Tensor:
    return like.new_empty((torch.library.get_ctx().new_dynamic_size(), *sizes), dtype=dtype)


def _suppress(kernels: Any) -> dict[str, Any]:
    @op(f"{NAMESPACE}::nms", kernels.nms)
    def nms(
        boxes: Tensor,
        scores: Tensor,
        iou_threshold: float,
        max_output: int | None = None,
        score_threshold: float | None = None,
        smaller: bool = False,
    ) -> Tensor:
        return _some(boxes, dtype=torch.int64)

    @op(f"{NAMESPACE}::batched_nms", kernels.batched_nms)
    def batched_nms(
        boxes: Tensor,
        scores: Tensor,
        groups: Tensor,
        iou_threshold: float,
        max_output: int | None = None,
        score_threshold: float | None = None,
        smaller: bool = False,
    ) -> Tensor:
        return _some(boxes, dtype=torch.int64)

    @op(f"{NAMESPACE}::soft_nms", kernels.soft_nms)
    def soft_nms(
        boxes: Tensor,
        scores: Tensor,
        iou_threshold: float,
        sigma: float,
        score_threshold: float,
        gaussian: bool,
    ) -> Tensor:
        return _some(boxes, 2, dtype=torch.float64)

    return {"nms": nms, "batched_nms": batched_nms, "soft_nms": soft_nms}


def _decode(kernels: Any) -> dict[str, Any]:
    @op(f"{NAMESPACE}::decode_heatmap", kernels.decode_heatmap)
    def decode_heatmap(
        heatmap: Tensor,
        scale: Tensor,
        offset: Tensor,
        score_threshold: float,
        stride: float = 4.0,
        landmarks: Tensor | None = None,
    ) -> Tensor:
        extra = 0 if landmarks is None else landmarks.shape[1]
        return _some(heatmap, FIXED + extra, dtype=torch.float64)

    @op(f"{NAMESPACE}::decode_ssd", kernels.decode_ssd)
    def decode_ssd(
        regressions: Tensor,
        scores: Tensor,
        anchors: Tensor,
        score_threshold: float,
        centre_variance: float = 0.1,
        size_variance: float = 0.2,
        exponential: bool = True,
        logits: bool = False,
    ) -> Tensor:
        return _some(scores, FIXED + regressions.shape[2] - 4, dtype=torch.float64)

    @op(f"{NAMESPACE}::decode_yolo", kernels.decode_yolo)
    def decode_yolo(predictions: Tensor, score_threshold: float, objectness: bool = True) -> Tensor:
        return _some(predictions, FIXED, dtype=torch.float64)

    @op(f"{NAMESPACE}::decode_mtcnn", kernels.decode_mtcnn)
    def decode_mtcnn(
        probabilities: Tensor, offsets: Tensor, score_threshold: float, scale: float = 1.0
    ) -> Tensor:
        return _some(probabilities, FIXED + 4, dtype=torch.float64)

    return {
        "decode_heatmap": decode_heatmap,
        "decode_ssd": decode_ssd,
        "decode_yolo": decode_yolo,
        "decode_mtcnn": decode_mtcnn,
    }
