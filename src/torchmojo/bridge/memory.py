"""A tensor's memory as a buffer, for what takes neither tensors nor NumPy's arrays."""

from __future__ import annotations

import ctypes
from typing import Any

__all__ = ["bytes_of"]


def bytes_of(tensor: Any) -> Any:
    """Returns a buffer over a tensor of bytes, good as long as the tensor lives.

    Args:
        tensor: A dense tensor ``[nbytes]`` of uint8 on the CPU; nothing is copied.

    Example:
        >>> import torch
        >>> bytes(bytes_of(torch.tensor([104, 105], dtype=torch.uint8)))
        b'hi'
    """
    return (ctypes.c_char * tensor.numel()).from_address(tensor.data_ptr())
