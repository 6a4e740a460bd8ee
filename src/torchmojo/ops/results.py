"""The results that an operator's Python function makes, looked at before the kernel writes them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from torchmojo.bridge.refuse.facts import show
from torchmojo.errors import SignatureError

__all__ = ["make_results"]


def make_results(op: Any, args: Sequence[Any]) -> tuple[Any, ...]:
    """Calls an operator's function, with tensors of any kind.

    A result that shares memory with an argument would let the kernel change that argument, of
    which neither autograd nor a compiled program would know.

    Args:
        op: The operator.
        args: All of its arguments.

    Returns:
        One tensor per result.

    Raises:
        SignatureError: The function gives something else.
    """
    torch: Any = sys.modules["torch"]
    outputs = op.signature.outputs
    made = op.function(*args)
    if not outputs:
        return ()
    results = tuple(made) if isinstance(made, (tuple, list)) else (made,)
    names = ", ".join(argument.name for argument in outputs)
    if len(results) != len(outputs):
        raise SignatureError(
            f"{op.name}: wanted {len(outputs)} results of its function ({names}), given "
            f"{len(results)}"
        )
    owners = {
        _memory(item): name
        for name, value in zip(op.signature.takes, args, strict=True)
        for item in (value if isinstance(value, (tuple, list)) else [value])
        if isinstance(item, torch.Tensor)
    }
    for argument, result in zip(outputs, results, strict=True):
        if not isinstance(result, torch.Tensor):
            raise SignatureError(
                f"{op.name}: {argument.name}: wanted a tensor of its function, given {show(result)}"
            )
        memory = _memory(result)
        if memory is not None and memory in owners:
            raise SignatureError(
                f"{op.name}: {argument.name}: wanted a tensor of its own, given one that shares "
                f"the memory of {owners[memory]}; let the function make it, as by torch.empty_like"
            )
        owners[memory] = argument.name
    return results


def _memory(tensor: Any) -> int | None:
    """Returns what tells memory apart, of a real tensor or a fake one; None where there is none."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # it stands for others, as under torch.vmap
        return None
