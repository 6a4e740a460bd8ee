"""Failures made on purpose, for tests: ``torchmojo.testing.inject`` arms them."""

from __future__ import annotations

__all__ = ["armed", "meet"]

armed: dict[str, float] = {}
"""How many times each kind of failure will still happen."""


def meet(failure: str) -> bool:
    """Returns whether something is to fail now, and counts it.

    Args:
        failure: ``allocation`` or ``compiler``.
    """
    if armed.get(failure, 0) <= 0:
        return False
    armed[failure] -= 1
    return True
