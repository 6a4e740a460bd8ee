"""What autograd records of an operator, and what it is told where there is no formula."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from torchmojo.bridge.refuse.facts import show
from torchmojo.errors import GradError

__all__ = ["Saved", "make_function", "refuse_in_place", "tensors_in"]


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
        op: The operator: its overload, signature, formula and what it saves. It is read once, so
            that a recorded call has little left to decide.

    Returns:
        A function of the operator's arguments. It is a ``torch.autograd.Function`` underneath,
        whose tensors are flat: autograd does not look into lists.
    """
    torch: Any = sys.modules["torch"]
    names: tuple[str, ...] = op.signature.takes
    results = tuple(argument.name for argument in op.signature.outputs)
    kept = names if op.saves is None else op.saves
    lists = {i for i, n in enumerate(names) if op.kernel.arguments[n].argument.kind == "tensors"}
    saved = tuple(i for i, n in enumerate(names) if n in kept and n in op.tensor_names)
    saved_results = tuple(i for i, n in enumerate(results) if n in kept)
    others = tuple(i for i, n in enumerate(names) if n not in op.tensor_names)
    saved_names = (*(names[i] for i in saved), *(results[i] for i in saved_results))
    overload = op.overload
    transforms = torch._C._are_functorch_transforms_active
    below = torch._C._AutoDispatchBelowAutograd

    def forward(ctx: Any, layout: Sequence[int | None] | None, *flat: Any) -> Any:
        args = flat if layout is None else _nest(layout, flat)
        if transforms():
            # A Function's forward is under no_grad, but an outer torch.func.grad or jvp sees what
            # happens below.
            forward_mode = torch.autograd.forward_ad._set_fwd_grad_enabled
            with torch.enable_grad(), forward_mode(True), below():
                made = overload(*args)
        else:
            with below():
                made = overload(*args)
        tensors = [args[i] for i in saved]
        if saved_results:
            outputs = made if isinstance(made, tuple) else (made,)
            tensors += [outputs[i] for i in saved_results]
        if lists:
            ctx.sizes = tuple(len(t) if isinstance(t, list) else None for t in tensors)
            tensors = [t for item in tensors for t in _items(item)]
        ctx.save_for_backward(*tensors)
        ctx.layout, ctx.others = layout, tuple(args[i] for i in others)
        return made

    def backward(ctx: Any, *grads: Any) -> Any:
        if op.formula is None:
            raise GradError(
                f"{op.name}: wanted a backward formula, given none; register one with "
                f"@{op.title}.backward, or call it under torch.no_grad()"
            )
        tensors = ctx.saved_tensors
        if lists:
            tensors = _nest(ctx.sizes, tensors)
        values = dict(zip((names[i] for i in others), ctx.others, strict=True))
        values.update(zip(saved_names, tensors, strict=True))
        asked = ctx.needs_input_grad[1:]
        layout = ctx.layout or (None,) * len(names)
        needs = {
            name: any(ask) if isinstance(ask, list) else bool(ask)
            for name, ask in zip(names, _nest(layout, asked), strict=True)
        }
        given = op.formula(Saved(values, needs), *grads)
        return (None, *_flatten(op, layout, _arrange(op, given, names)))

    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise GradError(
            f"{op.name}: wanted tensors without tangents, given some that have one: there is no "
            "forward-mode formula; use torch.autograd.grad, torch.func.vjp or jacrev"
        )

    # Not torch.autograd.Function: under torch.func this runs at one level of the transform already.
    body = {
        "forward": staticmethod(forward),
        "backward": staticmethod(backward),
        "jvp": staticmethod(jvp),
    }
    function: Any = type(op.title, (torch.autograd.function._SingleLevelFunction,), body)
    apply = function.apply
    functorch = torch._C._functorch

    def call(*args: Any) -> Any:
        layout = None
        if lists:
            layout = tuple(len(a) if i in lists else None for i, a in enumerate(args))
            args = tuple(
                item
                for a, n in zip(args, layout, strict=True)
                for item in ([a] if n is None else a)
            )
        if not transforms():
            return apply(layout, *args)
        before = functorch.get_single_level_autograd_function_allowed()
        functorch.set_single_level_autograd_function_allowed(True)
        try:
            return apply(layout, *args)
        finally:
            functorch.set_single_level_autograd_function_allowed(before)

    return call


def _items(value: Any) -> list[Any]:
    """Returns a list's items, or the one value."""
    return value if isinstance(value, list) else [value]


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


def refuse_in_place(title: str, signature: Any, args: Sequence[Any]) -> None:
    """Raises as torch's own in-place operators do, or because there is no formula for it.

    Args:
        title: The operator's name.
        signature: That of the overload.
        args: Its arguments, of which one requires grad.

    Raises:
        GradError: Always.
    """
    values = dict(zip(signature.takes, args, strict=True))
    for name in signature.writes:
        for tensor in tensors_in(values[name]):
            if tensor.requires_grad:
                raise GradError(
                    f"{title}: {name}: wanted a tensor that autograd does not record, "
                    f"given {show(tensor)}; call it under torch.no_grad(), or write into "
                    "x.detach()"
                )
    raise GradError(
        f"{title}: wanted arguments that autograd does not record, as it writes "
        f"{', '.join(signature.writes)} in place, given one that requires grad or has a tangent; "
        "call it under torch.no_grad()"
    )


def tensors_in(value: Any) -> list[Any]:
    """Returns the tensors of one argument.

    Args:
        value: A tensor, a list of them, or None.
    """
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]
