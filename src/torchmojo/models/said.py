"""What an error of torch says, without the stack of C++ frames behind it."""

from __future__ import annotations

__all__ = ["printable", "said"]

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
        found.append(printable(line.rstrip()))
    text = "\n".join(found) or type(error).__name__
    return text if len(text) <= _MOST else text[: _MOST - 3] + "..."


def printable(text: str) -> str:
    r"""Returns a line without characters that a terminal would act on; they are shown as escapes.

    Args:
        text: Words of others: of an error, or of a process.

    Example:
        >>> printable("red: \x1b[31m")
        'red: \\x1b[31m'
    """
    return "".join(
        c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in text
    )
