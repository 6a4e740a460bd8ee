"""What a built folder says of itself, and the checks before its code is run."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torchmojo.contract import FORMAT
from torchmojo.errors import LibraryError
from torchmojo.toolchain.export.target import missing

__all__ = ["MANIFEST", "Manifest", "check", "digest", "own_names", "platform", "read"]

MANIFEST = "manifest.json"
_TOOL = "torchmojo build"
_RUN = (".so", "contract.json")  # code, and what it is called with


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a built folder says of itself.

    Attributes:
        name: File or package that the kernels come from.
        sources: Names of all files that went in, without their folders.
        platform: System and kind of CPU, such as ``linux x86_64``.
        target_cpu: CPU that the library was compiled for.
        cpu_features: Extensions that its code may use, by LLVM's names.
        libc: C library that it was linked with; an older one may lack what it needs.
        torchmojo: Version that built it.
        mojo: Version of the compiler.
        options: How it was compiled.
        files: sha256 of every other file in the folder.
    """

    name: str
    sources: tuple[str, ...]
    platform: str
    target_cpu: str
    cpu_features: tuple[str, ...]
    libc: str
    torchmojo: str
    mojo: str
    options: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Writes the manifest of a folder.

        Args:
            folder: Where to.
        """
        data = {"made_by": _TOOL, "format": FORMAT, **asdict(self)}
        (folder / MANIFEST).write_text(json.dumps(data, indent=1) + "\n", "utf-8")


def read(folder: Path) -> Manifest | None:
    """Reads the manifest of a folder.

    Args:
        folder: Any folder.

    Returns:
        None where there is none.

    Raises:
        LibraryError: It cannot be read, or another version of torchmojo wrote it.
    """
    try:
        data = json.loads((folder / MANIFEST).read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        raise LibraryError(f"load: {folder}: {MANIFEST} is no JSON; build it again") from None
    if not isinstance(data, dict) or data.pop("made_by", "") != _TOOL:
        return None
    if (given := data.pop("format", None)) != FORMAT:
        raise LibraryError(
            f"load: {folder}: wanted a library of format {FORMAT}, given {given}, made by "
            f"torchmojo {data.get('torchmojo')}; build it again with `torchmojo build`"
        )
    try:
        for name in ("sources", "cpu_features"):
            data[name] = tuple(data[name])
        return Manifest(**data)
    except (KeyError, TypeError) as error:
        raise LibraryError(
            f"load: {folder}: {MANIFEST} is not whole ({error}); build it again"
        ) from None


def own_names(folder: Path) -> set[str]:
    """Returns the names of the files in a folder that belong to a build, of any version.

    Args:
        folder: Any folder.

    Returns:
        None of the names where the folder holds no manifest that can be read.
    """
    try:
        data = json.loads((folder / MANIFEST).read_text("utf-8"))
        if data["made_by"] == _TOOL:
            return {MANIFEST, "__pycache__", *map(str, data["files"])}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return set()


def check(folder: Path) -> None:
    """Refuses a built folder whose code would not run here, or is not what was built.

    The hashes are there to notice a file that was cut off or mixed up, not an attacker: who can
    write the library can write the manifest beside it.

    Args:
        folder: Any folder; one without a manifest, such as an entry of the cache, passes.

    Raises:
        LibraryError: The text says what was wanted and what to do.
    """
    manifest = read(folder)
    if manifest is None:
        return
    if manifest.platform != platform():
        raise LibraryError(
            f"load: {folder}: wanted a library for {platform()}, given one for "
            f"{manifest.platform}; build it on such a machine"
        )
    if lacking := missing(manifest.cpu_features):
        raise LibraryError(
            f"load: {folder}: wanted a library for this CPU, given one for {manifest.target_cpu}, "
            f"which needs {', '.join(lacking)}; build it with {_advice()}"
        )
    for name, wanted in manifest.files.items():
        if not name.endswith(_RUN):
            continue
        try:
            given = digest(folder / name)
        except FileNotFoundError:
            raise LibraryError(
                f"load: {folder}: {name} is missing; build or copy the folder again"
            ) from None
        if given != wanted:
            raise LibraryError(
                f"load: {folder}: wanted {name} with sha256 {wanted[:16]}, given {given[:16]}; "
                "it was changed or cut off: build or copy the folder again"
            )


def _advice() -> str:
    if os.uname().machine == "x86_64":
        return "--target-cpu x86-64-v3, or x86-64 for every 64-bit x86 CPU"
    return "--target-cpu generic"


def digest(path: Path) -> str:
    """Returns the sha256 of a file.

    Args:
        path: The file.
    """
    return hashlib.sha256(path.read_bytes()).hexdigest()


def platform() -> str:
    """Returns system and kind of CPU, as a manifest names them."""
    return f"{sys.platform} {os.uname().machine}"
