"""Facts about this process."""

from __future__ import annotations

import os
import platform
import re
import sys
import sysconfig
from pathlib import Path
from typing import Any

__all__ = ["cpus", "openmp_libraries", "python_facts"]

_OPENMP = re.compile(r"/lib(?:gomp|iomp5|omp)\b[^/]*$")


def python_facts() -> dict[str, Any]:
    """Returns what matters of the interpreter."""
    return {
        "version": platform.python_version(),
        "implementation": sys.implementation.name,
        "executable": sys.executable,
        "platform": f"{sys.platform} {os.uname().machine}",
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "main_interpreter": _is_main_interpreter(),
    }


def _is_main_interpreter() -> bool:
    for name in ("_interpreters", "_xxsubinterpreters"):  # CPython 3.13; 3.10 to 3.12
        try:
            module = __import__(name)
        except ImportError:
            continue
        return _number(module.get_current()) == _number(module.get_main())
    return True


def _number(interpreter: Any) -> int:
    """Returns an interpreter's number, which stands first in a tuple since CPython 3.13."""
    return int(interpreter[0] if isinstance(interpreter, tuple) else interpreter)


def openmp_libraries(maps: Path = Path("/proc/self/maps")) -> list[str]:
    """Returns the files of the OpenMP run-times that this process has loaded.

    Args:
        maps: Where the system lists a process's files; absent on macOS, which gives none.
    """
    try:
        text = maps.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    # "7f..-7f.. r-xp 00000000 fd:00 123  /usr/lib/libgomp.so.1"
    fields = (line.split(maxsplit=5) for line in text.splitlines())
    paths = {parts[5].strip() for parts in fields if len(parts) == 6}
    return sorted(path for path in paths if _OPENMP.search(path))


def cpus() -> int:
    """Returns how many CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
