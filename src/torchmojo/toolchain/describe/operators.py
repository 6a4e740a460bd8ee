"""Writes the glue of torch operators: that of direct calls, with torch's stack for arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchmojo.contract import Contract, KernelContract
from torchmojo.toolchain.describe.glue import KernelWriter
from torchmojo.toolchain.describe.imports import imports_of

__all__ = ["SLOTS", "table_size", "write_operators"]

SLOTS = 4
"""How many operators can be made of one kernel: functional, in place, out, and one more."""

_HEAD = """\
# Written by torchmojo from the signatures in {name}; do not edit.
from torchmojo._glue import *
from torchmojo.layout import Layout
from torchmojo.trap import CHECK_BOUNDS
from torchmojo_ops import *
{imports}
"""

_SHARED = """\
@export("torchmojo_table")
def _torchmojo_table() abi("C") -> Int:
    return table()


@export("torchmojo_register_operators")
def _torchmojo_register_operators() abi("C") -> Int:
    return register_operators()


@export("torchmojo_drop")
def _torchmojo_drop(number: Int, stack: Int) abi("C"):
    drop_inputs(number, stack)
"""

_ENTRY = """\
@no_inline
def _call_{symbol}(number: Int, stack: Int) -> Int:
    var frame = Boxed[{count}](number, stack)
    return frame.finish(_boxed_{symbol}(frame))
"""

_SLOT = """\
@export("{symbol}_boxed{slot}")
def _{symbol}_boxed{slot}(stack: Int, _inputs: Int, _outputs: Int) abi("C"):
    var text = _call_{symbol}({number}, stack)
    if text != 0:
        throw(text)


@export("{symbol}_gate{slot}")
def _{symbol}_gate{slot}(stack: Int, _inputs: Int, _outputs: Int) abi("C"):
    var text = 0
    if pass_gate({number}, stack, text) == IDLE:
        text = _call_{symbol}({number}, stack)
    if text != 0:
        throw(text)
"""


def table_size(contract: Contract) -> int:
    """Returns the bytes of a library's table: `Entry.SPECS`, and a word for each operator.

    Args:
        contract: The library's kernels.
    """
    return 512 + 8 * SLOTS * len(contract.kernels)


def write_operators(contract: Contract, module: str, part: Contract, first: bool) -> str:
    """Returns the Mojo source of the operators' glue.

    Args:
        contract: All kernels; those that return something are left out.
        module: Name under which Mojo imports the user's file or package.
        part: The kernels of this source, one of several that are linked into one library.
        first: Whether it is the first of them, which holds what all share.
    """
    parts = [_HEAD.format(name=contract.name, imports=imports_of(part, module))]
    if first:
        parts.append(_SHARED)
    names = {kernel.name for kernel in part.kernels}
    for index, kernel in enumerate(contract.kernels):
        if not kernel.returns and kernel.name in names:
            parts.append("\n".join(_lines(kernel, index)))
    return "\n\n".join(parts) + "\n"


def _lines(kernel: KernelContract, index: int) -> Iterator[str]:
    writer = KernelWriter(kernel)
    count = max(len(kernel.arguments), 1)
    for line in writer.runner():
        yield line.replace("_frame: Frame", f"_frame: Boxed[{count}]")
    yield from ("", "")
    yield f"def _boxed_{kernel.symbol}(mut frame: Boxed[{count}]) -> Int:"
    for line in writer.body():
        if line.startswith("var frame = "):
            continue
        yield f"    {_unboxed(line)}"
    yield from ("", "")
    yield _ENTRY.format(symbol=kernel.symbol, count=count)
    for slot in range(SLOTS):
        yield ""
        yield _SLOT.format(symbol=kernel.symbol, slot=slot, number=index * SLOTS + slot)


def _unboxed(line: str) -> str:
    """Reads numbers from torch's stack instead of Python objects."""
    return re.sub(r"read_(float|int|uint|bool|string)[(]frame.doors, ", r"unbox_\1(", line)
