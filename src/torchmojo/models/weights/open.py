"""Opens a file of weights: digest first, then its structure, then what it must hold."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Literal

from torchmojo.bridge.copy.ledger import CopyReason, count, place_of_caller
from torchmojo.bridge.copy.policy import policy_for
from torchmojo.errors import ArgumentError, CopyError
from torchmojo.models.text import brief
from torchmojo.models.weights import checkpoint, safetensors
from torchmojo.models.weights.mapping import FileMapping, fail
from torchmojo.models.weights.match import agreement, differences, table
from torchmojo.models.weights.record import Entry
from torchmojo.models.weights.weights import PAGE, Weights

__all__ = ["open_weights"]

_ALIGN = 64
_NAME_LIMIT = 4096  # letters


def open_weights(
    path: str | os.PathLike[str],
    *,
    sha256: str | None = None,
    signature: Mapping[str, Any] | None = None,
    key: str | None = None,
    trusted: bool = False,
    copy: bool = False,
    align: int = _ALIGN,
    verify: Literal["structure", "crc"] = "structure",
    progress: bool | None = None,
) -> Weights:
    """Opens a file of weights: checks it, maps it, and runs nothing of it.

    ``.pt`` and ``.pth`` files by ``torch.save`` of any version since 0.4, ``.safetensors`` files,
    and TorchScript archives, told apart by their content. The file is opened once; what is hashed
    and checked are the bytes that are used. Pickles are read by one that knows tensors and plain
    containers: it imports nothing, and there is no other way behind it.

    Args:
        path: The file. As long as it is mapped it must not change: a file that is cut off ends the
            process that reads behind its end (SIGBUS). ``bind`` and each look-up notice a change.
        sha256: The digest of the whole file, in hex; another one is refused.
        signature: The dtype and shape that each name must have, no more and no fewer names: from
            ``Weights.signature``, a ``state_dict()``, or a mapping to ``(dtype, shape)``.
        key: Takes only the tensors below this name, without it: ``"state_dict"`` of a file that
            holds one among other things. Nested names are joined by dots.
        trusted: Whether to take TorchScript archives, which carry code. None of it is run or
            compiled here, parameters alone are read; but a file that you would not run is not one
            whose numbers to use.
        copy: Whether to copy the file into memory first, for files that others may change.
        align: Bytes that the address of each storage is a multiple of; one that is not is copied,
            once, and counted. torch's files lie at 64, safetensors files at 8 only.
        verify: ``"crc"`` also compares the checksums of tensors in zip archives, which reads all.
        progress: Whether to show a bar while hashing; None for large files on a terminal.

    Returns:
        A mapping of names to handles.

    Raises:
        WeightsError: The file is damaged, hostile, of another kind, or not what it must be.
        FileNotFoundError: There is none.
        ArgumentError: An argument means nothing.
        CopyError: ``copy=True`` inside ``no_copies``.

    Example:
        >>> import torch, torchmojo
        >>> torch.save({"w": torch.arange(6.0).reshape(2, 3)}, "six.pt")
        >>> weights = torchmojo.open_weights("six.pt")
        >>> weights.tensor("w")[1].tolist()
        [3.0, 4.0, 5.0]
        >>> weights.close()
    """
    hexed = isinstance(sha256, str) and re.fullmatch(r"[0-9a-fA-F]{64}", sha256)
    if sha256 is not None and not hexed:
        raise _argument("sha256", "64 hex digits", sha256)
    if align not in [1 << n for n in range(13)]:
        raise _argument("align", f"a power of two up to {PAGE}", align)
    if verify not in ("structure", "crc"):
        raise _argument("verify", "'structure' or 'crc'", verify)
    if key is not None and not isinstance(key, str):
        raise _argument("key", "a name", key)
    agreed = agreement("open_weights", signature) if signature is not None else None
    if copy and policy_for(None, "path").forbidden:
        raise CopyError("open_weights: copy: wanted no copy, given copy=True inside no_copies")
    mapping = FileMapping(path, copy)
    try:
        digest = None
        if sha256 is not None:
            digest = mapping.sha256(progress)
            if digest != sha256.lower():
                raise fail(path, f"wanted sha256 {sha256.lower()}, given {digest}; it is another "
                                 "file or was changed: get it again")  # fmt: skip
        entries, form, metadata = _read(mapping, trusted, verify == "crc")
        for name in entries:
            if len(name) > _NAME_LIMIT:
                raise fail(path, f"wanted names of at most {_NAME_LIMIT} letters, given {name!r}")
            if not name.isprintable():
                raise fail(path, f"wanted names that can be printed, given {name!a}")
        if key is not None:
            entries = _below(path, entries, key)
        weights = Weights(mapping, entries, form, align, digest, metadata, agreed)
        if agreed is not None:
            wanted = {name: outline for name, (outline, _) in agreed.items()}
            found = differences(wanted, weights.signature)
            if found:
                text = "wanted the tensors of the signature, given others:"
                raise fail(path, f"{text}\n{table(found)}\nit is another file than agreed")
    except BaseException:
        mapping.close()
        raise
    if copy:
        count("open_weights", "path", CopyReason.ASKED, mapping.size, place_of_caller())
    return weights


def _argument(name: str, wanted: str, given: Any) -> ArgumentError:
    return ArgumentError(f"open_weights: {name}: wanted {wanted}, given {brief(repr(given), 200)}")


def _read(
    mapping: FileMapping, trusted: bool, every_crc: bool
) -> tuple[dict[str, Entry], str, dict[str, str]]:
    """Reads a file by the format that its first bytes tell; its name says nothing."""
    if checkpoint.is_zip(mapping):
        return *checkpoint.read_zip(mapping, trusted, every_crc), {}
    if checkpoint.is_legacy(mapping):
        return checkpoint.read_legacy(mapping), "torch legacy", {}
    if safetensors.looks_like(mapping):
        entries, metadata = safetensors.read(mapping)
        return entries, "safetensors", metadata
    raise checkpoint.refuse(mapping)


def _below(path: object, entries: dict[str, Entry], key: str) -> dict[str, Entry]:
    """Takes the tensors below a name."""
    dot = f"{key}."
    found = {n.removeprefix(dot): e for n, e in entries.items() if n.startswith(dot)}
    if not found:
        words = ", ".join(sorted({name.partition(".")[0] for name in entries})[:10])
        raise fail(path, f"key: wanted one of {words or 'none'}, given {key!r}")
    return found
