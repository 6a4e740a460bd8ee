"""Numbers, text and lists that glue does not read itself: NumPy scalars, subclasses, ranges."""

from __future__ import annotations

import operator
from typing import Any, NoReturn

from torchmojo.bridge.refuse.facts import is_torch_tensor, show
from torchmojo.contract import Argument, KernelContract
from torchmojo.errors import ArgumentError

__all__ = ["as_plain", "as_tensors"]


def as_plain(contract: KernelContract, argument: Argument, value: Any) -> Any:
    """Turns a value into exactly the Python type that glue reads.

    Args:
        contract: The kernel.
        argument: A number, text, list of numbers or list of tensors.
        value: What was passed.

    Returns:
        A bool, int, float or str, or a list of them; a list of the same tensors.

    Raises:
        ArgumentError: It cannot be turned without a guess.
    """
    head = f"{contract.name}: {argument.name}"
    if argument.kind == "tensors":
        return as_tensors(contract, argument, value)
    if argument.kind != "list":
        return _scalar(head, argument.type, value)
    if hasattr(value, "tolist") and not isinstance(value, (str, bytes)):
        value = value.tolist()
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        _wrong(head, f"a list of {argument.type}", value)
    # All elements at once: glue stops at the first that it cannot read.
    return [_scalar(f"{head}[{i}]", argument.type, item) for i, item in enumerate(value)]


def as_tensors(contract: KernelContract, argument: Argument, value: Any) -> list[Any]:
    """Returns a list of the tensors in a list or tuple.

    Args:
        contract: The kernel.
        argument: A list of tensors.
        value: What was passed.

    Raises:
        ArgumentError: It is no list and no tuple.
    """
    if not isinstance(value, (list, tuple)):
        _wrong(f"{contract.name}: {argument.name}", "a list of tensors", value)
    return list(value)


def _scalar(head: str, kind: str, value: Any) -> Any:
    if kind in ("String", "StaticString"):
        if isinstance(value, str):
            return str.__str__(value)
        _wrong(head, "a str", value)
    if kind == "Bool":
        if type(value).__name__ in ("bool", "bool_"):
            return bool(value)
        _wrong(head, "True or False", value, "; write x.item()" * is_torch_tensor(value))
    if is_torch_tensor(value):
        _wrong(head, f"a number for {kind}", value, "; write x.item()")
    if isinstance(value, (str, bytes)) or value is None:
        _wrong(head, f"a number for {kind}", value)
    try:
        if kind.startswith("Float"):
            return float(value)
        return int(operator.index(value))
    except (TypeError, ValueError, OverflowError):
        wanted = "a number" if kind.startswith("Float") else "an int"
        _wrong(head, f"{wanted} for {kind}", value)


def _wrong(head: str, wanted: str, value: Any, advice: str = "") -> NoReturn:
    raise ArgumentError(f"{head}: wanted {wanted}, given {show(value)}{advice}") from None
