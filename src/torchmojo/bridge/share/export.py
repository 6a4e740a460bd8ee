"""Lends a handle's memory to other libraries by DLPack."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any

from torchmojo.bridge import core
from torchmojo.bridge.copy.gather import gather
from torchmojo.bridge.copy.ledger import CopyReason, announce, count, place_of_caller
from torchmojo.bridge.copy.policy import policy_for
from torchmojo.bridge.lend import Lease
from torchmojo.bridge.lend.dlpack import IS_COPIED, READ_ONLY, request, set_flags
from torchmojo.bridge.lend.lease import contiguous
from torchmojo.bridge.refuse.facts import is_torch_tensor, quiet, show
from torchmojo.bridge.share.handle import is_array
from torchmojo.dtypes import BY_NAME, DTypeInfo
from torchmojo.errors import CompileError, CompilerNotFoundError, CopyError, ExportError

if TYPE_CHECKING:
    from torchmojo.bridge.share.handle import Handle

__all__ = ["export"]

_WHAT = "__dlpack__"


def export(
    handle: Handle,
    stream: object,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> object:
    """Returns a DLPack capsule over a handle's memory, or over a copy of it.

    Args:
        handle: Open, and as it was when it was made.
        stream: As in ``Handle.__dlpack__``, like the others.
        max_version: Newest version that the consumer takes.
        dl_device: Where the consumer wants it.
        copy: Whether to copy.

    Raises:
        ExportError: It cannot be lent as asked for.
        CopyError: Inside ``no_copies``, where it would be copied.
    """
    if stream is not None:
        raise ExportError(
            f"{_WHAT}: stream: wanted None, as CPU memory has no stream, given {stream!r}"
        )
    if dl_device is not None and tuple(dl_device) != (1, 0):
        raise ExportError(
            f"{_WHAT}: dl_device: wanted (1, 0), the CPU, given {dl_device!r}; export it and move "
            "it in the other library"
        )
    lease = handle._lease
    if lease is None:
        return _export(handle, max_version, copy)
    lease.hold()  # another thread may release the handle while its memory is copied
    try:
        return _export(handle, max_version, copy)
    finally:
        lease.release()


def _export(handle: Handle, max_version: tuple[int, int] | None, copy: bool | None) -> object:
    versioned = max_version is not None and max_version[0] >= 1
    if handle.dtype not in BY_NAME:
        raise ExportError(f"{_WHAT}: x: wanted a dtype of DLPack's, given {handle!r}")
    reason = CopyReason.ASKED if copy else _reason(handle)
    if reason is None:
        if handle._frozen and not versioned:
            raise ExportError(
                f"{_WHAT}: max_version: wanted (1, 0) or newer, which can say that memory is "
                f"read-only, given {max_version!r} for {handle!r}; ask with copy=True"
            )
        return _lend(handle, versioned)
    target = handle._open(_WHAT)
    thing = target if is_torch_tensor(target) else handle._hold()
    if copy is False:
        raise ExportError(
            f"{_WHAT}: copy: wanted None or True, given False for {show(thing)}: {reason}"
        )
    rule = policy_for(None, "x")
    if rule.forbidden:
        raise CopyError(f"{_WHAT}: x: wanted no copy, given {show(thing)}: {reason}")
    if reason is not CopyReason.ASKED:
        if rule.policy == "error":
            raise ExportError(
                f"{_WHAT}: x: wanted memory that DLPack can describe to every consumer, given "
                f"{show(thing)}: {reason}; ask with copy=True"
            )
        if rule.policy == "warn":
            text = f"{_WHAT}: x: copied on its way, given {show(thing)}: {reason}"
            announce(_WHAT, "x", reason, text, place_of_caller())
    copied = gather(thing, BY_NAME[handle.dtype], "any", False)
    count(_WHAT, "x", reason, copied.nbytes, place_of_caller())
    if is_torch_tensor(copied.stand_in):  # made by torch, on a machine without a compiler
        return _of_torch(copied.stand_in, versioned, IS_COPIED)
    return _of_lease(copied.stand_in, versioned, IS_COPIED)


def _reason(handle: Handle) -> CopyReason | None:
    """Returns why the memory cannot be lent as it lies."""
    target, info = handle._open(_WHAT), BY_NAME[handle.dtype]
    if is_torch_tensor(target):
        with quiet():
            if target.is_neg():
                return CopyReason.NEG_BIT
            return CopyReason.CONJ_BIT if target.is_complex() and target.is_conj() else None
    if handle._hold().swapped:
        return CopyReason.BYTE_ORDER
    if handle.strides is None:
        return CopyReason.STEP
    if 0 in handle._shape:
        return None
    part = info.width // 2 if info.parts else info.width
    if handle._address % part:
        return CopyReason.ALIGNMENT
    # torch 2.13 ends the process on these.
    if any(s < 0 for s, n in zip(handle._strides, handle._shape, strict=True) if n > 1):
        return CopyReason.NEGATIVE_STRIDE
    return None


def _lend(handle: Handle, versioned: bool) -> object:
    flags = READ_ONLY if handle._frozen else 0
    target = handle._open(_WHAT)
    if is_torch_tensor(target):
        if handle._frozen and sys.modules["torch"]._C._is_cow_tensor(target):
            return _of_lazy_clone(handle, target)
        return _of_torch(target, versioned, flags)
    try:
        return _of_lease(handle._hold(), versioned, flags)
    except (CompilerNotFoundError, CompileError):
        # A lender that can lends itself, in the form that it knows. One that tells no flags does
        # not do for memory that is read-only, nor one with a negative stride that nobody walks.
        lender: Any = handle._lender
        backwards = is_array(lender) and any(s < 0 for s in lender.strides)
        if not hasattr(lender, _WHAT) or backwards:
            raise
        if not versioned:
            return lender.__dlpack__()
        capsule = request(lender, _WHAT)
        if not set_flags(capsule, flags) and flags:
            raise
        return capsule


def _of_torch(tensor: Any, versioned: bool, flags: int) -> object:
    """Has torch lend it: its deleter needs neither Python nor the GIL."""
    torch = sys.modules["torch"]
    with quiet(), torch.no_grad():
        plain = tensor.detach()
        if not versioned:
            return plain.__dlpack__()
        capsule = plain.__dlpack__(max_version=(1, 0))
    set_flags(capsule, flags)
    return capsule


def _of_lazy_clone(handle: Handle, target: Any) -> object:
    """Lends what a lazily cloned tensor shares with others, where torch would copy it unasked."""
    torch = sys.modules["torch"]
    with quiet(), torch.no_grad():
        # Of the same memory, which it keeps when the target is written and gets memory of its own.
        own = torch._lazy_clone(target.detach())
    strides, info = handle._strides, BY_NAME[handle.dtype]
    return _of(own, handle._address, handle._shape, strides, info, True, READ_ONLY)


class _Holder:
    """What a capsule keeps alive: one holder of a lease, who lets go with the capsule."""

    __slots__ = ("_lease",)

    def __init__(self, lease: Lease) -> None:
        self._lease = lease.hold()

    def __del__(self) -> None:
        self._lease.release()


def _of_lease(lease: Lease, versioned: bool, flags: int) -> object:
    """Lends it through the native core, whose deleter runs on any thread."""
    info = lease.dtype
    assert info is not None and lease.strides is not None
    owner = _Holder(lease)
    return _of(owner, lease.data, lease.shape, lease.strides, info, versioned, flags)


def _is_main() -> bool:
    """Returns whether PyGILState, which every deleter needs, knows this interpreter."""
    here, main = ctypes.pythonapi.PyInterpreterState_Get, ctypes.pythonapi.PyInterpreterState_Main
    here.restype = main.restype = ctypes.c_void_p
    return bool(here() == main())


def _of(
    owner: object,
    address: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    info: DTypeInfo,
    versioned: bool,
    flags: int,
) -> object:
    if not _is_main():
        raise ExportError(
            f"{_WHAT}: wanted the main interpreter, given a sub-interpreter, in which deleters "
            "cannot take the GIL; ask for it there"
        )
    lend = core.memory().lend
    if 0 in shape or 1 in shape:
        # Strides that nobody walks may be negative, and torch 2.13 ends the process on these too.
        plain = contiguous(shape, 1)
        pairs = zip(strides, plain, shape, strict=True)
        strides = tuple(s if n > 1 and 0 not in shape else p for s, p, n in pairs)
    count = len(shape)
    sizes = (ctypes.c_int64 * max(count, 1))(*shape)
    steps = (ctypes.c_int64 * max(count, 1))(*strides)
    code, bits = info.dlpack
    capsule: object = lend(
        owner,
        address,
        count,
        ctypes.addressof(sizes),
        ctypes.addressof(steps),
        code | bits << 8 | 1 << 16,
        flags,
        int(versioned),
        core.table(),
    )
    return capsule
