"""Which dtypes and ranks a ``where`` clause lets through.

The clause is read from the user's source, because the compiler's own print of it (Mojo 1.2.0)
drops parentheses: ``(a or b) and c`` comes back as ``a or b and c``. A Mojo expression is close to
Python's, so Python's ``ast`` reads it; only the few forms below are understood, and anything else
is refused by name instead of being guessed.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from torchmojo.dtypes import BY_NAME, DTypeInfo

__all__ = ["Constraint", "UnknownConstraintError", "clauses"]

_PREDICATES: dict[str, Callable[[DTypeInfo], bool]] = {
    "is_floating_point": lambda d: d.kind in "f8",
    "is_float8": lambda d: d.kind == "8",
    "is_half_float": lambda d: d.name in ("float16", "bfloat16"),
    "is_integral": lambda d: d.kind in "iu",
    "is_signed": lambda d: d.kind in "if8",
    "is_unsigned": lambda d: d.kind == "u",
    "is_numeric": lambda d: d.kind != "b",
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class UnknownConstraintError(ValueError):
    """A part of a ``where`` clause that is not about dtypes or ranks in a known form."""


# -- reading the source --------------------------------------------------------------------------

_QUIET = re.compile(r'"""(?:\\.|.)*?"""|\'\'\'(?:\\.|.)*?\'\'\'|"(?:\\.|[^"\\\n])*"|'
                    r"'(?:\\.|[^'\\\n])*'|#[^\n]*", re.S)  # fmt: skip
_DEF = re.compile(r"^(?:async[ \t]+)?def[ \t]+`?(\w+)`?", re.M)


def clauses(source: str) -> dict[str, str]:
    r"""Finds the ``where`` clauses of a file's functions.

    Args:
        source: Text of a Mojo file that the compiler takes.

    Returns:
        The clause of each top-level function that has one, by the function's name; several clauses
        are joined by ``and``. Of overloads, which no kernel has, the last one counts.

    Example:
        >>> clauses("def f[d: DType](x: Int) where (d.is_integral()  # whole\n): pass")
        {'f': 'd.is_integral()'}
    """
    # Strings and comments may hold anything; blanks of the same length keep positions.
    text = _QUIET.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), source)
    found = {}
    for match in _DEF.finditer(text):
        depth, end = 0, match.end()
        while end < len(text) and (depth > 0 or text[end] != ":"):
            depth += (text[end] in "([{") - (text[end] in ")]}")
            end += 1
        parts = _outside_brackets(text[match.end() : end])
        if len(parts) > 1:
            bare = [_bare(part) for part in parts[1:]]
            found[match[1]] = bare[0] if len(bare) == 1 else " and ".join(f"({p})" for p in bare)
    return found


def _bare(text: str) -> str:
    """Takes off blanks, and brackets around the whole."""
    text = re.sub(r"(?<=\() | (?=\))", "", " ".join(text.split()))
    while text.startswith("(") and _closing(text) == len(text) - 1:
        text = text[1:-1]
    return text


def _closing(text: str) -> int:
    """Returns where the bracket that opens a text is closed."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return i
    return -1


def _outside_brackets(head: str) -> list[str]:
    """Splits a function's head at every ``where`` that is in no bracket."""
    parts, depth, start = [], 0, 0
    for match in re.finditer(r"[(\[{]|[)\]}]|\bwhere\b", head):
        if match.group() == "where":
            if depth == 0:
                parts.append(head[start : match.start()])
                start = match.end()
        else:
            depth += 1 if match.group() in "([{" else -1
    return [*parts, head[start:]]


# -- evaluating ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Constraint:
    """A ``where`` clause.

    Attributes:
        text: What stands after ``where``; empty for none, which allows everything.
        parameters: Names of the kernel's dtype and rank parameters.
    """

    text: str
    parameters: Collection[str]

    def allows(self, values: Mapping[str, str]) -> bool:
        """Returns whether the clause can hold for a choice of parameters.

        Args:
            values: Dtype names, or ranks as text, by parameter; those left out are undecided.

        Raises:
            UnknownConstraintError: The clause has a form that is not understood; the text says
                which.

        Example:
            >>> clause = Constraint("(d.is_half_float() or d == .float64) and rank > 1",
            ...                     ("d", "rank"))
            >>> [clause.allows({"d": d}) for d in ("float16", "float32", "float64")]
            [True, False, True]
            >>> clause.allows({"d": "float16", "rank": "1"})
            False
        """
        if not self.text.strip():
            return True
        # `.float32` is Mojo's short form of `DType.float32`.
        text = re.sub(r"(?<![\w)\]])\.(?=[a-z])", "DType.", self.text)
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except SyntaxError as error:
            raise UnknownConstraintError(self.text) from error
        return self._holds(tree, values) is not False

    def _holds(self, node: ast.expr, values: Mapping[str, str]) -> bool | None:
        """Evaluates a condition; None where it depends on an undecided parameter."""
        match node:
            case ast.BoolOp(op=op, values=parts):
                # All are evaluated, so that no part goes unread.
                results = [self._holds(part, values) for part in parts]
                decisive = isinstance(op, ast.Or)
                if decisive in results:
                    return decisive
                return None if None in results else not decisive
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                value = self._holds(operand, values)
                return None if value is None else not value
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr), args=[]):
                if attr not in _PREDICATES or name not in self.parameters:
                    raise UnknownConstraintError(ast.unparse(node))
                chosen = values.get(name)
                return None if chosen is None else _PREDICATES[attr](BY_NAME[chosen])
            case ast.Compare(left=left, ops=ops, comparators=rest):
                terms = [self._term(term, values, node) for term in (left, *rest)]
                pairs = zip(ops, terms, terms[1:], strict=False)
                results = [_compare(op, a, b, node) for op, a, b in pairs]
                return False if False in results else None if None in results else True
            case _:
                raise UnknownConstraintError(ast.unparse(node))

    def _term(self, term: ast.expr, values: Mapping[str, str], whole: ast.expr) -> str | int | None:
        """Returns a dtype's name or a number; None for an undecided parameter."""
        match term:
            case ast.Name(id=name) if name in self.parameters:
                chosen = values.get(name)
                return int(chosen) if chosen is not None and chosen.isdecimal() else chosen
            case ast.Attribute(value=ast.Name(id="DType"), attr=attr):
                return attr
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                return number
            case _:
                raise UnknownConstraintError(ast.unparse(whole))


def _compare(
    op: ast.cmpop, a: str | int | None, b: str | int | None, whole: ast.expr
) -> bool | None:
    if type(op) not in _COMPARISONS or (
        not isinstance(op, ast.Eq | ast.NotEq) and (isinstance(a, str) or isinstance(b, str))
    ):
        raise UnknownConstraintError(ast.unparse(whole))
    if a is None or b is None:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return _COMPARISONS[type(op)](a, b)
    return (a == b) == isinstance(op, ast.Eq)
