"""Reads the manifest of a prepared model, and refuses what this process could not run."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from torchmojo.errors import ModelError
from torchmojo.toolchain.export.manifest import platform
from torchmojo.toolchain.export.target import cpu_flags

__all__ = [
    "CALLS",
    "FLAT",
    "FORMAT",
    "LIBRARY",
    "MADE_BY",
    "MANIFEST",
    "WEIGHTS",
    "check_digest",
    "read_file",
    "read_manifest",
]

MADE_BY = "torchmojo prepare"
FORMAT = 1
MANIFEST = "manifest.json"
LIBRARY = "model.so"
WEIGHTS = "weights.safetensors"
FLAT = "model.flat"
CALLS = "model.json"
_AGAIN = "prepare the model again, or copy the folder again"


def read_manifest(folder: Path, sha256: str | None = None) -> dict[str, Any]:
    """Reads a manifest and checks that its model can run in this process.

    Args:
        folder: A prepared model.
        sha256: Digest that the manifest must have, which pins all files; None for any.

    Raises:
        ModelError: A file is missing, the manifest is of another version, or the model was made
            for another system, CPU or torch.
    """
    data = read_file(folder, MANIFEST)
    if sha256 is not None:
        check_digest(folder, MANIFEST, data, sha256)
    try:
        manifest: dict[str, Any] = json.loads(data)
        made_by, given = manifest["made_by"], manifest["format"]
    except (ValueError, KeyError, TypeError):
        made_by = given = None
    if made_by != MADE_BY:
        raise ModelError(
            f"Model: {folder}: wanted a folder that torchmojo.prepare wrote, given another "
            f"{MANIFEST}"
        )
    if given != FORMAT:
        raise ModelError(
            f"Model: {folder}: wanted a model of format {FORMAT}, given {given}; prepare it again"
        )
    try:
        _check_place(folder, manifest)
        for name in (LIBRARY, WEIGHTS, FLAT):
            manifest["files"][name]["sha256"]
    except (KeyError, TypeError) as error:
        raise ModelError(
            f"Model: {folder}: {MANIFEST} is not whole ({error!r}); {_AGAIN}"
        ) from None
    return manifest


def _check_place(folder: Path, manifest: dict[str, Any]) -> None:
    """Refuses a model that was made for another place."""
    import torch

    if manifest["platform"] != platform():
        raise ModelError(
            f"Model: {folder}: wanted a model for {platform()}, given one for "
            f"{manifest['platform']}; prepare it on such a machine"
        )
    have = cpu_flags()
    lacking = sorted(set(manifest["cpu"]["features"]) - have) if have else []
    if lacking:
        raise ModelError(
            f"Model: {folder}: wanted a model for this CPU, given one that needs "
            f"{', '.join(lacking)}; prepare it on this machine"
        )
    made, runs = manifest["versions"]["torch"], torch.__version__
    if made.split(".")[:2] != runs.split(".")[:2]:
        raise ModelError(
            f"Model: {folder}: wanted a model prepared by torch {'.'.join(runs.split('.')[:2])}, "
            f"given one by {made}; prepare it again with this torch"
        )


def read_file(folder: Path, name: str) -> bytes:
    """Reads a file of a prepared model.

    Args:
        folder: The model.
        name: The file.

    Raises:
        ModelError: It is missing.
    """
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        why = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
        raise ModelError(f"Model: {folder}: {name} {why}; {_AGAIN}") from None


def check_digest(folder: Path, name: str, data: Any, wanted: str) -> None:
    """Compares bytes with a digest.

    Args:
        folder: The model, for the message.
        name: The file that the bytes come from.
        data: The very bytes that will be used.
        wanted: Their sha256.

    Raises:
        ModelError: They have another.
    """
    given = hashlib.sha256(data).hexdigest()
    if given != wanted:
        raise ModelError(
            f"Model: {folder}: wanted {name} with sha256 {wanted[:16]}, given {given[:16]}; it was "
            f"changed or cut off: {_AGAIN}"
        )
