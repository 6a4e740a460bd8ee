"""What a prepared model says of itself: inputs, outputs, and its operators in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchmojo.dtypes import BY_NAME
from torchmojo.errors import ModelError

__all__ = ["inputs_of", "operators_of", "outputs_of"]

_MOST = 2**62  # stands for no limit


def inputs_of(program: Any) -> list[dict[str, Any]]:
    """Returns name, dtype, sizes and order of axes of every input, in order.

    Args:
        program: An exported program.

    Raises:
        ModelError: An input is no dense tensor of a known dtype.
    """
    ranges = _ranges(program)
    found = []
    for name, meta in _metas(program, program.graph_signature.user_inputs):
        if meta is None:
            raise ModelError(
                f"prepare: {name}: wanted inputs that are all tensors, given a constant; put it "
                "into the module"
            )
        order = _order(meta)
        if order is None:
            raise ModelError(
                f"prepare: {name}: wanted an input without gaps in memory, given strides "
                f"{tuple(meta.stride())}; export the model with a contiguous one"
            )
        found.append(
            {
                "name": name,
                "dtype": _dtype(meta, name),
                "sizes": [_from_one(_size(size, ranges)) for size in meta.shape],
                "order": order,
                "strides": _numbers(meta.stride()),
            }
        )
    return found


def outputs_of(program: Any) -> list[dict[str, Any]]:
    """Returns name, dtype, sizes and strides of every output, in order; null where not fixed.

    Args:
        program: An exported program.

    Raises:
        ModelError: An output is no tensor.
    """
    ranges = _ranges(program)
    found = []
    for name, meta in _metas(program, program.graph_signature.user_outputs):
        if meta is None:
            raise ModelError(
                f"prepare: outputs: wanted tensors only, given {name!r}; return no constants"
            )
        found.append(
            {
                "name": name,
                "dtype": _dtype(meta, name),
                "sizes": [_size(size, ranges) for size in meta.shape],
                "strides": _numbers(meta.stride()),
            }
        )
    return found


def operators_of(program: Any) -> list[dict[str, Any]]:
    """Returns the operators of the exported graph in the order in which they run.

    Args:
        program: An exported program.
    """
    ranges = _ranges(program)
    weights = {
        **program.graph_signature.inputs_to_parameters,
        **program.graph_signature.inputs_to_buffers,
        **program.graph_signature.inputs_to_lifted_tensor_constants,
    }

    def tensors(value: Any, name: str) -> list[dict[str, Any]]:
        if isinstance(value, (list, tuple)):
            return [t for i, item in enumerate(value) for t in tensors(item, f"{name}.{i}")]
        if not hasattr(value, "stride"):
            return []
        sizes = [_size(size, ranges) for size in value.shape]
        return [{"name": name, "dtype": str(value.dtype).removeprefix("torch."), "sizes": sizes}]

    return [
        {
            "name": node.name,
            "target": str(node.target),
            "inputs": [
                tensor
                for source in node.all_input_nodes
                for tensor in tensors(source.meta.get("val"), weights.get(source.name, source.name))
            ],
            "outputs": tensors(node.meta.get("val"), node.name),
        }
        for node in program.graph.nodes
        if node.op == "call_function"
    ]


def _metas(program: Any, chosen: Any) -> Iterator[tuple[Any, Any]]:
    """Gives what an exported program knows of some of its values; None for what is no tensor."""
    metas = {node.name: node.meta.get("val") for node in program.graph.nodes}
    for name in chosen:
        meta = metas.get(name) if isinstance(name, str) else None
        yield name, meta if hasattr(meta, "stride") else None


def _ranges(program: Any) -> dict[str, tuple[int, int]]:
    """Returns least and most of every size that varies."""
    found = {}
    for symbol, span in program.range_constraints.items():
        endless = str(span.upper) in ("int_oo", "oo")
        found[str(symbol)] = (int(span.lower), _MOST if endless else min(int(span.upper), _MOST))
    return found


def _size(size: Any, ranges: dict[str, tuple[int, int]]) -> Any:
    """Returns a number, or a name with its range; a size that is computed has no range."""
    if isinstance(size, int):
        return size
    name = str(size)
    least, most = ranges.get(name, (0, _MOST))
    return {"name": name, "least": least, "most": most}


def _from_one(size: Any) -> Any:
    """Returns a size that is at least 1: torch compiles for none where it varies."""
    return size | {"least": max(size["least"], 1)} if isinstance(size, dict) else size


def _numbers(values: Any) -> list[int | None]:
    return [value if isinstance(value, int) else None for value in values]


def _order(meta: Any) -> list[int] | None:
    """Returns the axes from the widest stride to the narrowest; None where memory has gaps.

    Axes of size 1 keep their place: no program can tell what their stride is.
    """
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    axes = list(range(len(meta.shape)))
    strides = [value.node.hint if hasattr(value, "node") else value for value in meta.stride()]
    real = [axis for axis in axes if meta.shape[axis] != 1]
    real.sort(key=lambda axis: -strides[axis])
    places = iter(real)
    order = [axis if meta.shape[axis] == 1 else next(places) for axis in axes]
    step: Any = 1
    for axis in reversed(order):
        if meta.shape[axis] != 1 and not guard_or_false(meta.stride()[axis] == step):
            return None
        step = step * meta.shape[axis]
    return order


def _dtype(meta: Any, name: str) -> str:
    dtype = str(meta.dtype).removeprefix("torch.")
    if dtype not in BY_NAME:
        raise ModelError(f"prepare: {name}: wanted a dtype that Mojo has, given {dtype}")
    return dtype
