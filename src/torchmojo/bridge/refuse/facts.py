"""What is known of a value that stands for a tensor, read without touching its memory."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import Any

from torchmojo.bridge.lend import Lease, borrow, has_buffer
from torchmojo.dtypes import BY_NAME
from torchmojo.errors import TorchmojoError

__all__ = [
    "Facts",
    "facts",
    "has_shape",
    "has_tangent",
    "is_plain_tensor",
    "is_torch_tensor",
    "quiet",
    "show",
]


@dataclass(frozen=True, slots=True)
class Facts:
    """A tensor in outline.

    Attributes:
        kind: ``torch``, ``lease`` or the Python type of something else.
        dtype: Name of the dtype, as torch and NumPy print it.
        short: The dtype in messages.
        shape: Sizes, or None where there are none to tell.
        strides: Strides in elements, or None.
        device: Such as ``cpu`` or ``cuda:0``.
        notes: What else matters, such as ``requires_grad``.
    """

    kind: str
    dtype: str
    short: str
    shape: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    device: str
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Prints it as ``f32[2,3] cpu strides(1,2)``."""
        if self.shape is None:
            return " ".join((self.short, *self.notes))
        text = f"{self.short}[{','.join(map(str, self.shape))}] {self.device}"
        if self.strides:
            text += f" strides({','.join(map(str, self.strides))})"
        return " ".join((text, *self.notes))


def is_torch_tensor(thing: object) -> bool:
    """Returns whether a value is a torch tensor; never imports torch.

    Args:
        thing: Any object.
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(thing, torch.Tensor)


def is_foreign_tensor(thing: object) -> bool:
    """Returns whether a value speaks one of the protocols that ``borrow`` knows.

    Args:
        thing: Any object.
    """
    return (
        has_buffer(thing) or hasattr(thing, "__dlpack__") or hasattr(thing, "__array_interface__")
    )


def is_plain_tensor(kind: type[Any]) -> bool:
    """Returns whether objects of a tensor type hold memory of their own.

    A subclass with ``__torch_dispatch__`` (FakeTensor, DTensor, functional and nested wrappers)
    only stands for other tensors; ``torch.nn.UninitializedParameter`` has no shape yet.

    Args:
        kind: ``torch.Tensor`` or a subclass.
    """
    torch: Any = sys.modules["torch"]
    own = kind.__torch_dispatch__
    if getattr(own, "__func__", own) is not torch._C._disabled_torch_dispatch_impl:
        inherited = torch.Tensor.__torch_dispatch__
        if getattr(own, "__func__", own) is not getattr(inherited, "__func__", inherited):
            return False
    return has_shape(kind)


def has_tangent(tensor: Any) -> bool:
    """Returns whether a tensor carries a tangent of forward-mode differentiation.

    Args:
        tensor: A torch tensor that stands for itself.
    """
    forward: Any = sys.modules["torch"].autograd.forward_ad
    return forward._current_level >= 0 and forward.unpack_dual(tensor).tangent is not None


def show(thing: object) -> str:
    """Prints a value in compact form for a message.

    Args:
        thing: Any object; a tensor as ``f32[2,3] cpu strides(1,2)``, a number or text by its repr.
    """
    if is_torch_tensor(thing) or isinstance(thing, Lease):
        return str(facts(thing))
    # A NumPy scalar lends its memory too, but is a number to its user.
    if is_foreign_tensor(thing) and (hasattr(thing, "__len__") or hasattr(thing, "__dlpack__")):
        try:
            lease = borrow(thing, "")
        except TorchmojoError:
            return f"a {type(thing).__module__}.{type(thing).__qualname__}"
        try:
            return str(facts(lease))
        finally:
            lease.release()
    try:
        text = repr(thing)
    except Exception:  # a message about a value must not fail because of the value
        text = "a value"
    if len(text) > 60:
        text = text[:57] + "..."
    return f"{text} ({type(thing).__name__})"


def facts(thing: Any) -> Facts:
    """Reads the outline of a torch tensor or a lease.

    Args:
        thing: A torch tensor of any kind, or a lease.
    """
    if isinstance(thing, Lease):
        notes: tuple[str, ...] = ()
        if thing.strides is None:
            notes += (f"steps({','.join(map(str, thing.steps))}) bytes",)
        if thing.swapped:
            notes += (f"{'big' if sys.byteorder == 'little' else 'little'}-endian",)
        if thing.read_only:
            notes += ("read-only",)
        name = thing.dtype.name if thing.dtype else thing.type_name
        return Facts("lease", name, thing.type_name, thing.shape, thing.strides, "cpu", notes)
    if not is_torch_tensor(thing):
        kind = type(thing)
        name = f"{kind.__module__}.{kind.__qualname__}"
        return Facts(name, name, name, None, None, "")
    with quiet():
        return _torch_facts(thing)


def quiet() -> Any:
    """Returns a context in which looking at a tensor runs no ``__torch_function__`` of users."""
    torch: Any = sys.modules.get("torch")
    return torch._C.DisableTorchFunction() if torch else contextlib.nullcontext()


def has_shape(kind: type[Any]) -> bool:
    """Returns whether tensors of a type know their shape; lazy parameters do not yet.

    Args:
        kind: ``torch.Tensor`` or a subclass.
    """
    torch: Any = sys.modules["torch"]
    return not issubclass(kind, torch.nn.parameter.UninitializedTensorMixin)


def _torch_facts(thing: Any) -> Facts:
    name = str(thing.dtype).removeprefix("torch.")
    info = BY_NAME.get(name)
    short = info.short if info else name
    if not has_shape(type(thing)):
        title = f"({type(thing).__name__})"
        return Facts("torch", name, short, None, None, str(thing.device), (title,))
    notes = []
    if type(thing).__name__ not in ("Tensor", "Parameter"):
        notes.append(f"({type(thing).__name__})")
    strides = None
    if str(thing.layout) == "torch.strided" and not thing.is_nested:
        strides = tuple(int(s) for s in thing.stride())
    else:
        notes.append("nested" if thing.is_nested else str(thing.layout).removeprefix("torch."))
    shape = None if thing.is_nested else tuple(int(n) for n in thing.shape)
    if thing.is_neg():
        notes.append("neg bit")
    if thing.is_complex() and thing.is_conj():
        notes.append("conj bit")
    if thing.requires_grad:
        notes.append("requires_grad")
    if thing.is_inference():
        notes.append("inference")
    return Facts("torch", name, short, shape, strides, str(thing.device), tuple(notes))
