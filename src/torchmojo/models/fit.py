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
        from torchmojo.bridge.refuse.facts import facts, is_plain_tensor, is_torch_tensor, show

        if not is_torch_tensor(value):
            self._refuse(ArgumentError, show(value), "make a tensor of it, see torch.as_tensor")
        found = facts(value)
        if not is_plain_tensor(type(value)) or value.is_meta:
            self._refuse(NoDataError, found, "give a tensor with memory of its own")
        if value.layout != torch.strided:
            self._refuse(LayoutError, found, "call .to_dense()")
        self._check_sizes(tuple(value.shape), found, named)
        if value.requires_grad and self._is_grad_enabled():
            self._refuse(
                GradError, found, "a prepared model computes no gradient: call it under no_grad"
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
    bits are two.

    Args:
        inputs: What the model asks for.
    """
    import torch

    sizes = [spec.fixed for spec in inputs]
    try:
        from torch._C._dynamo.guards import TensorGuards  # what torch.compile checks inputs with

        if None in sizes:
            return _nothing
        examples = [
            torch.empty_strided(s.fixed, s.strides_for(s.fixed), dtype=s.dtype) for s in inputs
        ]
        strides: list[Any] = [list(example.stride()) for example in examples]
        guards = TensorGuards(
            *examples,
            dynamic_dims_sizes=[list(size) for size in sizes],
            dynamic_dims_strides=strides,
        )
        if guards.check(*examples) is True:
            return guards.check
    except (ImportError, TypeError, RuntimeError):  # private to torch: another one may lack it
        pass
    return lambda *values: all(
        spec.takes(value) for spec, value in zip(inputs, values, strict=True)
    )


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
    named: dict[str, int] = {}
    return tuple(spec.check(value, named) for spec, value in zip(inputs, values, strict=True))
