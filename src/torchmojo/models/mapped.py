"""Maps the weights of a prepared model: tensors over the file's own pages."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchmojo.errors import ModelError

__all__ = ["map_file", "tensors_in"]


def map_file(path: Path) -> mmap.mmap:
    """Maps a file privately: nothing that is written reaches it, or another process.

    A page that nobody has written is the file's own: a program that edits the file in place changes
    it under the mapping. Replacing the file by a rename does not.

    Args:
        path: A file that is not empty.

    Raises:
        ModelError: It is missing or empty.
    """
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"Model: {path.parent}: {path.name} cannot be mapped ({error}); copy the folder again"
        ) from None


def tensors_in(
    mapping: mmap.mmap, entries: Mapping[str, Mapping[str, Any]], shown: str
) -> dict[str, Any]:
    """Returns tensors over a mapping, which stays mapped as long as one of them lives.

    Args:
        mapping: Of a file of weights.
        entries: By name: ``dtype``, ``offset``, ``nbytes``, ``sizes`` and ``strides`` in elements.
        shown: What messages call the file.

    Raises:
        ModelError: An entry reaches out of the file, or is not what its sizes say.
    """
    import torch

    memory = torch.frombuffer(mapping, dtype=torch.uint8)
    found = {}
    for name, entry in entries.items():
        dtype = getattr(torch, entry["dtype"])
        sizes, strides = entry["sizes"], entry["strides"]
        first, nbytes = entry["offset"], entry["nbytes"]
        reach = 0
        if 0 not in sizes:
            reach = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
        inside = 0 <= first <= first + nbytes <= len(mapping) and min([0, *sizes, *strides]) == 0
        if not inside or reach * dtype.itemsize > nbytes or first % 64:
            raise ModelError(
                f"Model: {shown}: weight {name}: wanted {reach * dtype.itemsize} bytes at a "
                f"multiple of 64 in a file of {len(mapping)}, given {nbytes} at {first}"
            )
        flat = memory[first : first + nbytes].view(dtype)
        found[name] = flat.as_strided(sizes, strides, flat.storage_offset())
    return found
