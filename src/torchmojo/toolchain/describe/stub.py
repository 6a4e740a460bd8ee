"""Writes a stub file: what editors and type checkers know of a library's kernels."""

from __future__ import annotations

import keyword
import math

from torchmojo.contract import Argument, Contract, KernelContract
from torchmojo.dtypes import BY_NAME

__all__ = ["write_stub"]

_WIDTH = 100


def write_stub(contract: Contract) -> str:
    """Returns the text of a ``.pyi`` file with a typed function for each kernel.

    Args:
        contract: The kernels.

    Returns:
        A stub without comments of a type checker: ``mypy --strict`` passes it. A tensor is a
        ``torch.Tensor`` there, although kernels take NumPy arrays too.
    """
    kernels = [kernel for kernel in contract.kernels if not keyword.iskeyword(kernel.name)]
    names = {kernel.name for kernel in kernels}
    functions = [_function(kernel, names) for kernel in kernels]
    body = "\n\n\n".join(functions)
    title = f"Kernels of {contract.name}. Written by torchmojo; do not edit."
    lines = [f'"""{_escaped(title)}"""', ""]
    if "builtins." in body:
        lines.append("import builtins")
    if "Sequence[" in body:
        lines.append("from collections.abc import Sequence")
    if len(lines) > 2:
        lines.append("")
    if "Tensor" in body:
        lines += ["from torch import Tensor", ""]
    exported = "".join(f'    "{name}",\n' for name in sorted(names))
    return "\n".join([*lines, f"__all__ = [\n{exported}]", "", body]) + "\n"


def _function(kernel: KernelContract, names: set[str]) -> str:
    from torchmojo.spelling import describe

    parts = [_parameter(argument, names) for argument in kernel.arguments]
    optional = [i for i, a in enumerate(kernel.arguments) if not a.required]
    if optional and any(a.required for a in kernel.arguments[optional[0] :]):
        # Mojo allows that for arguments that are given by name.
        parts.insert(optional[0], "*")
    reserved = [i for i, a in enumerate(kernel.arguments) if keyword.iskeyword(a.name)]
    if reserved:
        # Such a name cannot be written in Python: all up to the last of them go by position.
        parts.insert(reserved[-1] + 1, "/")
    result = _builtin(_result(kernel), names)
    head = f"def {kernel.name}({', '.join(parts)}) -> {result}:"
    if len(head) > _WIDTH:
        inside = "".join(f"    {part},\n" for part in parts)
        head = f"def {kernel.name}(\n{inside}) -> {result}:"
    # The first line of a kernel's description is its Mojo signature.
    text = _escaped(describe(kernel))
    doc = "\n".join(f"    {line}" if line else "" for line in f'"""{text}\n"""'.split("\n"))
    return f"{head}\n{doc}"


def _parameter(argument: Argument, names: set[str]) -> str:
    reserved = keyword.iskeyword(argument.name)
    text = f"{argument.name}{'_' if reserved else ''}: {_type(argument, names)}"
    if argument.required:
        return text
    value = argument.default
    if isinstance(value, float) and not math.isfinite(value):
        return f"{text} = ..."
    return f"{text} = {value!r}"


def _type(argument: Argument, names: set[str]) -> str:
    text = "Tensor" if argument.is_tensor else _builtin(_python(argument.type), names)
    if argument.kind in ("list", "tensors"):
        text = f"Sequence[{text}]"
    return f"{text} | None" if argument.optional else text


def _result(kernel: KernelContract) -> str:
    """Returns the Python type of a kernel's result, which may depend on a dtype."""
    if kernel.makes_tensor:
        return "torch.Tensor"
    if not kernel.returns.startswith("Scalar["):
        return _python(kernel.returns) if kernel.returns else "None"
    parameter = kernel.parameter(kernel.returns[len("Scalar[") : -1])
    kinds = {BY_NAME[name].kind for name in parameter.choices} if parameter else set()
    types = [
        *(["bool"] if "b" in kinds else []),
        *(["int"] if kinds & {"i", "u"} else []),
        *(["float"] if kinds & {"f", "8"} else []),
    ]
    return " | ".join(types or ["float"])


def _python(mojo: str) -> str:
    """Returns the Python type for a Mojo type of a number or a text."""
    if mojo in ("String", "StaticString"):
        return "str"
    if mojo == "Bool":
        return "bool"
    return "float" if mojo.startswith("Float") else "int"


def _builtin(text: str, names: set[str]) -> str:
    """Writes ``builtins.float`` where a kernel is called ``float``."""
    words = text.split(" | ")
    return " | ".join(f"builtins.{word}" if word in names else word for word in words)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
