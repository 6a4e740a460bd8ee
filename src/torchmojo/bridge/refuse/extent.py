"""Where a tensor lies, as the search for overlaps takes it."""

from __future__ import annotations

from typing import Any

from torchmojo.bridge.lend import Lease, borrow
from torchmojo.bridge.refuse.facts import facts, is_plain_tensor, is_torch_tensor, quiet
from torchmojo.bridge.refuse.overlap import Extent

__all__ = ["extent_of"]


def extent_of(thing: Any) -> Extent | None:
    """Returns where a tensor lies.

    Args:
        thing: A torch tensor, a lease, or an object that ``borrow`` takes.

    Returns:
        None for a tensor without memory on the CPU, which a call refuses anyway.

    Raises:
        TorchmojoError: It lends nothing; see ``borrow``.
    """
    if isinstance(thing, Lease):
        return thing.data, thing.shape, thing.steps, thing.itemsize
    if not is_torch_tensor(thing):
        lease = borrow(thing, "")
        try:
            return extent_of(lease)
        finally:
            lease.release()
    found = facts(thing)
    if found.strides is None or found.device != "cpu" or not is_plain_tensor(type(thing)):
        return None
    with quiet():
        width = thing.itemsize
        try:
            address = thing.data_ptr()  # gives a lazily cloned storage memory of its own
        except RuntimeError:  # under a function transform
            return None
    return address, found.shape or (), tuple(s * width for s in found.strides), width
