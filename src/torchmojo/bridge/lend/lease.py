"""A foreign object's memory, borrowed for one call, and the record that glue reads of it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from torchmojo.bridge import doors
from torchmojo.dtypes import DTypeInfo
from torchmojo.errors import LayoutError

__all__ = ["Lease", "contiguous", "in_elements", "reach"]


class Record(ctypes.Structure):
    """Nine words. The lease that holds it also holds the arrays and the lender.

    Attributes:
        data: Address of element ``[0, ..., 0]``.
        shape: Address of ``ndim`` 64-bit sizes.
        strides: Address of ``ndim`` 64-bit strides in elements.
        ndim: Number of axes.
        dtype: Torch's number of the dtype, -1 for one that kernels do not know.
        read_only: 1 where memory must not be written.
        low: First byte that belongs to the lender.
        high: One past its last byte.
        handle: 0; only torch tensors have one.
    """

    _fields_ = (
        ("data", ctypes.c_int64),
        ("shape", ctypes.c_int64),
        ("strides", ctypes.c_int64),
        ("ndim", ctypes.c_int64),
        ("dtype", ctypes.c_int64),
        ("read_only", ctypes.c_int64),
        ("low", ctypes.c_int64),
        ("high", ctypes.c_int64),
        ("handle", ctypes.c_int64),
    )


class Lease:
    """A foreign object's memory, borrowed.

    Attributes:
        record: Address of the record that the glue reads (an int object, found by its offset).
        dtype: The dtype, or None for one that kernels do not know.
        shape: Sizes.
        strides: Strides in elements.
        read_only: Whether memory must not be written.
        type_name: Compact name of the dtype for messages, also of an unknown one.
    """

    __slots__ = (
        "_arrays",
        "_giver",
        "_lender",
        "_record",
        "dtype",
        "read_only",
        "record",
        "shape",
        "strides",
        "type_name",
    )

    def __init__(
        self,
        lender: object,
        give_back: Callable[[], None] | None,
        *,
        data: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: DTypeInfo | None,
        type_name: str,
        read_only: bool,
        low: int | None = None,
        high: int | None = None,
    ) -> None:
        """Describes borrowed memory; ``low`` and ``high`` bound what the lender owns."""
        count = len(shape)
        sizes = (ctypes.c_int64 * max(count, 1))(*shape)
        steps = (ctypes.c_int64 * max(count, 1))(*strides)
        if low is None or high is None:
            low, high = reach(data, shape, strides, dtype.width if dtype else 1)
        self._record = Record(
            data,
            ctypes.addressof(sizes),
            ctypes.addressof(steps),
            count,
            dtype.code if dtype else -1,
            int(read_only),
            low,
            high,
            0,
        )
        self._arrays = (sizes, steps)
        self._lender = lender
        self._giver = give_back
        self.record = ctypes.addressof(self._record)
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.read_only = read_only
        self.type_name = type_name

    def release(self) -> None:
        """Gives the memory back; a second call does nothing."""
        give_back, self._giver = self._giver, None
        self._lender = None
        if give_back is not None:
            give_back()

    def __del__(self) -> None:
        """Gives the memory back if nobody did."""
        if getattr(self, "_giver", None) is not None:
            self.release()


def reach(
    data: int, shape: tuple[int, ...], strides: tuple[int, ...], width: int
) -> tuple[int, int]:
    """Returns the bytes that shape and strides reach; the lender vouches for them.

    Args:
        data: Address of the first element.
        shape: Sizes.
        strides: Strides in elements.
        width: Bytes of an element.
    """
    if 0 in shape:
        return data, data
    low = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)
    high = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0)
    return data + low * width, data + (high + 1) * width


def contiguous(shape: tuple[int, ...], width: int) -> tuple[int, ...]:
    """Returns row-major strides.

    Args:
        shape: Sizes.
        width: Stride of the last axis.
    """
    steps = [width] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        steps[i] = steps[i + 1] * max(shape[i + 1], 1)
    return tuple(steps)


def in_elements(
    steps: tuple[int, ...], shape: tuple[int, ...], width: int, what: str
) -> tuple[int, ...]:
    """Turns strides in bytes into strides in elements.

    Args:
        steps: Strides in bytes.
        shape: Sizes.
        width: Bytes of an element.
        what: Operation and argument for messages.

    Raises:
        LayoutError: A stride is no multiple of the element size.
    """
    if any(step % max(width, 1) for step, n in zip(steps, shape, strict=True) if n > 1):
        raise LayoutError(
            f"{what}: wanted strides that are multiples of the element size, given strides "
            f"{steps} bytes of {width}-byte elements; write x.copy()"
        )
    return tuple(step // max(width, 1) for step in steps)


def _open() -> None:
    """Tells the door table where a lease keeps the address of its record."""
    sample = Lease(
        None, None, data=0, shape=(), strides=(), dtype=None, type_name="", read_only=True
    )
    marker = object()
    sample.record = marker  # type: ignore[assignment]
    for offset in range(16, Lease.__basicsize__, 8):
        if ctypes.c_uint64.from_address(id(sample) + offset).value == id(marker):
            doors.set_word(doors.LEASE_RECORD, offset)
            doors.set_word(doors.LEASE_TYPE, id(Lease))
            return
    raise RuntimeError("no slot `record` in a Lease")


_open()
