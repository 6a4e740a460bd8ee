"""Runs the ONNX graph of a small detector as a torch module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from torchmojo.errors import ModelError

__all__ = ["OnnxNet"]

_PLAIN = {"Relu": torch.relu, "Sigmoid": torch.sigmoid, "Add": torch.add}
_KNOWN = {"Conv", "ConvTranspose", "BatchNormalization", *_PLAIN}


class OnnxNet(nn.Module):  # type: ignore[misc, unused-ignore]
    """The graph of a file; its initialisers are the module's buffers, of memory of their own.

    It can be traced, exported and prepared as any module. Convolutions with equal padding on both
    sides, batch norms, ReLU, sigmoid and sums are known.

    Attributes:
        names: The buffer of each initialiser.
    """

    def __init__(self, path: Path) -> None:
        """Reads a file.

        Args:
            path: The file; the package ``onnx`` reads it.

        Raises:
            ImportError: ``onnx`` is not installed.
            ModelError: The graph has another operator.
        """
        super().__init__()
        try:
            import onnx
            from onnx import numpy_helper
        except ImportError as error:
            raise ImportError(
                f"{path.name}: reading ONNX needs onnx: pip install onnx ({error})"
            ) from None
        graph = onnx.load(path).graph
        self.names: dict[str, str] = {}
        for index, weight in enumerate(graph.initializer):
            value = torch.from_numpy(numpy_helper.to_array(weight).copy())
            self.register_buffer(f"w{index}", value)
            self.names[weight.name] = f"w{index}"
        self._input = next(i.name for i in graph.input if i.name not in self.names)
        self._results = [output.name for output in graph.output]
        self._nodes = [
            (
                node.op_type,
                list(node.input),
                node.output[0],
                {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute},
            )
            for node in graph.node
        ]
        if unknown := {node[0] for node in self._nodes} - _KNOWN:
            raise ModelError(
                f"OnnxNet: path: wanted operators {', '.join(sorted(_KNOWN))}, given "
                f"{', '.join(sorted(unknown))} in {path}"
            )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Gives the graph's outputs, in its order.

        Args:
            x: Its input.
        """
        values = {self._input: x}
        for kind, inputs, result, attributes in self._nodes:
            a = [values[n] if n in values else getattr(self, self.names[n]) for n in inputs]
            values[result] = _run(kind, a, attributes)
        return tuple(values[name] for name in self._results)


def _run(kind: str, a: list[torch.Tensor], attributes: dict[str, Any]) -> torch.Tensor:
    """Runs one node."""
    if kind in _PLAIN:
        return _PLAIN[kind](*a)
    if kind == "BatchNormalization":
        return F.batch_norm(a[0], a[3], a[4], a[1], a[2], eps=attributes["epsilon"])
    pads, strides = attributes.get("pads", [0, 0])[:2], attributes.get("strides", [1, 1])
    groups = attributes.get("group", 1)
    bias = a[2] if len(a) > 2 else None
    if kind == "Conv":
        return F.conv2d(a[0], a[1], bias, strides, pads, groups=groups)
    extra = attributes.get("output_padding", [0, 0])
    return F.conv_transpose2d(a[0], a[1], bias, strides, pads, extra, groups)
