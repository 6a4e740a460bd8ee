"""vmap: one call of an operator for each member of a batch, unless a rule says better."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torchmojo.ops.results import make_results

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
        if info.batch_size == 0:
            return _no_members(op, in_dims, args)
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


def _no_members(op: Any, in_dims: tuple[Any, ...], args: tuple[Any, ...]) -> Any:
    """Returns what there is of no member: the sizes that the fake function says, times 0."""
    torch: Any = sys.modules["torch"]
    one = [_widen(arg, dim) for arg, dim in zip(args, in_dims, strict=True)]
    made = make_results(op, op.signature.complete(one))
    results = tuple(torch.empty((0, *t.shape), dtype=t.dtype, device=t.device) for t in made)
    if len(results) == 1:
        return results[0], 0
    return results, (0,) * len(results)


def _widen(arg: Any, dim: Any) -> Any:
    """Returns a tensor of the sizes and dtype of a member, where there is none."""
    if isinstance(arg, (list, tuple)) and isinstance(dim, (list, tuple)):
        return [_widen(a, d) for a, d in zip(arg, dim, strict=True)]
    if dim is None:
        return arg
    sizes = [n for i, n in enumerate(arg.shape) if i != dim % arg.dim()]
    return arg.new_empty(sizes)


def _pick(arg: Any, dim: Any, index: int) -> Any:
    if isinstance(arg, (list, tuple)) and isinstance(dim, (list, tuple)):
        return [_pick(a, d, index) for a, d in zip(arg, dim, strict=True)]
    return arg if dim is None else arg.select(dim, index)
