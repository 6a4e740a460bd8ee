"""Write the slow part of a PyTorch model in Mojo and call it on your tensors, with no copy.

Importing this package compiles nothing, starts no process and imports neither torch nor NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchmojo._version import __version__
from torchmojo.errors import (
    AliasError,
    ArgumentError,
    BoundsError,
    CompileError,
    CompilerNotFoundError,
    CopyError,
    CopyWarning,
    DeviceError,
    DTypeError,
    ExportError,
    GradError,
    HandleError,
    ImageError,
    KernelError,
    LayoutError,
    LeakError,
    LibraryError,
    ModelError,
    NoDataError,
    ReadOnlyError,
    ShapeError,
    SignatureError,
    TorchmojoError,
    TorchmojoWarning,
    WeightsError,
)

if TYPE_CHECKING:
    from torchmojo.bridge.copy.ledger import Copied, CopyReason, copies
    from torchmojo.bridge.copy.policy import fallback, no_copies
    from torchmojo.bridge.kernel import Kernel
    from torchmojo.bridge.refuse.explain import Explanation, explain
    from torchmojo.bridge.share.handle import Handle, live_handles
    from torchmojo.bridge.share.leak import LeakCheck, leak_check
    from torchmojo.bridge.share.lender import share
    from torchmojo.library import Library, inline, load
    from torchmojo.models.model import Model
    from torchmojo.models.prepared.prepare import prepare
    from torchmojo.models.weights.open import open_weights
    from torchmojo.models.weights.weights import Weights
    from torchmojo.ops.file import ops_from
    from torchmojo.ops.op import Op, op

__all__ = [
    "AliasError",
    "ArgumentError",
    "BoundsError",
    "CompileError",
    "CompilerNotFoundError",
    "Copied",
    "CopyError",
    "CopyReason",
    "CopyWarning",
    "DTypeError",
    "DeviceError",
    "Explanation",
    "ExportError",
    "GradError",
    "Handle",
    "HandleError",
    "ImageError",
    "Kernel",
    "KernelError",
    "LayoutError",
    "LeakCheck",
    "LeakError",
    "Library",
    "LibraryError",
    "Model",
    "ModelError",
    "NoDataError",
    "Op",
    "ReadOnlyError",
    "ShapeError",
    "SignatureError",
    "TorchmojoError",
    "TorchmojoWarning",
    "Weights",
    "WeightsError",
    "__version__",
    "copies",
    "explain",
    "fallback",
    "inline",
    "leak_check",
    "live_handles",
    "load",
    "no_copies",
    "op",
    "open_weights",
    "ops_from",
    "prepare",
    "share",
]

_PLACES = {
    "Op": "torchmojo.ops.op",
    "Copied": "torchmojo.bridge.copy.ledger",
    "CopyReason": "torchmojo.bridge.copy.ledger",
    "Explanation": "torchmojo.bridge.refuse.explain",
    "Handle": "torchmojo.bridge.share.handle",
    "Kernel": "torchmojo.bridge.kernel",
    "LeakCheck": "torchmojo.bridge.share.leak",
    "Library": "torchmojo.library",
    "Weights": "torchmojo.models.weights.weights",
    "Model": "torchmojo.models.model",
    "copies": "torchmojo.bridge.copy.ledger",
    "explain": "torchmojo.bridge.refuse.explain",
    "fallback": "torchmojo.bridge.copy.policy",
    "inline": "torchmojo.library",
    "leak_check": "torchmojo.bridge.share.leak",
    "live_handles": "torchmojo.bridge.share.handle",
    "load": "torchmojo.library",
    "no_copies": "torchmojo.bridge.copy.policy",
    "op": "torchmojo.ops.op",
    "open_weights": "torchmojo.models.weights.open",
    "ops_from": "torchmojo.ops.file",
    "prepare": "torchmojo.models.prepared.prepare",
    "share": "torchmojo.bridge.share.lender",
}


def __getattr__(name: str) -> Any:
    """Imports the part that a public name lives in when it is first used."""
    from importlib import import_module

    if name == "vision":
        return import_module("torchmojo.vision")
    if name not in _PLACES:
        raise AttributeError(f"module 'torchmojo' has no attribute {name!r}")
    value = getattr(import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Lists the public names."""
    return sorted(__all__)
