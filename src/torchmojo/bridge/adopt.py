"""Takes over memory that a kernel made."""

from __future__ import annotations

import sys
from typing import Any

from torchmojo.errors import ArgumentError

__all__ = ["adopt"]


class _Made:
    """A DLPack producer that gives its one capsule away, as ``numpy.from_dlpack`` asks."""

    def __init__(self, capsule: object) -> None:
        self.capsule: Any = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def adopt(capsule: object) -> Any:
    """Makes a Python tensor of memory that a kernel made; nothing is copied.

    Args:
        capsule: A DLPack capsule that owns the memory.

    Returns:
        A torch tensor, or a NumPy array in a process that has not imported torch. It owns the
        memory: the last of its views frees it, on any thread.

    Raises:
        ArgumentError: Neither torch nor NumPy is there.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        return torch.from_dlpack(capsule)
    try:
        import numpy
    except ImportError:
        raise ArgumentError(
            "a kernel made a tensor: wanted torch or NumPy to hold it, given neither; "
            "import torch before the call"
        ) from None
    return numpy.from_dlpack(_Made(capsule))
