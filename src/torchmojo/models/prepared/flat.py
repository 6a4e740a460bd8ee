"""Writes ``model.flat``: what a program without a JSON parser needs to run a prepared model.

One fact a line, words separated by one space; the path of libtorch is the rest of its line. The
last line is ``end`` and the number of lines before it, so that a file that was cut off shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchmojo.dtypes import BY_NAME

__all__ = ["FLAT_FORMAT", "flat_text", "tensor_lines"]

FLAT_FORMAT = 1


def flat_text(
    manifest: Mapping[str, Any],
    lengths: Mapping[str, int],
    libtorch: Path,
) -> str:
    """Returns the text of the index.

    Args:
        manifest: The manifest that is written beside it.
        lengths: Bytes of the library and the file of weights.
        libtorch: Where this process has libtorch; a program that finds no other tries it there.

    Returns:
        Lines: ``torchmojo-model``, ``torch``, ``libtorch``, ``threads``, ``file``, ``cpu``,
        ``calls``, ``constant NAME DTYPE OFFSET NBYTES RANK SIZES STRIDES``,
        ``input NAME DTYPE RANK SIZES ORDER`` and ``output NAME DTYPE RANK``, with dtypes as torch's
        numbers. A size that varies is ``NAME:LEAST:MOST``.
    """
    lines = [
        f"torchmojo-model {FLAT_FORMAT}",
        f"torch {manifest['versions']['torch']}",
        f"libtorch {libtorch}",
        f"threads {manifest['threads']}",
        *(f"file {name} {nbytes}" for name, nbytes in lengths.items()),
        *(f"cpu {feature}" for feature in manifest["cpu"]["features"]),
    ]
    if manifest["calls"]:
        lines.append("calls " + " ".join(manifest["calls"]))
    lines += tensor_lines(manifest)
    return "\n".join([*lines, f"end {len(lines)}", ""])


def tensor_lines(manifest: Mapping[str, Any]) -> list[str]:
    """Returns the lines of weights, inputs and outputs: all that memory is read by.

    Args:
        manifest: The manifest; only its weights, inputs and outputs are read.
    """
    lines = [_constant(entry) for entry in manifest["weights"].values()]
    for spec in manifest["inputs"]:
        words = [_word(size) for size in spec["sizes"]] + [str(axis) for axis in spec["order"]]
        lines.append(_line("input", spec, words))
    return lines + [_line("output", spec, []) for spec in manifest["outputs"]]


def _line(kind: str, spec: Mapping[str, Any], words: Sequence[str]) -> str:
    number = BY_NAME[spec["dtype"]].code
    return " ".join([kind, spec["name"], str(number), str(len(spec["sizes"])), *words])


def _constant(entry: Mapping[str, Any]) -> str:
    sizes, strides = entry["sizes"], entry["strides"]
    numbers = (BY_NAME[entry["dtype"]].code, entry["offset"], entry["nbytes"], len(sizes))
    return " ".join(["constant", entry["constant"], *map(str, (*numbers, *sizes, *strides))])


def _word(size: Any) -> str:
    return str(size) if isinstance(size, int) else f"{size['name']}:{size['least']}:{size['most']}"
