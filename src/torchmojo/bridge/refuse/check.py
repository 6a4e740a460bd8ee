"""Each check of one argument, with what was wanted and what was found, as data.

The glue makes the same checks in Mojo before every call; this is the slow telling of them, for
``torchmojo.explain`` and for the message of a refused call. The property test
``test_explain_agrees_with_calls`` holds the two together.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchmojo.bridge.code import Code
from torchmojo.bridge.lend import Lease
from torchmojo.bridge.lend.lease import contiguous
from torchmojo.bridge.refuse.facts import (
    Facts,
    facts,
    is_torch_tensor,
    quiet,
)
from torchmojo.bridge.refuse.overlap import overlaps_itself
from torchmojo.bridge.refuse.tensor import check_torch, data_address
from torchmojo.contract import Argument, KernelContract
from torchmojo.dtypes import BY_NAME

__all__ = ["Check", "checks", "dtype_advice"]

_CONVERTED = (
    Code.DTYPE,
    Code.LAYOUT,
    Code.ALIGNMENT,
    Code.DEVICE,
    Code.NEG_BIT,
    Code.CONJ_BIT,
)
_COPYING = ("copies", ".copy()", ".clone()")  # what advice says that makes a copy
_WHOLES = {info.parts: info.name for info in BY_NAME.values() if info.parts}


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    Attributes:
        name: What was looked at.
        ok: Whether it passed.
        wanted: What the kernel asks for.
        found: What the value is.
        advice: What to do where it failed.
        code: The reason that the glue gives.
    """

    name: str
    ok: bool
    wanted: str
    found: str
    advice: str = ""
    code: Code = Code.OK


def checks(contract: KernelContract, argument: Argument, thing: Any) -> list[Check]:
    """Makes every check that concerns one tensor argument alone.

    Args:
        contract: The kernel.
        argument: One of its tensor arguments.
        thing: A torch tensor or a lease.

    Returns:
        The checks in the order of the glue; after one that fails, those that could not be made any
        more are left out.
    """
    with quiet():
        return _checks(contract, argument, thing)


def _checks(contract: KernelContract, argument: Argument, thing: Any) -> list[Check]:
    found = facts(thing)
    result: list[Check] = []

    def check(name: str, ok: bool, wanted: str, given: str, advice: str, code: Code) -> bool:
        if argument.writes and code in _CONVERTED and any(word in advice for word in _COPYING):
            advice = "make the output so from the start: what goes into a converted copy is lost"
        result.append(Check(name, ok, wanted, given, "" if ok else advice, code))
        return ok

    if is_torch_tensor(thing) and not check_torch(thing, found, check):
        return result
    outline = found
    if argument.takes_complex:
        found = _split_complex(found)
    rank, shape = argument.rank, found.shape or ()
    if isinstance(rank, int):
        advice = f"pass a tensor with {_axes(rank)}, for instance by x.reshape(...) or x[None]"
        if not check("rank", len(shape) == rank, _axes(rank), _axes(len(shape)), advice, Code.RANK):
            return result
    else:
        parameter = contract.parameter(rank)
        ranks = parameter.choices if parameter else ()
        ok = str(len(shape)) in ranks
        wanted = f"{' or '.join(ranks)} axes"
        if not check("rank", ok, wanted, _axes(len(shape)), "reshape it", Code.RANK):
            return result
    allowed = contract.dtypes(argument)
    ok = found.dtype in allowed
    wanted = " or ".join(BY_NAME[name].short for name in allowed)
    if outline is not found:  # complex parts: the advice names a complex dtype
        allowed = tuple(_WHOLES.get(name, name) for name in allowed)
    advice = dtype_advice(outline, allowed, thing)
    if not check("dtype", ok, wanted, found.short, advice, Code.DTYPE) and (
        found.dtype not in BY_NAME
    ):
        return result
    _check_axes(argument, shape, check)
    if isinstance(thing, Lease) and not _check_bytes(thing, check):
        strides = contiguous(shape, 1)  # what a copy would have
    else:
        strides = found.strides or ()
        _check_memory(argument, thing, shape, strides, BY_NAME[found.dtype].width, check)
    if argument.writes:
        _check_write(thing, shape, strides, check)
    return result


def _check_bytes(thing: Lease, check: Any) -> bool:
    """Asks for whole elements in native byte order."""
    whole = thing.strides is not None
    check(
        "step",
        whole,
        "strides that are multiples of the element size",
        "whole elements" if whole else f"strides {thing.steps} bytes",
        "write x.copy()",
        Code.LAYOUT,
    )
    check(
        "byte order",
        not thing.swapped,
        "native byte order",
        "foreign" if thing.swapped else "native",
        "write x.astype(x.dtype.newbyteorder('=')), which copies",
        Code.DTYPE,
    )
    return whole and not thing.swapped


def _split_complex(found: Facts) -> Facts:
    """Describes a complex tensor as the glue hands it over: two floats on a last axis."""
    parts = BY_NAME[found.dtype].parts if found.dtype in BY_NAME else ""
    if not parts or found.shape is None:
        return found
    return replace(
        found,
        dtype=parts,
        short=BY_NAME[parts].short,
        shape=(*found.shape, 2),
        strides=None if found.strides is None else (*(2 * s for s in found.strides), 1),
    )


