"""Words for every refusal: operation, argument, wanted, given, what to do, in this order."""

from __future__ import annotations

from typing import Any, NoReturn

from torchmojo.bridge.code import Code
from torchmojo.bridge.lend import Lease, borrow
from torchmojo.bridge.refuse.check import Check, checks, dtype_advice
from torchmojo.bridge.refuse.facts import facts, is_torch_tensor, show
from torchmojo.contract import Argument, KernelContract
from torchmojo.errors import (
    AliasError,
    ArgumentError,
    BoundsError,
    DeviceError,
    DTypeError,
    GradError,
    LayoutError,
    NoDataError,
    ReadOnlyError,
    ShapeError,
    TorchmojoError,
)

__all__ = ["PLACE", "named", "refuse", "refuse_check", "refuse_meeting"]

_CLASSES: dict[Code, type[TorchmojoError]] = {
    Code.NO_DATA: NoDataError,
    Code.LAYOUT_KIND: LayoutError,
    Code.DEVICE: DeviceError,
    Code.NEG_BIT: LayoutError,
    Code.CONJ_BIT: LayoutError,
    Code.DTYPE: DTypeError,
    Code.RANK: ShapeError,
    Code.LAYOUT: LayoutError,
    Code.ALIGNMENT: LayoutError,
    Code.READ_ONLY: ReadOnlyError,
    Code.GRAD: GradError,
    Code.INFERENCE: GradError,
    Code.SELF_OVERLAP: AliasError,
    Code.AXIS: ShapeError,
}
PLACE = 256
"""Glue counts axis + PLACE * (number in the list), see ``toolchain/describe/glue.py``."""
# What glue tells instead of an axis, see `mojo/torchmojo/trap.mojo`.
_NO_AXIS, _BAD_AXIS = -1, -2


def refuse(
    contract: KernelContract, argument: Argument, code: Code, detail: Any, values: dict[str, Any]
) -> NoReturn:
    """Raises the error for a code.

    Args:
        contract: The kernel.
        argument: The argument that is refused.
        code: Why.
        detail: What the code needs besides: a place in a list, an axis, another argument.
        values: What was passed, by name.

    Raises:
        TorchmojoError: One of its subclasses, always.
    """
    argument = named(contract, argument, code, values)
    value = values.get(argument.name)
    head = f"{contract.name}: {argument.name}"
    if code == Code.AXIS:
        place, axis = divmod(detail, PLACE)
        _refuse_axis(contract, argument, place, axis, values)
    if code == Code.PARTIAL_OVERLAP:
        _refuse_overlap(head, argument, contract.arguments[detail], values)
    if code == Code.BOUNDS:
        axis, place, size, count = map(int, str(detail).split())
        times = "" if count == 1 else f" (the first of {count})"
        if axis == _BAD_AXIS:
            raise BoundsError(f"{head}: wanted 0 <= axis < {size}, given {place}{times}")
        where = "in the list" if axis == _NO_AXIS else f"on axis {axis}"
        raise BoundsError(f"{head}: wanted 0 <= index < {size} {where}, given {place}{times}")
    if argument.kind in ("tensors", "list") and isinstance(value, (list, tuple)):
        value, head = value[detail], f"{head}[{detail}]"
    if code == Code.RANGE:
        if argument.type in ("String", "StaticString"):
            raise ArgumentError(f"{head}: wanted text that UTF-8 can hold, given {show(value)}")
        raise ArgumentError(
            f"{head}: wanted a value of {argument.type}, given {show(value)}; out of range"
        )
    if code == Code.NONE:
        raise ArgumentError(f"{head}: wanted a tensor, given None")
    if code in (Code.SAME_DTYPE, Code.SAME_RANK):
        _refuse_difference(contract, argument, code, head, value, values)
    if code in _CLASSES:
        _refuse_alone(contract, argument, code, head, value, values)
    raise TorchmojoError(f"{head}: refused with code {int(code)}, given {show(value)}")


def named(
    contract: KernelContract, argument: Argument, code: Code, values: dict[str, Any]
) -> Argument:
    """Returns the argument that a refusal is about.

    For a dtype or rank, glue names the first that shares the parameter; it may have no value.

    Args:
        contract: The kernel.
        argument: The argument that glue names.
        code: Why it was refused.
        values: What was passed, by name.
    """
    if code not in (Code.DTYPE, Code.RANK) or _is_given(values.get(argument.name)):
        return argument
    field = "dtype" if code == Code.DTYPE else "rank"
    given = [a for a in contract.arguments if a.is_tensor and _is_given(values.get(a.name))]
    same = [a for a in given if getattr(a, field) == getattr(argument, field)]
    return (same or given[::-1])[0]


def _is_read(value: Any) -> bool:
    """Returns whether a value can be looked at as it is, without borrowing it."""
    return is_torch_tensor(value) or isinstance(value, Lease)


