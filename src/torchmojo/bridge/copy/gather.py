"""One copy of one tensor, made in one pass by the native core, and written back if asked."""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from torchmojo import faults
from torchmojo.bridge import core
from torchmojo.bridge.copy.ledger import place_of_caller
from torchmojo.bridge.lend import Lease
from torchmojo.bridge.refuse.facts import is_torch_tensor, quiet
from torchmojo.bridge.refuse.tensor import data_address
from torchmojo.dtypes import BY_NAME, DTypeInfo
from torchmojo.errors import (
    CompileError,
    CompilerNotFoundError,
    DTypeError,
    TorchmojoWarning,
)

__all__ = ["Gathered", "gather"]

_NONE, _SWAP, _XOR, _NEGATE = range(4)  # changes, see `torchmojo_core/bits.mojo`
_DOES_NOT_FIT = 2


class _Side:
    """One side of a copy: where it lies and what its bits mean."""

    def __init__(self, thing: Any, writes: bool) -> None:
        self.mask = self.mask_lo = 0
        self.change = _NONE
        self.keep = thing
        if isinstance(thing, Lease):
            assert thing.dtype is not None
            self.info: DTypeInfo = thing.dtype
            self.address, self.shape, self.steps = thing.data, thing.shape, thing.steps
            self.swapped = thing.swapped
            return
        with quiet():
            self.info = BY_NAME[str(thing.dtype).removeprefix("torch.")]
            # The writing form gives a lazily cloned storage memory of its own.
            address = thing.data_ptr() if writes else data_address(thing)
            self.address, self.shape = int(address), tuple(thing.shape)
            self.steps = tuple(s * self.info.width for s in thing.stride())
            self.swapped = False
            self._read_bits(thing.is_neg(), thing.is_complex() and thing.is_conj())

    def _read_bits(self, neg: bool, conj: bool) -> None:
        """Turns torch's lazy bits into bits of an element to flip."""
        if not neg and not conj:
            return
        if not self.info.parts and self.info.kind in "iu":
            self.change = _NEGATE
            return
        self.change = _XOR
        half = self.info.width * 4  # bits of a part of a complex number
        bits = 0
        if not self.info.parts:
            bits = 1 << (8 * self.info.width - 1)
        else:
            # Real part first, so the imaginary sign is the top bit on a little-endian machine.
            bits ^= (1 << (half - 1)) if neg else 0
            bits ^= (1 << (2 * half - 1)) if neg != conj else 0
        self.mask_lo = _signed(bits & (2**64 - 1)) if self.info.width == 16 else 0
        self.mask = _signed(bits >> 64 if self.info.width == 16 else bits)

    @property
    def plain(self) -> bool:
        return self.change == _NONE and not self.swapped


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


class Gathered:
    """A copy that stands in for a tensor.

    Attributes:
        stand_in: A lease of the copy, or a torch tensor where torch made the copy.
        nbytes: Bytes of the copy.
    """

    def __init__(self, original: Any, stand_in: Any, nbytes: int, writes: bool) -> None:
        """Keeps the original only if it is to be written back."""
        self.stand_in = stand_in
        self.nbytes = nbytes
        self._original = original if writes else None

    def write_back(self) -> None:
        """Copies back into the original, and tells autograd of the write."""
        original = self._original
        assert original is not None
        if is_torch_tensor(self.stand_in):
            torch = sys.modules["torch"]
            with torch.no_grad(), quiet():
                original.copy_(self.stand_in)
            return
        _move(_Side(original, True), _Side(self.stand_in, False), back=True)
        if is_torch_tensor(original):
            sys.modules["torch"]._C._increment_version([original])

    def release(self) -> None:
        """Lets go of the copy."""
        if isinstance(self.stand_in, Lease):
            self.stand_in.release()
        self._original = None


