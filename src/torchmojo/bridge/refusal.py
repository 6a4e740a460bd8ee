"""What happens when glue refuses a call: mend what can be mended, or raise the right error.

Glue names the reason by number and the argument by position; everything worth reading in a message
is found out here, where time does not matter.
"""

from __future__ import annotations

import operator
from typing import Any, NoReturn

from torchmojo.bridge import aten, doors
from torchmojo.bridge.check import checks
from torchmojo.bridge.code import Code
from torchmojo.bridge.facts import is_plain_tensor, is_torch_tensor, show
from torchmojo.bridge.kernel import spell
from torchmojo.bridge.lease import Lease, borrow
from torchmojo.contract import Argument, KernelContract
from torchmojo.errors import (
    AliasError,
    ArgumentError,
    BoundsError,
    DeviceError,
    DTypeError,
    GradError,
    KernelError,
    LayoutError,
    NoDataError,
    ReadOnlyError,
    ShapeError,
    TorchmojoError,
)

__all__ = ["lend", "mend"]

_CLASSES: dict[Code, type[TorchmojoError]] = {
    Code.NO_DATA: NoDataError,
    Code.LAYOUT_KIND: LayoutError,
    Code.DEVICE: DeviceError,
    Code.NEG_BIT: LayoutError,
    Code.DTYPE: DTypeError,
    Code.RANK: ShapeError,
    Code.LAYOUT: LayoutError,
    Code.ALIGNMENT: LayoutError,
    Code.READ_ONLY: ReadOnlyError,
}


def mend(
    kernel: Any,
    code: int,
    index: int,
    detail: Any,
    args: tuple[Any, ...],
    names: tuple[str, ...] | None,
) -> Any:
    """Mends a refused call and repeats it, or raises.

    Args:
        kernel: The kernel.
        code: A ``Code``.
        index: Number of the argument.
        detail: What the code needs besides.
        args: Positional arguments, then the values of keywords.
        names: Names of the keywords.

    Returns:
        What the repeated call returned.

    Raises:
        TorchmojoError: One of its subclasses, by reason.
    """
    contract: KernelContract = kernel.contract
    if code == Code.RAISED:
        raise KernelError(f"{contract.name}: {detail}")
    values = _bind(contract, args, names)
    argument = contract.arguments[index] if contract.arguments else None
    if code == Code.FOREIGN:
        return _call_with_leases(kernel, values)
    if code == Code.SCALAR and argument is not None:
        values[argument.name] = _number(contract, argument, values[argument.name], detail)
        return kernel(**values)
    assert argument is not None, Code(code)
    _refuse(contract, argument, Code(code), detail, values)


def _bind(
    contract: KernelContract, args: tuple[Any, ...], names: tuple[str, ...] | None
) -> dict[str, Any]:
    """Puts arguments by name; raises as Python does for a wrong number or name."""
    keywords = dict(zip(names or (), args[len(args) - len(names or ()) :], strict=True))
    given = args[: len(args) - len(keywords)]
    known = [argument.name for argument in contract.arguments]
    takes = ", ".join(spell(contract, argument) for argument in contract.arguments)
    if len(given) > len(known):
        raise ArgumentError(
            f"{contract.name}: wanted {len(known)} arguments, given {len(given)}; "
            f"it takes ({takes})"
        )
    values = dict(zip(known, given, strict=False))
    for name, value in keywords.items():
        if name not in known:
            raise ArgumentError(
                f"{contract.name}: {name}: wanted one of {', '.join(known)}, given an unknown "
                f"keyword; it takes ({takes})"
            )
        if name in values:
            raise ArgumentError(f"{contract.name}: {name}: wanted one value, given two")
        values[name] = value
    missing = [a.name for a in contract.arguments if a.required and a.name not in values]
    if missing:
        raise ArgumentError(
            f"{contract.name}: wanted {contract.required} arguments or more, "
            f"given {len(values)}, without {', '.join(missing)}; it takes ({takes})"
        )
    return values


# -- foreign objects -----------------------------------------------------------------------------


