"""Reads the manifest of a prepared model, and refuses what this process could not run."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchmojo.errors import ArgumentError, ModelError
from torchmojo.models.prepared.form import FormError, check_form
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
    "open_file",
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
        ArgumentError: `sha256` is no digest.
        ModelError: A file is missing, the manifest is of another version or not whole, or the model
            was made for another system, CPU or torch.
    """
    if sha256 is not None and not _is_digest(sha256):
        raise ArgumentError(f"Model: sha256: wanted 64 hex digits, given {sha256!r}")
    data = read_file(folder, MANIFEST)
    if sha256 is not None:
        check_digest(folder, MANIFEST, data, sha256.lower())
    try:
        manifest: dict[str, Any] = json.loads(data)
        made_by, given = manifest["made_by"], manifest["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
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
        check_form(manifest)
        for name in (LIBRARY, WEIGHTS, FLAT, *([CALLS] if manifest["calls"] else [])):
            if name not in manifest["files"]:
                raise FormError(f"files: lacks {name}")
    except FormError as error:
        raise ModelError(f"Model: {folder}: {MANIFEST} is not whole ({error}); {_AGAIN}") from None
    _check_place(folder, manifest)
    return manifest


def _is_digest(sha256: Any) -> bool:
    return (
        isinstance(sha256, str)
        and len(sha256) == 64
        and all(digit in "0123456789abcdef" for digit in sha256.lower())
    )


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


@contextlib.contextmanager
def open_file(folder: Path, name: str, nbytes: int | None = None) -> Iterator[tuple[int, int]]:
    """Opens a file of a prepared model; gives its descriptor and length for the ``with``.

    Nothing but a regular file is opened: a pipe would wait for a writer, a device may never end.

    Args:
        folder: The model.
        name: The file.
        nbytes: The length that it must have; None for any.

    Raises:
        ModelError: It is missing, cannot be read, is no file or has another length.
    """
    descriptor = None
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        descriptor = os.open(folder / name, flags)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ModelError(f"Model: {folder}: {name} is no regular file; {_AGAIN}")
        if nbytes is not None and found.st_size != nbytes:
            raise ModelError(
                f"Model: {folder}: wanted {name} of {nbytes} bytes, given {found.st_size}; it was "
                f"changed or cut off: {_AGAIN}"
            )
        yield descriptor, found.st_size
    except (OSError, ValueError) as error:
        why = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
        raise ModelError(f"Model: {folder}: {name} {why}; {_AGAIN}") from None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def read_file(folder: Path, name: str, nbytes: int | None = None) -> bytes:
    """Reads a file of a prepared model.

    Args:
        folder: The model.
        name: The file.
        nbytes: The length that it must have; None for any.

    Raises:
        ModelError: See `open_file`.
    """
    with open_file(folder, name, nbytes) as (descriptor, length):
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(length)
    if len(data) != length:  # cut off meanwhile
        raise ModelError(f"Model: {folder}: {name} was cut off while it was read; {_AGAIN}")
    return data


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
