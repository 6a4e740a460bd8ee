"""A library of operators: its table filled with what its glue calls, proved on live tensors."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from pathlib import Path
from typing import Any

from torchmojo.bridge import aten
from torchmojo.bridge.doors import doors
from torchmojo.errors import LibraryError

__all__ = ["FUNCTIONS", "OPTIONAL", "Native", "constants", "handle_of", "libtorch", "tensor_of"]

# Words of the table, see `torchmojo_ops/table.mojo`.
FUNCTIONS = {
    5: ("c10", "_ZN3c104impl23ExcludeDispatchKeyGuardC1ENS_14DispatchKeySetE"),
    6: ("c10", "_ZN3c104impl23ExcludeDispatchKeyGuardD1Ev"),
    8: ("c10", "_ZNK3c1010TensorImpl8_fw_gradEmRKN2at10TensorBaseE"),
    9: ("torch_cpu", "aoti_torch_empty_strided"),
    10: ("torch_cpu", "aoti_torch_delete_tensor_object"),
    11: ("torch_cpu", "aoti_torch_check"),
    12: ("torch_cpu", "torch_call_dispatcher"),
    14: ("torch_cpu", "torch_list_size"),
    15: ("torch_cpu", "torch_list_get_item"),
    16: ("torch_cpu", "torch_delete_list"),
    17: ("torch_cpu", "torch_string_length"),
    18: ("torch_cpu", "torch_string_c_str"),
    19: ("torch_cpu", "torch_delete_string"),
    24: ("c10", "_ZN3c1019UndefinedTensorImpl10_singletonE"),
}
OPTIONAL = {23: ("torch_cpu", "torch_exception_get_what_without_backtrace")}
_DOORS, _KEYS, _META, _PLAIN, _INFERENCE, _EXCLUDED, _VERSION = 0, 1, 2, 3, 4, 7, 13
_REFUSE, _RECORD, _TEXT_KEY, _SPECS = 20, 21, 22, 64
_ABI_2_10 = 0x020A000000000000

_Callback = ctypes.CFUNCTYPE(ctypes.c_int64, *(ctypes.c_int64,) * 4, ctypes.POINTER(ctypes.c_int64))
_RecordCallback = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64))


@functools.cache
def libtorch(name: str) -> ctypes.CDLL:
    """Returns one of torch's libraries, which is loaded already.

    Args:
        name: Such as ``torch_cpu``.
    """
    folder = Path(sys.modules["torch"].__file__ or "").parent / "lib"
    suffix = "dylib" if sys.platform == "darwin" else "so"
    return ctypes.CDLL(str(folder / f"lib{name}.{suffix}"))


@functools.cache
def _wrap() -> Any:
    folder = Path(sys.modules["torch"].__file__ or "").parent / "lib"
    suffix = "dylib" if sys.platform == "darwin" else "so"
    function = ctypes.PyDLL(str(folder / f"libtorch_python.{suffix}"))[
        "_Z16THPVariable_WrapRKN2at10TensorBaseE"
    ]
    function.restype, function.argtypes = ctypes.py_object, (ctypes.c_int64,)
    return function


def tensor_of(handle: int) -> Any:
    """Returns the Python tensor of a handle, which stays the caller's.

    Args:
        handle: Address of an ``at::Tensor``.
    """
    return _wrap()(handle)


@functools.cache
def _new_handle() -> tuple[Any, int]:
    new = libtorch("torch_cpu").aoti_torch_new_tensor_handle
    new.argtypes = (ctypes.c_int64, ctypes.c_void_p)
    return new, aten.open_door().offset


def handle_of(tensor: Any) -> int:
    """Returns a new handle of a tensor.

    Args:
        tensor: A torch tensor of any kind.
    """
    new, offset = _new_handle()
    made = ctypes.c_int64()
    new(id(tensor) + offset, ctypes.addressof(made))
    return made.value


@functools.cache
def _offsets() -> tuple[int, int]:
    """Finds the key set and autograd's metadata in a ``TensorImpl``, by comparing live tensors."""
    torch = sys.modules["torch"]
    plain = [torch.zeros(n) for n in (1, 2, 3)]
    leaves = [torch.zeros(n, requires_grad=True) for n in (1, 2, 3)]
    other = [torch.zeros(2, device="meta"), torch._neg_view(torch.ones(2))]

    def word(tensor: Any, offset: int) -> int:
        return ctypes.c_uint64.from_address(tensor._cdata + offset).value

    everyone = (*plain, *leaves, *other)
    keys = [o for o in range(8, 256, 8) if all(word(t, o) == _keys(t) for t in everyone)]
    # The key set is the last member: what lies behind it belongs to somebody else.
    metas = [
        o
        for o in range(8, min(keys, default=0), 8)
        if all(word(t, o) == 0 for t in plain) and all(word(t, o) for t in leaves)
    ]
    if len(keys) != 1 or len(metas) != 1:
        raise LibraryError(
            f"op: wanted one place of the key set and of autograd's metadata, given {keys} and "
            f"{metas} in torch {torch.__version__}"
        )
    return keys[0], metas[0]


