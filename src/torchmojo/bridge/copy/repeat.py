"""Repeats a refused call with a copy in place of the argument, where the policy allows it."""

from __future__ import annotations

from typing import Any, NamedTuple

from torchmojo.bridge.code import Code
from torchmojo.bridge.copy.gather import Gathered, gather
from torchmojo.bridge.copy.ledger import CopyReason, announce, count, place_of_caller
from torchmojo.bridge.copy.policy import Rule, policy_for
from torchmojo.bridge.lend import Lease
from torchmojo.bridge.refuse.check import Check, checks
from torchmojo.bridge.refuse.extent import extent_of
from torchmojo.bridge.refuse.facts import Facts, facts, is_torch_tensor
from torchmojo.bridge.refuse.message import refuse_check, refuse_meeting
from torchmojo.bridge.refuse.overlap import overlap_each_other
from torchmojo.contract import Argument, KernelContract
from torchmojo.dtypes import BY_NAME, DTypeInfo
from torchmojo.errors import BoundsError, CopyError, DTypeError, KernelError

__all__ = ["REFUSED", "may_copy", "repeat_with_copy"]

REFUSED = object()
"""Returned where nothing can or may be copied: the caller raises what it would have raised."""

_CODES = (
    Code.LAYOUT,
    Code.ALIGNMENT,
    Code.NEG_BIT,
    Code.CONJ_BIT,
    Code.DTYPE,
    Code.SAME_DTYPE,
    Code.DEVICE,
)
_REASONS = {reason.value: reason for reason in CopyReason}
_RANK = {"b": 0, "u": 1, "i": 2, "8": 3, "f": 3}


def may_copy(kernel: Any, argument: Argument, code: int) -> bool:
    """Returns whether the policy lets a copy stand in for a refused argument.

    Args:
        kernel: The kernel.
        argument: The argument.
        code: Why it was refused.
    """
    rule = policy_for(kernel, argument.name)
    return argument.is_tensor and code in _CODES and (rule.policy != "error" or rule.forbidden)


def repeat_with_copy(
    kernel: Any, argument: Argument, code: int, detail: Any, values: dict[str, Any]
) -> Any:
    """Repeats a call whose argument cannot be used as it lies, with a copy of it.

    An output is copied in, because a kernel may write a part of it, and copied back when the kernel
    has returned or raised: what it wrote until then is seen, as if it had written the original.

    Args:
        kernel: The kernel.
        argument: The argument that was refused; ``may_copy`` has said yes.
        code: Why.
        detail: Its place in a list, where the argument is one.
        values: What was passed, by name: torch tensors and leases only; not changed.

    Returns:
        What the repeated call returned, or ``REFUSED``.

    Raises:
        CopyError: Inside ``no_copies``.
        CopyWarning: Where warnings are errors; nothing has been copied.
        DTypeError: An integer does not fit the kernel's dtype, or one written does not fit back.
        TorchmojoError: What the repeated call raises.
    """
    contract: KernelContract = kernel.contract
    if code == Code.SAME_DTYPE:
        first = _first(contract, argument, values)
        # The one that speaks for the dtype has none of the kernel's: it is converted first.
        strange = first.dtype not in contract.dtypes(argument)
        if strange and policy_for(kernel, first.argument.name).dtype:
            return repeat_with_copy(kernel, first.argument, Code.DTYPE, first.place, values)
    thing = values[argument.name]
    place = int(detail) if argument.kind == "tensors" else None
    head = f"{contract.name}: {argument.name}"
    if place is not None:
        thing, head = thing[place], f"{head}[{place}]"
    rule = policy_for(kernel, argument.name)
    plan = _plan(contract, argument, code, head, thing, values, rule)
    if plan is None:
        return REFUSED
    failing, info, found = plan
    reason = _reason(failing[0], found)
    here = place_of_caller()
    empty = 0 in (found.shape or ())  # without elements, nothing is copied
    if rule.forbidden and not empty:
        raise CopyError(f"{head}: wanted no copy, given {found}: {reason}")
    if argument.writes:
        _refuse_meeting_outputs(contract, argument, place, thing, values, head)
    if rule.policy == "warn" and not empty:
        text = _text(head, failing[0], found, info, argument.writes)
        announce(contract.name, argument.name, reason, text, here)
    copy = _gather(head, thing, info, argument, reason)
    try:
        if not empty:
            count(contract.name, argument.name, reason, copy.nbytes, here)
        replaced = dict(values)
        if place is None:
            replaced[argument.name] = copy.stand_in
        else:
            items = list(values[argument.name])
            items[place] = copy.stand_in
            replaced[argument.name] = items
        try:
            result = kernel(**replaced)
        except (KernelError, BoundsError):
            if argument.writes:
                _write_back(head, copy)
            raise
        if argument.writes:
            _write_back(head, copy)
        return result
    finally:
        copy.release()


def _gather(
    head: str, thing: Any, info: DTypeInfo, argument: Argument, reason: CopyReason
) -> Gathered:
    device = reason is CopyReason.DEVICE
    try:
        return gather(thing, info, argument.layout, argument.writes, device=device)
    except DTypeError as error:
        raise DTypeError(f"{head}: {error}") from None
    except MemoryError as error:
        raise MemoryError(f"{head}: {error}") from None


def _write_back(head: str, copy: Gathered) -> None:
    try:
        copy.write_back()
    except DTypeError as error:
        raise DTypeError(f"{head}: {error}; nothing of it was written back") from None


