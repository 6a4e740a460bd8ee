"""Reads the pickles of checkpoints: a few opcodes, a few names, and nothing is called.

The reader is the standard library's in Python, cut down. Its twin in C would look up names as
strictly, but hashes nested tuples without a limit, and makes room for a memo of any size that a
file asks for. torch's own reader calls torch's constructors while it reads, so that it resizes and
allocates what has not been checked yet; and it takes three times as long.
"""

from __future__ import annotations

import pickle
import pickletools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

from torchmojo.dtypes import BY_NAME
from torchmojo.models.text import brief
from torchmojo.models.weights.mapping import fail

__all__ = ["Item", "Script", "Unread", "globals_of", "read_pickle"]

_Base: Any = pickle._Unpickler
_Stop: Any = pickle._Stop  # type: ignore[attr-defined]
_by_code: dict[str, Any] = pickletools.code2op  # type: ignore[attr-defined]

_OPCODES = """
    PROTO STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE
    SHORT_BINSTRING EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS
    SETITEM SETITEMS BINPUT LONG_BINPUT BINGET LONG_BINGET BINPERSID GLOBAL REDUCE BUILD NEWOBJ
""".split()

_STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16", "LongStorage": "int64", "IntStorage": "int32",
    "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64", "ComplexDoubleStorage": "complex128",
}  # fmt: skip
_MOST_NAMED = 5


_KEY_BITS = 64
_ALONE = "save the state_dict() alone"
_MOST_OPCODES = 1_000_000  # that are looked at for a message
_DISTRUST = (
    "such a file can run code: if you trust it, load it with torch and save its state_dict()"
)


class _Kind(NamedTuple):
    """A tensor that torch saves in another way than as numbers over a storage."""

    globals: tuple[str, ...]
    given: str
    advice: str


_KINDS = (
    _Kind(("_rebuild_qtensor", "QInt8Storage", "QUInt8Storage", "QInt32Storage"),
          "a quantized tensor", "save its dequantize(), or int_repr() with scale and zero point"),
    _Kind(("_rebuild_sparse_tensor", "_rebuild_sparse_csr_tensor"), "a sparse tensor",
          "save its to_dense(), or its indices and values"),
    _Kind(("_rebuild_meta_tensor_no_storage",), "a tensor on the meta device",
          "it has no numbers: give the model its weights before saving"),
    _Kind(("_rebuild_device_tensor_from_numpy", "_rebuild_device_tensor_from_cpu_tensor"),
          "a tensor of a device with a format of its own", "save its cpu()"),
    _Kind(("_rebuild_nested_tensor",), "a nested tensor", "save its unbind(), a list of tensors"),
    _Kind(("_rebuild_wrapper_subclass", "_rebuild_from_type_v2"),
          "a subclass of torch.Tensor, or one with attributes", "save plain tensors"),
    _Kind(("_rebuild_parameter_with_state",), "a parameter with attributes", "save its data"),
)  # fmt: skip


class Unread(Exception):
    """A pickle that is refused; the texts say what it holds, and what to do."""

    def __init__(self, given: str, advice: str = _DISTRUST) -> None:
        """Takes both."""
        super().__init__(given)
        self.advice = advice


@dataclass(frozen=True, eq=False, slots=True)
class Item:
    """A tensor as a pickle describes it; nothing has been checked.

    Attributes:
        storage: What ``persistent_load`` returned.
        geometry: Shape, strides and offset.
        dtype: Name of a dtype; None for the storage's.
        lazy: What turns the numbers when they are read, such as the conj bit; or nothing.
    """

    storage: Any
    geometry: tuple[Any, Any, Any]
    dtype: Any = None
    lazy: str = ""


class Script:
    """An object of a TorchScript archive: what it holds, without its class."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        """Begins with nothing."""
        self.state: dict[Any, Any] = {}


@dataclass(frozen=True, eq=False, slots=True)
class _Name:
    """What stands for a global: a dtype, or one of our own functions."""

    value: str = ""
    call: Callable[..., Any] | None = None


class _Key(NamedTuple):
    """A key that is no text, as the text that names have of it.

    Numbers are hashed in a way that a file can foresee: thousands of keys in one place of a
    dictionary make it slow as the square of them. Texts are hashed with a secret.
    """

    kind: str
    text: str

    def __str__(self) -> str:
        return self.text


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *more: Any) -> Item:
    # more: whether it requires a gradient, its hooks, its bits
    return Item(storage, (shape, strides, offset), None, _bits(*more[2:]))


def _tensor_v3(
    storage: Any,
    offset: Any,
    shape: Any,
    strides: Any,
    _grad: Any,
    _hooks: Any,
    dtype: Any,
    *more: Any,
) -> Item:
    return Item(storage, (shape, strides, offset), dtype.value, _bits(*more))


def _bits(metadata: Any = None, *more: Any) -> str:
    """Names the bits that torch keeps beside a tensor: a view of its conjugate or negative."""
    if metadata is None and not more:
        return ""
    if type(metadata) is not dict or more:
        raise Unread("a tensor with something beside it that is not known")
    names = sorted(map(str, (key for key, value in metadata.items() if value is not False)))
    return " and ".join(f"{name} bit" for name in names[:_MOST_NAMED])


def _dictionary(pairs: Any = ()) -> dict[Any, Any]:
    if type(pairs) is not list:
        return {}
    made = {_checked(key): value for key, value in pairs}
    pairs.clear()  # taken over: a short pickle could make a thousand large ones of one list
    return made


def _same(value: Any = None, *_: Any) -> Any:
    """Stands for what makes another value of one: none of them is a tensor's."""
    return value


