"""Maps the weights of a prepared model: tensors over the file's own pages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchmojo.errors import ModelError
from torchmojo.models.memory import extent
from torchmojo.models.prepared.manifest import open_file

__all__ = ["map_file", "tensors_in"]


def map_file(folder: Path, name: str, nbytes: int) -> Any:
    """Maps a file privately: nothing that is written reaches it, or another process.

    A page that nobody has written is the file's own: a program that edits the file in place changes
    it under the mapping. Replacing the file by a rename does not. No descriptor stays open: torch
    keeps the mapping for as long as the process lives.

    Args:
        folder: A prepared model.
        name: A file of it that is not empty.
        nbytes: Its length.

    Returns:
        A tensor ``[nbytes]`` of bytes, which the file stays mapped for.

    Raises:
        ModelError: It is missing, no regular file, of another length, or cannot be mapped.
    """
    import torch

    with open_file(folder, name, nbytes) as (descriptor, length):
        try:
            # By its descriptor: a name could lead to another file by now.
            storage = torch.UntypedStorage.from_file(f"/dev/fd/{descriptor}", False, length)
        except (RuntimeError, ValueError) as error:
            raise ModelError(
                f"Model: {folder}: {name} cannot be mapped ({error}); copy the folder again"
            ) from None
    return torch.empty(0, dtype=torch.uint8).set_(storage)


def tensors_in(memory: Any, entries: Mapping[str, Mapping[str, Any]], shown: str) -> dict[str, Any]:
    """Returns tensors over a mapping, which stays mapped as long as one of them lives.

    Args:
        memory: A file of weights, as `map_file` returns it.
        entries: By name: ``dtype``, ``offset``, ``nbytes``, ``sizes`` and ``strides`` in elements.
        shown: What messages call the file.

    Raises:
        ModelError: An entry reaches out of the file, or is not what its sizes say.
    """
    import torch

    found = {}
    for name, entry in entries.items():
        dtype = getattr(torch, entry["dtype"])
        sizes, strides = entry["sizes"], entry["strides"]
        first, nbytes = entry["offset"], entry["nbytes"]
        reach = extent(sizes, strides, dtype.itemsize)
        inside = 0 <= first <= first + nbytes <= len(memory) and min([0, *sizes, *strides]) == 0
        if not inside or reach > nbytes or first % 64:
            raise ModelError(
                f"Model: {shown}: weight {name}: wanted {reach} bytes at a multiple of 64 in a "
                f"file of {len(memory)}, given {nbytes} at {first}"
            )
        try:
            flat = memory[first : first + nbytes].view(dtype)
            found[name] = flat.as_strided(sizes, strides, flat.storage_offset())
        except RuntimeError as error:  # bytes that are no multiple, sizes that overflow
            raise ModelError(f"Model: {shown}: weight {name}: {error}") from None
    return found
