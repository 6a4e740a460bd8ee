"""What happens when glue refuses a call: mend what can be mended, or raise the right error.

Glue names the reason by number and the argument by position; everything worth reading in a message
is found out here, where time does not matter.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from torchmojo.bridge import aten, doors
from torchmojo.bridge.adopt import adopt
from torchmojo.bridge.code import Code
from torchmojo.bridge.copy.repeat import REFUSED, may_copy, repeat_with_copy
from torchmojo.bridge.lend import Lease, borrow
from torchmojo.bridge.refuse.check import checks
from torchmojo.bridge.refuse.facts import is_plain_tensor, is_torch_tensor
from torchmojo.bridge.refuse.message import PLACE, named, refuse
from torchmojo.bridge.refuse.number import as_plain, as_tensors
from torchmojo.bridge.share.handle import Handle
from torchmojo.contract import Argument, KernelContract
from torchmojo.errors import ArgumentError, BoundsError, KernelError
from torchmojo.spelling import spell

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
    held: list[Lease] = []
    try:
        values = _unwrap(contract, _bind(contract, args, names), held)
        return _repeat(kernel, contract, code, index, detail, values)
    finally:
        for lease in held:
            lease.release()


def _repeat(
    kernel: Any,
    contract: KernelContract,
    code: int,
    index: int,
    detail: Any,
    values: dict[str, Any],
) -> Any:
    """Mends a call whose handles have been looked through."""
    argument = contract.arguments[index] if contract.arguments else None
    if code == Code.FOREIGN:
        return _call_with_leases(kernel, values)
    if code == Code.SCALAR and argument is not None:
        values[argument.name] = as_plain(contract, argument, values[argument.name])
        return kernel(**values)
    assert argument is not None, Code(code)
    code, detail = _hidden_complex(argument, code, detail, values)
    about = named(contract, argument, Code(code), values)
    if may_copy(kernel, about, code):
        # Looking at a capsule uses it up, so what is foreign is borrowed once, for all of the call.
        if any(_is_foreign(item) for item in _tensors(contract, values)):
            return _call_with_leases(kernel, values)
        result = repeat_with_copy(kernel, about, code, detail, values)
        if result is not REFUSED:
            return result
    if code in (Code.MOVED, Code.RELEASED):
        # _unwrap raised, unless another thread has put back what glue saw: then it can be used.
        return kernel(**values)
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


def _unwrap(contract: KernelContract, values: dict[str, Any], held: list[Lease]) -> dict[str, Any]:
    """Puts what handles hold in their place, after looking at each handle again.

    Leases are added to ``held``: another thread may release the handle while the call runs.

    Raises:
        HandleError: One was released.
        NoDataError: A lender has moved or changed.
        ReadOnlyError: A handle that lends for reading only stands for an output.
    """
    for argument in contract.arguments:
        value = values.get(argument.name)
        if not argument.is_tensor or value is None:
            continue
        if type(value) is Handle:
            values[argument.name] = _look(value, contract.name, argument.name, argument, held)
        elif type(value) in (list, tuple) and any(type(item) is Handle for item in value):
            values[argument.name] = [
                _look(item, contract.name, f"{argument.name}[{i}]", argument, held)
                if type(item) is Handle
                else item
                for i, item in enumerate(value)
            ]
    return values


def _look(handle: Handle, kernel: str, name: str, argument: Argument, held: list[Lease]) -> Any:
    """Returns what a handle holds, and holds it for the call if it is a lease."""
    target = handle.lend(kernel, name, argument.writes)
    if isinstance(target, Lease):
        held.append(target.hold())
    return target


def _count(number: int) -> str:
    return f"{number or 'no'} argument{'s' * (number != 1)}"


def _one_of(names: list[str]) -> str:
    return f"one of {', '.join(names)}" if names else "no argument"


# -- foreign objects -----------------------------------------------------------------------------


def _is_foreign(value: Any) -> bool:
    return not (value is None or isinstance(value, Lease) or is_torch_tensor(value))


def _hidden_complex(
    argument: Argument, code: int, detail: Any, values: dict[str, Any]
) -> tuple[int, Any]:
    """Returns code and detail of a complex tensor that the glue could not take for one.

    Of a lease in foreign byte order or with broken steps it sees no dtype, so it does not count the
    parts as an axis.
    """
    value = values.get(argument.name)
    if not argument.takes_complex or code not in (Code.RANK, Code.SAME_RANK, Code.AXIS):
        return code, detail
    place = detail // PLACE if code == Code.AXIS else detail
    thing = value[place] if argument.kind == "tensors" and value else value
    hidden = isinstance(thing, Lease) and (thing.swapped or thing.strides is None)
    return (Code.DTYPE, place) if hidden else (code, detail)


def _tensors(contract: KernelContract, values: dict[str, Any]) -> Iterator[Any]:
    """Yields what was passed for tensors, and for each item of a list of them."""
    for argument in contract.arguments:
        if argument.is_tensor:
            yield from _listed(argument, values.get(argument.name))


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
        if not _is_open():
            result = _lend_torch(kernel, lent, leases)
            if result is not REFUSED:
                return result
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
        The value itself, a plain alias of it, or a lease; a torch tensor for which there is no fast
        door is returned as it is.

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
    if not is_plain_tensor(type(value)):
        refuse(contract, argument, Code.NO_DATA, place, values)
    if not _is_open() or doors.add_tensor_type(type(value)):
        return value
    # Same TensorImpl facts, same storage, same version counter, under a known type.
    return value.as_subclass(sys.modules["torch"].Tensor)


def _is_open() -> bool:
    """Returns whether torch tensors may pass the fast door."""
    return aten.open_door().open and not doors.is_shut()


def _lend_torch(kernel: Any, lent: dict[str, Any], leases: list[Lease]) -> Any:
    """Borrows torch tensors where the fast door is shut: its checks are made here.

    Args:
        kernel: The kernel.
        lent: What is passed, by name; leases take the place of tensors.
        leases: New leases are added here; the caller releases them.

    Returns:
        What the call returned, if it was made with a copy, else ``REFUSED``.
    """
    contract: KernelContract = kernel.contract
    tensors = [
        (argument, place, item)
        for argument in contract.arguments
        if argument.is_tensor
        for place, item in enumerate(_listed(argument, lent.get(argument.name)))
        if is_torch_tensor(item)
    ]
    for argument, place, item in tensors:
        for check in checks(contract, argument, item):
            if check.ok or check.code == Code.AXIS:  # the glue counts axes itself
                continue
            if may_copy(kernel, argument, check.code):
                result = repeat_with_copy(kernel, argument, check.code, place, lent)
                if result is not REFUSED:
                    return result
            refuse(contract, argument, check.code, place, lent)
    for argument, place, item in tensors:
        listed = argument.kind == "tensors"
        name = f"{argument.name}[{place}]" if listed else argument.name
        leases.append(borrow(item.detach(), f"{contract.name}: {name}"))
        if listed:
            items = list(lent[argument.name])
            items[place] = leases[-1]
            lent[argument.name] = items
        else:
            lent[argument.name] = leases[-1]
    return REFUSED


def _listed(argument: Argument, value: Any) -> list[Any]:
    """Returns the items of a list of tensors, or what was passed by itself."""
    many = argument.kind == "tensors" and isinstance(value, (list, tuple))
    return list(value) if many else [value]
