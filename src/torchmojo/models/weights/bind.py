"""Puts weights under a module or a compiled model, without a copy."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from torchmojo.errors import ArgumentError, WeightsError
from torchmojo.models.weights.match import Difference, differences, table

if TYPE_CHECKING:
    from torchmojo.models.weights.weights import Weights

__all__ = ["Bound", "bind"]

_USED = ("missing", "unexpected")  # what strict=False lets pass


class Bound(NamedTuple):
    """What ``Weights.bind`` left out.

    Attributes:
        missing: Names of the model that the file has not.
        unexpected: Names of the file that the model has not.
    """

    missing: list[str]
    unexpected: list[str]


class _Slot(NamedTuple):
    """A place in a module that holds a parameter or buffer."""

    holder: dict[str, Any]
    key: str
    tensor: Any


def bind(weights: Weights, model: Any, strict: bool) -> Bound:
    """Binds weights to a model.

    Args:
        weights: The weights.
        model: A ``torch.nn.Module``, or something with ``load_constants``.
        strict: Whether missing and unexpected names are errors.

    Raises:
        ArgumentError: It is neither.
        WeightsError: Names, shapes or dtypes do not fit.
    """
    torch: Any = sys.modules.get("torch")
    script = torch is not None and isinstance(model, torch.jit.ScriptModule)
    if torch is not None and isinstance(model, torch.nn.Module) and not script:
        return _module(weights, model, strict)
    compiled = getattr(model, "loader", model)  # of what torch._inductor.aoti_load_package returns
    if hasattr(compiled, "load_constants") and hasattr(compiled, "get_constant_fqns"):
        return _compiled(weights, compiled, strict)
    raise ArgumentError(
        f"bind: model: wanted a torch.nn.Module or a model compiled by AOTInductor, given a "
        f"{'TorchScript module, whose memory is its own' if script else type(model).__qualname__}"
    )


def _compiled(weights: Weights, model: Any, strict: bool) -> Bound:
    wanted = dict.fromkeys(model.get_constant_fqns())
    found = differences(wanted, weights.signature)
    # A weight that the compiler folded into its code is no constant any more: only lacks count.
    bound = _decide(weights, model, [d for d in found if d.why == "missing"], strict)
    tensors = {name: weights.tensor(name) for name in wanted if name in weights}
    # (constants, into the inactive buffer, all must be there, in the memory of the caller)
    model.load_constants(tensors, False, strict, True)
    # It keeps addresses, not tensors: these live as long as it does.
    held = weakref.finalize(model, tensors.clear)
    held.atexit = False
    return bound._replace(unexpected=[d.name for d in found if d.why == "unexpected"])


def _module(weights: Weights, module: Any, strict: bool) -> Bound:
    torch = sys.modules["torch"]
    slots = _slots(module)
    groups = _ties(slots)
    lazy = torch.nn.parameter.is_lazy
    wanted = {n: None if lazy(s.tensor) else _outline(s.tensor) for n, s in slots.items()}
    source = _sources(weights, groups)
    given = weights.signature
    given |= {name: given[there] for name, there in source.items() if name not in given}
    found = differences(wanted, given)
    found += _untied(weights, groups)
    bound = _decide(weights, module, found, strict)
    values: dict[str, Any] = {}
    made: dict[int, Any] = {}
    for name, slot in slots.items():
        if name not in source:
            continue
        if id(slot.tensor) not in made:
            value = weights._view(source[name])
            if isinstance(slot.tensor, torch.nn.Parameter):
                value = torch.nn.Parameter(value, slot.tensor.requires_grad)
            made[id(slot.tensor)] = value
        values[name] = made[id(slot.tensor)]
    if _is_plain(module):
        for name, value in values.items():
            slots[name].holder[slots[name].key] = value
    else:
        module.load_state_dict(values, strict=False, assign=True)
    return bound


def _outline(tensor: Any) -> tuple[str, tuple[int, ...]]:
    return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)


def _slots(module: Any) -> dict[str, _Slot]:
    """Finds what ``state_dict`` names: parameters and buffers that persist."""
    slots = {}
    for prefix, part in module.named_modules(remove_duplicate=False):
        dot = f"{prefix}." if prefix else ""
        for holder in (part._parameters, part._buffers):
            for key, tensor in holder.items():
                if tensor is not None and key not in part._non_persistent_buffers_set:
                    slots[dot + key] = _Slot(holder, key, tensor)
    return slots


def _ties(slots: Mapping[str, _Slot]) -> list[list[str]]:
    """Groups the names of each tensor of a module."""
    groups: dict[int, list[str]] = {}
    for name, slot in slots.items():
        groups.setdefault(id(slot.tensor), []).append(name)
    return list(groups.values())


def _sources(weights: Weights, groups: list[list[str]]) -> dict[str, str]:
    """Tells which name of the file each name takes: a tied one may be stored once."""
    found: dict[str, str] = {}
    for group in groups:
        first = next((name for name in group if name in weights), None)
        if first is not None:
            found |= {name: name if name in weights else first for name in group}
    return found


def _untied(weights: Weights, groups: list[list[str]]) -> list[Difference]:
    """Finds names that are one tensor in the module and hold two contents in the file."""
    torch = sys.modules["torch"]
    found = []
    for group in (group for group in groups if len(group) > 1):
        first, *rest = [name for name in group if name in weights] or [""]
        for name in rest:
            if weights._entries[name].place == weights._entries[first].place:
                continue
            if weights.signature[name] != weights.signature[first] or not torch.equal(
                weights._view(name), weights._view(first)
            ):
                why = "tied in the model, another tensor in the file"
                found.append(Difference(name, f"as {first}", "another", why))
    return found


def _is_plain(module: Any) -> bool:
    """Returns whether no part of a module has a say in how it is loaded."""
    base = sys.modules["torch"].nn.Module
    for part in module.modules():
        kind = type(part)
        if (
            kind._load_from_state_dict is not base._load_from_state_dict
            or kind.load_state_dict is not base.load_state_dict
            or kind.get_extra_state is not base.get_extra_state
            or kind.__setattr__ is not base.__setattr__
            or part._load_state_dict_pre_hooks
            or part._load_state_dict_post_hooks
        ):
            return False
    return True


def _decide(weights: Weights, model: Any, found: list[Difference], strict: bool) -> Bound:
    """Raises for what does not fit, all of it in one table."""
    faults = [d for d in found if strict or d.why not in _USED]
    if faults:
        raise WeightsError(
            f"bind: {weights.path.name}: wanted the names, dtypes and shapes of a "
            f"{type(model).__qualname__}, given others:\n{table(faults)}\n{_advice(weights, found)}"
        )
    lists = ([d.name for d in found if d.why == why] for why in _USED)
    return Bound(*lists)


def _advice(weights: Weights, found: list[Difference]) -> str:
    words = {name.partition(".")[0] for name in weights}
    missing = [d.name for d in found if d.why == "missing"]
    for word in sorted(words):
        if missing and all(f"{word}.{name}" in weights for name in missing):
            return f"the file has them below {word}: open it with key={word!r}"
    return "check that it is the file of this model; strict=False leaves out missing and unexpected"
