"""What autograd records of an operator, and what it is told where there is no formula."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from torchmojo.errors import GradError

__all__ = ["Saved", "make_function"]


class Saved:
    """What a backward formula sees: the inputs and saved results by name.

    Attributes:
        needs: For each argument of the operator whether its gradient is asked for, by name.
    """

    def __init__(self, values: dict[str, Any], needs: dict[str, bool]) -> None:
        """Makes every value an attribute."""
        self.__dict__.update(values)
        self.needs = needs

    def __getattr__(self, name: str) -> Any:
        """Says what there is."""
        known = ", ".join(n for n in self.__dict__ if n != "needs")
        raise AttributeError(
            f"backward: wanted one of {known}, given {name}; name it in save=(...)"
        )


def make_function(op: Any) -> Callable[..., Any]:
    """Makes the function that records a call of an operator.

    Args:
        op: The operator: its overload, signature, formula and what it saves.

    Returns:
        A function of the operator's arguments. It is a ``torch.autograd.Function`` underneath,
        whose arguments are flat: autograd does not look into lists.
    """
    torch: Any = sys.modules["torch"]
    names: tuple[str, ...] = op.signature.takes
    results = tuple(argument.name for argument in op.signature.outputs)

    def forward(layout: Sequence[int | None], *flat: Any) -> Any:
        # A Function's forward is under no_grad, but an outer torch.func.grad records below.
        outer = torch._C._are_functorch_transforms_active()
        with torch.set_grad_enabled(outer), torch._C._AutoDispatchBelowAutograd():
            return op.overload(*_nest(layout, flat))

    def setup_context(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
        layout, *flat = inputs
        values = dict(zip(names, _nest(layout, flat), strict=True))
        outputs = output if isinstance(output, tuple) else (output,)
        values.update(zip(results, outputs, strict=True))
        kept = names if op.saves is None else op.saves
        tensors: list[Any] = []
        places: dict[str, Any] = {}
        for name in kept:
            if name in op.tensor_names or name in results:
                given = values[name]
                places[name] = None if given is None else len(tensors)
                if isinstance(given, (list, tuple)):
                    places[name] = slice(len(tensors), len(tensors) + len(given))
                    tensors += given
                elif given is not None:
                    tensors.append(given)
        ctx.save_for_backward(*tensors)
        ctx.places, ctx.layout = places, layout
        ctx.others = {n: values[n] for n in names if n not in op.tensor_names}

    def backward(ctx: Any, *grads: Any) -> Any:
        if op.formula is None:
            raise GradError(
                f"{op.name}: wanted a backward formula, given none; register one with "
                f"@{op.title}.backward, or call it under torch.no_grad()"
            )
        saved = ctx.saved_tensors
        values = {n: None if at is None else saved[at] for n, at in ctx.places.items()}
        asked = _nest(ctx.layout, ctx.needs_input_grad[1:])
        needs = {
            name: any(ask) if isinstance(ask, list) else bool(ask)
            for name, ask in zip(names, asked, strict=True)
        }
        given = op.formula(Saved({**ctx.others, **values}, needs), *grads)
        return (None, *_flatten(op, ctx.layout, _arrange(op, given, names)))

    body = {
        "forward": staticmethod(forward),
        "setup_context": staticmethod(setup_context),
        "backward": staticmethod(backward),
    }
    # Not torch.autograd.Function: under torch.func this runs at one level of the transform already.
    function: Any = type(op.title, (torch.autograd.function._SingleLevelFunction,), body)
    apply = function.apply
    functorch = torch._C._functorch

    def call(*args: Any) -> Any:
        layout = tuple(len(a) if isinstance(a, (list, tuple)) else None for a in args)
        flat = [
            item for a, n in zip(args, layout, strict=True) for item in ([a] if n is None else a)
        ]
        if not torch._C._are_functorch_transforms_active():
            return apply(layout, *flat)
        before = functorch.get_single_level_autograd_function_allowed()
        functorch.set_single_level_autograd_function_allowed(True)
        try:
            return apply(layout, *flat)
        finally:
            functorch.set_single_level_autograd_function_allowed(before)

    return call


def _nest(layout: Sequence[int | None], flat: Sequence[Any]) -> list[Any]:
    """Puts lists together again."""
    items = iter(flat)
    return [
        next(items) if count is None else [next(items) for _ in range(count)] for count in layout
    ]


def _flatten(op: Any, layout: Sequence[int | None], grads: Sequence[Any]) -> list[Any]:
    flat: list[Any] = []
    for name, count, grad in zip(op.signature.takes, layout, grads, strict=True):
        if count is None:
            flat.append(grad)
        elif grad is None:
            flat += [None] * count
        elif len(grad) == count:
            flat += grad
        else:
            raise GradError(
                f"{op.name}: backward: wanted {count} gradients for the list {name}, given "
                f"{len(grad)}"
            )
    return flat


def _arrange(op: Any, given: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    """Puts what a formula returned into the order of the operator's arguments."""
    tensors = op.tensor_names
    if isinstance(given, dict):
        unknown = set(given) - set(tensors)
        if unknown:
            raise GradError(
                f"{op.name}: backward: wanted gradients of {', '.join(tensors)}, given "
                f"{', '.join(sorted(unknown))}"
            )
        return tuple(given.get(name) for name in names)
    items = given if isinstance(given, tuple) else (given,)
    if len(items) == len(names):
        return items
    if len(items) == len(tensors):
        by_name = dict(zip(tensors, items, strict=True))
        return tuple(by_name.get(name) for name in names)
    raise GradError(
        f"{op.name}: backward: wanted {len(tensors)} gradients ({', '.join(tensors)}), given "
        f"{len(items)}"
    )
