"""How results are allocated: read from the Python function that also is the fake kernel.

The function is traced with symbols (``torch.fx``). What allocates by ``torch.empty_like(x)`` or by
sizes taken from inputs is done in Mojo; anything else is done by calling the function.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Like", "Sizes", "read_rule"]


class Like(NamedTuple):
    """A result like an input: sizes, dtype, and dense strides in the same order.

    Attributes:
        source: Name of the input.
    """

    source: str


class Sizes(NamedTuple):
    """A contiguous result.

    Attributes:
        sizes: For each axis a number, or an input's name and its axis.
        dtype: Name of the input whose dtype it has, or a ``torch.dtype``.
    """

    sizes: tuple[int | tuple[str, int], ...]
    dtype: Any


Rule = Like | Sizes


class _NotReadable(Exception):
    """The function does something that the glue cannot do; the text says what."""


def read_rule(function: Callable[..., Any], count: int) -> tuple[tuple[Rule, ...] | None, str]:
    """Reads the rule of each result.

    Args:
        function: Takes the operator's arguments, returns its results.
        count: Number of results.

    Returns:
        One rule per result and ``""``; or None and the reason why the function has to be called.
    """
    torch = sys.modules["torch"]
    if count == 0:
        return (), ""
    try:
        graph = torch.fx.Tracer().trace(function)
    except Exception as error:  # control flow, or anything that a symbol cannot do
        return None, str(error).splitlines()[0] if str(error) else type(error).__name__
    [result] = [node.args[0] for node in graph.nodes if node.op == "output"]
    results = result if isinstance(result, (tuple, list)) else (result,)
    if len(results) != count:
        return None, f"{len(results)} results for {count} outputs of the kernel"
    if len({id(node) for node in results}) != count:
        return None, "one result twice"
    try:
        return tuple(_rule(node, torch) for node in results), ""
    except _NotReadable as error:
        return None, str(error)


def _rule(node: Any, torch: Any) -> Rule:
    if not isinstance(node, torch.fx.Node):
        raise _NotReadable(f"a result {node!r}")
    if node.op == "call_function" and node.target is torch.empty_like:
        [source] = node.args
        if set(node.kwargs) - {"dtype"}:
            raise _NotReadable(f"empty_like with {', '.join(node.kwargs)}")
        if "dtype" in node.kwargs:
            raise _NotReadable("empty_like with a dtype")
        return Like(_input(source))
    if node.op == "call_method" and node.target == "new_empty":
        source, *sizes = node.args
        if set(node.kwargs) - {"dtype"}:
            raise _NotReadable(f"new_empty with {', '.join(node.kwargs)}")
        given = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
        dtype = node.kwargs.get("dtype") or _input(source)
        return Sizes(tuple(_size(size, torch) for size in given), dtype)
    if node.op == "call_function" and node.target is torch.empty:
        if set(node.kwargs) - {"dtype"} or "dtype" not in node.kwargs:
            raise _NotReadable("torch.empty without dtype, or with more than that")
        [sizes] = node.args if len(node.args) == 1 else [node.args]
        given = sizes if isinstance(sizes, (tuple, list)) else [sizes]
        return Sizes(tuple(_size(size, torch) for size in given), node.kwargs["dtype"])
    raise _NotReadable(f"{node.target} makes a result")


def _input(node: Any) -> str:
    if getattr(node, "op", "") != "placeholder":
        raise _NotReadable("a result like something that is no argument")
    return str(node.target)


def _size(node: Any, torch: Any) -> int | tuple[str, int]:
    """Reads ``3``, ``x.shape[1]`` or ``x.size(1)``."""
    if isinstance(node, int):
        return node
    if not isinstance(node, torch.fx.Node):
        raise _NotReadable(f"a size {node!r}")
    if node.op == "call_method" and node.target == "size" and len(node.args) == 2:
        return _axis(node.args[0], node.args[1])
    if node.op == "call_function" and node.target is operator.getitem:
        shape, axis = node.args
        if getattr(shape, "op", "") == "call_function" and shape.target is getattr:
            source, name = shape.args
            if name == "shape":
                return _axis(source, axis)
    raise _NotReadable(f"a size computed by {node.target}")


def _axis(source: Any, axis: Any) -> tuple[str, int]:
    if not isinstance(axis, int) or axis < 0:
        raise _NotReadable(f"axis {axis}; count axes from the front")
    return _input(source), axis
