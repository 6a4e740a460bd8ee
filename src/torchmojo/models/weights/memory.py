"""Makes torch's storages over mapped bytes, or over a copy where those do not lie well."""

from __future__ import annotations

import sys
from typing import Any

from torchmojo.bridge.copy.ledger import CopyReason, announce, count, place_of_caller
from torchmojo.bridge.copy.policy import policy_for
from torchmojo.errors import CopyError, LayoutError
from torchmojo.models.text import brief, plain
from torchmojo.models.weights.mapping import FileMapping
from torchmojo.models.weights.record import Entry, Storage

__all__ = ["aligned", "storage_of", "view_of"]

_WHAT = "open_weights"


def aligned(storage: Storage, align: int) -> bool:
    """Returns whether a storage can be used where it lies.

    Args:
        storage: The storage.
        align: Bytes that its address must be a multiple of, besides those of an element.
    """
    part = storage.dtype.width // 2 if storage.dtype.parts else storage.dtype.width
    return not storage.nbytes or not (storage.start % align or storage.start % part)


def storage_of(mapping: FileMapping, storage: Storage, align: int) -> Any:
    """Returns torch's storage of exactly these bytes; it keeps the file mapped by itself.

    Args:
        mapping: The file.
        storage: What to make it of.
        align: As in ``aligned``.

    Raises:
        CopyError: It would be copied inside ``no_copies``.
        LayoutError: It would be copied, and the policy is to refuse.
    """
    import torch

    if not storage.nbytes:
        return torch.UntypedStorage(0, device="cpu")
    # The pages may be written, in private: torch warns of buffers that may not.
    here = torch.frombuffer(
        mapping.memory, dtype=torch.uint8, count=storage.nbytes, offset=storage.start
    )
    if not aligned(storage, align):
        _announce(mapping, storage, align)
        here = here.clone()
        place = place_of_caller()
        count(_WHAT, "path", CopyReason.ALIGNMENT, storage.nbytes, place)
    return here.untyped_storage()


def _announce(mapping: FileMapping, storage: Storage, align: int) -> None:
    rule = policy_for(None, "path")
    lies = storage.start & -storage.start
    text = (
        f"{_WHAT}: path: wanted tensors at multiples of {max(align, storage.dtype.width)} bytes, "
        f"given {brief(storage.key)} of {plain(mapping.path.name)} at one of {lies}"
    )
    if rule.forbidden:
        raise CopyError(f"{text}; write align={lies} if your kernels can do with that")
    if rule.policy == "error":
        raise LayoutError(f"{text}; write align={lies}, or allow copies")
    if rule.policy == "warn":
        text += f", which is copied, as others of it may be; write align={lies} to map it"
        announce(_WHAT, "path", CopyReason.ALIGNMENT, text, place_of_caller())


def view_of(entry: Entry, memory: Any) -> Any:
    """Returns a tensor over a storage, with the strides and offset of the file.

    Args:
        entry: The tensor.
        memory: torch's storage.
    """
    torch = sys.modules["torch"]
    # Whoever asks, a tensor of weights is one of the CPU, and one that may be trained.
    with torch.inference_mode(False):
        empty = torch.empty(0, dtype=getattr(torch, entry.dtype.name), device="cpu")
        return empty.set_(memory, entry.offset, entry.shape, entry.strides)
