"""The ``TORCHMOJO_*`` environment variables: one table, one reader.

The documentation prints ``VARIABLES``, so a variable that is not in the table does not exist.
Nothing is remembered between calls: a variable that changes counts from the next load on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, cast

__all__ = ["VARIABLES", "Sanitize", "Settings", "Variable", "read_settings"]

Progress = Literal["auto", "0", "1"]
Sanitize = Literal["none", "address", "thread"]

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]i?B|B)?\s*", re.IGNORECASE)
_CPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")  # no leading '-': it becomes an argument


class Variable(NamedTuple):
    """One environment variable, as the documentation shows it."""

    name: str
    default: str
    effect: str


VARIABLES: tuple[Variable, ...] = (
    Variable(
        "TORCHMOJO_MOJO",
        "the mojo-compiler package",
        "Path of the Mojo compiler to use instead of the one that pip installed.",
    ),
    Variable(
        "TORCHMOJO_ANY_COMPILER",
        "0",
        "Set to 1 to use a compiler of a version that torchmojo was not tested with.",
    ),
    Variable(
        "TORCHMOJO_CACHE_DIR",
        "the user's cache folder, such as ~/.cache/torchmojo",
        "Folder that keeps compiled kernels; nobody else may be able to write in it.",
    ),
    Variable(
        "TORCHMOJO_CACHE_SIZE",
        "2GiB",
        "Size of the cache (500MB, 2GiB, a number of bytes); kernels not used for longest go.",
    ),
    Variable(
        "TORCHMOJO_TARGET_CPU",
        "native",
        "CPU that kernels are compiled for; x86-64-v3 runs on nearly every x86 server.",
    ),
    Variable(
        "TORCHMOJO_PROGRESS",
        "auto",
        "Show a line while compiling: auto (on a terminal), 1 (always), 0 (never).",
    ),
    Variable(
        "TORCHMOJO_CHECK_OPS",
        "0",
        "Set to 1 to compare each operator's results with what its Python function says.",
    ),
    Variable(
        "TORCHMOJO_SANITIZE",
        "none",
        "Build kernels with a sanitizer of the compiler: address (memory) or thread (races).",
    ),
)


@dataclass(frozen=True)
class Settings:
    """What the environment variables say, checked and converted.

    Attributes:
        mojo: Compiler asked for, or None for the search order of `find_compiler`.
        any_compiler: Whether a compiler of an untested version is taken.
        cache_dir: Cache folder asked for (absolute), or None for the user's cache folder.
        cache_size: Upper size of the cache, in bytes.
        target_cpu: CPU to compile for; ``"native"`` is this machine's.
        progress: Whether to show a line while compiling.
        check_ops: Whether operators compare their results with their fake function.
        sanitize: Sanitizer that kernels are built with.
    """

    mojo: Path | None = None
    any_compiler: bool = False
    cache_dir: Path | None = None
    cache_size: int = 2 * 1024**3
    target_cpu: str = "native"
    progress: Progress = "auto"
    check_ops: bool = False
    sanitize: Sanitize = "none"


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the environment variables; an empty one counts as unset.

    Args:
        environ: Variables to read; those of this process by default.

    Returns:
        The settings, with defaults for what is unset.

    Raises:
        ValueError: A variable has a value that means nothing; the text names it.

    Example:
        >>> read_settings({"TORCHMOJO_CACHE_SIZE": "500MB"}).cache_size
        500000000
    """
    values = os.environ if environ is None else environ
    found = {v.name: values[v.name].strip() for v in VARIABLES if values.get(v.name, "").strip()}
    default = Settings()
    return Settings(
        mojo=_path(found.get("TORCHMOJO_MOJO")),
        any_compiler=_choice(found, "TORCHMOJO_ANY_COMPILER", ("0", "1"), "0") == "1",
        cache_dir=_path(found.get("TORCHMOJO_CACHE_DIR")),
        cache_size=_size(found, "TORCHMOJO_CACHE_SIZE", default.cache_size),
        target_cpu=_cpu(found, "TORCHMOJO_TARGET_CPU", default.target_cpu),
        progress=cast(
            "Progress", _choice(found, "TORCHMOJO_PROGRESS", ("auto", "0", "1"), default.progress)
        ),
        check_ops=_choice(found, "TORCHMOJO_CHECK_OPS", ("0", "1"), "0") == "1",
        sanitize=cast(
            "Sanitize",
            _choice(found, "TORCHMOJO_SANITIZE", ("none", "address", "thread"), default.sanitize),
        ),
    )


def _path(text: str | None) -> Path | None:
    """Make a path absolute, so that a later chdir does not give it another meaning."""
    return None if text is None else Path(text).expanduser().absolute()


def _choice(found: Mapping[str, str], name: str, choices: tuple[str, ...], default: str) -> str:
    """Return one of the choices, or complain."""
    value = found.get(name, default)
    if value not in choices:
        raise _wrong(name, f"one of {', '.join(choices)}", value)
    return value


def _size(found: Mapping[str, str], name: str, default: int) -> int:
    """Convert ``2GiB``, ``500MB`` or a number of bytes."""
    text = found.get(name)
    if text is None:
        return default
    match = _SIZE.fullmatch(text)
    if match is None:
        raise _wrong(name, "a size such as 500MB, 2GiB or 1073741824", text)
    number, unit = match.groups()
    unit = (unit or "B").upper()
    base = 1024 if "I" in unit else 1000
    return int(float(number) * base ** "BKMGT".index(unit[0]))


def _cpu(found: Mapping[str, str], name: str, default: str) -> str:
    """Return a CPU's name; the compiler knows which names there are."""
    value = found.get(name, default)
    if _CPU.fullmatch(value) is None:
        raise _wrong(name, "native or the name of a CPU, such as x86-64-v3", value)
    return value


def _wrong(name: str, wanted: str, given: str) -> ValueError:
    """Build the complaint about a variable."""
    return ValueError(
        f"environment variable {name}: wanted {wanted}, given {given!r}; "
        "unset it to get the default"
    )
