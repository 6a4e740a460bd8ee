"""What a user says of an operator: its name, its tags, and the function's parameters."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

from torchmojo.bridge.refuse.facts import show
from torchmojo.errors import ArgumentError, SignatureError

__all__ = ["parameters_of", "split_name", "tags_of"]

# What torch.ops.NS has itself, so that no operator is found under these names.
_TAKEN = frozenset({"name", "__init__", "__name__", "__dict__", "__getattr__", "_dir"})
_TORCHS = frozenset({"aten", "prim", "prims", "quantized", "inductor", "higher_order"})


def split_name(name: str) -> tuple[str, str]:
    """Checks an operator's name and returns its namespace and its title.

    Args:
        name: ``ns::name``.

    Raises:
        ArgumentError: It is no such name, or torch's own.
    """
    namespace, _, title = name.partition("::")
    if not (name.isascii() and namespace.isidentifier() and title.isidentifier()):
        raise ArgumentError(f'op: name: wanted "namespace::name", given {name!r}')
    if namespace in _TORCHS:
        raise ArgumentError(f"op: name: wanted a namespace of your own, given torch's {namespace}")
    if title in _TAKEN:
        raise ArgumentError(
            f"op: name: wanted a name that torch.ops.{namespace} leaves free, given {title}"
        )
    return namespace, title


def parameters_of(
    name: str, function: Callable[..., Any]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Reads the parameters of an operator's function.

    Args:
        name: The operator's.
        function: Takes what the operator takes.

    Returns:
        Their names, and the defaults of those that have one.

    Raises:
        SignatureError: One of them takes a number of arguments, or by name only.
    """
    parameters = inspect.signature(function).parameters
    for parameter in parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise SignatureError(
                f"op: {name}: wanted parameters that are passed by position, given "
                f"{parameter} of {getattr(function, '__name__', 'the function')}"
            )
    given = {n: p.default for n, p in parameters.items() if p.default is not p.empty}
    return tuple(parameters), given


def tags_of(given: Sequence[Any]) -> tuple[Any, ...]:
    """Adds what is true of every kernel: traceable, and given the strides of eager mode.

    Args:
        given: The user's, which may name another rule for strides.

    Raises:
        ArgumentError: One is no ``torch.Tag``.
    """
    torch: Any = sys.modules["torch"]
    for tag in given:
        if not isinstance(tag, torch.Tag):
            raise ArgumentError(f"op: tags: wanted values of torch.Tag, given {show(tag)}")
    made = (torch.Tag.pt2_compliant_tag, *given)
    strides = ("exact_strides", "contiguous_strides", "fixed_stride_order")
    if not {tag.name for tag in given} & {"flexible_layout", *(f"needs_{s}" for s in strides)}:
        made += (torch.Tag.needs_exact_strides,)
    return tuple(dict.fromkeys(made))
