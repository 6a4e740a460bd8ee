"""Writes weights as a safetensors file in which every tensor starts on a multiple of 64 bytes.

The format itself aligns to 8 bytes. The header is padded with spaces, as it allows, and the space
between tensors is a tensor of its own, ``__pad_N``: a reader who knows nothing of it sees a few
tiny tensors more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchmojo.errors import ModelError

__all__ = ["ALIGNMENT", "Stored", "write_weights"]

ALIGNMENT = 64
_NAMES = {
    **{"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "bool": "BOOL"},
    **{"int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8"},
    **{"uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8"},
    **{"float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "complex64": "C64"},
}


@dataclass(frozen=True, slots=True)
class Stored:
    """Where a weight lies in the file.

    Attributes:
        tensor: Name of the stored tensor; tied weights share one.
        dtype: Its dtype.
        offset: First byte, from the file's start.
        nbytes: Bytes.
        sizes: Sizes of the weight, which a strided one does not share with the stored tensor.
        strides: Its strides in elements.
    """

    tensor: str
    dtype: str
    offset: int
    nbytes: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


def write_weights(path: Path, weights: Mapping[str, Any]) -> dict[str, Stored]:
    """Writes tensors into a new safetensors file.

    Args:
        path: The file.
        weights: Tensors by name. Those that are the same memory in the same shape are stored once.
            One with strides of its own is stored as the piece of memory that it spans.

    Returns:
        Where each of them lies.

    Raises:
        ModelError: A dtype that the format has no name for, or a weight that is not on the CPU.
    """
    pieces, ties = _pieces(weights)
    header: dict[str, Any] = {}
    position = 0
    data: list[bytes | memoryview] = []
    for name, piece in pieces.items():
        raw = _bytes(piece)
        end = position + len(raw)
        header[name] = {
            "dtype": _NAMES[_dtype(piece)],
            "shape": list(piece.shape),
            "data_offsets": [position, end],
        }
        data.append(raw)
        position = end
        if gap := -end % ALIGNMENT:
            header[f"__pad_{len(data)}"] = {
                "dtype": "U8",
                "shape": [gap],
                "data_offsets": [end, end + gap],
            }
            data.append(bytes(gap))
            position += gap
    about = {"alignment": str(ALIGNMENT), "padding": "tensors named __pad_N hold no data"}
    text = json.dumps({"__metadata__": about, **header}, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.writelines(data)
    start = 8 + len(text)
    return {
        name: Stored(
            ties[name],
            _dtype(weight),
            start + header[ties[name]]["data_offsets"][0],
            _nbytes(header[ties[name]]),
            tuple(weight.shape),
            tuple(weight.stride()),
        )
        for name, weight in weights.items()
    }


def _pieces(weights: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns what is stored by name, and for each weight the name of what holds it."""
    import torch

    pieces: dict[str, Any] = {}
    ties: dict[str, str] = {}
    seen: dict[Any, str] = {}
    for name, weight in weights.items():
        if not weight.is_cpu or weight.layout != torch.strided or _dtype(weight) not in _NAMES:
            raise ModelError(
                f"prepare: weight {name}: wanted a dense tensor on the CPU of a dtype that "
                f"safetensors has, given {_dtype(weight)} on {weight.device}"
            )
        key = (weight.data_ptr(), weight.dtype, tuple(weight.shape), weight.stride())
        ties[name] = seen.setdefault(key, name) if weight.numel() else name
        if ties[name] != name:
            continue
        if weight.is_contiguous():
            pieces[name] = weight
        else:
            span = 1 + sum((n - 1) * s for n, s in zip(weight.shape, weight.stride(), strict=True))
            pieces[name] = weight.as_strided((span,), (1,))
    return pieces, ties


def _bytes(tensor: Any) -> memoryview:
    import torch

    flat = tensor.detach().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else memoryview(b"")


def _nbytes(entry: dict[str, Any]) -> int:
    begin, end = entry["data_offsets"]
    return int(end - begin)


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")
