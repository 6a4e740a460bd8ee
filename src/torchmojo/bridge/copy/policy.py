"""What happens where memory cannot be used as it lies: refuse, copy and say so, or copy."""

from __future__ import annotations

import threading
import weakref
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Literal, NamedTuple

from torchmojo.bridge.kernel import BoundArgument, Kernel
from torchmojo.errors import ArgumentError

__all__ = ["Fallback", "Policy", "Rule", "fallback", "no_copies", "policy_for"]

Policy = Literal["error", "warn", "copy"]
_POLICIES = ("error", "warn", "copy")


class Rule(NamedTuple):
    """What holds for one argument of one call.

    Attributes:
        policy: ``error``, ``warn`` or ``copy``.
        dtype: Whether a copy may have another dtype.
        device: Whether a copy may be made from another device.
        forbidden: Whether ``no_copies`` is in force.
    """

    policy: Policy
    dtype: bool
    device: bool
    forbidden: bool


class _Entry(NamedTuple):
    """What was asked for; None leaves a field to what ranks lower.

    Attributes:
        policy: As in ``Rule``, like the next two.
        dtype: See there.
        device: See there.
        keep: The library whose identity is a part of the key.
    """

    policy: Policy | None
    dtype: bool | None
    device: bool | None
    keep: object = None


_DEFAULT = _Entry("warn", False, False)
_Layer = dict[object, _Entry]  # by key; None stands for everything
# Later ones come last. Each is (who can undo it, what it says); replaced as a whole, never changed.
_everywhere: tuple[tuple[weakref.ref[Fallback], _Layer], ...] = ()
_lock = threading.Lock()
_here: ContextVar[tuple[_Layer, ...]] = ContextVar("torchmojo_fallback", default=())
_forbidden: ContextVar[bool] = ContextVar("torchmojo_no_copies", default=False)


def policy_for(kernel: object, argument: str) -> Rule:
    """Returns the rule for an argument: the more specific wins, then the innermost and latest.

    Args:
        kernel: The kernel; None for an export that no kernel takes part in.
        argument: Name of the argument.
    """
    layers = [*reversed(_here.get()), *(layer for _, layer in reversed(_everywhere))]
    keys: list[object] = [None]
    if kernel is not None:
        keys = [_key(kernel, argument), _key(kernel), None]
    ranked = [*(layer[key] for key in keys for layer in layers if key in layer), _DEFAULT]

    def first(field: str) -> Any:
        return next(value for e in ranked if (value := getattr(e, field)) is not None)

    return Rule(first("policy"), first("dtype"), first("device"), _forbidden.get())


def _key(kernel: Any, argument: str | None = None) -> tuple[object, ...]:
    """Names a kernel by its library, which stays the same when it loads its source again."""
    return (id(kernel._library), kernel.__name__, argument)


class Fallback:
    """What ``torchmojo.fallback`` returns: in force already; a ``with`` undoes it at its end."""

    def __init__(self, layer: _Layer) -> None:
        """Puts a layer in force everywhere."""
        global _everywhere
        self._layer = layer
        self._tokens: list[Token[tuple[_Layer, ...]]] = []
        with _lock:
            _everywhere = _merged((*_everywhere, (weakref.ref(self), layer)))

    def undo(self) -> None:
        """Ends it everywhere; what others put in force before or since stays."""
        global _everywhere
        with _lock:
            _everywhere = tuple(item for item in _everywhere if item[0]() is not self)

    def __enter__(self) -> Fallback:
        """Takes it back from everywhere and puts it in force in this context alone."""
        self.undo()
        self._tokens.append(_here.set((*_here.get(), self._layer)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the scope."""
        _here.reset(self._tokens.pop())


def _merged(
    layers: tuple[tuple[weakref.ref[Fallback], _Layer], ...],
) -> tuple[tuple[weakref.ref[Fallback], _Layer], ...]:
    """Joins neighbours that nobody can undo any more, so that calls in a loop add up to one."""
    result: list[tuple[weakref.ref[Fallback], _Layer]] = []
    for owner, layer in layers:
        if result and owner() is None and result[-1][0]() is None:
            result[-1] = (owner, _over(result[-1][1], layer))
        else:
            result.append((owner, layer))
    return tuple(result)


def _over(low: _Layer, high: _Layer) -> _Layer:
    both = dict(low)
    for key, entry in high.items():
        under = low.get(key, entry)
        both[key] = _Entry(
            under.policy if entry.policy is None else entry.policy,
            under.dtype if entry.dtype is None else entry.dtype,
            under.device if entry.device is None else entry.device,
            entry.keep,
        )
    return both


def fallback(
    policy: Policy | None = None,
    *targets: Any,
    dtype: bool | None = None,
    device: bool | None = None,
) -> Fallback:
    """Says what happens where an argument's memory cannot be used as it lies.

    A kernel that asks for contiguous memory is given a transposed tensor; an array has foreign byte
    order, a misaligned address, a lazy conj or neg bit. Such an argument can be copied on its way,
    and an output copied back. What cannot be right is refused under every policy: an output that
    is read-only or expanded, a leaf that requires grad, a tensor without memory.

    Args:
        policy: ``"error"`` refuses; ``"warn"`` copies, and warns once per line of the caller;
            ``"copy"`` copies. Every copy is counted, see ``torchmojo.copies``. None leaves it.
        targets: Kernels (``kernels.blur``) or arguments (``kernels.blur.image``) for which it
            holds; none for everything. The more specific wins, then the latest.
        dtype: Whether a copy may change the dtype, by NumPy's ``same_kind`` rule; an integer that
            does not fit is refused. Off unless asked for.
        device: Whether a copy may come from another device. Off unless asked for.

    Returns:
        Something to use in a ``with``, or to ignore. It acts at once, in every thread. In a
        ``with`` it holds for this thread or task alone and ends with the block.

    Raises:
        ArgumentError: The policy is none of these, or a target is no kernel and no argument.

    Example:
        >>> import torchmojo
        >>> with torchmojo.fallback("error"):
        ...     pass  # a call that would copy raises here
    """
    if policy not in (*_POLICIES, None):
        raise ArgumentError(f"fallback: policy: wanted 'error', 'warn' or 'copy', given {policy!r}")
    layer: _Layer = {}
    for target in targets:
        if isinstance(target, BoundArgument):
            library = target.kernel._library
            key = _key(target.kernel, target.argument.name)
        elif isinstance(target, Kernel):
            library, key = target._library, _key(target)
        else:
            raise ArgumentError(
                f"fallback: targets: wanted kernels (kernels.f) or arguments (kernels.f.a), given "
                f"{target!r}"
            )
        layer[key] = _Entry(policy, dtype, device, library)
    return Fallback(layer or {None: _Entry(policy, dtype, device)})


class no_copies:
    """Makes every copy an error within a ``with``, for tests: of arguments and of exports.

    Raises:
        CopyError: Inside, where something would be copied under any policy.

    Example:
        >>> import numpy, torchmojo
        >>> handle = torchmojo.share(numpy.arange(3.0)[::-1])
        >>> with torchmojo.no_copies():
        ...     handle.__dlpack__()
        Traceback (most recent call last):
        torchmojo.CopyError: __dlpack__: x: wanted no copy, given f64[3] cpu strides(-1): negative \
stride
    """

    def __enter__(self) -> None:
        """Forbids copies in this thread or task."""
        self._token = _forbidden.set(True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Allows them again."""
        _forbidden.reset(self._token)