class Native:
    """One loaded library of operators.

    Attributes:
        handle: The library.
        specs: The specs that its operators read; kept for ever, as torch keeps the operators.
    """

    def __init__(self, path: Path, size: int, refuse: Any, record: Any) -> None:
        """Loads it and fills its table.

        Args:
            path: The shared library.
            size: Bytes of its table.
            refuse: Called as ``refuse(number, code, argument, detail, values)``.
            record: Called as ``record(number, stack)``.
        """
        self.handle = ctypes.PyDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        where = self.handle.torchmojo_table
        where.restype = ctypes.c_int64
        self._table = (ctypes.c_uint64 * (size // 8)).from_address(where())
        if self._table[_VERSION]:
            raise LibraryError(
                f"op: {path}: wanted a library that Python fills, given one whose operators "
                "torchmojo_register_operators has registered in this process"
            )
        self._drop = self.handle.torchmojo_drop
        self._drop.argtypes = (ctypes.c_int64, ctypes.c_void_p)
        self._callbacks = (_Callback(refuse), _RecordCallback(record))
        self.specs: dict[int, Any] = {}
        self._fill()

    def _fill(self) -> None:
        table = self._table
        table[_DOORS] = doors()
        for word, (library, name) in FUNCTIONS.items():
            table[word] = _symbol(library, name)
        for word, (library, name) in OPTIONAL.items():
            table[word] = _symbol(library, name, optional=True)
        for word, value in constants().items():
            table[word] = value
        for word, callback in zip((_REFUSE, _RECORD), self._callbacks, strict=True):
            table[word] = ctypes.cast(callback, ctypes.c_void_p).value or 0
        libc = ctypes.CDLL(None)
        slot = ctypes.c_uint32()
        libc.pthread_key_create(ctypes.byref(slot), ctypes.cast(libc.free, ctypes.c_void_p))
        table[_TEXT_KEY] = slot.value

    def set_spec(self, number: int, words: list[int], keep: object) -> None:
        """Puts an operator's spec into force.

        Args:
            number: The operator's.
            words: The spec.
            keep: What the words point to.
        """
        array = (ctypes.c_int64 * len(words))(*words)
        self.specs[number] = (self.specs.get(number), array, keep)
        self._table[_SPECS + number] = ctypes.addressof(array)

    def function(self, symbol: str) -> int:
        """Returns the address of a function of the library.

        Args:
            symbol: Its name.
        """
        return ctypes.cast(getattr(self.handle, symbol), ctypes.c_void_p).value or 0

    def drop(self, number: int, stack: Any) -> None:
        """Drops the inputs on a stack.

        Args:
            number: The operator's.
            stack: A pointer to its values.
        """
        self._drop(number, stack)


def constants() -> dict[int, int]:
    """Returns what a table holds besides functions, by word: facts about this version of torch."""
    torch = sys.modules["torch"]
    keys, meta = _offsets()
    with torch.inference_mode():
        inference = _keys(torch.zeros(1))
    excluded = 0
    for name in ("AutogradFunctionality", "AutogradOther", "AutogradNestedTensor"):
        key = getattr(torch._C.DispatchKey, name)
        excluded |= int(torch._C.DispatchKeySet(key).raw_repr())
    plain = _keys(torch.zeros(1))
    return dict(
        zip(
            (_KEYS, _META, _PLAIN, _INFERENCE, _EXCLUDED, _VERSION),
            (keys, meta, plain, inference, excluded, _ABI_2_10),
            strict=True,
        )
    )


def _symbol(library: str, name: str, optional: bool = False) -> int:
    function = getattr(libtorch(library), name, None)
    if function is None:
        if optional:
            return 0
        version = sys.modules["torch"].__version__
        raise LibraryError(f"op: wanted {name} in torch, given torch {version} without it")
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _keys(tensor: Any) -> int:
    return int(sys.modules["torch"]._C._dispatch_keys(tensor).raw_repr()) & (2**64 - 1)
