"""Borrows through NumPy's array interface, for objects that have nothing newer."""

from __future__ import annotations

import math
from operator import index
from typing import Any

from torchmojo.bridge.lend.buffer import NATIVE
from torchmojo.bridge.lend.lease import Lease, contiguous, reach
from torchmojo.dtypes import BY_NAME
from torchmojo.errors import NoDataError, TorchmojoError

__all__ = ["from_array_interface"]

_TOP = 2**63 - 1


def from_array_interface(thing: Any, what: str) -> Lease:
    """Borrows what ``__array_interface__`` describes.

    Args:
        thing: An object with that attribute.
        what: Operation and argument for messages.

    Returns:
        A lease that holds the object and its description.

    Raises:
        NoDataError: There is no address.
    """
    try:
        return _read(thing, thing.__array_interface__, what)
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, TorchmojoError):
            raise
        raise NoDataError(
            f"{what}: wanted a whole __array_interface__, given one that cannot be read: "
            f"{type(error).__name__}: {error}"
        ) from error


def _read(thing: Any, facts: Any, what: str) -> Lease:
    text = facts["typestr"]
    width = int(text[2:])
    kind, plain = text[1], (i for i in BY_NAME.values() if i.name != "bfloat16")
    dtype = next((i for i in plain if i.kind == kind and i.width == width), None)
    if not facts.get("data"):
        raise NoDataError(f"{what}: wanted an address in __array_interface__, given none")
    if not isinstance(facts["data"], tuple):  # a copy made for this occasion, as Pillow does
        raise NoDataError(
            f"{what}: wanted an address in __array_interface__, given "
            f"{type(facts['data']).__name__}; write numpy.asarray(x)"
        )
    address, read_only = index(facts["data"][0]), facts["data"][1]
    shape = tuple(map(index, facts["shape"]))
    given = facts.get("strides")
    steps = contiguous(shape, width) if given is None else tuple(map(index, given))
    low, high = reach(address, shape, steps, width)
    sizes = all(0 <= n <= _TOP for n in shape) and math.prod(shape) <= _TOP
    if not sizes or not 0 <= low <= high <= _TOP:
        raise NoDataError(
            f"{what}: wanted memory below 2^63 bytes, given __array_interface__ shape {shape} "
            f"strides {steps} at {address}"
        )
    return Lease(
        (thing, facts),
        None,
        data=address,
        shape=shape,
        steps=steps,
        dtype=dtype,
        type_name=dtype.short if dtype else f"typestr {text!r}",
        read_only=bool(read_only),
        swapped=text[0] not in ("|", NATIVE) and width > 1,
        itemsize=max(width, 1),
    )
