"""What a forked child must know: what was taken over, and torch's threads, are its parent's."""

from __future__ import annotations

import os

__all__ = ["generation"]

_count = [0]


def generation() -> int:
    """Returns how many forks lie between this process and the first one."""
    return _count[0]


def _after() -> None:
    _count[0] += 1
    # Read by `parallel_for`, which would wait for threads that the child does not have.
    os.environ["TORCHMOJO_FORKED"] = str(os.getpid())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after)