def _refuse_alone(
    contract: KernelContract,
    argument: Argument,
    code: Code,
    head: str,
    value: Any,
    values: dict[str, Any],
) -> NoReturn:
    """Raises what the slow checks of one argument find."""
    thing = value if _is_read(value) else borrow(value, head)
    try:
        given = show(thing)
        for check in checks(contract, argument, thing):
            if not check.ok:
                refuse_check(head, check, thing)
    finally:
        # The exception's traceback keeps this frame, and must not keep the lender's memory.
        if thing is not value:
            thing.release()
    if contract.where:
        # Each argument is right by itself: the clause is about several of them.
        others = ", ".join(
            f"{a.name}: {show(_first(values.get(a.name)))}"
            for a in contract.arguments
            if a.is_tensor and a is not argument
        )
        raise _CLASSES[code](
            f"{head}: wanted what `where {contract.where}` allows, given {given} beside {others}"
        )
    raise _CLASSES[code](f"{head}: wanted what its signature says, given {given}")


def refuse_check(head: str, check: Check, thing: Any) -> NoReturn:
    """Raises the error for a check that failed.

    Args:
        head: Operation and argument.
        check: The check.
        thing: A torch tensor or a lease.

    Raises:
        TorchmojoError: One of its subclasses, always.
    """
    given = show(thing)
    if check.name in ("storage", "storage size", "alignment"):
        given = f"{given} ({check.found})"
    raise _CLASSES[check.code](f"{head}: wanted {check.wanted}, given {given}; {check.advice}")


def refuse_meeting(head: str, other: str, thing: Any, second: Any) -> NoReturn:
    """Raises for two outputs that share memory and of which one would be a copy.

    Args:
        head: Operation and argument.
        other: Name of the other output.
        thing: The first, a torch tensor or a lease.
        second: The second.

    Raises:
        AliasError: Always.
    """
    raise AliasError(
        f"{head}: wanted memory apart from {other}, given {show(thing)} over {show(second)}; "
        "give each output memory of its own"
    )


def _refuse_difference(
    contract: KernelContract,
    argument: Argument,
    code: Code,
    head: str,
    value: Any,
    values: dict[str, Any],
) -> NoReturn:
    """Raises for two arguments that share a dtype or rank parameter and differ."""
    field = "dtype" if code == Code.SAME_DTYPE else "rank"
    name = getattr(argument, field)
    other, first = next(
        (a.name, _first(values[a.name]))
        for a in contract.arguments
        if a.is_tensor and getattr(a, field) == name and _is_given(values.get(a.name))
    )
    if other == argument.name:  # it is a list, whose first tensor speaks for it
        other = f"{other}[0]"
    text = f"{head}: wanted the {field} of {other}, {show(first)}, given {show(value)}; "
    if code == Code.SAME_DTYPE:
        pair = [x if _is_read(x) else borrow(x, head) for x in (value, first)]
        try:
            advice = dtype_advice(facts(pair[0]), (facts(pair[1]).dtype,), pair[0])
        finally:
            # As in _refuse_alone: the exception must not keep the lender's memory.
            for thing, passed in zip(pair, (value, first), strict=True):
                if thing is not passed:
                    thing.release()
        raise DTypeError(text + advice)
    raise ShapeError(f"{text}reshape one of them")


def _refuse_axis(
    contract: KernelContract, argument: Argument, place: int, axis: int, values: dict[str, Any]
) -> NoReturn:
    name = argument.axes[axis]
    value = values.get(argument.name)
    head = f"{contract.name}: {argument.name}"
    if argument.kind == "tensors" and value is not None:
        value, head = value[place], f"{head}[{place}]"
    given = show(value)
    if name == "complex":
        raise ShapeError(
            f"{head}: wanted a complex tensor, or size 2 (real and imaginary part) on axis {axis}, "
            f"given {given}"
        )
    if name.isdecimal():
        raise ShapeError(f"{head}: wanted size {name} on axis {axis}, given {given}")
    for other in contract.arguments:
        if other.is_tensor and name in other.axes and _is_given(values.get(other.name)):
            title = f"{other.name}[0]" if other.kind == "tensors" else other.name
            raise ShapeError(
                f"{head}: wanted axis {axis} ({name}) as long as axis {other.axes.index(name)} of "
                f"{title}, {show(_first(values[other.name]))}, given {given}"
            )
    raise ShapeError(f"{head}: axis {axis} ({name}), given {given}")


def _refuse_overlap(
    head: str, argument: Argument, other: Argument, values: dict[str, Any]
) -> NoReturn:
    if other is argument:
        raise AliasError(
            f"{head}: wanted tensors of which no two share some of their memory, given "
            f"{_show_all(values.get(argument.name))}; write x.clone()"
        )
    raise AliasError(
        f"{head}: wanted memory apart from {other.name}, or the very same view, given "
        f"{_show_all(values.get(argument.name))} over {_show_all(values.get(other.name))}; "
        f"write {other.name}.clone()"
    )


def _show_all(value: Any) -> str:
    if isinstance(value, (list, tuple)) and len(value) != 1:
        return f"a list of {len(value)} tensors"
    return show(_first(value))


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, (list, tuple)) and value else value


def _is_given(value: Any) -> bool:
    return value is not None and not (isinstance(value, (list, tuple)) and not value)
