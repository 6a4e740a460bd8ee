"""Reads the header of a safetensors file, over the bytes that are mapped.

The ``safetensors`` package opens a path by itself: between a digest and its open the file could be
another one. The header is JSON; the rules are those of the format's own page.

Source: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import reprlib
from typing import Any

from torchmojo.dtypes import BY_NAME
from torchmojo.models.weights.mapping import FileMapping, fail
from torchmojo.models.weights.record import Entry, Storage, entry

__all__ = ["looks_like", "read"]

_LIMIT = 100_000_000  # bytes of a header: the format's own limit
_METADATA = "__metadata__"
_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32",
    "I32": "int32", "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16",
    "F32": "float32", "F64": "float64", "C64": "complex64", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
}  # fmt: skip


def looks_like(mapping: FileMapping) -> bool:
    """Returns whether a file begins as the format says: a length, then a JSON object.

    Args:
        mapping: The file.
    """
    return mapping.size > 8 and mapping.memory[8:9] == b"{"


def read(mapping: FileMapping) -> tuple[dict[str, Entry], dict[str, str]]:
    """Reads names, dtypes, shapes and places, and the metadata.

    Args:
        mapping: The file.

    Returns:
        Tensors in the order of the header, and the text that was stored beside them.

    Raises:
        WeightsError: The header breaks a rule of the format.
    """
    path = mapping.path
    length = int.from_bytes(mapping.memory[:8], "little")
    begin = 8 + length
    if length > _LIMIT or begin > mapping.size:
        raise fail(
            path,
            f"wanted a header of at most {min(_LIMIT, mapping.size - 8)} bytes, given one of "
            f"{length}; the file is cut off",
        )
    try:
        header = json.loads(mapping.memory[8:begin].decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise fail(path, f"wanted a JSON header, given one that is none ({error})") from None
    metadata = header.pop(_METADATA, {})
    if type(metadata) is not dict or not all(type(v) is str for v in metadata.values()):
        raise fail(path, f"wanted texts in {_METADATA}, given others")
    entries, ends = {}, []
    for name, said in header.items():
        found = _entry(path, name, said, begin)
        ends.append((found.storage.start, found.storage.start + found.storage.nbytes, name))
        entries[name] = found
    last = begin
    for start, end, name in sorted(ends):
        if start != last:
            how = "overlaps another" if start < last else "leaves a hole before it"
            raise fail(path, f"{name}: wanted tensors that follow each other, given one that {how}")
        last = end
    if last != mapping.size:
        raise fail(
            path, f"wanted {last} bytes, as the header says, given {mapping.size}; get it again"
        )
    return entries, metadata


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name twice")
    return made


def _entry(path: object, name: str, said: Any, begin: int) -> Entry:
    if type(said) is not dict or set(said) != {"dtype", "shape", "data_offsets"}:
        raise fail(path, f"{name}: wanted dtype, shape and data_offsets, given others")
    if said["dtype"] not in tuple(_DTYPES):
        raise fail(
            path, f"{name}: wanted one of {', '.join(_DTYPES)}, given {reprlib.repr(said['dtype'])}"
        )
    dtype, shape, offsets = BY_NAME[_DTYPES[said["dtype"]]], said["shape"], said["data_offsets"]
    numbers = type(shape) is list and type(offsets) is list and len(offsets) == 2
    if not numbers or not all(type(n) is int and 0 <= n < 1 << 63 for n in (*shape, *offsets)):
        raise fail(path, f"{name}: wanted numbers of at least 0 as shape and offsets, given others")
    strides, count = [], 1
    for n in reversed(shape):
        strides.append(count)
        count *= n if n else 1
    start, end = offsets
    needed = 0 if 0 in shape else count * dtype.width
    if end - start != needed:
        raise fail(
            path, f"{name}: wanted {needed} bytes for its dtype and shape, given {end - start}"
        )
    storage = Storage(name, begin + start, needed, dtype)
    return entry(path, name, storage, dtype, (tuple(shape), tuple(reversed(strides)), 0))