_NAMES = {
    "collections.OrderedDict": _Name(call=_dictionary),
    "torch._utils._rebuild_tensor": _Name(call=_tensor),
    "torch._utils._rebuild_tensor_v2": _Name(call=_tensor),
    "torch._utils._rebuild_tensor_v3": _Name(call=_tensor_v3),
    "torch._utils._rebuild_parameter": _Name(call=_same),
    "torch.Size": _Name(call=_same),
    "torch.device": _Name(call=_same),
    "_codecs.encode": _Name(call=_same),
    "torch.storage.UntypedStorage": _Name("uint8"),
    **{f"torch.{name}": _Name(dtype) for name, dtype in _STORAGES.items()},
    **{f"torch.{name}": _Name(name) for name in BY_NAME},
}
_SCRIPT = _Name("script")
_SCRIPT_NAMES = {
    f"torch.jit._pickle.{name}": _Name(call=_same)
    for name in ("build_intlist", "build_tensorlist", "build_doublelist", "build_boollist",
                 "restore_type_tag")
}  # fmt: skip


class _Reader(_Base):  # type: ignore[misc]
    """The unpickler: its table of opcodes holds what torch writes into state dictionaries."""

    dispatch = {key: _Base.dispatch[key] for key in (getattr(pickle, n)[0] for n in _OPCODES)}  # noqa: RUF012

    def __init__(self, file: BinaryIO, storage_of: Callable[[Any], Any], script: bool) -> None:
        super().__init__(file, encoding="utf-8")
        self.read, self.readline = file.read, file.readline
        self._storage_of, self._script = storage_of, script

    def load(self) -> Any:
        """Reads one pickle; without the frames of later protocols, whose opcodes are not taken."""
        self.metastack: list[Any] = []
        self.stack: list[Any] = []
        self.append = self.stack.append
        self.proto = 0
        dispatch = self.dispatch
        try:
            for key in iter(partial(self.read, 1), b""):
                step = dispatch.get(key[0])
                if step is None:
                    opcode = _by_code.get(chr(key[0]))
                    name = opcode.name if opcode else f"byte {key[0]:#04x}"
                    if name == "LONG4":
                        raise Unread("a number of more than 255 bytes (the opcode LONG4)", _ALONE)
                    raise Unread(f"the opcode {name}, which is not read here")
                step(self)
        except _Stop as stop:
            return stop.value
        raise Unread("one that is cut off")

    def find_class(self, module: str, name: str) -> Any:
        """Returns what stands for a global; imports nothing."""
        full = f"{module}.{name}"
        found = _NAMES.get(full)
        if found is None and self._script:
            found = _SCRIPT if full.startswith("__torch__.") else _SCRIPT_NAMES.get(full)
        if found is None:
            kind = next((kind for kind in _KINDS if name in kind.globals), None)
            if module.partition(".")[0] == "torch" and kind is not None:
                raise Unread(f"{kind.given} (the global {full})", kind.advice)
            raise Unread(f"the global {full}, which was not imported")
        return found

    def persistent_load(self, pid: Any) -> Any:
        """Returns the storage that an identity names."""
        if type(pid) is not tuple or len(pid) < 5 or pid[0] != "storage":
            raise Unread("a persistent object that is no storage")
        if not isinstance(pid[1], _Name) or pid[1].value not in BY_NAME:
            raise Unread("a storage without a dtype")
        return self._storage_of((pid[1].value, *pid[2:]))

    def load_binput(self) -> None:
        """Remembers an item."""
        self._remember(self.read(1)[0])

    def load_long_binput(self) -> None:
        """Remembers an item."""
        self._remember(int.from_bytes(self.read(4), "little"))

    def _remember(self, index: int) -> None:
        # One after the other, as all picklers do: chosen numbers could collide in a dictionary.
        if index > len(self.memo):
            raise Unread(f"item {index} of its memo after {len(self.memo)}", _ALONE)
        self.memo[index] = self.stack[-1]

    def load_reduce(self) -> None:
        """Calls one of our own functions with what the pickle gives."""
        arguments, name = self.stack.pop(), self.stack[-1]
        if not isinstance(name, _Name) or name.call is None or type(arguments) is not tuple:
            raise Unread("a call of something that is no function")
        self.stack[-1] = name.call(*arguments)

    def load_newobj(self) -> None:
        """Makes an empty object of a TorchScript archive."""
        arguments, name = self.stack.pop(), self.stack.pop()
        if name is not _SCRIPT or arguments != ():
            raise Unread("an object of a class")
        self.append(Script())

    def load_build(self) -> None:
        """Fills an object of a TorchScript archive; attributes of dictionaries are left out."""
        state, made = self.stack.pop(), self.stack[-1]
        if isinstance(made, Script) and type(state) is dict:
            made.state = state
        elif type(made) is not dict:
            raise Unread("attributes of something that has none")

    def load_setitem(self) -> None:
        """Puts one item into a dictionary."""
        value, key = self.stack.pop(), self.stack.pop()
        self._target()[_checked(key)] = value

    def load_setitems(self) -> None:
        """Puts items into a dictionary."""
        items = self.pop_mark()
        target = self._target()
        for i in range(0, len(items), 2):
            target[_checked(items[i])] = items[i + 1]

    def _target(self) -> dict[Any, Any]:
        if type(self.stack[-1]) is not dict:
            raise Unread("items of something that is no dictionary")
        target: dict[Any, Any] = self.stack[-1]
        return target

    for _opcode, _step in (
        (pickle.BINPUT, load_binput),
        (pickle.LONG_BINPUT, load_long_binput),
        (pickle.REDUCE, load_reduce),
        (pickle.NEWOBJ, load_newobj),
        (pickle.BUILD, load_build),
        (pickle.SETITEM, load_setitem),
        (pickle.SETITEMS, load_setitems),
    ):
        dispatch[_opcode[0]] = _step
    del _opcode, _step


