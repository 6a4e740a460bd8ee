"""Runs a model's library without Python's lock, so that other threads run meanwhile.

torch's own loader holds the lock for the whole of a call. Here the library's C interface is called
by ctypes, which gives the lock up; that costs 3 µs more, so that short calls keep to the loader.
"""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["Unlocked", "choose"]

_LONG = 50e-6  # seconds of a call in which another thread would notice the lock
_LOOKED_AT = 3


class _Pair(ctypes.Structure):
    """AOTInductorConstantMapEntry of torch/csrc/inductor/aoti_runtime/interface.h."""

    _fields_ = (("name", ctypes.c_char_p), ("handle", ctypes.c_void_p))


class Unlocked:
    """A second container of a loaded library, bound to the same weights."""

    def __init__(
        self, library: ctypes.CDLL, constants: Mapping[str, Any], instances: int, outputs: int
    ) -> None:
        """Makes it; nothing of the weights is copied.

        Args:
            library: The model's.
            constants: Tensors by the library's names for them.
            instances: Calls that can run at the same time.
            outputs: How many tensors a call returns.

        Raises:
            RuntimeError: The text is torch's.
        """
        from torch._C import _aoti

        self._lend = _aoti.unsafe_alloc_void_ptrs_from_tensors
        self._take = _aoti.alloc_tensors_by_stealing_from_void_ptrs
        self._address = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
            ("PyCapsule_GetPointer", ctypes.pythonapi)
        )
        self._capsule = ctypes.PYFUNCTYPE(
            ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
        )(("PyCapsule_New", ctypes.pythonapi))
        self._library = library
        self._outputs = ctypes.c_void_p * outputs
        self._count = ctypes.c_size_t(outputs)
        self._handle = ctypes.c_void_p()
        self._check(
            library.AOTInductorModelContainerCreateWithDevice(
                ctypes.byref(self._handle), ctypes.c_size_t(instances), b"cpu", None
            )
        )
        end = weakref.finalize(self, library.AOTInductorModelContainerDelete, self._handle)
        end.atexit = False  # a thread may still be in it
        handles = self._lend(list(constants.values()))
        pairs = (_Pair * len(handles))(
            *(
                _Pair(name.encode(), self._address(handle, None))
                for name, handle in zip(constants, handles, strict=True)
            )
        )
        code = library.AOTInductorModelContainerUpdateUserManagedConstantBufferPairs(
            self._handle, pairs, ctypes.c_size_t(len(handles)), False, True
        )
        self._take(handles)  # the container has handles of its own
        self._check(code)

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Runs the model.

        Args:
            inputs: Tensors that are what the model asks for.

        Raises:
            RuntimeError: The text is torch's.
        """
        lent = [self._address(handle, None) for handle in self._lend(list(inputs))]
        results = self._outputs()
        self._check(
            # The lock is free in here. The library deletes the inputs' handles.
            self._library.AOTInductorModelContainerRun(
                self._handle,
                (ctypes.c_void_p * len(lent))(*lent),
                ctypes.c_size_t(len(lent)),
                results,
                self._count,
                None,
                None,
            )
        )
        taken: list[Any] = self._take([self._capsule(handle, None, None) for handle in results])
        return taken

    def _check(self, code: int) -> None:
        if code == 0:
            return
        text = ctypes.c_char_p()
        self._library.AOTInductorGetLastError(ctypes.byref(text))
        raise RuntimeError((text.value or b"unknown").decode(errors="replace"))


def choose(
    locked: Callable[[Any], Any],
    make: Callable[[], Unlocked],
    settle: Callable[[Any], None],
    varies: bool,
) -> Callable[[Any], Any]:
    """Returns a function that runs a model and, after a few calls, settles for one of two.

    Args:
        locked: torch's loader.
        make: Makes what takes its place if calls take long.
        settle: Is called once, with what all later calls shall use.
        varies: Whether later calls may take longer, because sizes vary.
    """
    taken: list[float] = []
    lock = threading.Lock()

    def run(inputs: Any) -> Any:
        start = time.perf_counter()
        result = locked(inputs)
        seconds = time.perf_counter() - start
        with lock:
            taken.append(seconds)
            last = len(taken) == _LOOKED_AT
        if last:
            settle(make().run if varies or min(taken) > _LONG else locked)
        return result

    return run
