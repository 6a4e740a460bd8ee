"""A whole file of kernels as operators, with allocation rules read from the signatures."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from torchmojo.contract import Argument, KernelContract
from torchmojo.errors import ArgumentError
from torchmojo.library import Library, load
from torchmojo.ops.op import Op, register
from torchmojo.ops.rule import Sizes

__all__ = ["ops_from", "plan"]


def ops_from(
    source: str | os.PathLike[str] | Library, namespace: str, **options: Any
) -> dict[str, Op]:
    """Makes every kernel of a file an operator of torch's.

    A tensor that a kernel writes is a result if its signature says how to make it: each of its axes
    has a name that an input has too, or a number, and its dtype is an input's or a fixed one. It is
    contiguous. Otherwise, and where the kernel's name ends in ``_``, it is written in place.

    Args:
        source: A path, as for ``torchmojo.load``, or a library.
        namespace: The operators' namespace.
        options: As for ``torchmojo.load``.

    Returns:
        The operators by the kernels' names; kernels that return something are left out.

    Raises:
        ArgumentError: torch is not imported, or options are given for a library.

    Example:
        >>> import torch, torchmojo                                        # doctest: +SKIP
        >>> ops = torchmojo.ops_from("kernels.mojo", namespace="vision")   # doctest: +SKIP
        >>> torch.ops.vision.gaussian_blur(image, 1.5)                     # doctest: +SKIP
    """
    if isinstance(source, Library):
        if options:
            raise ArgumentError("ops_from: options: wanted none for a library, which is loaded")
        library = source
    else:
        library = load(source, **options)
    made = {}
    for kernel in library:
        if not kernel.contract.returns:
            made[kernel.__name__] = _operator(f"{namespace}::{kernel.__name__}", kernel)
    return made


def plan(contract: KernelContract) -> tuple[tuple[str, ...], tuple[Sizes, ...]]:
    """Decides what an operator made of a kernel takes, and how it makes its results.

    Args:
        contract: The kernel.

    Returns:
        Names of what it takes, and a rule per result.
    """
    rules = {}
    if not contract.name.endswith("_"):
        for argument in contract.arguments:
            if argument.kind == "tensor" and argument.writes and not argument.optional:
                rule = _rule(contract, argument)
                if rule is not None:
                    rules[argument.name] = rule
    takes = tuple(a.name for a in contract.arguments if a.name not in rules)
    return takes, tuple(rules.values())


def _operator(name: str, kernel: Any) -> Op:
    takes, rules = plan(kernel.contract)
    function = _fake(takes, rules)
    function.__doc__ = kernel.contract.doc
    return register(name, kernel, function, rules)


def _rule(contract: KernelContract, output: Argument) -> Sizes | None:
    """Returns how to make a result, or None where the signature does not say."""
    inputs = [
        a for a in contract.arguments if a.kind == "tensor" and not a.writes and not a.optional
    ]
    if len(output.axes) != output.rank:
        return None
    sizes: list[int | tuple[str, int]] = []
    for name in output.axes:
        if name.isdecimal():
            sizes.append(int(name))
            continue
        found = next((a for a in inputs if name in a.axes), None)
        if found is None or name in ("_", "complex"):
            return None
        sizes.append((found.name, found.axes.index(name)))
    if contract.parameter(output.dtype) is None:
        return Sizes(tuple(sizes), getattr(sys.modules["torch"], output.dtype))
    like = next((a for a in inputs if a.dtype == output.dtype), None)
    return None if like is None else Sizes(tuple(sizes), like.name)


def _fake(names: tuple[str, ...], rules: tuple[Sizes, ...]) -> Callable[..., Any]:
    """Returns the function that makes the results, with the operator's parameters."""

    def function(*args: Any, **kwargs: Any) -> Any:
        torch: Any = sys.modules["torch"]
        values = {**dict(zip(names, args, strict=False)), **kwargs}
        made = []
        for rule in rules:
            sizes = [s if isinstance(s, int) else values[s[0]].shape[s[1]] for s in rule.sizes]
            dtype = values[rule.dtype].dtype if isinstance(rule.dtype, str) else rule.dtype
            made.append(torch.empty(sizes, dtype=dtype, device=_device(values)))
        return made[0] if len(made) == 1 else tuple(made) or None

    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names
    ]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return function


def _device(values: dict[str, Any]) -> Any:
    torch: Any = sys.modules["torch"]
    return next(v.device for v in values.values() if isinstance(v, torch.Tensor))
