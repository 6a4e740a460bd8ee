"""Checks a prepared model's inputs; one whose strides differ is copied, by policy, and counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from torchmojo.dtypes import BY_NAME
from torchmojo.errors import (
    ArgumentError,
    CopyError,
    DeviceError,
    DTypeError,
    GradError,
    LayoutError,
    NoDataError,
    ShapeError,
)
from torchmojo.models.memory import (
    extent,
    has_memory,
    refuse_recording,
    torch_wraps,
)

if TYPE_CHECKING:
    from torchmojo.bridge.copy.ledger import CopyReason
    from torchmojo.bridge.refuse.facts import Facts

__all__ = ["Input", "fit", "quick_check"]


class Input:
    """What a model asks of an input.

    The library reads memory with the strides that it was compiled for, whatever the tensor's are:
    nothing may come through here that differs.
    """

    __slots__ = (
        "_is_grad_enabled",
        "_plain",
        "_strides",
        "dtype",
        "fixed",
        "name",
        "order",
        "short",
        "sizes",
    )

    def __init__(
        self, name: str, dtype: str, sizes: list[Any], order: list[int], strides: list[int | None]
    ) -> None:
        """Takes an entry of the manifest; see ``manifest.schema.json``."""
        import torch

        self.name = name
        self.sizes = sizes
        self.order = order
        self.short = BY_NAME[dtype].short
        self.dtype = getattr(torch, dtype)
        # None never equals a tensor's: sizes that vary take the longer way.
        fixed = all(isinstance(size, int) for size in sizes)
        self.fixed: Any = tuple(sizes) if fixed else None
        self._strides = self.strides_for(sizes) if fixed else None
        self._plain = (torch.Tensor, torch.nn.Parameter)
        self._is_grad_enabled = torch.is_grad_enabled

    def takes(self, value: Any) -> bool:
        """Returns whether a value is exactly what was asked for, at once.

        Args:
            value: Any object.
        """
        return (
            type(value) in self._plain
            and value.dtype is self.dtype
            and value.shape == self.fixed
            and value.stride() == self._strides
            and value.is_cpu
            and not value.requires_grad
            and not value.is_neg()
            and not value.is_conj()
            and not value._is_zerotensor()
            and not torch_wraps(value)
        )

    def strides_for(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Returns the strides that a tensor of these sizes must have.

        Args:
            sizes: One for each axis.
        """
        strides = [1] * len(sizes)
        step = 1
        for axis in reversed(self.order):
            strides[axis] = step
            step *= max(sizes[axis], 1)
        return tuple(strides)

    def wanted(self) -> str:
        """Returns dtype and sizes as messages show them."""
        sizes = ",".join(
            str(size)
            if isinstance(size, int)
            else f"{size['name']}={size['least']}..{size['most']}"
            for size in self.sizes
        )
        return f"{self.short}[{sizes}] cpu"

    def check(self, value: Any, named: dict[str, int]) -> Any:
        """Returns a tensor that the library can read: the value, or a copy of it.

        Args:
            value: What was given.
            named: Sizes that vary, by name, as far as they are known; added to.

        Raises:
            TorchmojoError: See `torchmojo.Model`.
        """
        import torch

        # Not needed by a first call whose inputs are as wanted: 20 ms of a cold start.
        from torchmojo.bridge.copy.policy import policy_for
        from torchmojo.bridge.refuse.facts import (
            facts,
            has_tangent,
            is_plain_tensor,
            is_torch_tensor,
            show,
        )

        if not is_torch_tensor(value):
            self._refuse(ArgumentError, show(value), "make a tensor of it, see torch.as_tensor")
        found = facts(value)
        if not is_plain_tensor(type(value)) or value.is_meta:
            self._refuse(NoDataError, found, "give a tensor with memory of its own")
        if torch_wraps(value):
            self._refuse(
                NoDataError,
                found,
                "torch.func and vmap lend tensors without memory: call the model outside of them, "
                "or wrap the call with torchmojo.op",
            )
        if value.layout != torch.strided:
            self._refuse(LayoutError, found, "call .to_dense()")
        if not has_memory(value):
            self._refuse(
                NoDataError,
                found,
                "its storage ends before its last element: give a tensor whose memory is there",
            )
        self._check_sizes(tuple(value.shape), found, named)
        if value.requires_grad and self._is_grad_enabled():
            self._refuse(
                GradError, found, "a prepared model computes no gradient: call it under no_grad"
            )
        if has_tangent(value):
            self._refuse(
                GradError, found, "a prepared model computes no tangent: give it the primal alone"
            )
        rule = policy_for(None, self.name)
        if value.dtype is not self.dtype and not rule.dtype:
            self._refuse(DTypeError, found, f"call .to(torch.{str(self.dtype)[6:]})")
        if value.device.type != "cpu" and not rule.device:
            self._refuse(DeviceError, found, "call .cpu()")
        strides = self.strides_for(value.shape)
        reason = self._reason(value, strides)
        if reason is None:
            return value
        return self._copy(value, strides, reason, found)

    def _refuse(self, kind: type[Exception], given: Any, advice: str) -> NoReturn:
        raise kind(f"Model: {self.name}: wanted {self.wanted()}, given {given}; {advice}")

    def _check_sizes(self, sizes: tuple[int, ...], found: Facts, named: dict[str, int]) -> None:
        if len(sizes) != len(self.sizes):
            self._refuse(ShapeError, found, f"give a tensor with {len(self.sizes)} axes")
        for axis, (given, wanted) in enumerate(zip(sizes, self.sizes, strict=True)):
            if isinstance(wanted, int):
                if given != wanted:
                    self._refuse(
                        ShapeError, found, f"axis {axis} has a fixed size; prepare makes it vary"
                    )
                continue
            if not wanted["least"] <= given <= wanted["most"]:
                self._refuse(ShapeError, found, f"axis {axis} is outside its range")
            known = named.setdefault(wanted["name"], given)
            if known != given:
                self._refuse(
                    ShapeError,
                    found,
                    f"axis {axis} is {wanted['name']}, which is {known} elsewhere",
                )

    def _reason(self, value: Any, strides: tuple[int, ...]) -> CopyReason | None:
        """Returns why a value cannot be read as it lies, or None."""
        from torchmojo.bridge.copy.ledger import CopyReason

        if value.dtype is not self.dtype:
            return CopyReason.DTYPE
        if value.device.type != "cpu":
            return CopyReason.DEVICE
        if value.is_neg():
            return CopyReason.NEG_BIT
        if value.is_conj():
            return CopyReason.CONJ_BIT
        # The stride of an axis with one index is never used, nor any without elements.
        same = value.numel() == 0 or all(
            size == 1 or given == wanted
            for size, given, wanted in zip(value.shape, value.stride(), strides, strict=True)
        )
        return None if same else CopyReason.LAYOUT

    def _copy(self, value: Any, strides: tuple[int, ...], reason: CopyReason, found: Facts) -> Any:
        """Copies an input as the policy says."""
        import torch

        from torchmojo.bridge.copy.ledger import announce, count, place_of_caller
        from torchmojo.bridge.copy.policy import policy_for

        wanted = f"{self.wanted()} strides({','.join(map(str, strides))})"
        head = f"Model: {self.name}: wanted {wanted}, given {found}"
        rule = policy_for(None, self.name)
        if rule.forbidden:
            raise CopyError(f"Model: {self.name}: wanted no copy, given {found}: {reason}")
        if rule.policy == "error":
            raise LayoutError(f"{head}; copy it before the call: {reason}")
        place = place_of_caller()
        if rule.policy == "warn":
            text = (
                f"{head}: copied on its way; "
                'torchmojo.fallback("copy") copies without this warning, "error" refuses'
            )
            announce("Model", self.name, reason, text, place)
        copy = torch.empty_strided(tuple(value.shape), strides, dtype=self.dtype).copy_(value)
        count("Model", self.name, reason, copy.numel() * copy.element_size(), place)
        return copy


