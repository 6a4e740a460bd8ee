"""Runs the TensorFlow Lite graph of a small detector as a torch module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from torchmojo.errors import ModelError

__all__ = ["TfliteNet"]

_KNOWN = (
    *("ADD", "CONCATENATION", "CONV_2D", "DEPTHWISE_CONV_2D", "MAX_POOL_2D", "PAD", "RELU"),
    "RESHAPE",
)
_DTYPES = {0: torch.float32, 1: torch.float16, 2: torch.int32}
_SAME = 0  # of tflite.Padding
Node = tuple[str, list[int], int, dict[str, Any]]


class TfliteNet(nn.Module):  # type: ignore[misc, unused-ignore]
    """The graph of a file; its constants are the module's buffers, in float32.

    Values have the channels last, as the format has them; convolutions see the same memory with the
    channels first.

    Attributes:
        outputs: Names of the outputs, in the order of ``forward``.
    """

    def __init__(self, path: Path) -> None:
        """Reads a file.

        Args:
            path: The file; the packages ``tflite`` and ``flatbuffers`` read it.

        Raises:
            ImportError: They are not installed.
            ModelError: The graph has an operator or a type that is not known here.
        """
        super().__init__()
        try:
            import tflite
        except ImportError as error:
            raise ImportError(
                f"{path.name}: reading TensorFlow Lite needs two packages: "
                f"pip install --no-deps tflite==2.18.0 flatbuffers ({error})"
            ) from None
        model = tflite.Model.GetRootAsModel(path.read_bytes(), 0)
        graph = model.Subgraphs(0)
        kinds = {code: name for name, code in vars(tflite.BuiltinOperator).items()}
        self._constants: dict[int, Any] = {}
        for index in range(graph.TensorsLength()):
            self._keep(index, graph.Tensors(index), model)
        self._nodes: list[Node] = []
        for index in range(graph.OperatorsLength()):
            node = graph.Operators(index)
            code = model.OperatorCodes(node.OpcodeIndex())
            kind = kinds[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())]
            inputs, result = node.InputsAsNumpy().tolist(), int(node.Outputs(0))
            if kind == "DEQUANTIZE" and inputs[0] in self._constants:
                self._constants[result] = self._constants[inputs[0]]
            elif kind in _KNOWN:
                settings = self._settings(kind, node, inputs)
                if kind == "RESHAPE":  # the first axis is the pictures, which may be more
                    settings["shape"] = graph.Tensors(result).ShapeAsNumpy().tolist()[1:]
                self._nodes.append((kind, inputs, result, settings))
            else:
                raise ModelError(
                    f"TfliteNet: path: wanted operators {', '.join(_KNOWN)}, given {kind} in {path}"
                )
        self._input = int(graph.Inputs(0))
        self._results = graph.OutputsAsNumpy().tolist()
        self.outputs = [graph.Tensors(place).Name().decode() for place in self._results]

    def _keep(self, index: int, tensor: Any, model: Any) -> None:
        """Keeps a constant: numbers as a buffer, sizes as whole numbers of Python."""
        data = model.Buffers(tensor.Buffer()).DataAsNumpy()
        if not hasattr(data, "tobytes"):
            return  # computed by the graph
        if tensor.Type() not in _DTYPES:
            raise ModelError(
                "TfliteNet: path: wanted tensors of float32, float16 or int32, given the type "
                f"{tensor.Type()} of tflite.TensorType"
            )
        value = torch.frombuffer(bytearray(data.tobytes()), dtype=_DTYPES[tensor.Type()])
        value = value.reshape(tensor.ShapeAsNumpy().tolist())
        if value.dtype == torch.int32:
            self._constants[index] = value.tolist()
        else:
            self.register_buffer(f"w{index}", value.float())
            self._constants[index] = f"w{index}"

    def _settings(self, kind: str, node: Any, inputs: list[int]) -> dict[str, Any]:
        """Reads what a node does besides its inputs."""
        import tflite

        if kind == "PAD":
            # torch names the last axis first.
            pairs = reversed(self._constants[inputs[1]])
            return {"pad": [side for pair in pairs for side in pair]}
        table = node.BuiltinOptions()
        name = {
            "ADD": "AddOptions",
            "CONCATENATION": "ConcatenationOptions",
            "CONV_2D": "Conv2DOptions",
            "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
            "MAX_POOL_2D": "Pool2DOptions",
        }.get(kind)
        if name is None or table is None:
            return {}
        options = getattr(tflite, name)()
        options.Init(table.Bytes, table.Pos)
        made: dict[str, Any] = {"relu": options.FusedActivationFunction() == 1}
        if kind == "CONCATENATION":
            made["axis"] = options.Axis()
        elif kind != "ADD":
            made["strides"] = (options.StrideH(), options.StrideW())
            made["same"] = options.Padding() == _SAME
        if kind == "MAX_POOL_2D":
            made["size"] = (options.FilterHeight(), options.FilterWidth())
        return made

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Gives the graph's outputs.

        Args:
            x: Its input ``[n, h, w, c]``; n may be another number than the file says.
        """
        values = {self._input: x}
        for kind, inputs, result, settings in self._nodes:
            a = [values[i] if i in values else self._constant(i) for i in inputs]
            y = _run(kind, a, settings)
            values[result] = y.relu() if settings.get("relu") else y
        return tuple(values[place] for place in self._results)

    def _constant(self, index: int) -> Any:
        value = self._constants[index]
        return getattr(self, value) if isinstance(value, str) else value


def _run(kind: str, a: list[Any], settings: dict[str, Any]) -> torch.Tensor:
    """Runs one node."""
    if kind == "ADD":
        return a[0] + a[1]
    if kind == "RELU":
        return a[0].relu()
    if kind == "PAD":
        return F.pad(a[0], settings["pad"])
    if kind == "RESHAPE":
        return a[0].reshape(len(a[0]), *settings["shape"])
    if kind == "CONCATENATION":
        return torch.cat(a, settings["axis"])
    x, strides = a[0].permute(0, 3, 1, 2), settings["strides"]
    if kind == "MAX_POOL_2D":
        x = _padded(x, settings["size"], settings, float("-inf"))
        return F.max_pool2d(x, settings["size"], strides).permute(0, 2, 3, 1)
    deep = kind == "DEPTHWISE_CONV_2D"
    weight = a[1].permute(3, 0, 1, 2) if deep else a[1].permute(0, 3, 1, 2)
    x = _padded(x, weight.shape[2:], settings, 0.0)
    groups = x.shape[1] if deep else 1
    return F.conv2d(x, weight, a[2], strides, groups=groups).permute(0, 2, 3, 1)


def _padded(x: torch.Tensor, size: Any, settings: dict[str, Any], value: float) -> torch.Tensor:
    """Pads as TensorFlow's SAME does: by one more at the end where the sum is odd."""
    if not settings["same"]:
        return x
    pads: list[int] = []
    for axis in (1, 0):
        side, step = x.shape[2 + axis], settings["strides"][axis]
        total = max((-(-side // step) - 1) * step + size[axis] - side, 0)
        pads += [total // 2, total - total // 2]
    return F.pad(x, pads, value=value) if any(pads) else x