def gather(
    thing: Any, info: DTypeInfo, layout: str, writes: bool, *, device: bool = False
) -> Gathered:
    """Copies a tensor into memory that a kernel can use.

    Args:
        thing: A torch tensor, or a lease of something else; its memory has been checked.
        info: The dtype of the copy.
        layout: ``channels_last``, or anything else for row-major.
        writes: Whether it will be written back.
        device: Whether it lies on another device; torch copies then.

    Returns:
        The copy.

    Raises:
        DTypeError: An integer does not fit the dtype of the copy.
        MemoryError: There is no memory for it.
    """
    if faults.meet("allocation"):
        raise MemoryError("no memory for a copy (injected)")
    if device:
        with quiet():
            moved = thing.detach().to("cpu", copy=True)
        return Gathered(thing, moved, moved.nbytes, writes)
    source = _Side(thing, writes)
    order = list(range(len(source.shape)))
    if layout == "channels_last":
        order = [0, *order[2:], 1]
    try:
        with contextlib.ExitStack() as stack:
            copy = _allocate(source.shape, order, info)
            stack.callback(copy.release)
            target = _Side(copy, True)
            _move(target, source)
            stack.pop_all()
        return Gathered(thing, copy, math.prod(source.shape) * info.width, writes)
    except (CompileError, CompilerNotFoundError) as error:
        return _without_core(thing, info, layout, writes, error)


