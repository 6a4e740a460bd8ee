"""Compares what an operator returns with what its fake function says, for debugging.

torch.compile and torch.export believe the fake function; where it is wrong, compiled code reads
memory by strides that the result does not have.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torchmojo.bridge.refuse.facts import show
from torchmojo.errors import SignatureError
from torchmojo.ops.results import make_results

__all__ = ["checked"]


def checked(op: Any, overload: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that calls an operator and compares its results.

    Args:
        op: The operator, whose function is the fake one.
        overload: What it does.

    Returns:
        A function of the operator's arguments. It raises ``SignatureError`` where sizes, strides or
        dtype of a result differ.
    """

    def call(*args: Any) -> Any:
        args = op.signature.complete(args)
        expected = _run_fake(op, args)
        made = overload(*args)
        given = made if isinstance(made, tuple) else (made,) * len(expected)
        for i, (result, fake) in enumerate(zip(given, expected, strict=True)):
            if _facts(result) != _facts(fake):
                raise SignatureError(
                    f"{op.name}: result {i}: wanted {_spell(fake)} as the function says, given "
                    f"{show(result)} from the kernel; let the function make what the kernel makes"
                )
        return made

    return call


def _run_fake(op: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Calls the function with fake tensors of the arguments' sizes, strides and dtypes."""
    torch: Any = sys.modules["torch"]
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fakes = torch.utils._pytree.tree_map_only(torch.Tensor, mode.from_tensor, list(args))
        return make_results(op, fakes)


def _facts(tensor: Any) -> tuple[Any, ...]:
    # Steps along axes of one element are never taken, and torch's rules for them vary.
    sizes = tuple(tensor.shape)
    steps = tuple(s for s, n in zip(tensor.stride(), sizes, strict=True) if n > 1)
    return sizes, () if 0 in sizes else steps, tensor.dtype


def _spell(fake: Any) -> str:
    """Spells a fake tensor as ``show`` spells a real one."""
    torch: Any = sys.modules["torch"]
    with torch.utils._python_dispatch._disable_current_modes():
        like = torch.empty(1, dtype=fake.dtype).as_strided((1,) * fake.dim(), fake.stride())
        sizes = ",".join(str(int(n)) for n in fake.shape)
    text: str = show(like)
    head, _, tail = text.partition("[")
    return f"{head}[{sizes}]{tail.partition(']')[2]}"
