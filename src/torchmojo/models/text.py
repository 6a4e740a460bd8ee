"""Makes words of a file fit for a message: short, and nothing that a terminal obeys."""

from __future__ import annotations

import re

__all__ = ["MOST", "brief", "plain"]

MOST = 16_000  # letters of a message: a table of forty names fits, a file does not
_LONG_WORD = re.compile(r"\S{201,}")
_LONG_LINE = re.compile(r"[^\n]{2001,}")


def plain(text: str) -> str:
    """Writes what cannot be seen as an escape; lines may end.

    Args:
        text: What a file, or a person, wrote.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def brief(text: str, most: int = MOST) -> str:
    """Shortens long words and lines, then the whole, and escapes what cannot be seen.

    Args:
        text: What a file, or a person, wrote.
        most: Letters of the whole.
    """
    text = _LONG_WORD.sub(lambda found: _cut(found[0], 120), text)
    text = _LONG_LINE.sub(lambda found: _cut(found[0], 1200), text)
    return plain(text if len(text) <= most else _cut(text, most))


def _cut(text: str, most: int) -> str:
    return f"{text[:most]}… ({len(text) - most} letters more)"