def _call_with_leases(kernel: Any, values: dict[str, Any]) -> Any:
    """Repeats a call with every foreign object borrowed; gives all of it back."""
    contract: KernelContract = kernel.contract
    leases: list[Lease] = []
    try:
        for argument in contract.arguments:
            if not argument.is_tensor or argument.name not in values:
                continue
            value = values[argument.name]
            if argument.kind == "tensors":
                values[argument.name] = [
                    lend(contract, argument, item, leases) for item in _listed(argument, value)
                ]
            elif value is not None:
                values[argument.name] = lend(contract, argument, value, leases)
        return kernel(**values)
    finally:
        # Python's frame, not the leases, may hold an exception's traceback: give back now.
        for lease in leases:
            lease.release()


def _listed(argument: Argument, value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else list(value)


def lend(contract: KernelContract, argument: Argument, value: Any, leases: list[Lease]) -> Any:
    """Returns something that the fast door takes for one tensor argument.

    Args:
        contract: The kernel.
        argument: The argument.
        value: A torch tensor of any kind, or a foreign object.
        leases: A new lease is added here; the caller releases it.

    Returns:
        The value itself, a plain alias of it, or a lease.

    Raises:
        TorchmojoError: It has no memory that a kernel could use.
    """
    if isinstance(value, Lease):
        return value
    what = f"{contract.name}: {argument.name}"
    if not is_torch_tensor(value):
        leases.append(borrow(value, what))
        return leases[-1]
    door = aten.open_door()
    if not is_plain_tensor(type(value)):
        _refuse(contract, argument, Code.NO_DATA, 0, {argument.name: value})
    if door.open:
        if doors.add_tensor_type(type(value)):
            return value
        import torch

        # Same TensorImpl facts, same storage, same version counter, under a known type.
        return value.as_subclass(torch.Tensor)
    return _lend_slowly(contract, argument, value, leases)


def _lend_slowly(
    contract: KernelContract, argument: Argument, value: Any, leases: list[Lease]
) -> Lease:
    """Borrows a torch tensor through DLPack where the fast door could not be proved."""
    import torch

    for check in checks(contract, argument, value):
        if not check.ok:
            _refuse(contract, argument, check.code, 0, {argument.name: value})
    if argument.writes:
        if value.requires_grad and torch.is_grad_enabled():
            _refuse(contract, argument, Code.GRAD, 0, {argument.name: value})
        if value.is_inference() and not torch.is_inference_mode_enabled():
            _refuse(contract, argument, Code.INFERENCE, 0, {argument.name: value})
        torch._C._increment_version([value])
    lease = borrow(value.detach(), f"{contract.name}: {argument.name}")
    leases.append(lease)
    return lease


# -- numbers -------------------------------------------------------------------------------------


def _number(contract: KernelContract, argument: Argument, value: Any, place: int) -> Any:
    """Turns a value into exactly the Python type that the glue reads."""
    if argument.kind == "tensors":
        if isinstance(value, (list, tuple)):
            return list(value)
        _wrong(contract, argument, "a list of tensors", value)
    if argument.kind == "list":
        if place < 0:
            if hasattr(value, "tolist") and not isinstance(value, (str, bytes)):
                value = value.tolist()
            if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
                _wrong(contract, argument, f"a list of {argument.type}", value)
            return list(value)
        items = list(value)
        items[place] = _scalar(contract, argument, items[place], f" (element {place})")
        return items
    return _scalar(contract, argument, value, "")


def _scalar(contract: KernelContract, argument: Argument, value: Any, where: str) -> Any:
    kind = argument.type
    if is_torch_tensor(value):
        _wrong(contract, argument, f"a number for {kind}{where}", value, "; write x.item()")
    if kind == "Bool":
        if type(value).__name__ in ("bool", "bool_"):
            return bool(value)
        _wrong(contract, argument, f"True or False{where}", value)
    if kind in ("String", "StaticString"):
        if isinstance(value, str):
            return str.__str__(value)
        _wrong(contract, argument, f"a str{where}", value)
    if isinstance(value, (str, bytes)) or value is None:
        _wrong(contract, argument, f"a number for {kind}{where}", value)
    try:
        if kind.startswith("Float"):
            return float(value)
        return int(operator.index(value))
    except (TypeError, ValueError, OverflowError):
        wanted = "a number" if kind.startswith("Float") else "an int"
        _wrong(contract, argument, f"{wanted} for {kind}{where}", value)


def _wrong(
    contract: KernelContract, argument: Argument, wanted: str, value: Any, advice: str = ""
) -> NoReturn:
    raise ArgumentError(
        f"{contract.name}: {argument.name}: wanted {wanted}, given {show(value)}{advice}"
    ) from None


# -- messages ------------------------------------------------------------------------------------


def _refuse(
    contract: KernelContract, argument: Argument, code: Code, detail: Any, values: dict[str, Any]
) -> NoReturn:
    """Raises the error for a code. Every message: operation, argument, wanted, given, advice."""
    value = values.get(argument.name)
    head = f"{contract.name}: {argument.name}"
    if argument.kind == "tensors" and isinstance(value, (list, tuple)):
        place = detail if isinstance(detail, int) and 0 <= detail < len(value) else 0
        if code != Code.AXIS and value:
            value, head = value[place], f"{head}[{place}]"
    if value is not None and not is_torch_tensor(value) and code in _CLASSES:
        value = borrow(value, head) if not isinstance(value, Lease) else value
    given = show(value)
    if code in _CLASSES:
        for check in checks(contract, argument, value):
            if not check.ok:
                kind = _CLASSES[check.code]
                raise kind(f"{head}: wanted {check.wanted}, given {given}; {check.advice}")
        raise _CLASSES[code](f"{head}: wanted what its signature says, given {given}")
    if code in (Code.SAME_DTYPE, Code.SAME_RANK):
        field = "dtype" if code == Code.SAME_DTYPE else "rank"
        name = argument.dtype if code == Code.SAME_DTYPE else argument.rank
        other = next(a for a in contract.arguments if a.is_tensor and getattr(a, field) == name)
        wrong: type[TorchmojoError] = DTypeError if code == Code.SAME_DTYPE else ShapeError
        raise wrong(
            f"{head}: wanted the {field} of {other.name}, {show(_first(values.get(other.name)))}, "
            f"given {given}; "
            + ("write x.to(...), which copies" if field == "dtype" else "reshape one of them")
        )
    if code == Code.AXIS:
        _refuse_axis(contract, argument, detail, values)
    if code == Code.GRAD:
        raise GradError(
            f"{head}: wanted a tensor that autograd does not record, given {given}; call the "
            "kernel under torch.no_grad(), write into x.detach(), or register it as a torch op"
        )
    if code == Code.INFERENCE:
        raise GradError(
            f"{head}: wanted a tensor that may be written here, given {given}; an inference "
            "tensor can be written under torch.inference_mode() only"
        )
    if code == Code.SELF_OVERLAP:
        raise AliasError(
            f"{head}: wanted memory in which every element has a place of its own, given {given}; "
            "write x.clone() (an expanded tensor cannot be an output)"
        )
    if code == Code.PARTIAL_OVERLAP:
        other = contract.arguments[detail]
        raise AliasError(
            f"{head}: wanted memory apart from {other.name}, or the very same view, given "
            f"{given} over {show(_first(values.get(other.name)))}; write {other.name}.clone()"
        )
    if code == Code.BOUNDS:
        axis, place, size, count = map(int, str(detail).split())
        times = "" if count == 1 else f" (the first of {count})"
        raise BoundsError(
            f"{head}: wanted 0 <= index < {size} on axis {axis}, given {place}{times}"
        )
    if code == Code.RANGE:
        raise ArgumentError(f"{head}: wanted a value of {argument.type}, given {given}; out of range")
    if code == Code.NONE:
        raise ArgumentError(f"{head}: wanted a tensor, given None")
    raise TorchmojoError(f"{head}: refused with code {int(code)}, given {given}")


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, (list, tuple)) and value else value


def _refuse_axis(
    contract: KernelContract, argument: Argument, axis: int, values: dict[str, Any]
) -> NoReturn:
    name = argument.axes[axis]
    given = show(_first(values.get(argument.name)))
    if name.isdecimal():
        raise ShapeError(
            f"{contract.name}: {argument.name}: wanted size {name} on axis {axis}, given {given}"
        )
    for other in contract.arguments:
        if other.is_tensor and name in other.axes and values.get(other.name) is not None:
            raise ShapeError(
                f"{contract.name}: {argument.name}: wanted axis {axis} ({name}) as long as axis "
                f"{other.axes.index(name)} of {other.name}, "
                f"{show(_first(values[other.name]))}, given {given}"
            )
    raise ShapeError(f"{contract.name}: {argument.name}: axis {axis} ({name}), given {given}")
