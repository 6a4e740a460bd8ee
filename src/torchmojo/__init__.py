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
    DeviceError,
    DTypeError,
    GradError,
    KernelError,
    LayoutError,
    LibraryError,
    NoDataError,
    ReadOnlyError,
    ShapeError,
    SignatureError,
    TorchmojoError,
    TorchmojoWarning,
)

if TYPE_CHECKING:
    from torchmojo.bridge.kernel import Kernel
    from torchmojo.bridge.refuse.explain import Explanation, explain
    from torchmojo.library import Library, inline, load

__all__ = [
    "AliasError",
    "ArgumentError",
    "BoundsError",
    "CompileError",
    "CompilerNotFoundError",
    "DTypeError",
    "DeviceError",
    "Explanation",
    "GradError",
    "Kernel",
    "KernelError",
    "LayoutError",
    "Library",
    "LibraryError",
    "NoDataError",
    "ReadOnlyError",
    "ShapeError",
    "SignatureError",
    "TorchmojoError",
    "TorchmojoWarning",
    "__version__",
    "explain",
    "inline",
    "load",
]

_PLACES = {
    "Explanation": "torchmojo.bridge.refuse.explain",
    "Kernel": "torchmojo.bridge.kernel",
    "Library": "torchmojo.library",
    "explain": "torchmojo.bridge.refuse.explain",
    "inline": "torchmojo.library",
    "load": "torchmojo.library",
}


def __getattr__(name: str) -> Any:
    """Imports the part that a public name lives in when it is first used."""
    from importlib import import_module

    if name not in _PLACES:
        raise AttributeError(f"module 'torchmojo' has no attribute {name!r}")
    value = getattr(import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Lists the public names."""
    return sorted(__all__)
