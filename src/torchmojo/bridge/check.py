"""Each check of one argument, with what was wanted and what was found, as data.

The glue makes the same checks in Mojo before every call; this is the slow telling of them, for
``torchmojo.explain`` and for the message of a refused call. The property test
``test_explain_agrees_with_calls`` holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchmojo.bridge.code import Code
from torchmojo.bridge.facts import Facts, facts, is_plain_tensor, is_torch_tensor
from torchmojo.bridge.lease import Lease
from torchmojo.contract import Argument, KernelContract
from torchmojo.dtypes import BY_NAME

__all__ = ["Check", "checks"]


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
    found = facts(thing)
    result: list[Check] = []

    def check(name: str, ok: bool, wanted: str, given: str, advice: str, code: Code) -> bool:
        result.append(Check(name, ok, wanted, given, "" if ok else advice, code))
        return ok

    if is_torch_tensor(thing) and not _check_torch(thing, found, check):
        return result
    rank, shape, strides = argument.rank, found.shape or (), found.strides or ()
    if isinstance(rank, int):
        advice = f"pass a tensor with {rank} axes, for instance by x.reshape(...) or x[None]"
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
    advice = _dtype_advice(found, allowed)
    if not check("dtype", ok, wanted, found.short, advice, Code.DTYPE):
        return result
    _check_memory(argument, thing, shape, strides, BY_NAME[found.dtype].width, check)
    return result


def _axes(count: int) -> str:
    return "1 axis" if count == 1 else f"{count} axes"


def _dtype_advice(found: Facts, allowed: tuple[str, ...]) -> str:
    if found.short in ("c32", "c64", "c128"):
        return "pass torch.view_as_real(x), a view with a last axis of 2, to a kernel that takes it"
    if found.kind == "torch":
        return f"write x.to(torch.{allowed[0]}), which copies"
    return f'write x.astype("{allowed[0]}"), which copies'


def _check_torch(thing: Any, found: Facts, check: Any) -> bool:
    plain = is_plain_tensor(type(thing))
    given = type(thing).__name__
    if not check(
        "tensor with memory",
        plain,
        "a tensor with memory of its own",
        f"a {given}, which has no data",
        "call the kernel on real tensors, or register it as a torch op for compiled code",
        Code.NO_DATA,
    ):
        return False
    strided = found.strides is not None
    if not check(
        "strided",
        strided,
        "a strided tensor",
        found.notes[-1] if not strided else "strided",
        "write x.to_dense() or take its values",
        Code.LAYOUT_KIND,
    ):
        return False
    device = str(thing.device.type)
    advice = (
        "a meta tensor has no data; call the kernel on real tensors"
        if device == "meta"
        else "write x.cpu(), which copies"
    )
    code = Code.DEVICE
    if not check("device", device == "cpu", "cpu", str(thing.device), advice, code):
        return False
    has_storage = _has_storage(thing)
    if not check(
        "storage",
        has_storage,
        "a tensor with memory of its own",
        "memory" if has_storage else "a tensor under a function transform, which has no data",
        "torch.vmap, grad and functionalize need a registered torch op",
        Code.NO_DATA,
    ):
        return False
    return bool(
        check(
            "neg bit",
            not thing.is_neg(),
            "values as they lie in memory",
            "a lazily negated view" if thing.is_neg() else "as they lie in memory",
            "write x.resolve_neg(), which copies",
            Code.NEG_BIT,
        )
    )


def _has_storage(thing: Any) -> bool:
    try:
        thing.untyped_storage().nbytes()
        return thing.numel() == 0 or thing.data_ptr() != 0
    except (RuntimeError, NotImplementedError):
        return False


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
        address = thing._record.data
        read_only = thing.read_only
    else:
        address, read_only = thing.data_ptr(), False
        reach = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        needed = (thing.storage_offset() + reach) * width
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
    if not check(
        "alignment",
        aligned,
        f"an address that is a multiple of {width}",
        f"one that is {address % width} bytes past it" if not aligned else "aligned",
        "write x.clone()" if is_torch_tensor(thing) else "write x.copy()",
        Code.ALIGNMENT,
    ):
        return
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
    if argument.writes:
        check(
            "writable",
            not read_only,
            "memory that may be written",
            "read-only memory" if read_only else "writable",
            "pass a writable copy",
            Code.READ_ONLY,
        )


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...], order: Any) -> bool:
    """Returns whether axes lie without gaps, fastest first in the order given."""
    expected = 1
    for axis in order:
        if shape[axis] != 1 and strides[axis] != expected:
            return False
        expected *= shape[axis]
    return True
