"""The checks that torch tensors alone need: layout, device, storage, lazy bits."""

from __future__ import annotations

import sys
from typing import Any

from torchmojo.bridge.code import Code
from torchmojo.bridge.refuse.facts import Facts, has_shape, is_plain_tensor

__all__ = ["check_torch", "data_address"]


def check_torch(thing: Any, found: Facts, check: Any) -> bool:
    """Asks whether a torch tensor has memory on the CPU that holds its values as they are.

    Args:
        thing: The tensor.
        found: Its outline.
        check: Called with name, result, wanted, given, advice and code.

    Returns:
        Whether the checks of its memory can be made.
    """
    plain = is_plain_tensor(type(thing))
    given = type(thing).__name__
    if not check(
        "tensor with memory",
        plain,
        "a tensor with memory of its own",
        f"a {given}" if plain else f"a {given}, which has no data",
        "call the kernel on real tensors, outside of tracing and compiled code"
        if has_shape(type(thing))
        else "run the module once on an input, so that it gets its shape",
        Code.NO_DATA,
    ):
        return False
    strided = found.strides is not None
    if not check(
        "strided",
        strided,
        "a strided tensor",
        "strided" if strided else "nested" if thing.is_nested else str(thing.layout)[6:],
        "write x.to_dense() or take its values",
        Code.LAYOUT_KIND,
    ):
        return False
    device = str(thing.device.type)
    if device == "meta":
        advice = "a meta tensor has no data; call the kernel on real tensors"
        return bool(check("memory", False, "cpu", "meta", advice, Code.DEVICE))
    advice = "write x.cpu(), which copies"
    if not check("device", device == "cpu", "cpu", str(thing.device), advice, Code.DEVICE):
        return False
    missing = _missing_storage(thing)
    if not check(
        "storage",
        not missing,
        "a tensor with memory of its own",
        missing or "memory",
        "write torch.zeros_like(x)"
        if thing._is_zerotensor()
        else "call the kernel outside of torch.vmap, grad and functionalize",
        Code.NO_DATA,
    ):
        return False
    conjugate = thing.is_complex() and thing.is_conj()
    check(
        "conj bit",
        not conjugate,
        "values as they lie in memory",
        "a lazily conjugated view" if conjugate else "as they lie in memory",
        "write x.resolve_conj(), which copies",
        Code.CONJ_BIT,
    )
    check(
        "neg bit",
        not thing.is_neg(),
        "values as they lie in memory",
        "a lazily negated view" if thing.is_neg() else "as they lie in memory",
        "write x.resolve_neg(), which copies",
        Code.NEG_BIT,
    )
    return True


def data_address(thing: Any) -> int:
    """Returns where a tensor lies; unlike ``data_ptr()`` this copies no lazily cloned storage.

    Args:
        thing: A torch tensor.
    """
    start = int(sys.modules["torch"]._C._data_address(thing))  # of the storage
    return start + thing.storage_offset() * thing.itemsize if start else 0


def _missing_storage(thing: Any) -> str:
    """Returns what stands there instead of memory; empty where there is a storage to look at."""
    if thing._is_zerotensor():
        return "zeros that take no memory"
    try:
        held = thing.untyped_storage().nbytes()
        if thing.numel() == 0 or held == 0 or data_address(thing) != 0:
            return ""
    except (RuntimeError, NotImplementedError):
        pass
    return "a tensor under a function transform"
