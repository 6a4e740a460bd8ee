"""What an error of torch says, without the stack of C++ frames behind it."""

from __future__ import annotations

from torchmojo.models.text import plain

__all__ = ["said"]

_MOST = 400


def said(error: BaseException, lines: int = 1) -> str:
    r"""Returns the first lines of an error's text; the whole stays with the error.

    Args:
        error: What torch raised.
        lines: How many at most; fewer where C++ frames or an empty line come first.

    Example:
        >>> said(RuntimeError("sizes differ\nException raised from add at add.cpp:3"))
        'sizes differ'
    """
    found: list[str] = []
    for line in str(error).strip().splitlines()[:lines]:
        if not line.strip() or line.startswith(("Exception raised from", "frame #", "C++ Capt")):
            break
        found.append(plain(line.rstrip().expandtabs()))
    text = "\n".join(found) or type(error).__name__
    return text if len(text) <= _MOST else text[: _MOST - 3] + "..."