def _allocate(shape: tuple[int, ...], order: Sequence[int], info: DTypeInfo) -> Lease:
    """Makes a lease of new memory, 64-byte aligned, axes slowest first in the order given."""
    size = math.prod(shape) * info.width
    torch: Any = sys.modules.get("torch")
    owner: Any
    try:
        if torch is not None:  # not zeroed, and below every mode of torch's
            owner = torch.UntypedStorage(size + 64, device="cpu")
            address = owner.data_ptr()
        else:
            owner = bytearray(size + 64)
            address = ctypes.addressof(ctypes.c_char.from_buffer(owner))
    except (RuntimeError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise MemoryError(f"no memory for a copy of {size} bytes") from error
    steps = [0] * len(shape)
    step = info.width
    for axis in reversed(order):
        steps[axis] = step
        step *= max(shape[axis], 1)
    return Lease(
        owner,
        None,
        data=-(-address // 64) * 64,
        shape=shape,
        steps=tuple(steps),
        dtype=info,
        type_name=info.short,
        read_only=False,
    )


def _array(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * max(len(values), 1))(*values)


def _move(target: _Side, source: _Side, back: bool = False) -> None:
    """Copies from one side to the other; the lazy bits of either are worked into the values."""
    if target.info is not source.info:
        if not source.plain:
            plain = _Side(_allocate(source.shape, range(len(source.shape)), source.info), True)
            _move(plain, source)
            source = plain
        # An integer that does not fit must not end in the middle of somebody's tensor.
        if not target.plain or (back and target.info.kind in "iu"):
            plain = _Side(_allocate(target.shape, range(len(target.shape)), target.info), True)
            _cast(plain, source)
            _move(target, plain, back)
        else:
            _cast(target, source)
        return
    bits = target if back else source
    change, mask, mask_lo = bits.change, bits.mask, bits.mask_lo
    shape, width = source.shape, source.info.width
    steps = target.steps, source.steps
    if bits.swapped:
        change = _SWAP
        if source.info.parts:  # each part by itself
            width //= 2
            shape = (*shape, 2)
            steps = (*target.steps, width), (*source.steps, width)
    sizes, to, come = _array(shape), _array(steps[0]), _array(steps[1])
    code = core.memory().copy(
        target.address,
        source.address,
        len(shape),
        ctypes.addressof(sizes),
        ctypes.addressof(to),
        ctypes.addressof(come),
        width,
        change,
        mask,
        mask_lo,
    )
    assert code == 0, (width, change)


def _cast(target: _Side, source: _Side) -> None:
    sizes, to, come = _array(source.shape), _array(target.steps), _array(source.steps)
    bad = ctypes.c_int64(0)
    code = core.convert()(
        target.address,
        source.address,
        len(source.shape),
        ctypes.addressof(sizes),
        ctypes.addressof(to),
        ctypes.addressof(come),
        target.info.code,
        source.info.code,
        ctypes.addressof(bad),
    )
    if code == _DOES_NOT_FIT:
        value = bad.value if source.info.kind == "i" else bad.value % 2**64
        raise _does_not_fit(value, target.info, source.info)
    assert code == 0, (target.info.name, source.info.name)


def _does_not_fit(value: int, target: DTypeInfo, source: DTypeInfo) -> DTypeError:
    return DTypeError(
        f"wanted integers that fit {target.short}, given {value} in a tensor of {source.short}"
    )


# -- a machine without a compiler ------------------------------------------------------------------

_told: list[bool] = []


def _without_core(
    thing: Any, info: DTypeInfo, layout: str, writes: bool, error: Exception
) -> Gathered:
    """Has torch or NumPy make the copy, in more passes; raises what went wrong if neither can."""
    if not _told:
        place = place_of_caller()
        text = f"torchmojo: copies are made by torch or NumPy: {str(error).splitlines()[0]}"
        warnings.warn_explicit(text, TorchmojoWarning, place.file, place.line)
        _told.append(True)
    if is_torch_tensor(thing):
        torch = sys.modules["torch"]
        form = torch.contiguous_format
        if layout == "channels_last":
            form = torch.channels_last if thing.dim() == 4 else torch.channels_last_3d
        with torch.no_grad(), quiet():
            plain = thing.detach().resolve_conj().resolve_neg()
            _ask_torch(plain, info)
            plain = plain.to(getattr(torch, info.name), copy=True, memory_format=form)
        return _ByTorch(thing, plain, plain.nbytes, writes)
    numpy = sys.modules.get("numpy")
    lender = thing._lender
    if numpy is None or info.name not in numpy.sctypeDict or not isinstance(lender, numpy.ndarray):
        raise error
    _ask_numpy(lender, info)
    order = range(len(thing.shape))
    copy = _allocate(thing.shape, [0, *order[2:], 1] if layout == "channels_last" else order, info)
    holder = (ctypes.c_char * max(math.prod(thing.shape) * info.width, 1)).from_address(copy.data)
    array = numpy.ndarray(thing.shape, info.name, holder, 0, copy.steps)
    array[...] = lender
    return _ByNumpy(thing, copy, math.prod(thing.shape) * info.width, writes, array)


class _ByTorch(Gathered):
    """A copy whose way back is torch's too."""

    def write_back(self) -> None:
        """Copies back; torch tells autograd."""
        assert self._original is not None
        with quiet():
            name = str(self._original.dtype).removeprefix("torch.")
            _ask_torch(self.stand_in, BY_NAME[name])
        super().write_back()


class _ByNumpy(Gathered):
    """A copy whose way back is NumPy's too."""

    def __init__(self, original: Any, stand_in: Any, nbytes: int, writes: bool, array: Any) -> None:
        super().__init__(original, stand_in, nbytes, writes)
        self._array = array

    def write_back(self) -> None:
        """Copies back into the lender, an array."""
        assert self._original is not None
        _ask_numpy(self._array, self._original.dtype)
        self._original._lender[...] = self._array


def _ask_torch(tensor: Any, target: DTypeInfo) -> None:
    """Raises for an integer that does not fit; torch itself would wrap it."""
    source = BY_NAME[str(tensor.dtype).removeprefix("torch.")]
    if source.kind in "iu" and target.kind in "iu" and tensor.numel():
        words = tensor.to(sys.modules["torch"].int64)  # uint64 above 2^63 - 1 turns negative
        for word in (int(words.min()), int(words.max())):
            _ask(word if source.kind == "i" else word % 2**64, target, source)


def _ask_numpy(array: Any, target: DTypeInfo) -> None:
    source = BY_NAME.get(array.dtype.name)
    if source is not None and source.kind in "iu" and target.kind in "iu" and array.size:
        for value in (int(array.min()), int(array.max())):
            _ask(value, target, source)


def _ask(value: int, target: DTypeInfo, source: DTypeInfo) -> None:
    bits = 8 * target.width
    low, high = (0, 2**bits) if target.kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    if not low <= value < high:
        raise _does_not_fit(value, target, source)
