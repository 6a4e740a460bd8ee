"""How results are allocated: read from the Python function that also is the fake kernel.

The function is traced with symbols (``torch.fx``). What allocates by ``torch.empty_like(x)`` or by
sizes taken from inputs is done in Mojo; anything else is done by calling the function.
"""

from __future__ import annotations

import dis
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


def read_rule(
    function: Callable[..., Any], count: int, plain: frozenset[str] | None = None
) -> tuple[tuple[Rule, ...] | None, str]:
    """Reads the rule of each result.

    Args:
        function: Takes the operator's arguments, returns its results.
        count: Number of results.
        plain: Arguments that are always one tensor, from which a rule may take sizes; all if None.

    Returns:
        One rule per result and ``""``; or None and the reason why the function has to be called.
    """
    torch = sys.modules["torch"]
    if count == 0:
        return (), ""
    if branch := _branch(function):
        return None, branch
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
        rules = tuple(_rule(node, torch) for node in results)
        for source in (name for rule in rules for name in _sources(rule)):
            if plain is not None and source not in plain:
                return None, f"{source} is not always a tensor"
    except _NotReadable as error:
        return None, str(error)
    return rules, ""


def _branch(function: Callable[..., Any]) -> str:
    """Returns what of a function's code a tracer might not see: it takes one way through it.

    A symbol is neither None nor an instance of anything, and its tracer is not asked.
    """
    code = getattr(function, "__code__", None)
    if code is None:
        return "no Python function"
    for step in dis.get_instructions(code):
        if ("JUMP" in step.opname and "IF" in step.opname) or step.opname in ("IS_OP", "FOR_ITER"):
            return "it decides on its arguments"
        if step.opname in ("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME") and step.argval != "torch":
            return f"it uses {step.argval}"
    return ""


def _sources(rule: Rule) -> list[str]:
    """Returns the arguments that a rule reads."""
    if isinstance(rule, Like):
        return [rule.source]
    named = [size[0] for size in rule.sizes if not isinstance(size, int)]
    return [*named, rule.dtype] if isinstance(rule.dtype, str) else named


def _rule(node: Any, torch: Any) -> Rule:
    if not isinstance(node, torch.fx.Node):
        raise _NotReadable(f"a result {node!r}")
    if node.op == "call_function" and node.target is torch.empty_like:
        if len(node.args) != 1:
            raise _NotReadable("empty_like by keyword")
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
        _input(source)
        dtype = _dtype(node.kwargs.get("dtype"), torch) or _input(source)
        return Sizes(tuple(_size(size, torch) for size in given), dtype)
    if node.op == "call_function" and node.target is torch.empty:
        if set(node.kwargs) - {"dtype"} or "dtype" not in node.kwargs:
            raise _NotReadable("torch.empty without dtype, or with more than that")
        [sizes] = node.args if len(node.args) == 1 else [node.args]
        given = sizes if isinstance(sizes, (tuple, list)) else [sizes]
        return Sizes(
            tuple(_size(size, torch) for size in given), _dtype(node.kwargs["dtype"], torch)
        )
    raise _NotReadable(f"{node.target} makes a result")


def _dtype(given: Any, torch: Any) -> Any:
    """Reads ``torch.float32`` or ``x.dtype``."""
    if given is None or isinstance(given, torch.dtype):
        return given
    if getattr(given, "op", "") == "call_function" and given.target is getattr:
        source, name = given.args
        if name == "dtype":
            return _input(source)
    raise _NotReadable(f"a dtype {given}")


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
