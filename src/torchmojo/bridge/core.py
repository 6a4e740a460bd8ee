"""Opens torchmojo's own native libraries: copies, dtype conversion, and lending by DLPack.

Each is compiled when it is first needed and stays loaded for the life of the process, because a
deleter inside it may be called by anybody at any time.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from torchmojo.bridge.aten import symbols
from torchmojo.bridge.fork import generation
from torchmojo.errors import HandleError

__all__ = ["Memory", "convert", "counters", "memory", "table"]

# Words of the table that deleters read, see `torchmojo_core/memory.mojo`.
_ALIVE, _DELETED, _DOUBLE, _FINALIZING, _RING_AT, _ERROR = range(6)
_table = (ctypes.c_int64 * (8 + 1024))()
_opened: dict[str, Any] = {}


class Memory:
    """The library ``memory``.

    Attributes:
        lend: ``torchmojo_lend``, called with the GIL.
    """

    def __init__(self, path: str) -> None:
        """Loads it."""
        words = ctypes.c_int64
        free = ctypes.CDLL(path)
        self._copy = free.torchmojo_copy_on
        self._copy.restype, self._copy.argtypes = ctypes.c_int32, (words,) * 11
        held = ctypes.PyDLL(path)
        self.lend = held.torchmojo_lend
        self.lend.restype = ctypes.py_object
        self.lend.argtypes = (ctypes.py_object, *(words,) * 8)
        for name in ("Py_IsFinalizing", "_Py_IsFinalizing"):
            function = getattr(ctypes.pythonapi, name, None)
            if function is not None:
                _table[_FINALIZING] = ctypes.cast(function, ctypes.c_void_p).value or 0
                break
        _table[_ERROR] = id(HandleError)

    def copy(self, *words: int) -> int:
        """Calls ``torchmojo_copy`` without the GIL, on torch's threads where torch is imported.

        Args:
            words: Its ten arguments.

        Returns:
            0, or 1 where there is no loop for them.
        """
        return int(self._copy(_parallel_for(), *words))


_torch: dict[str, int] = {}


def _parallel_for() -> int:
    """Returns the address of torch's loop: looked up once, where the copy would on each call.

    A forked child gets 0, and finds out by itself that it has to stay on its own thread.
    """
    if "torch" not in sys.modules or generation():
        return 0
    if "loop" not in _torch:
        found = symbols(("torch_parallel_for",))
        _torch["loop"] = found["torch_parallel_for"]
    return _torch["loop"]


def memory() -> Memory:
    """Returns the library for copies and lending.

    Raises:
        CompilerNotFoundError: It is not compiled yet, and there is no compiler.
        CompileError: It does not compile.
    """
    library: Memory = _open("memory", Memory)
    return library


def convert() -> Any:
    """Returns ``torchmojo_cast``, called without the GIL.

    Raises:
        CompilerNotFoundError: It is not compiled yet, and there is no compiler.
        CompileError: It does not compile.
    """

    def load(path: str) -> Any:
        cast = ctypes.CDLL(path).torchmojo_cast
        cast.restype, cast.argtypes = ctypes.c_int32, (ctypes.c_int64,) * 9
        return cast

    return _open("convert", load)


def table() -> int:
    """Returns the address of the table that deleters read and count in; it lives for ever."""
    return ctypes.addressof(_table)


def counters() -> tuple[int, int, int]:
    """Returns how many exports are alive, how many deleters ran, and how many ran twice."""
    return _table[_ALIVE], _table[_DELETED], _table[_DOUBLE]


def _open(name: str, load: Any) -> Any:
    """No lock of our own: the cache has one, and loading a library twice gives the same one."""
    if name not in _opened:
        from torchmojo.toolchain.core import build_core

        _opened.setdefault(name, load(str(build_core(name))))
    return _opened[name]
