"""Whether two indices of a tensor meet in memory: the slow telling of ``_glue/overlap.mojo``."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["Extent", "overlap_each_other", "overlaps_itself"]

Extent = tuple[int, Sequence[int], Sequence[int], int]
"""Address, sizes, strides in bytes, bytes of an element."""

_BUDGET = 20_000


def overlaps_itself(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Returns whether two indices may be the same element.

    Args:
        shape: Sizes.
        strides: Strides in elements.

    Returns:
        True also where a long search found no answer, as in the glue.

    Example:
        >>> overlaps_itself((2, 3), (3, 1)), overlaps_itself((2, 3), (2, 1))
        (False, True)
    """
    if 0 in shape:
        return False
    terms = sorted(
        ((abs(s), n - 1) for n, s in zip(shape, strides, strict=True) if n > 1), reverse=True
    )
    if any(step == 0 for step, _ in terms):
        return True
    reach = 0
    for step, most in reversed(terms):
        if step <= reach:
            return any(_collides(terms, lead) for lead in range(len(terms)))
        reach += step * most
    return False


def _collides(terms: list[tuple[int, int]], lead: int) -> bool:
    """Returns whether a difference of indices whose first part is ``lead``'s gives offset 0."""
    step, most = terms[lead]
    rest = [(s, 2 * m) for s, m in terms[lead + 1 :]]
    target = sum(s * m for s, m in terms[lead + 1 :]) - step
    if most > 1:
        rest.append((step, most - 1))
    return _Search(sorted(rest, reverse=True)).finds(0, target)


def overlap_each_other(a: Extent, b: Extent) -> bool:
    """Returns whether two tensors may share a byte.

    Args:
        a: One of them.
        b: The other.

    Returns:
        True also where a long search found no answer.

    Example:
        >>> even, odd = (0, (3,), (8,), 4), (4, (3,), (8,), 4)
        >>> overlap_each_other(even, odd), overlap_each_other(even, even)
        (False, True)
    """
    if 0 in a[1] or 0 in b[1]:
        return False
    # Some byte i of a is some byte j of b: a sum of steps of both gives the distance of their ends.
    low, high = _ends(a)[0], _ends(b)[1]
    terms = [
        (abs(step), n - 1)
        for _, shape, steps, width in (a, b)
        for n, step in [*zip(shape, steps, strict=True), (width, 1)]
        if n > 1 and step
    ]
    return _Search(sorted(terms, reverse=True)).finds(0, high - low)


def _ends(extent: Extent) -> tuple[int, int]:
    """Returns the first and the last byte."""
    address, shape, steps, width = extent
    reaches = [(n - 1) * s for n, s in zip(shape, steps, strict=True)]
    low = address + sum(r for r in reaches if r < 0)
    return low, address + sum(r for r in reaches if r > 0) + width - 1


class _Search:
    """Looks for a sum of ``step * k`` with ``0 <= k <= most``, largest step first."""

    def __init__(self, terms: list[tuple[int, int]]) -> None:
        joined: dict[int, int] = {}
        for step, most in terms:
            joined[step] = joined.get(step, 0) + most
        self.terms = terms = list(joined.items())
        self.budget = _BUDGET
        self.reaches = [0]
        self.divisors = [0]
        self.full = [True]
        for step, most in reversed(terms):
            divisor = math.gcd(step, self.divisors[0])
            smallest = self.divisors[0] == 0
            self.full.insert(
                0,
                self.full[0]
                and (smallest or divisor == self.divisors[0])
                and (smallest or step <= self.reaches[0] + divisor),
            )
            self.divisors.insert(0, divisor)
            self.reaches.insert(0, self.reaches[0] + step * most)

    def finds(self, first: int, target: int) -> bool:
        self.budget -= 1
        if self.budget < 0:
            return True
        if not 0 <= target <= self.reaches[first]:
            return False
        if first == len(self.terms):
            return True
        divisor = 0
        for i in range(first, len(self.terms)):
            divisor = math.gcd(self.terms[i][0], divisor)
            if target // divisor * divisor < target - self.reaches[i + 1]:
                return False
        if self.full[first]:
            return True
        step, most = self.terms[first]
        least = max(0, -((self.reaches[first + 1] - target) // step))
        return any(
            self.finds(first + 1, target - step * k)
            for k in range(least, min(most, target // step) + 1)
        )
