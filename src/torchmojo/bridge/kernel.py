"""The object that a user calls: a CPython type whose ``vectorcall`` is compiled Mojo.

A call goes from the interpreter straight into the glue of the kernel's library, with no Python
frame and no argument tuple between. The type is made through ``PyType_FromSpec``; what is Python
about it (repr, attributes, help) is set on it afterwards and costs a call nothing.
"""

from __future__ import annotations

import ctypes
import operator
from typing import TYPE_CHECKING, Any

from torchmojo.bridge.doors import doors
from torchmojo.spelling import describe, signature, spell

if TYPE_CHECKING:
    from torchmojo.contract import KernelContract

__all__ = ["Kernel", "make_kernel"]


class _Member(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int),
        ("offset", ctypes.c_ssize_t),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class _Slot(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int), ("pfunc", ctypes.c_void_p))


class _Spec(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.POINTER(_Slot)),
    )


# Offsets in a kernel object after PyObject_HEAD, which frame.mojo reads.
_VECTORCALL, _DOORS, _NAMES, _MEND, _SIZE = range(16, 16 + 5 * 8, 8)
_T_PYSSIZET, _READONLY = 19, 1  # structmember.h
_TP_MEMBERS, _TP_CALL = 72, 50  # typeslots.h
# object.h
_TPFLAGS_DEFAULT, _TPFLAGS_BASETYPE, _TPFLAGS_HAVE_VECTORCALL = 1 << 18, 1 << 10, 1 << 11

_kept: list[object] = []  # CPython points into what a type was made from
_members = (_Member * 2)(
    _Member(b"__vectorcalloffset__", _T_PYSSIZET, _VECTORCALL, _READONLY, None), _Member()
)
_call = _Slot(_TP_CALL, ctypes.cast(ctypes.pythonapi.PyVectorcall_Call, ctypes.c_void_p).value)


def _make_type(name: bytes, base: type[Any], size: int, flags: int, *slots: _Slot) -> Any:
    make = ctypes.pythonapi.PyType_FromSpecWithBases
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object)
    array = (_Slot * (len(slots) + 1))(*slots, _Slot())
    flags |= _TPFLAGS_DEFAULT | _TPFLAGS_HAVE_VECTORCALL
    spec = _Spec(name, size, 0, flags, array)
    _kept.append((spec, array))
    return make(ctypes.addressof(spec), (base,))


_Words: Any = _make_type(
    b"torchmojo._Words",
    object,
    _SIZE,
    _TPFLAGS_BASETYPE,
    _Slot(_TP_MEMBERS, ctypes.cast(_members, ctypes.c_void_p).value),
    _call,
)


class _Held(_Words):  # type: ignore[misc]
    """Adds what Python itself must do: a dictionary, weak references, and garbage collection.

    A kernel, its library and its arguments refer to each other in a circle.
    """


# Before 3.12 a class made by Python loses the flag of its base: such calls would build a tuple.
Kernel: Any = _make_type(b"torchmojo.Kernel", _Held, 0, 0, _call)
"""The type of a loaded kernel. ``kernel(...)`` calls it, ``print(kernel)`` shows its contract,
``kernel.<argument>`` is what ``torchmojo.explain`` takes."""

_slow_call: Any = None


def set_slow_call(function: Any) -> None:
    """Sets what glue calls when it refuses: ``function(kernel, code, index, detail, args, names)``.

    Args:
        function: Raises the right error, or mends the call and returns its result.
    """
    global _slow_call
    _slow_call = function


def make_kernel(contract: KernelContract, address: int, keep: object) -> Any:
    """Returns the callable for one compiled kernel.

    Args:
        contract: Its signature.
        address: Address of the exported C function, a ``vectorcallfunc``.
        keep: The loaded library, held as long as the kernel lives.

    Returns:
        A ``Kernel``. Calling it borrows its arguments for the time of the call, copies nothing,
        and releases the GIL while the kernel runs.
    """
    kernel = Kernel.__new__(Kernel)
    names = tuple(argument.name for argument in contract.arguments)
    kernel.contract = contract
    kernel.__name__ = kernel.__qualname__ = contract.name
    kernel.__doc__ = describe(contract)
    kernel.__signature__ = signature(contract)
    kernel.arguments = {}
    for argument in contract.arguments:
        bound = BoundArgument(kernel, argument)
        kernel.arguments[argument.name] = bound
        if not hasattr(kernel, argument.name):
            setattr(kernel, argument.name, bound)
    # The instance dictionary owns what the words below point to.
    kernel._keep = (keep, names, _slow_call)
    base = id(kernel)
    for offset, value in (
        (_DOORS, doors()),
        (_NAMES, id(names)),
        (_MEND, id(_slow_call)),
        (_VECTORCALL, address),
    ):
        ctypes.c_uint64.from_address(base + offset).value = value
    return kernel


class BoundArgument:
    """One argument of one kernel, for ``torchmojo.explain(x, kernels.f.a)``.

    Attributes:
        kernel: The kernel.
        argument: What its signature says.
    """

    __slots__ = ("argument", "kernel")

    def __init__(self, kernel: Any, argument: Any) -> None:
        """Binds an argument to its kernel."""
        self.kernel = kernel
        self.argument = argument

    def __repr__(self) -> str:
        """Shows the argument as the signature prints it."""
        return f"<argument {self.kernel.__name__}.{spell(self.kernel.contract, self.argument)}>"


def _repr(self: Any) -> str:
    return f"<kernel {self.__name__}>" if not hasattr(self, "contract") else str(self.__doc__)


def _reduce(self: Any) -> tuple[Any, ...]:
    """Pickles as the item of its library, which loads itself again."""
    return (operator.getitem, (self._library, self.__name__))


Kernel.__repr__ = _repr
Kernel.__reduce__ = _reduce
