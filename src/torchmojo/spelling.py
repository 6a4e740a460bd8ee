"""Kernels' signatures as text and as Python's own, for help, messages and stub files."""

from __future__ import annotations

import inspect
from typing import Any

from torchmojo.contract import KernelContract

__all__ = ["describe", "signature", "spell"]


def spell(contract: KernelContract, argument: Any) -> str:
    """Returns an argument as ``dst: MutTensor[dtype, 1, "n"]``.

    Args:
        contract: The kernel.
        argument: One of its arguments.
    """
    if argument.is_tensor:
        mode = "Mut" if argument.writes else ""
        inside = [argument.dtype, str(argument.rank)]
        if argument.axes:
            inside.append(f'"{" ".join(argument.axes)}"')
        if argument.layout != "any":
            inside.append(f"layout={argument.layout}")
        text = f"{mode}Tensor[{', '.join(inside)}]"
        if argument.kind == "tensors":
            text = f"{mode}TensorList[{', '.join(inside)}]"
        elif argument.optional:
            text = f"Optional{text}"
    else:
        text = f"List[{argument.type}]" if argument.kind == "list" else argument.type
        if argument.optional:
            text = f"Optional[{text}]"
    default = "" if argument.required else f" = {argument.default!r}"
    return f"{argument.name}: {text}{default}"


def describe(contract: KernelContract) -> str:
    """Returns the text that ``print(kernel)`` and ``help(kernel)`` show.

    Args:
        contract: The kernel.
    """
    inside = ", ".join(spell(contract, argument) for argument in contract.arguments)
    result = f" -> {contract.returns}" if contract.returns else ""
    lines = [f"{contract.name}({inside}){result}"]
    if contract.doc:
        lines += ["", *contract.doc.splitlines()]
    documented = [argument for argument in contract.arguments if argument.doc]
    if documented:
        lines += ["", "Args:"]
        lines += [f"    {argument.name}: {argument.doc}" for argument in documented]
    for parameter in contract.parameters:
        lines += ["", f"{parameter.name}: {', '.join(parameter.choices)}"]
    return "\n".join(lines)


def signature(contract: KernelContract) -> inspect.Signature:
    """Returns the Python signature.

    Args:
        contract: The kernel.
    """
    return inspect.Signature(
        [
            inspect.Parameter(
                argument.name,
                inspect.Parameter.KEYWORD_ONLY
                if argument.by_name
                else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=inspect.Parameter.empty if argument.required else argument.default,
            )
            for argument in contract.arguments
        ]
    )