def quick_check(inputs: Sequence[Input]) -> Any:
    """Returns a function that tells whether values are exactly what was asked for.

    It may say no to some that are: then `fit` looks closer. It never says yes wrongly: it compares
    type, dtype, device, sizes, strides, requires_grad and the dispatch keys, of which conj and neg
    bits are two; that the storage reaches as far as the sizes; and that no tangent is followed and
    no mode records what torch does.

    Args:
        inputs: What the model asks for.
    """
    import torch
    from torch.autograd import forward_ad

    if any(spec.fixed is None for spec in inputs):
        return _nothing
    alike = _native(inputs) or (
        lambda *values: all(spec.takes(value) for spec, value in zip(inputs, values, strict=True))
    )
    extents = [extent(spec.fixed, spec.strides_for(spec.fixed), 1) for spec in inputs]
    if 0 in extents:
        return _nothing  # no element is read: not worth a way of its own
    modes = torch._C._len_torch_dispatch_stack
    nbytes, storage = torch._C.StorageBase.nbytes, torch.Tensor.untyped_storage
    offset = torch.Tensor.storage_offset
    lengths = [
        (n * spec.dtype.itemsize, spec.dtype.itemsize)
        for n, spec in zip(extents, inputs, strict=True)
    ]
    if len(inputs) == 1:  # without a loop: half of what the check may take
        ((length, itemsize),) = lengths

        def one(value: Any) -> bool:
            return bool(
                alike(value)
                and nbytes(storage(value)) - offset(value) * itemsize >= length
                and forward_ad._current_level < 0
                and not modes()
            )

        return one

    def several(*values: Any) -> bool:
        if not alike(*values) or forward_ad._current_level >= 0 or modes():
            return False
        for value, (length, itemsize) in zip(values, lengths, strict=True):
            if nbytes(storage(value)) - offset(value) * itemsize < length:
                return False
        return True

    return several


def _native(inputs: Sequence[Input]) -> Any:
    """Returns what torch.compile checks inputs with, or None: it is private to torch."""
    import torch

    try:
        from torch._C._dynamo.guards import TensorGuards

        examples = [
            torch.empty_strided(s.fixed, s.strides_for(s.fixed), dtype=s.dtype) for s in inputs
        ]
        strides: list[Any] = [list(example.stride()) for example in examples]
        guards = TensorGuards(
            *examples,
            dynamic_dims_sizes=[list(spec.fixed) for spec in inputs],
            dynamic_dims_strides=strides,
        )
        return guards.check if guards.check(*examples) is True else None
    except (ImportError, TypeError, RuntimeError):  # another torch may lack it
        return None


def _nothing(*values: Any) -> bool:
    """Says no: sizes that vary are looked at one by one."""
    return False


def fit(inputs: Sequence[Input], values: Sequence[Any]) -> tuple[Any, ...]:
    """Returns tensors that the library can read.

    Args:
        inputs: What the model asks for.
        values: What was given, as many.

    Raises:
        TorchmojoError: See `torchmojo.Model`.
    """
    if len(values) != len(inputs):
        wanted = ", ".join(spec.name for spec in inputs)
        raise ArgumentError(f"Model: wanted {len(inputs)} inputs ({wanted}), given {len(values)}")
    refuse_recording()
    named: dict[str, int] = {}
    return tuple(spec.check(value, named) for spec, value in zip(inputs, values, strict=True))
