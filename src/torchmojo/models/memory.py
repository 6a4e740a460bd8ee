"""Whether a tensor has the memory that its sizes speak of; all that code without bounds reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchmojo.errors import ModelError

__all__ = ["extent", "has_memory", "refuse_recording", "torch_wraps"]


def extent(sizes: Sequence[int], strides: Sequence[int], itemsize: int) -> int:
    """Returns the bytes from the first element to the end of the last; 0 without elements.

    Args:
        sizes: One for each axis.
        strides: In elements, none negative.
        itemsize: Bytes of an element.

    Example:
        >>> extent((2, 3), (4, 1), 8)
        56
    """
    if 0 in sizes:
        return 0
    return itemsize * (1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)))


def torch_wraps(value: Any) -> bool:
    """Returns whether a tensor, though of torch's own type, only stands for another one.

    Args:
        value: A tensor; of ``torch.vmap``, ``torch.func`` or functionalization, for a yes.
    """
    import torch

    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(value)
    return bool(wrapped or torch._is_functional_tensor(value))


def has_memory(value: Any) -> bool:
    """Returns whether a tensor's storage holds all of its elements.

    ``untyped_storage().resize_(0)`` takes the memory of a tensor that keeps its sizes, and a
    ZeroTensor never had any.

    Args:
        value: A strided tensor of the CPU or another device, not wrapped.
    """
    if value._is_zerotensor():
        return False
    reach = extent(value.shape, value.stride(), value.itemsize)
    if not reach:
        return True
    start = value.storage_offset() * value.itemsize
    return bool(start + reach <= value.untyped_storage().nbytes())


def refuse_recording() -> None:
    """Refuses a call that something records: what it returned would become a constant.

    Raises:
        ModelError: ``make_fx``, ``FakeTensorMode`` or functionalization are at work.
    """
    import torch

    if not torch._C._len_torch_dispatch_stack():
        return
    for key in torch._C._TorchDispatchModeKey.__members__.values():
        if torch._C._get_dispatch_mode(key) is not None:
            mode = type(torch._C._get_dispatch_mode(key)).__name__
            raise ModelError(
                f"Model: wanted a call that computes, given one under {mode}, which would record "
                "its result as a constant; wrap the call with torchmojo.op, or export the module"
            )
