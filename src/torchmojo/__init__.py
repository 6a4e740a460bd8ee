"""Write the slow part of a PyTorch model in Mojo and call it on your tensors, with no copy.

Importing this package compiles nothing, starts no process and imports neither torch nor NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchmojo import errors as _errors
from torchmojo._version import __version__

if TYPE_CHECKING:
    from torchmojo.bridge.explain import Explanation, explain
    from torchmojo.bridge.kernel import Kernel
    from torchmojo.errors import *  # noqa: F403
    from torchmojo.library import Library, inline, load

_LAZY = {
    "Explanation": "torchmojo.bridge.explain",
    "Kernel": "torchmojo.bridge.kernel",
    "Library": "torchmojo.library",
    "explain": "torchmojo.bridge.explain",
    "inline": "torchmojo.library",
    "load": "torchmojo.library",
}

__all__ = [*_errors.__all__, *_LAZY, "__version__"]  # noqa: PLE0604

for _name in _errors.__all__:
    globals()[_name] = getattr(_errors, _name)


def __getattr__(name: str) -> Any:
    """Imports the part that a public name lives in when it is first used."""
    from importlib import import_module

    if name not in _LAZY:
        raise AttributeError(f"module 'torchmojo' has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Lists the public names."""
    return sorted(__all__)
