"""Whether a part of a module is in training mode, where a run draws numbers and changes state."""

from __future__ import annotations

from typing import Any

__all__ = ["training_part"]


def training_part(model: Any) -> str | None:
    """Returns the first part of a module that is in training mode, as messages show it.

    One that was frozen has no mode; one that was exported has that of its export, whatever its flag
    says, and forbids to change it by a ``train`` of its own.

    Args:
        model: Any object.

    Example:
        >>> import torch
        >>> net = torch.nn.Sequential(torch.nn.Dropout()).eval()
        >>> net[0].train()
        Dropout(p=0.5, inplace=False)
        >>> training_part(net)
        'Dropout (0)'
    """
    if not hasattr(model, "named_modules") or "train" in getattr(model, "__dict__", {}):
        return None
    for name, module in model.named_modules():
        if getattr(module, "training", False):
            kind = getattr(module, "original_name", type(module).__name__)
            return f"{kind} ({name})" if name else str(kind)
    return None
