"""Which dtypes a ``where`` clause lets through.

The clause is the compiler's own print of a Mojo expression. Its grammar is close to Python's, so
Python's ``ast`` reads it; only the few forms below are understood, and anything else is refused by
name instead of being guessed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable

from torchmojo.dtypes import BY_NAME, DTypeInfo

__all__ = ["UnknownConstraintError", "choose"]

_PREDICATES: dict[str, Callable[[DTypeInfo], bool]] = {
    "is_floating_point": lambda d: d.kind in "f8",
    "is_float8": lambda d: d.kind == "8",
    "is_half_float": lambda d: d.name in ("float16", "bfloat16"),
    "is_integral": lambda d: d.kind in "iu",
    "is_signed": lambda d: d.kind in "if8",
    "is_unsigned": lambda d: d.kind == "u",
    "is_numeric": lambda d: d.kind != "b",
}


class UnknownConstraintError(ValueError):
    """A part of a ``where`` clause that is not about dtypes in a known form."""


def choose(clause: str, parameter: str, candidates: Iterable[str]) -> tuple[str, ...]:
    """Returns the candidates that a clause allows for one dtype parameter.

    Args:
        clause: Text after ``where``; empty allows all.
        parameter: Name of the dtype parameter; conditions on others are ignored.
        candidates: Dtype names.

    Raises:
        UnknownConstraintError: The clause has a form that is not understood; the text says which.

    Example:
        >>> choose("dtype.is_floating_point() and (dtype != DType.float64)", "dtype",
        ...        ["float32", "float64", "int8"])
        ('float32',)
    """
    names = tuple(candidates)
    if not clause.strip():
        return names
    # `.float32` is Mojo's short form of `DType.float32`.
    text = re.sub(r"(?<![\w)\]])\.(?=[a-z])", "DType.", clause)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise UnknownConstraintError(clause) from error
    return tuple(name for name in names if _holds(tree, parameter, BY_NAME[name]) is not False)


def _holds(node: ast.expr, parameter: str, dtype: DTypeInfo) -> bool | None:
    """Evaluates a condition; None where it is about another parameter."""
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            known = [v for x in values if (v := _holds(x, parameter, dtype)) is not None]
            return all(known) if known else None
        case ast.BoolOp(op=ast.Or(), values=values):
            results = [_holds(x, parameter, dtype) for x in values]
            if True in results:
                return True
            return None if None in results else False
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            value = _holds(operand, parameter, dtype)
            return None if value is None else not value
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr), args=[]):
            if attr not in _PREDICATES:
                raise UnknownConstraintError(ast.unparse(node))
            return _PREDICATES[attr](dtype) if name == parameter else None
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as op], comparators=[right]):
            pair = (_term(left), _term(right))
            names = [x for x in pair if not x.startswith("DType.")]
            dtypes = [x.removeprefix("DType.") for x in pair if x.startswith("DType.")]
            if len(names) != 1 or len(dtypes) != 1:
                raise UnknownConstraintError(ast.unparse(node))
            if names[0] != parameter:
                return None
            equal = dtype.name == dtypes[0]
            return equal if isinstance(op, ast.Eq) else not equal
        case _:
            raise UnknownConstraintError(ast.unparse(node))


def _term(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id="DType"), attr=attr):
            return f"DType.{attr}"
        case _:
            raise UnknownConstraintError(ast.unparse(node))
