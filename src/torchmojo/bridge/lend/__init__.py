"""Borrows memory from objects that are not torch tensors.

Three protocols, in this order: the buffer protocol (NumPy arrays, ``array``, ``bytes``, ``mmap``,
``memoryview``), DLPack (``__dlpack__``), and NumPy's array interface (``__array_interface__``). A
lease holds the lender and gives everything back when it is released, also when the call fails.
"""

from __future__ import annotations

from torchmojo.bridge.lend.buffer import from_buffer, has_buffer
from torchmojo.bridge.lend.dlpack import consume, from_dlpack, is_capsule, look
from torchmojo.bridge.lend.interface import from_array_interface
from torchmojo.bridge.lend.lease import Lease, open_leases
from torchmojo.errors import DTypeError

__all__ = ["Lease", "borrow", "consume", "has_buffer", "is_capsule", "look", "open_leases"]


def borrow(thing: object, what: str) -> Lease:
    """Borrows an object's memory.

    Args:
        thing: Anything with the buffer protocol, ``__dlpack__`` or ``__array_interface__``, or a
            DLPack capsule, which is used up.
        what: Operation and argument for messages, as ``scaled_add: a``.

    Returns:
        A lease; nothing has been copied. The caller releases it.

    Raises:
        DTypeError: The object is no tensor at all.
        DeviceError: Its memory is not the CPU's.
        LayoutError: Its memory is indirect.
        NoDataError: It describes memory that it does not have.
    """
    if is_capsule(thing):
        return consume(thing, what)
    lease = from_buffer(thing, what)
    if lease is None and hasattr(thing, "__dlpack__"):
        lease = from_dlpack(thing, what)
    if lease is None and hasattr(thing, "__array_interface__"):
        lease = from_array_interface(thing, what)
    if lease is None:
        kind = type(thing)
        raise DTypeError(
            f"{what}: wanted a tensor (torch, NumPy, or any object with the buffer protocol or "
            f"__dlpack__), given {kind.__module__}.{kind.__qualname__}"
        )
    return lease
