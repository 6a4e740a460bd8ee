"""Makes handles: finds out what an object lends, and by which rule."""

from __future__ import annotations

import sys
from typing import Any

from torchmojo.bridge import aten, doors
from torchmojo.bridge.lend import Lease, borrow, consume, is_capsule
from torchmojo.bridge.lend.dlpack import request
from torchmojo.bridge.refuse.facts import facts, is_plain_tensor, quiet, show
from torchmojo.bridge.share.handle import Handle, State, is_array
from torchmojo.errors import ArgumentError, DeviceError, LayoutError, NoDataError, ReadOnlyError

__all__ = ["outline", "share"]

_MODES = (None, "owned", "borrowed", "borrowed_immutable")


def share(x: Any, mode: State | None = None) -> Handle:
    """Holds an object's memory in a handle; nothing is copied.

    Args:
        x: A torch tensor of any strides; a NumPy array; any object with the buffer protocol,
            ``__dlpack__`` or ``__array_interface__``; a DLPack capsule, which is used up; a handle.
        mode: By whose rule. ``"borrowed"``: the lender frees, the memory may be written.
            ``"borrowed_immutable"``: the lender frees, nobody writes through this handle.
            ``"owned"``: a hand-over by DLPack; ``release()`` runs the producer's deleter, once.
            None: owned for a capsule, else borrowed, immutable where the lender is read-only.

    Returns:
        A handle. It keeps ``x`` and its buffer export until it is released.

    Raises:
        ArgumentError: The mode is none of these.
        DTypeError: The object lends no memory.
        DeviceError: The memory is not the CPU's.
        LayoutError: The tensor has no strides (sparse, nested).
        NoDataError: It has no memory, less than its shape says, or a capsule was used before.
        ReadOnlyError: ``"borrowed"`` is asked of memory that is read-only.
        HandleError: It is a handle that was released.

    Example:
        >>> import numpy, torchmojo
        >>> a = numpy.zeros((2, 3), dtype=numpy.float32)
        >>> with torchmojo.share(a, mode="borrowed_immutable") as handle:
        ...     print(handle.address == a.ctypes.data, handle.strides, handle.state)
        True (3, 1) borrowed_immutable
    """
    frame = sys._getframe(1)
    code, at = frame.f_code, frame.f_lasti
    if mode not in _MODES:
        raise ArgumentError(
            f"share: mode: wanted None, 'owned', 'borrowed' or 'borrowed_immutable', given {mode!r}"
        )
    torch: Any = sys.modules.get("torch")
    is_tensor = torch is not None and isinstance(x, torch.Tensor)
    if is_tensor and mode != "owned":
        return _of_tensor(x, None, mode == "borrowed_immutable", code, at)
    if isinstance(x, Handle):
        return _again(x, mode, code, at)
    owned = mode == "owned" or is_capsule(x)
    lease = _take(x) if owned else borrow(x, "share")
    if lease.read_only and mode == "borrowed":
        given = show(lease)
        lease.release()
        raise ReadOnlyError(
            f"share: x: wanted memory that may be written, given {given}; "
            'share it as mode="borrowed_immutable"'
        )
    frozen = mode == "borrowed_immutable" or lease.read_only
    if is_tensor:  # what was handed over is the tensor's storage, which the tensor can still resize
        return _of_tensor(x, lease, frozen, code, at)
    # An array can move in spite of an export (resize(refcheck=False)), so the glue looks again.
    again = is_array(x) and _is_plain(lease)
    address, shape, strides, dtype = lease.data, lease.shape, _told(lease), lease.dtype
    if owned and again:  # told as it will be looked at: DLPack has other strides for no elements
        address, shape, strides, dtype = outline(x, "share")
    return Handle._make(
        None if is_capsule(x) else x,
        x if again else lease,
        lease,
        address,
        shape,
        strides,
        dtype,
        frozen,
        owned,
        code,
        at,
    )


def _of_tensor(x: Any, lease: Lease | None, frozen: bool, code: Any, at: int) -> Handle:
    """Makes a handle on a torch tensor; ``lease`` is what a hand-over gave, and taken over."""
    torch = sys.modules["torch"]
    target = x if type(x) is torch.Tensor else _plain(x)
    address, shape, strides, dtype = outline(target, "share")
    if not frozen and torch._C._is_cow_tensor(target):
        with quiet():
            address = target.data_ptr()  # a lazy clone gets memory of its own, and moves no more
    return Handle._make(
        x, target, lease, address, shape, strides, dtype, frozen, lease is not None, code, at
    )


