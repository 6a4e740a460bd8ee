"""The compiled glue of the operators of one library, and what it asks Python."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from typing import Any

from torchmojo.bridge.code import Code
from torchmojo.bridge.refuse.refusal import mend
from torchmojo.contract import Contract
from torchmojo.errors import LibraryError, NoDataError
from torchmojo.ops import schema
from torchmojo.ops.native import Native, handle_of, tensor_of
from torchmojo.ops.rule import Rule
from torchmojo.ops.schema import Signature
from torchmojo.ops.spec import make_spec
from torchmojo.ops.stack import read_value
from torchmojo.toolchain.operators import SLOTS, build_operators, table_size

__all__ = ["Glue", "glue_of", "take_error"]

_texts = threading.local()
_lock = threading.Lock()
_glues: dict[tuple[int, int], Glue] = {}


def glue_of(kernel: Any) -> Glue:
    """Returns the glue of a kernel's library, compiled if this machine has not seen it yet.

    Args:
        kernel: A kernel.

    Raises:
        CompilerNotFoundError: It is not compiled yet, and there is no compiler.
    """
    library = kernel._library
    path = build_operators(library._path, library._options, library._built)
    facts = path.stat()
    # The loader opens one file once, however many libraries of Python's it belongs to.
    file = (facts.st_dev, facts.st_ino)
    with _lock:
        if file not in _glues:
            _glues[file] = Glue(path, library._built.contract)
        return _glues[file]


class Glue:
    """The operators' glue in one file, as long as the process lives."""

    def __init__(self, path: Path, contract: Contract) -> None:
        """Loads it.

        Args:
            path: The shared library.
            contract: Its kernels.
        """
        self.native = Native(path, table_size(contract), self._refuse, self._record)
        self._ops: dict[int, Any] = {}
        self._numbers = {k.name: i for i, k in enumerate(contract.kernels)}

    def add(self, op: Any, signature: Signature, rules: tuple[Rule, ...]) -> int:
        """Makes room for an overload of an operator.

        Args:
            op: The operator.
            signature: The overload's.
            rules: How each result is made.

        Returns:
            Which of the kernel's slots it has.
        """
        base = self._numbers[op.kernel.__name__] * SLOTS
        free = [s for s in range(SLOTS) if base + s not in self._ops]
        if not free:
            raise LibraryError(
                f"op: {op.name}: wanted at most {SLOTS} overloads of operators made of one kernel, "
                f"given {SLOTS} of {op.kernel.__name__} already; unregister() one"
            )
        number = base + free[0]
        words, data = make_spec(signature, number, rules)
        buffers = {
            word: ctypes.create_string_buffer(text, len(text)) for word, text in data.items()
        }
        for word, buffer in buffers.items():
            words[word] = ctypes.addressof(buffer)
        self.native.set_spec(number, words, buffers)
        self._ops[number] = (op, signature)
        return free[0]

    def remove(self, op: Any) -> None:
        """Makes the slots of an operator free again.

        Args:
            op: The operator, which is no more in the dispatcher.
        """
        for number, (other, _) in list(self._ops.items()):
            if other is op:
                del self._ops[number]

    def function(self, kernel: Any, kind: str, slot: int) -> int:
        """Returns the address of one of an operator's two native kernels.

        Args:
            kernel: The kernel.
            kind: ``boxed`` or ``gate``.
            slot: The operator's slot.
        """
        return self.native.function(f"{kernel.contract.symbol}_{kind}{slot}")

    # -- called from the glue, on any thread; ctypes takes the GIL -------------------------------

    def _refuse(self, number: int, code: int, index: int, detail: int, values: Any) -> int:
        """Words a refusal, or mends the call; returns the address of a text, or 0."""
        try:
            op, signature = self._ops[number]
            given = {}
            for i, place in enumerate(signature.places):
                word = values[i]
                if place.kind == schema.LEFT_OUT or (place.kind == schema.OUTPUT and not word):
                    continue
                if place.kind in (schema.TENSOR, schema.OUTPUT):
                    given[place.argument.name] = tensor_of(word)
                elif place.kind == schema.OPTIONAL_TENSOR:
                    given[place.argument.name] = tensor_of(word) if word else None
                elif place.kind in schema.OPTIONAL:
                    given[place.argument.name] = read_value(place.argument, place.kind, word)
                else:
                    at = ctypes.c_int64.from_address(word).value
                    given[place.argument.name] = read_value(place.argument, place.kind, at)
            if code == Code.COUNT:  # the one cause here: a result was not made
                op.function(*(given[name] for name in signature.takes))  # torch says why
                raise NoDataError(
                    f"{op.title}: wanted memory for its results, of which torch has none"
                )
            story: Any = detail
            if code in (Code.RAISED, Code.BOUNDS):
                story = ctypes.string_at(detail).decode("utf-8", "replace")
            mend(op.kernel, code, index, story, tuple(given.values()), tuple(given))
        except BaseException as error:  # nothing may leave a callback but by its text
            return _keep_text(error)
        return 0

    def _record(self, number: int, stack: Any) -> int:
        """Calls an operator with autograd recording; leaves its results on the stack."""
        try:
            op, signature = self._ops[number]
            args = [
                tensor_of(stack[place.position])
                if place.kind == schema.TENSOR
                else read_value(place.argument, place.kind, stack[place.position])
                for place in signature.taken
            ]
        except BaseException as error:
            self.native.drop(number, stack)
            return _keep_text(error)
        self.native.drop(number, stack)
        try:
            made = op.record(signature, args)
            results = made if isinstance(made, tuple) else (made,) * bool(signature.outputs)
            for i, tensor in enumerate(results):
                stack[i] = handle_of(tensor)
        except BaseException as error:
            return _keep_text(error)
        return 0


def _keep_text(error: BaseException) -> int:
    """Keeps an error's text for this thread, until torch has copied it."""
    # One level of recording inside another sees what torch made of the error below it: a text.
    below = getattr(_texts, "error", None)
    if type(error) is RuntimeError and below is not None and str(below) == str(error):
        error = below
    _texts.buffer = ctypes.create_string_buffer(str(error).encode("utf-8", "replace"))
    _texts.error = error
    return ctypes.addressof(_texts.buffer)


def take_error(text: str) -> BaseException | None:
    """Returns the error that Python raised below an operator, once, if it has this text.

    Args:
        text: What torch told of it, whose exceptions are texts.
    """
    error: BaseException | None = getattr(_texts, "error", None)
    _texts.error = None
    return error if error is not None and str(error) == text else None
