"""What a library registers in a program without Python: words that its own Mojo code reads.

See `torchmojo_ops/standalone.mojo`, which has their layout. They hold facts about this process's
version of torch, found on live tensors; the library refuses another version by name.
"""

from __future__ import annotations

import ctypes
import struct
import sys

from torchmojo.bridge import aten, doors
from torchmojo.contract import Contract
from torchmojo.errors import ArgumentError
from torchmojo.ops.file import plan
from torchmojo.ops.native import FUNCTIONS, OPTIONAL, constants, libtorch
from torchmojo.ops.schema import Signature, out_signature_of, signature_of
from torchmojo.ops.spec import make_spec
from torchmojo.toolchain.operators import SLOTS

__all__ = ["write_registry"]

_FORMAT = 1
_HEAD = 10
_LIBRARIES = ("torch_cpu", "c10")
_TABLE, _DOORS = 0, 1


class _Writer:
    """Words, and behind them what they point to."""

    def __init__(self) -> None:
        self.blob = bytearray(8 * _HEAD)

    def put(self, data: bytes) -> int:
        """Appends data at the next word; returns its offset."""
        self.blob += bytes(-len(self.blob) % 8)
        offset = len(self.blob)
        self.blob += data
        return offset

    def text(self, text: str) -> int:
        """Appends a C string."""
        return self.put(text.encode() + b"\0")

    def rows(self, rows: list[tuple[int, ...]]) -> tuple[int, int]:
        """Appends rows of words; returns their count and offset."""
        flat = [value for row in rows for value in row]
        return len(rows), self.put(struct.pack(f"={len(flat)}Q", *flat))


def write_registry(contract: Contract, namespace: str) -> bytes:
    """Writes the operators of a file's kernels, as ``torchmojo.ops_from`` makes them.

    Args:
        contract: The kernels; those that return something are left out.
        namespace: The operators'.

    Raises:
        ArgumentError: torch is not imported, or the namespace is no name.
    """
    if "torch" not in sys.modules:
        raise ArgumentError("build: --ops: wanted torch, whose operators they are, given none")
    if not namespace.isidentifier():
        raise ArgumentError(f"build: --ops: wanted a namespace, such as vision, given {namespace}")
    aten.open_door()
    writer = _Writer()
    functions = writer.rows(_functions(writer))
    values = writer.rows(_constants())
    operators = writer.rows(_operators(writer, contract, namespace))
    version = sys.modules["torch"].__version__
    wrong = writer.text(
        f"torchmojo: wanted torch {version}, for which {contract.name} was built, given another; "
        "build it again with that one"
    )
    abi = libtorch("torch_cpu").aoti_torch_abi_version
    abi.restype = ctypes.c_uint64
    head = (_FORMAT, abi(), wrong, 8 * doors.COUNT, *functions, *values, *operators)
    writer.blob[: 8 * _HEAD] = struct.pack(f"={_HEAD}Q", *head)
    return bytes(writer.blob)


def _functions(writer: _Writer) -> list[tuple[int, ...]]:
    rows: list[tuple[int, ...]] = []
    for optional, names in enumerate((FUNCTIONS, OPTIONAL)):
        for word, (library, name) in names.items():
            at = _LIBRARIES.index(library)
            rows.append((_TABLE, 8 * word, at, writer.text(name), optional))
    for i, name in enumerate(aten.symbols()):
        at = 0 if getattr(libtorch("torch_cpu"), name, None) is not None else 1
        rows.append((_DOORS, 8 * (doors.FUNCTIONS + i), at, writer.text(name), 0))
    return rows


def _constants() -> list[tuple[int, ...]]:
    rows: list[tuple[int, ...]] = [(_TABLE, 8 * word, value) for word, value in constants().items()]
    widths = range(doors.WIDTHS, doors.WIDTHS + 8)
    return rows + [(_DOORS, 8 * word, doors.word(word)) for word in widths]


def _operators(writer: _Writer, contract: Contract, namespace: str) -> list[tuple[int, ...]]:
    space = writer.text(namespace)
    rows: list[tuple[int, ...]] = []
    for index, kernel in enumerate(contract.kernels):
        if kernel.returns:
            continue
        takes, rules = plan(kernel)
        name = f"{namespace}::{kernel.name}"
        signature = signature_of(name, kernel, takes)
        overloads: list[tuple[Signature, bool]] = [(signature, True)]
        if signature.outputs and not signature.writes:
            overloads.append((out_signature_of(kernel, signature), False))
        for slot, (overload, makes) in enumerate(overloads):
            number = index * SLOTS + slot
            spec = make_spec(overload, number, rules if makes else ())
            for word, data in spec.data.items():
                spec.words[word] = writer.put(data)
            rows.append(
                (
                    space,
                    writer.text(overload.schema),
                    writer.text(overload.schema.split("(", 1)[0]),
                    number,
                    writer.put(struct.pack(f"={len(spec.words)}Q", *spec.words)),
                    writer.text(f"{kernel.symbol}_boxed{slot}"),
                    writer.text(f"{kernel.symbol}_gate{slot}"),
                )
            )
    return rows
