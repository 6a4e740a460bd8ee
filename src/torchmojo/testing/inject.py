"""Makes a part of torchmojo fail on purpose, to see that nothing is lost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from torchmojo import faults
from torchmojo.bridge import doors
from torchmojo.errors import ArgumentError

__all__ = ["inject"]

Failure = Literal["door", "allocation", "compiler"]
_FAILURES = ("door", "allocation", "compiler")


@contextmanager
def inject(failure: Failure, times: int | None = None) -> Iterator[None]:
    r"""Makes one kind of thing fail in this process, within a ``with``.

    Args:
        failure: ``"door"``: torch tensors are not known to the fast door, and pass through Python
            with the same checks and values. ``"allocation"``: there is no memory for a copy, which
            raises ``MemoryError`` before the kernel has run. ``"compiler"``: there is no compiler:
            ``load`` raises ``CompilerNotFoundError``, copies are made by torch or NumPy.
        times: How often it fails; None for always. The door is shut for the whole block.

    Raises:
        ArgumentError: The failure is none of these.

    Example:
        >>> import torchmojo.testing
        >>> with torchmojo.testing.inject("compiler"):
        ...     torchmojo.inline("def f():\n    pass\n")
        Traceback (most recent call last):
        torchmojo.CompilerNotFoundError: mojo: wanted a compiler, given none (injected)
    """
    if failure not in _FAILURES:
        raise ArgumentError(
            f"inject: failure: wanted 'door', 'allocation' or 'compiler', given {failure!r}"
        )
    if failure == "door":
        with doors.shut():
            yield
        return
    before = faults.armed.get(failure, 0)
    faults.armed[failure] = math.inf if times is None else times
    try:
        yield
    finally:
        faults.armed[failure] = before
