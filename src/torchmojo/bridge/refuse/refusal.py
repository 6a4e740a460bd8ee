"""What happens when glue refuses a call: mend what can be mended, or raise the right error.

Glue names the reason by number and the argument by position; everything worth reading in a message
is found out here, where time does not matter.
"""

from __future__ import annotations

import sys
from typing import Any

from torchmojo.bridge import aten, doors
from torchmojo.bridge.adopt import adopt
from torchmojo.bridge.code import Code
from torchmojo.bridge.kernel import spell
from torchmojo.bridge.lend import Lease, borrow
from torchmojo.bridge.refuse.check import checks
from torchmojo.bridge.refuse.facts import is_plain_tensor, is_torch_tensor
from torchmojo.bridge.refuse.message import refuse
from torchmojo.bridge.refuse.number import as_plain, as_tensors
from torchmojo.contract import Argument, KernelContract
from torchmojo.errors import ArgumentError, BoundsError, KernelError

__all__ = ["lend", "mend"]


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
    if code == Code.ADOPT:
        return adopt(detail)
    if code == Code.RAISED:
        raise KernelError(f"{contract.name}: {detail}")
    values = _bind(contract, args, names)
    argument = contract.arguments[index] if contract.arguments else None
    if code == Code.FOREIGN:
        return _call_with_leases(kernel, values)
    if code == Code.SCALAR and argument is not None:
        values[argument.name] = as_plain(contract, argument, values[argument.name])
        return kernel(**values)
    assert argument is not None, Code(code)
    refuse(contract, argument, Code(code), detail, values)


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
            f"{contract.name}: wanted {_count(len(known))}, given {len(given)}; it takes ({takes})"
        )
    values = dict(zip(known, given, strict=False))
    for name, value in keywords.items():
        if name not in known:
            raise ArgumentError(
                f"{contract.name}: {name}: wanted {_one_of(known)}, given an unknown keyword; "
                f"it takes ({takes})"
            )
        if name in values:
            raise ArgumentError(f"{contract.name}: {name}: wanted one value, given two")
        values[name] = value
    missing = [a.name for a in contract.arguments if a.required and a.name not in values]
    if missing:
        raise ArgumentError(
            f"{contract.name}: {', '.join(missing)}: wanted a value, given none; it takes ({takes})"
        )
    return values


def _count(number: int) -> str:
    return f"{number or 'no'} argument{'s' * (number != 1)}"


def _one_of(names: list[str]) -> str:
    return f"one of {', '.join(names)}" if names else "no argument"


# -- foreign objects -----------------------------------------------------------------------------


def _call_with_leases(kernel: Any, values: dict[str, Any]) -> Any:
    """Repeats a call with every foreign object borrowed; gives all of it back."""
    contract: KernelContract = kernel.contract
    leases: list[Lease] = []
    lent = dict(values)
    try:
        for argument in contract.arguments:
            value = values.get(argument.name)
            if not argument.is_tensor or value is None:
                continue
            if argument.kind == "tensors":
                values[argument.name] = as_tensors(contract, argument, value)
                count = len(values[argument.name])
                lent[argument.name] = [
                    lend(contract, argument, values, leases, place) for place in range(count)
                ]
            else:
                lent[argument.name] = lend(contract, argument, values, leases)
        try:
            result = kernel(**lent)
        except (KernelError, BoundsError):
            _raise_versions(kernel, values, lent)
            raise
        _raise_versions(kernel, values, lent)
        return result
    finally:
        # Python's frame, not the leases, may hold an exception's traceback: give back now.
        for lease in leases:
            lease.release()


def _raise_versions(kernel: Any, values: dict[str, Any], lent: dict[str, Any]) -> None:
    """Tells autograd of the writes into torch tensors that glue saw as leases."""
    for argument in kernel.contract.arguments:
        if argument.is_tensor and argument.writes and argument.name in values:
            given, seen = values[argument.name], lent[argument.name]
            pairs = zip(given, seen, strict=True) if argument.kind == "tensors" else [(given, seen)]
            for tensor, lease in pairs:
                if is_torch_tensor(tensor) and isinstance(lease, Lease):
                    sys.modules["torch"]._C._increment_version([tensor])


def lend(
    contract: KernelContract,
    argument: Argument,
    values: dict[str, Any],
    leases: list[Lease],
    place: int | None = None,
) -> Any:
    """Returns something that the fast door takes for one tensor argument.

    Args:
        contract: The kernel.
        argument: The argument.
        values: What was passed, by name: a torch tensor of any kind or a foreign object.
        leases: A new lease is added here; the caller releases it.
        place: Which one, if the argument is a list.

    Returns:
        The value itself, a plain alias of it, or a lease.

    Raises:
        TorchmojoError: It has no memory that a kernel could use.
    """
    value, what = values[argument.name], f"{contract.name}: {argument.name}"
    if place is not None:
        value, what = value[place], f"{what}[{place}]"
    if isinstance(value, Lease):
        return value
    if value is None:
        refuse(contract, argument, Code.NONE, place, values)
    if not is_torch_tensor(value):
        leases.append(borrow(value, what))
        return leases[-1]
    door = aten.open_door()
    if not is_plain_tensor(type(value)):
        refuse(contract, argument, Code.NO_DATA, place, values)
    if door.open:
        if doors.add_tensor_type(type(value)):
            return value
        import torch

        # Same TensorImpl facts, same storage, same version counter, under a known type.
        return value.as_subclass(torch.Tensor)
    # Where the fast door could not be proved, its checks are made here.
    for check in checks(contract, argument, value):
        if not check.ok:
            refuse(contract, argument, check.code, place, values)
    leases.append(borrow(value.detach(), what))
    return leases[-1]
