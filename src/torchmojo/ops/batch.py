"""vmap: one call of an operator for each member of a batch, unless a rule says better."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["loop"]


def loop(op: Any) -> Callable[..., Any]:
    """Returns the batching rule that is right for every operator.

    Args:
        op: The operator.
    """

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        torch: Any = sys.modules["torch"]
        if op.signature.writes:
            raise RuntimeError(
                f"{op.name}: wanted a batching rule for an operator that writes its arguments, "
                f"given none; register one with @{op.title}.vmap"
            )
        results = []
        for i in range(info.batch_size):
            member = [_pick(arg, dim, i) for arg, dim in zip(args, in_dims, strict=True)]
            made = op.overload(*member)
            results.append(made if isinstance(made, tuple) else (made,))
        stacked = tuple(torch.stack(items) for items in zip(*results, strict=True))
        if len(op.signature.outputs) == 1:
            return stacked[0], 0
        return stacked, (0,) * len(stacked)

    return rule


def _pick(arg: Any, dim: Any, index: int) -> Any:
    if isinstance(arg, (list, tuple)) and isinstance(dim, (list, tuple)):
        return [_pick(a, d, index) for a, d in zip(arg, dim, strict=True)]
    return arg if dim is None else arg.select(dim, index)