def _told(lease: Lease) -> tuple[int, ...]:
    """Returns the strides that a record of the lease tells the glue."""
    return (0,) * len(lease.shape) if lease.strides is None else lease.strides


def _is_plain(lease: Lease) -> bool:
    """Returns whether the glue reads the lender itself."""
    return lease.dtype is not None and lease.strides is not None and not lease.swapped


def _take(x: Any) -> Lease:
    """Takes memory over from a capsule, or from the capsule that an object makes."""
    if is_capsule(x):
        return consume(x, "share")
    if not hasattr(x, "__dlpack__"):
        raise ArgumentError(
            f"share: x: wanted a DLPack capsule or an object with __dlpack__ to own, given "
            f'{show(x)}; share it as mode="borrowed"'
        )
    return consume(request(x, "share"), "share")


def _again(x: Handle, mode: State | None, code: Any, at: int) -> Handle:
    """Makes a second handle on what a handle holds; each is released by itself."""
    lease = x._lease
    lender, target = x._lender, x._check("share")
    if x._frozen and mode == "borrowed":
        raise ReadOnlyError(
            f"share: x: wanted memory that may be written, given {x!r}; "
            'share it as mode="borrowed_immutable"'
        )
    if mode == "owned" and not x._owned:
        raise ArgumentError(f"share: x: wanted an owner to share ownership with, given {x!r}")
    if lease is not None:
        lease.hold()
    frozen = x._frozen or mode == "borrowed_immutable"
    return Handle._make(
        lender,
        target,
        lease,
        x._address,
        x._shape,
        x._strides,
        x._dtype,
        frozen,
        x._owned and mode in (None, "owned"),
        code,
        at,
    )


def _plain(x: Any) -> Any:
    """Returns a tensor that the glue reads, sharing everything with one of a subclass."""
    with quiet():
        if not is_plain_tensor(type(x)):
            raise NoDataError(
                f"share: x: wanted a tensor with memory of its own, given {facts(x)}; share it "
                "outside of tracing and compiled code"
            )
        if not aten.open_door().open or doors.add_tensor_type(type(x)):
            return x
        return x.as_subclass(sys.modules["torch"].Tensor)


def outline(target: Any, what: str) -> tuple[int, tuple[int, ...], tuple[int, ...], Any]:
    """Reads address, sizes, strides and dtype of a handle's target as they are now.

    Args:
        target: A torch tensor or a NumPy array.
        what: Operation for messages.

    Raises:
        DeviceError: The tensor is not the CPU's.
        LayoutError: It has no strides.
        NoDataError: It has no memory, or less than its shape and strides need.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(target, torch.Tensor):
        lease = borrow(target, what)
        try:
            return lease.data, lease.shape, _told(lease), lease.dtype
        finally:
            lease.release()
    if type(target) is not torch.Tensor:
        with quiet():
            return _read(target, what, torch)
    return _read(target, what, torch)


def _read(x: Any, what: str, torch: Any) -> tuple[int, tuple[int, ...], tuple[int, ...], Any]:
    if not x.is_cpu:
        advice = "write x.cpu(), which copies"
        if x.is_meta:
            advice = "a meta tensor has no data; share real tensors"
        raise DeviceError(f"{what}: x: wanted cpu, given {facts(x)}; {advice}")
    if x.layout is not torch.strided or x.is_nested:
        raise LayoutError(
            f"{what}: x: wanted a strided tensor, given {facts(x)}; write x.to_dense()"
        )
    shape, strides, size = x.shape, x.stride(), x.itemsize
    try:
        held = x.untyped_storage().nbytes()
        start = torch._C._data_address(x)  # of the storage
    except (RuntimeError, NotImplementedError):
        held = start = 0
    offset = x.storage_offset()
    address = start + offset * size if start and 0 not in shape else 0
    reach = offset + 1
    for n, s in zip(shape, strides, strict=True):
        reach += (n - 1) * s
    if 0 not in shape and reach * size > held:
        raise NoDataError(
            f"{what}: x: wanted {reach * size} bytes for its shape and strides, given {facts(x)} "
            f"with a storage of {held} bytes"
        )
    if 0 not in shape and address == 0:
        raise NoDataError(
            f"{what}: x: wanted a tensor with memory of its own, given {facts(x)} without; share "
            "it outside of function transforms"
        )
    return address, tuple(shape), strides, x.dtype
