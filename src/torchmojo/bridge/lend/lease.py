"""A foreign object's memory, borrowed, and the record that glue reads of it."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable

from torchmojo.bridge import doors
from torchmojo.dtypes import DTypeInfo
from torchmojo.errors import HandleError

__all__ = ["Lease", "contiguous", "in_elements", "open_leases", "reach"]


class Record(ctypes.Structure):
    """Ten words. The lease that holds it also holds the arrays and the lender.

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
        users: Calls that run on it at this moment, which hold the lease; glue counts them.
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
        ("users", ctypes.c_int64),
    )


class Lease:
    """A foreign object's memory, borrowed.

    Attributes:
        record: Address of the record that the glue reads (an int object, found by its offset).
        dtype: The dtype, or None for one that kernels do not know.
        itemsize: Bytes of an element.
        shape: Sizes.
        steps: Strides in bytes.
        strides: Strides in elements, or None where a step is no multiple of the element.
        read_only: Whether memory must not be written.
        swapped: Whether bytes are in foreign order; kernels then get a copy or nothing.
        type_name: Compact name of the dtype for messages, also of an unknown one.
    """

    __slots__ = (
        "_arrays",
        "_giver",
        "_holders",
        "_lender",
        "_record",
        "dtype",
        "itemsize",
        "read_only",
        "record",
        "shape",
        "steps",
        "strides",
        "swapped",
        "type_name",
    )

    def __init__(
        self,
        lender: object,
        give_back: Callable[[], None] | None,
        *,
        data: int,
        shape: tuple[int, ...],
        steps: tuple[int, ...],
        dtype: DTypeInfo | None,
        type_name: str,
        read_only: bool,
        swapped: bool = False,
        itemsize: int = 1,
    ) -> None:
        """Describes borrowed memory, whose extent the lender vouches for.

        ``itemsize`` is that of an unknown dtype; a known one has its own.
        """
        count = len(shape)
        width = dtype.width if dtype else itemsize
        strides = in_elements(steps, shape, width)
        sizes = (ctypes.c_int64 * max(count, 1))(*shape)
        elements = (ctypes.c_int64 * max(count, 1))(*(strides or ()))
        low, high = reach(data, shape, steps, width)
        plain = dtype is not None and strides is not None and not swapped
        self._record = Record(
            data,
            ctypes.addressof(sizes),
            ctypes.addressof(elements),
            count,
            dtype.code if dtype and plain else -1,
            int(read_only),
            low,
            high,
            0,
        )
        self._arrays = (sizes, elements)
        self._lender = lender
        self._giver = give_back
        self._holders = 1
        self.record = ctypes.addressof(self._record)
        self.dtype = dtype
        self.itemsize = width
        self.shape = shape
        self.steps = steps
        self.strides = strides
        self.read_only = read_only
        self.swapped = swapped
        self.type_name = type_name
        if give_back is not None:
            _open_leases[id(self)] = None

    @property
    def data(self) -> int:
        """Address of element ``[0, ..., 0]``."""
        return int(self._record.data)

    def own(self, give_back: Callable[[], None]) -> None:
        """Takes on a duty that ends with the last holder, in place of the lender.

        Args:
            give_back: Called once.
        """
        self._lender, self._giver = None, give_back
        _open_leases[id(self)] = None

    def hold(self) -> Lease:
        """Returns itself after counting one more holder, who releases it too.

        Raises:
            HandleError: Another thread has just ended the last holder.
        """
        with _lock:
            if self._holders <= 0:
                raise HandleError("wanted memory that is held, given some that was released")
            self._holders += 1
        return self

    def release(self) -> None:
        """Gives the memory back with the last holder; later calls do nothing.

        A kernel that still runs on it, on another thread, gives it back when it has returned.
        """
        with _lock:
            self._holders -= 1
            last = self._holders == 0
        if last and self._record.users == 0:
            self._finish()

    def _finish(self) -> None:
        give_back, self._giver = self._giver, None
        self._lender = None
        if give_back is not None:
            _open_leases.pop(id(self), None)
            give_back()

    def __del__(self) -> None:
        """Gives the memory back if nobody did."""
        if getattr(self, "_giver", None) is not None:
            self._finish()


_open_leases: dict[int, None] = {}
# For the count of holders. The collector may end another lease in the middle: the same thread then
# comes again. A forked child makes its own, because a thread that it lacks may hold the parent's.
_lock = threading.RLock()


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def open_leases() -> int:
    """Returns how many leases hold an export or a hand-over at this moment."""
    return len(_open_leases)


def reach(data: int, shape: tuple[int, ...], steps: tuple[int, ...], width: int) -> tuple[int, int]:
    """Returns the bytes that shape and strides reach; the lender vouches for them.

    Args:
        data: Address of the first element.
        shape: Sizes.
        steps: Strides in bytes.
        width: Bytes of an element.
    """
    if 0 in shape:
        return data, data
    low = sum((n - 1) * s for n, s in zip(shape, steps, strict=True) if s < 0)
    high = sum((n - 1) * s for n, s in zip(shape, steps, strict=True) if s > 0)
    return data + low, data + high + width


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


_TOP = 2**63


def in_elements(
    steps: tuple[int, ...], shape: tuple[int, ...], width: int
) -> tuple[int, ...] | None:
    """Turns strides in bytes into strides in elements.

    Args:
        steps: Strides in bytes.
        shape: Sizes; the stride of an axis of one element does not matter.
        width: Bytes of an element.

    Returns:
        Strides, or None where one is no multiple of the element size. One that nobody walks and
        that no 64-bit word holds is 0.
    """
    if any(step % width for step, n in zip(steps, shape, strict=True) if n > 1):
        return None
    return tuple(s if -_TOP <= (s := step // width) < _TOP else 0 for step in steps)


def _open() -> None:
    """Tells the door table where a lease keeps the address of its record."""
    sample = Lease(None, None, data=0, shape=(), steps=(), dtype=None, type_name="", read_only=True)
    marker = object()
    sample.record = marker  # type: ignore[assignment]
    for offset in range(16, Lease.__basicsize__, 8):
        if ctypes.c_uint64.from_address(id(sample) + offset).value == id(marker):
            doors.set_word(doors.LEASE_RECORD, offset)
            doors.set_word(doors.LEASE_TYPE, id(Lease))
            return
    raise RuntimeError("no slot `record` in a Lease")


_open()