def _plan(
    contract: KernelContract,
    argument: Argument,
    code: int,
    head: str,
    thing: Any,
    values: dict[str, Any],
    rule: Rule,
) -> tuple[list[Check], DTypeInfo, Facts] | None:
    """Returns why a copy is needed, of which dtype, and what was given.

    None where nothing can be said here; raises the first reason that no copy mends.
    """
    failing = [check for check in checks(contract, argument, thing) if not check.ok]
    found = facts(thing)
    target = info = BY_NAME.get(found.dtype)
    if info is not None and any(check.name == "dtype" for check in failing):
        target = _nearest(contract, argument, info, values)
    elif info is not None and (rule.dtype or code == Code.SAME_DTYPE):
        same = _same(contract, argument, info, values)
        # Where another reason came first, the dtype is seen to in the same copy, if it can be.
        if code == Code.SAME_DTYPE or same is not None:
            failing.append(Check("dtype", False, "", "", "", Code.SAME_DTYPE))
            target = same
    for check in failing:
        mends = {"dtype": rule.dtype and target is not None, "device": rule.device}
        if mends.get(check.name, check.name in _REASONS):
            continue
        if check.code == Code.SAME_DTYPE:
            return None
        refuse_check(head, check, thing)
    if not failing or target is None:
        return None
    if argument.layout == "channels_last" and len(found.shape or ()) not in (4, 5):
        return None
    return failing, target, found


def _reason(check: Check, found: Facts) -> CopyReason:
    if check.name == "layout" and any(
        s < 0 and n > 1 for s, n in zip(found.strides or (), found.shape or (), strict=True)
    ):
        return CopyReason.NEGATIVE_STRIDE
    return _REASONS[check.name]


def _text(head: str, check: Check, found: Facts, info: DTypeInfo, writes: bool) -> str:
    wanted = check.wanted or "the dtype of the others"
    kind = f" as {info.short}" if info.name != found.dtype else ""
    if writes:
        done = f"copied in{kind} and back; make it so from the start"
    else:
        done = f"copied{kind} on its way" + (f"; {check.advice}" if check.advice else "")
    return (
        f"{head}: wanted {wanted}, given {found}: {done}; "
        'torchmojo.fallback("copy") copies without this warning, "error" refuses'
    )


# -- dtypes ----------------------------------------------------------------------------------------


class _First(NamedTuple):
    argument: Argument
    place: int
    dtype: str


def _first(contract: KernelContract, argument: Argument, values: dict[str, Any]) -> _First:
    """Returns the tensor that speaks for all that share a dtype parameter: the first one given."""
    return next(
        _First(other, place, facts(item).dtype)
        for other in contract.arguments
        if other.is_tensor and other.dtype == argument.dtype
        for place, item in enumerate(_items(values.get(other.name)))
    )


def _same(
    contract: KernelContract, argument: Argument, found: DTypeInfo, values: dict[str, Any]
) -> DTypeInfo | None:
    """Returns the dtype of the others, where it is another one and can be converted to."""
    info = BY_NAME.get(_first(contract, argument, values).dtype)
    if argument.takes_complex or found.parts or info is None or info is found:
        return None
    fits = info.name in contract.dtypes(argument) and _converts(argument, found, info)
    return info if fits else None


def _nearest(
    contract: KernelContract, argument: Argument, found: DTypeInfo, values: dict[str, Any]
) -> DTypeInfo | None:
    """Returns the dtype to convert to: that of the other arguments, or the nearest allowed one."""
    allowed = [BY_NAME[name] for name in contract.dtypes(argument)]
    if argument.takes_complex or found.parts:
        return None
    for other in contract.arguments:
        if not other.is_tensor or other.dtype != argument.dtype:
            continue
        for item in _items(values.get(other.name)):
            info = BY_NAME.get(facts(item).dtype)
            if info in allowed:
                return info if _converts(argument, found, info) else None
    fitting = [info for info in allowed if _converts(argument, found, info)]
    # Values survive best in the narrowest dtype that is no narrower, else in the widest one.
    wider = [info for info in fitting if info.width >= found.width]
    if wider:
        return min(wider, key=lambda info: (_RANK[info.kind], info.width))
    return max(fitting, key=lambda info: info.width, default=None)


def _items(value: Any) -> list[Any]:
    """Returns the tensors and leases of one argument."""
    items = value if isinstance(value, (list, tuple)) else [value]
    return [item for item in items if is_torch_tensor(item) or isinstance(item, Lease)]


def _converts(argument: Argument, source: DTypeInfo, target: DTypeInfo) -> bool:
    """Returns whether NumPy's ``same_kind`` rule allows it; both ways where it is written back."""
    if not _same_kind(source, target):
        return False
    return not argument.writes or _same_kind(target, source)


def _same_kind(source: DTypeInfo, target: DTypeInfo) -> bool:
    if source.kind not in _RANK or target.kind not in _RANK or "8" in source.kind + target.kind:
        return False
    if source.kind == "i" and target.kind == "u":
        return False
    return _RANK[source.kind] <= _RANK[target.kind]


# -- outputs that meet -----------------------------------------------------------------------------


def _refuse_meeting_outputs(
    contract: KernelContract,
    argument: Argument,
    place: int | None,
    thing: Any,
    values: dict[str, Any],
    head: str,
) -> None:
    """Raises where another output shares memory: written back, one would undo the other."""
    extent = extent_of(thing)
    for other in contract.arguments:
        given = values.get(other.name)
        if not other.is_tensor or not other.writes or given is None:
            continue
        listed = other.kind == "tensors" and isinstance(given, (list, tuple))
        for number, item in enumerate(given if listed else [given]):
            if other is argument and number == (place or 0):
                continue
            second = extent_of(item)
            if extent and second and overlap_each_other(extent, second):
                name = f"{other.name}[{number}]" if listed else other.name
                refuse_meeting(head, name, thing, item)