def _checked(key: Any) -> Any:
    if type(key) is str:
        return key
    # hashing a tuple that is nested deeply ends the process
    if type(key) not in (int, float, bool, bytes, type(None)):
        raise Unread(f"a dictionary with a {type(key).__name__} as a key", _ALONE)
    if type(key) is int and key.bit_length() > _KEY_BITS:
        raise Unread(f"a dictionary with a number of {key.bit_length()} bits as a key", _ALONE)
    return _Key(type(key).__name__, str(key))


def read_pickle(
    path: object, file: BinaryIO, storage_of: Callable[[Any], Any], script: bool = False
) -> Any:
    """Reads one pickle into plain containers and ``Item``.

    Args:
        path: The file, for messages.
        file: Where to read; it is left behind the pickle.
        storage_of: Gets dtype, key, location, number of elements and what else an identity holds,
            and returns what stands for the storage.
        script: Whether classes of a TorchScript archive may occur; they become ``Script``.

    Raises:
        WeightsError: It holds something else; the text names it.
    """
    advice = _DISTRUST
    try:
        return _Reader(file, storage_of, script).load()
    except Unread as error:
        given, advice = str(error), error.advice
    except (pickle.UnpicklingError, ArithmeticError, AttributeError, EOFError, LookupError,
            MemoryError, TypeError, ValueError) as error:  # fmt: skip
        given = f"bytes that are none ({type(error).__name__}: {error})"
    except Exception as error:  # struct.error: of bytes that end too early
        given = f"bytes that are none ({error})"
    raise fail(
        path,
        f"wanted a pickle of tensors and plain containers, given {brief(given, 300)}; {advice}",
    )


def globals_of(data: bytes) -> list[str]:
    """Names what a pickle would import, for a message; reads it as text.

    Args:
        data: A pickle of any protocol.
    """
    names: dict[str, None] = {}
    texts: deque[str] = deque(maxlen=2)
    try:
        for opcode, argument, _ in islice(pickletools.genops(data), _MOST_OPCODES):
            if opcode.name in ("GLOBAL", "INST"):
                names[brief(str(argument).replace(" ", "."), 200)] = None
            elif opcode.name == "STACK_GLOBAL" and len(texts) > 1:
                names[brief(".".join(texts), 200)] = None
            elif isinstance(argument, str):
                texts.append(argument)
    except Exception:  # what cannot be read to its end is named as far as it goes
        pass
    return list(names)[:_MOST_NAMED]
