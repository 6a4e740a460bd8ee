"""Finds attributes that a forward writes: torch's export puts them back, and loses the writes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torchmojo.errors import ModelError

__all__ = ["watch_attributes"]

_PLAIN = (int, float, complex, bool, str, bytes)


@contextlib.contextmanager
def watch_attributes(model: Any) -> Iterator[None]:
    """Refuses a forward that leaves numbers, texts or longer lists behind in its module.

    The exported program has the value that it met, for ever: a counter would stand still. What was
    None or missing before may be filled: so do caches.

    Args:
        model: A module; its forward runs inside the ``with``.

    Raises:
        ModelError: An attribute was written, at the end.
    """
    before = _attributes(model)
    written: list[str] = []

    # torch puts attributes back when the forward is over: this looks before it does.
    def look(*_: Any) -> None:
        now = _attributes(model)
        written.extend(name for name in before if now.get(name) != before[name])

    handle = model.register_forward_hook(look)
    try:
        yield
    finally:
        handle.remove()
    if written:
        names = ", ".join(dict.fromkeys(written))
        raise ModelError(
            f"prepare: model: wanted a forward that writes none of its attributes, given one that "
            f"writes {names}; take state as an input and return it"
        )


def _attributes(model: Any) -> dict[str, Any]:
    """Returns what a module and its parts hold other than tensors and modules, by name."""
    import torch

    torchs_own = vars(torch.nn.Module())
    return {
        f"{prefix}.{name}" if prefix else name: _frozen(value)
        for prefix, part in model.named_modules()
        for name, value in vars(part).items()
        if name not in torchs_own and isinstance(value, (*_PLAIN, list, dict, set))
    }


def _frozen(value: Any) -> Any:
    """Returns something that shows by comparison whether a value was changed."""
    if isinstance(value, (list, dict, set)):
        inner = value.values() if isinstance(value, dict) else value
        # Of other objects only that they are there: comparing tensors is no yes or no.
        return type(value), [repr(v) if isinstance(v, _PLAIN) else type(v) for v in inner]
    return repr(value)  # NaN equals itself so
