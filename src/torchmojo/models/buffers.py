"""Keeps a module's buffers as they are, whatever its runs do to them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["unchanged_buffers"]


@contextlib.contextmanager
def unchanged_buffers(model: Any) -> Iterator[None]:
    """Gives buffers that are changed, resized, replaced or filled inside the ``with`` back.

    A buffer that was not changed is not written: its memory may be a mapped file's. Those on the
    meta device have no values to keep.

    Args:
        model: Anything; only modules have buffers.

    Example:
        >>> import torch
        >>> norm = torch.nn.BatchNorm1d(3)
        >>> with unchanged_buffers(norm):
        ...     _ = norm(torch.ones(2, 3))
        >>> int(norm.num_batches_tracked)
        0
    """
    buffers = dict(model.named_buffers()) if hasattr(model, "named_buffers") else {}
    values = {name: buffer.clone() for name, buffer in buffers.items() if not buffer.is_meta}
    none = [
        (module, name)
        for module in (model.modules() if hasattr(model, "modules") else ())
        for name, buffer in _slots(module)
        if buffer is None
    ]
    try:
        yield
    finally:
        now = dict(model.named_buffers()) if buffers else {}
        for name, buffer in buffers.items():
            if now.get(name) is not buffer:
                owner, _, leaf = name.rpartition(".")
                setattr(dict(model.named_modules())[owner], leaf, buffer)
            if name in values:
                _give_back(buffer, values[name])
        for module, name in none:
            if getattr(module, name, None) is not None:
                setattr(module, name, None)


def _slots(module: Any) -> list[tuple[str, Any]]:
    """Returns the buffers of one module with those that are None; none of a scripted one."""
    slots = vars(module).get("_buffers")
    return list(slots.items()) if isinstance(slots, dict) else []


def _give_back(buffer: Any, value: Any) -> None:
    """Writes a value into a buffer if it has another."""
    if _same(buffer, value):
        return
    if buffer.shape != value.shape:
        buffer.resize_(value.shape)
    buffer.copy_(value)


def _same(one: Any, other: Any) -> bool:
    """Returns whether two tensors are equal for sure."""
    import torch

    # Not by version: inference mode does not count changes.

    try:
        return bool(torch.equal(one, other))
    except RuntimeError:  # sparse ones, and dtypes that torch cannot compare
        return False