def _axes(count: int) -> str:
    return "1 axis" if count == 1 else f"{count} axes"


def dtype_advice(found: Facts, allowed: Sequence[str], thing: Any) -> str:
    """Says how to come by a dtype that a kernel takes.

    Args:
        found: The value's outline.
        allowed: Names of dtypes; the first is proposed.
        thing: The value, a torch tensor or a lease.
    """
    if found.short in ("c32", "c64", "c128") and not allowed[0].startswith("complex"):
        return (
            "pass it to an argument whose last axis is named `complex`, or "
            "torch.view_as_real(x), a view with a last axis of 2"
        )
    if found.dtype.startswith("q"):
        return "write x.dequantize(), which copies, or x.int_repr()"
    if found.kind == "torch":
        return f"write x.to(torch.{allowed[0]}), which copies"
    if hasattr(thing._lender, "astype"):
        return f'write x.astype("{allowed[0]}"), which copies'
    if isinstance(thing._lender, (bytes, bytearray, memoryview)):
        return f'write numpy.frombuffer(x, "{allowed[0]}") if these are its bytes'
    return f"convert it to {allowed[0]} first, which copies"


def _check_memory(
    argument: Argument,
    thing: Any,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    width: int,
    check: Any,
) -> None:
    if 0 in shape:
        return
    address: int
    if isinstance(thing, Lease):
        address = thing.data
    else:
        address = data_address(thing)
        reach = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        needed = thing.storage_offset() * thing.element_size() + reach * width
        held = thing.untyped_storage().nbytes()
        if not check(
            "storage size",
            needed <= held,
            f"{needed} bytes for its shape and strides",
            f"a storage of {held} bytes",
            "a failed resize_ leaves such a tensor; make it anew",
            Code.NO_DATA,
        ):
            return
    aligned = address % width == 0
    check(
        "alignment",
        aligned,
        f"an address that is a multiple of {width}",
        f"past one by {address % width}" if not aligned else "aligned",
        "write x.clone()" if is_torch_tensor(thing) else "write x.copy()",
        Code.ALIGNMENT,
    )
    if argument.layout == "row_major":
        check(
            "layout",
            _is_dense(shape, strides, range(len(shape) - 1, -1, -1)),
            "contiguous (row-major)",
            f"strides({','.join(map(str, strides))})",
            "write x.contiguous(), which copies"
            if is_torch_tensor(thing)
            else "write numpy.ascontiguousarray(x), which copies",
            Code.LAYOUT,
        )
    elif argument.layout == "channels_last":
        order = [1, *range(len(shape) - 1, 1, -1), 0] if len(shape) in (4, 5) else []
        form = "channels_last_3d" if len(shape) == 5 else "channels_last"
        check(
            "layout",
            bool(order) and _is_dense(shape, strides, order),
            "channels-last",
            f"strides({','.join(map(str, strides))})",
            f"write x.contiguous(memory_format=torch.{form}), which copies",
            Code.LAYOUT,
        )


def _check_axes(argument: Argument, shape: tuple[int, ...], check: Any) -> None:
    """Compares sizes with numbers in the signature, and with each other where names are equal."""
    known: dict[str, int] = {}
    for axis, (name, size) in enumerate(zip(argument.axes, shape, strict=False)):
        if name == "_":
            continue
        fixed = "2" if name == "complex" else name
        if not fixed.isdecimal() and name not in known:
            known[name] = size
            continue
        wanted = int(fixed) if fixed.isdecimal() else known[name]
        check(
            f"axis {axis}",
            size == wanted,
            f"size {wanted} on axis {axis}" if fixed.isdecimal() else f"axes {name} of one size",
            f"size {size}",
            "slice or pad it",
            Code.AXIS,
        )


def _check_write(thing: Any, shape: tuple[int, ...], strides: tuple[int, ...], check: Any) -> None:
    """Asks whether autograd allows a write in place, and each element has a place of its own."""
    if is_torch_tensor(thing):
        torch: Any = sys.modules["torch"]
        recorded = thing.requires_grad and torch.is_grad_enabled()
        check(
            "autograd",
            not recorded,
            "a tensor that autograd does not record",
            "one that requires grad" if recorded else "not recorded",
            "call the kernel under torch.no_grad(), or write into x.detach()",
            Code.GRAD,
        )
        frozen = thing.is_inference() and not torch.is_inference_mode_enabled()
        check(
            "inference",
            not frozen,
            "a tensor that may be written here",
            "an inference tensor" if frozen else "writable",
            "an inference tensor can be written under torch.inference_mode() only",
            Code.INFERENCE,
        )
    elif 0 not in shape:
        check(
            "writable",
            not thing.read_only,
            "memory that may be written",
            "read-only memory" if thing.read_only else "writable",
            "pass a writable copy",
            Code.READ_ONLY,
        )
    double = overlaps_itself(shape, strides)
    check(
        "overlap",
        not double,
        "memory in which every element has a place of its own",
        f"strides({','.join(map(str, strides))})",
        "write x.clone() (an expanded tensor cannot be an output)",
        Code.SELF_OVERLAP,
    )


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...], order: Any) -> bool:
    """Returns whether axes lie without gaps, fastest first in the order given."""
    expected = 1
    for axis in order:
        if shape[axis] != 1 and strides[axis] != expected:
            return False
        expected *= shape[axis]
    return True
