"""An operator's schema and the words that tell its glue where each argument comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchmojo.contract import Argument, KernelContract
from torchmojo.errors import SignatureError

__all__ = ["Place", "Signature", "out_signature_of", "signature_of"]

_INTS = ("Int", "Int8", "Int16", "Int32", "Int64", "UInt", "UInt8", "UInt16", "UInt32", "UInt64")
# Kinds of `torchmojo_ops/table.mojo`.
TENSOR, OPTIONAL_TENSOR, TENSORS, SCALAR, OPTIONAL_SCALAR = range(5)
STRING, OPTIONAL_STRING, LIST, OPTIONAL_LIST, OUTPUT, LEFT_OUT = range(5, 11)
OPTIONAL = (OPTIONAL_TENSOR, OPTIONAL_SCALAR, OPTIONAL_STRING, OPTIONAL_LIST)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an argument of a kernel comes from.

    Attributes:
        argument: The kernel's argument.
        kind: A kind of the glue's.
        position: Its place among the operator's arguments, or its number among the results.
    """

    argument: Argument
    kind: int
    position: int


@dataclass(frozen=True, slots=True)
class Signature:
    """An operator's signature.

    Attributes:
        name: ``ns::name``.
        overload: ``""`` or ``out``.
        schema: As torch prints it, without the namespace.
        takes: Names of the arguments in order.
        places: One per argument of the kernel.
        taken: Those of ``takes``, in its order.
        outputs: The kernel's arguments that are made by the operator.
        writes: Names of the arguments that it writes in place.
    """

    name: str
    overload: str
    schema: str
    takes: tuple[str, ...]
    places: tuple[Place, ...]
    taken: tuple[Place, ...]
    outputs: tuple[Argument, ...]
    writes: tuple[str, ...]

    def complete(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Appends the defaults at the end, which torch leaves out where it calls Python.

        Args:
            args: The operator's first arguments.
        """
        left = [place.argument.default for place in self.taken[len(args) :]]
        return (*args, *(list(d) if isinstance(d, tuple) else d for d in left))


def signature_of(
    name: str,
    contract: KernelContract,
    takes: tuple[str, ...],
    *,
    overload: str = "",
    by_name: frozenset[str] = frozenset(),
    defaults: Mapping[str, Any] | None = None,
) -> Signature:
    """Derives an operator's signature from a kernel's.

    Args:
        name: ``ns::name``.
        contract: The kernel.
        takes: Names of the kernel's arguments that the operator takes, in its own order. Tensors
            that the kernel writes and that are not among them are results, in the kernel's order;
            anything else that is not among them keeps the kernel's default.
        overload: Name of the overload.
        by_name: Arguments behind a ``*``.
        defaults: Defaults that stand in place of the kernel's own.

    Raises:
        SignatureError: A name is none of the kernel's, an argument without default is missing, or
            a type has no place in a schema.
    """
    known = {
        argument.name: _with_default(name, argument, defaults or {})
        for argument in contract.arguments
    }
    for given in takes:
        if given not in known:
            raise SignatureError(
                f"op: {name}: wanted arguments of {contract.name} ({', '.join(known)}), "
                f"given {given}"
            )
    outputs = tuple(
        a for a in known.values() if a.kind == "tensor" and a.writes and a.name not in takes
    )
    places = []
    for argument in known.values():
        if argument in outputs:
            if argument.optional:
                places.append(Place(argument, LEFT_OUT, 0))
            else:
                places.append(Place(argument, OUTPUT, outputs.index(argument)))
        elif argument.name in takes:
            places.append(Place(argument, _kind(argument), takes.index(argument.name)))
        elif argument.required:
            raise SignatureError(
                f"op: {name}: wanted the argument {argument.name} of {contract.name}, which has no "
                "default, given none"
            )
        else:
            places.append(Place(argument, LEFT_OUT, 0))
    outputs = tuple(a for a in outputs if not a.optional)
    if contract.makes_tensor:
        outputs += (Argument("result", "tensor"),)
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    parts, star = [], False
    for given in takes:
        if given in by_name and not star:
            parts.append("*")
            star = True
        parts.append(_spell(known[given], letters))
    results = ", ".join("Tensor" for _ in outputs)
    result = results if len(outputs) == 1 else f"({results})"
    by_taken = {place.argument.name: place for place in places}
    title = name.split("::")[1] + (f".{overload}" if overload else "")
    return Signature(
        name,
        overload,
        f"{title}({', '.join(parts)}) -> {result}",
        takes,
        tuple(places),
        tuple(by_taken[given] for given in takes),
        outputs,
        tuple(given for given in takes if known[given].writes),
    )


def _with_default(name: str, argument: Argument, defaults: Mapping[str, Any]) -> Argument:
    """Returns an argument with the default that the operator's function has for it."""
    if argument.name not in defaults:
        return argument
    default = defaults[argument.name]
    default = tuple(default) if isinstance(default, list) else default
    if default is None and not argument.optional:
        raise SignatureError(
            f"op: {name}: {argument.name}: wanted a default that {argument.type or 'a tensor'} "
            "can be, given None"
        )
    if default is not None and argument.is_tensor:
        raise SignatureError(
            f"op: {name}: {argument.name}: wanted no default for a tensor but None, given "
            f"{type(default).__name__}"
        )
    return replace(argument, default=default, required=False)


def out_signature_of(contract: KernelContract, signature: Signature) -> Signature:
    """Derives the overload ``out``, which takes the results by name.

    Args:
        contract: The kernel.
        signature: That of the operator, which makes results.
    """
    outs = tuple(argument.name for argument in signature.outputs)
    takes = (*signature.takes, *outs)
    kept = {p.argument.name: p.argument.default for p in signature.taken if not p.argument.required}
    return signature_of(
        signature.name,
        contract,
        takes,
        overload="out",
        by_name=frozenset(outs),
        defaults=kept,
    )


def _kind(argument: Argument) -> int:
    if argument.kind == "tensors":
        return TENSORS
    if argument.kind == "tensor":
        return OPTIONAL_TENSOR if argument.optional else TENSOR
    if argument.kind == "list":
        return OPTIONAL_LIST if argument.optional else LIST
    if argument.type in ("String", "StaticString"):
        return OPTIONAL_STRING if argument.optional else STRING
    return OPTIONAL_SCALAR if argument.optional else SCALAR


def _spell(argument: Argument, letters: Any) -> str:
    alias = f"({next(letters)}!)" if argument.writes else ""
    if argument.kind == "tensors":
        text = f"Tensor{alias}[]"
    elif argument.kind == "tensor":
        text = f"Tensor{alias}"
    else:
        text = _scalar(argument.type) + ("[]" if argument.kind == "list" else "")
    text += "?" if argument.optional else ""
    if argument.required:
        return f"{text} {argument.name}"
    return f"{text} {argument.name}={_default(argument)}"


def _scalar(kind: str) -> str:
    if kind in _INTS:
        return "SymInt"
    if kind in ("Float32", "Float64"):
        return "float"
    return "bool" if kind == "Bool" else "str"


def _default(argument: Argument) -> str:
    value = argument.default
    if value is None:
        return "None"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise SignatureError(
            f"op: {argument.name}: wanted a default that 64 bits with a sign can hold, as torch's "
            f"schemas have, given {value}"
        )
    if isinstance(value, tuple) and argument.optional:
        raise SignatureError(
            f"op: {argument.name}: wanted None, or no default: torch's schemas hold no default of "
            f"an optional list, given {list(value)}"
        )
    if isinstance(value, tuple):
        return "[" + ", ".join(str(item) for item in value) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if argument.type in ("Float32", "Float64"):
        return repr(float(value))
    return str(value)
