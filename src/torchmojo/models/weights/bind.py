"""Puts weights under a module or a compiled model, without a copy."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from torchmojo.errors import ArgumentError, WeightsError
from torchmojo.models.text import brief, plain
from torchmojo.models.weights.match import Difference, Outline, differences, show, table

if TYPE_CHECKING:
    from torchmojo.models.weights.weights import Weights

__all__ = ["Agreed", "Bound", "bind"]

Agreed = Mapping[str, tuple[Outline, tuple[int, ...]]]  # dtype and shape, and strides
_EXTRA = "_extra_state"  # torch's name for what is neither parameter nor buffer
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


def bind(weights: Weights, model: Any, strict: bool, agreed: Agreed | None) -> Bound:
    """Binds weights to a model.

    Args:
        weights: The weights.
        model: A ``torch.nn.Module``, or something with ``load_constants``.
        strict: Whether missing and unexpected names are errors.
        agreed: What a compiled model was compiled for; None where nobody said it.

    Raises:
        ArgumentError: It is neither, or a compiled model of which nothing is known.
        WeightsError: Names, shapes or dtypes do not fit.
    """
    torch: Any = sys.modules.get("torch")
    script = torch is not None and isinstance(model, torch.jit.ScriptModule)
    if torch is not None and isinstance(model, torch.nn.Module) and not script:
        with torch.inference_mode(False):  # or parameters would be made that cannot be trained
            return _module(weights, model, strict)
    compiled = getattr(model, "loader", model)  # of what torch._inductor.aoti_load_package returns
    if hasattr(compiled, "load_constants") and hasattr(compiled, "get_constant_fqns"):
        return _compiled(weights, compiled, strict, agreed)
    raise ArgumentError(
        f"bind: model: wanted a torch.nn.Module or a model compiled by AOTInductor, given a "
        f"{'TorchScript module, whose memory is its own' if script else type(model).__qualname__}"
    )


def _compiled(weights: Weights, model: Any, strict: bool, agreed: Agreed | None) -> Bound:
    """Gives a compiled model the mapped memory.

    torch's loader tells the names of its constants and the device, and compares nothing: it reads
    as many bytes from each address as it was compiled for. What these are has to be said.
    """
    if agreed is None:
        raise ArgumentError(
            "bind: signature: wanted dtypes, shapes and strides of what the model was compiled "
            "for, as it tells and checks none, given None; write signature=module.state_dict() of "
            "the module that was compiled"
        )
    told = model.get_metadata() if hasattr(model, "get_metadata") else {}
    device = told.get("AOTI_DEVICE_KEY", "cpu")
    if device != "cpu":
        raise ArgumentError(f"bind: model: wanted a model compiled for the CPU, given one for "
                            f"{brief(device, 80)}, which cannot read this memory")  # fmt: skip
    constants = model.get_constant_fqns()
    wanted = {name: agreed[name][0] if name in agreed else None for name in constants}
    found = differences(wanted, weights.signature)
    for name in (name for name in wanted if name in weights):
        if name not in agreed:
            given = show(weights.signature[name])
            found.append(Difference(name, "–", given, "in the model, not in the signature"))
        elif wanted[name] == weights.signature[name]:
            found += _strides(weights, name, agreed[name][1])
    # A weight that the compiler folded into its code is no constant any more: only lacks count,
    # and these always do: the code would read from no address.
    bound = _decide(weights, model, [d for d in found if d.why != "unexpected"], True)
    tensors = {name: weights._view(name) for name in wanted}
    # (constants, into the inactive buffer, all must be there, in the memory of the caller)
    model.load_constants(tensors, False, True, True)
    # It keeps addresses, not tensors: these live as long as it does.
    held = weakref.finalize(model, tensors.clear)
    held.atexit = False
    return bound._replace(unexpected=[d.name for d in found if d.why == "unexpected"])


def _strides(weights: Weights, name: str, wanted: tuple[int, ...]) -> list[Difference]:
    """Compares strides, but those of axes along which nobody steps."""
    entry = weights._entries[name]
    steps = (n > 1 for n in entry.shape)
    pairs = zip(entry.strides, wanted, steps, strict=True)
    if 0 in entry.shape or not any(one != other for one, other, step in pairs if step):
        return []
    one, other = (f"strides({','.join(map(str, part))})" for part in (wanted, entry.strides))
    return [Difference(name, one, other, "wrong strides")]


def _module(weights: Weights, module: Any, strict: bool) -> Bound:
    torch = sys.modules["torch"]
    slots = _slots(module)
    groups = _ties(slots)
    lazy = torch.nn.parameter.is_lazy
    wanted = {n: None if lazy(s.tensor) else _outline(s.tensor) for n, s in slots.items()}
    extra = _extra_states(module)
    wanted |= dict.fromkeys(extra)
    source = _sources(weights, groups)
    given = weights.signature
    given |= {name: given[there] for name, there in source.items() if name not in given}
    found = differences(wanted, given)
    found += _untied(weights, groups)
    bound = _decide(weights, module, found, strict)
    values: dict[str, Any] = {name: weights._view(name) for name in extra if name in weights}
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
        done = module.load_state_dict(values, strict=False, assign=True)
        _check_taken(weights, module, done, values)
    _keep_objects(slots, values)
    return bound


def _check_taken(weights: Weights, module: Any, done: Any, values: Mapping[str, Any]) -> None:
    """Refuses to be silent where hooks of a module left out what was given to it."""
    lost = [name for name in getattr(done, "missing_keys", ()) if name in values]
    lost += getattr(done, "unexpected_keys", ())
    if lost:
        raise WeightsError(
            f"bind: {plain(weights.path.name)}: wanted hooks that take the names of "
            f"{type(module).__qualname__}, given some that left out "
            f"{brief(', '.join(map(str, lost)), 400)}; the rest was bound: call its "
            "load_state_dict(..., assign=True) with tensors of these weights instead"
        )


def _keep_objects(slots: Mapping[str, _Slot], values: Mapping[str, Any]) -> None:
    """Puts the memory under the parameters that there were: optimizers and others hold them.

    One on another device, of a class of its own, or made for inference, cannot take it.
    """
    torch = sys.modules["torch"]
    for name, slot in slots.items():
        old, new = slot.tensor, values.get(name)
        if (
            new is not None
            and slot.holder.get(slot.key) is new
            and _is_parameter(old)
            and _is_parameter(new)
            and old.device.type == "cpu"
            and old.layout is torch.strided
            and not old.is_inference()
        ):
            old.data = values[name].data
            torch.autograd.graph.increment_version(old)  # a graph of before must not be used
            slot.holder[slot.key] = old


def _is_parameter(tensor: Any) -> bool:
    return type(tensor) is sys.modules["torch"].nn.Parameter


def _extra_states(module: Any) -> list[str]:
    """Names what ``get_extra_state`` of parts adds to a state dictionary."""
    base = sys.modules["torch"].nn.Module.get_extra_state
    parts = module.named_modules(remove_duplicate=False)
    return [
        f"{prefix}.{_EXTRA}" if prefix else _EXTRA
        for prefix, part in parts
        if type(part).get_extra_state is not base
    ]


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
                _bits(weights._view(name)), _bits(weights._view(first))
            ):
                why = "tied in the model, another tensor in the file"
                found.append(Difference(name, f"as {first}", "another", why))
    return found


def _bits(tensor: Any) -> Any:
    """Returns the bytes of the elements: NaN is the same as itself, and all dtypes compare."""
    torch = sys.modules["torch"]
    flat = tensor.contiguous().reshape(-1)
    return flat.view(torch.uint8) if tensor.numel() else flat


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
            f"bind: {plain(weights.path.name)}: wanted the names, dtypes and shapes of a "
            f"{type(model).__qualname__}, given others:\n{table(faults)}\n"
            f"{_advice(weights, model, faults)}"
        )
    lists = ([d.name for d in found if d.why == why] for why in _USED)
    return Bound(*lists)


def _advice(weights: Weights, model: Any, faults: list[Difference]) -> str:
    words = {name.partition(".")[0] for name in weights}
    missing = [d.name for d in faults if d.why == "missing"]
    for word in sorted(words):
        if missing and all(f"{word}.{name}" in weights for name in missing):
            return f"the file has them below {brief(word)}: open it with key={brief(repr(word))}"
    if not hasattr(model, "named_modules"):
        return "check that it is the file of this model: it would read other bytes than it has"
    if missing and all(name.rpartition(".")[2] == _EXTRA for name in missing):
        return ("extra state is read where it is a tensor: with strict=False it is left as it is, "
                "and set_extra_state is yours to call")  # fmt: skip
    if missing and any(part._load_state_dict_pre_hooks for part in model.modules()):
        return ("names are compared before the model's hooks may change them: load_state_dict({n: "
                "w.tensor(n) for n in w}, assign=True) asks the hooks first")  # fmt: skip
    return "check that it is the file of this model; strict=False leaves out missing and unexpected"
