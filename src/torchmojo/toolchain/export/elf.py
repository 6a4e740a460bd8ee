"""Reads and mends the dynamic section of an ELF library: what it needs, and where it looks."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

__all__ = ["Dynamic", "read_dynamic", "set_runpath"]

# 64-bit little-endian records of the System V ABI; x86-64 and aarch64 Linux have no others.
_HEADER = struct.Struct("<16s2HI3QI6H")
_SEGMENT = struct.Struct("<2I6Q")
_ENTRY = struct.Struct("<2Q")
_IDENT = b"\x7fELF\x02\x01"
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 15, 29


class Dynamic(NamedTuple):
    """What the dynamic section of a library says.

    Attributes:
        needed: Names of the libraries that are loaded with it.
        runpath: Folders in which they are looked for first, ``:`` between them; may be empty.
    """

    needed: tuple[str, ...]
    runpath: str


def read_dynamic(path: Path) -> Dynamic:
    """Reads the dynamic section of a library.

    Args:
        path: A shared library.

    Raises:
        ValueError: It is no 64-bit little-endian ELF library.
    """
    data = path.read_bytes()
    needed, runpath = [], ""
    for tag, offset in _strings(data, path):
        if tag == _DT_NEEDED:
            needed.append(_text(data, offset))
        else:
            runpath = _text(data, offset)
    return Dynamic(tuple(needed), runpath)


def set_runpath(path: Path, runpath: str) -> None:
    """Replaces the folders in which a library looks for others, in its file.

    Args:
        path: A shared library that has such an entry.
        runpath: The new entry, at most as long as the old one.

    Raises:
        ValueError: It is no such library, or the old entry is shorter.
    """
    data = bytearray(path.read_bytes())
    new = runpath.encode()
    found = [offset for tag, offset in _strings(bytes(data), path) if tag != _DT_NEEDED]
    for offset in found:
        length = len(_text(bytes(data), offset).encode())
        if len(new) > length:
            raise ValueError(f"{path}: no room for the run path {runpath!r}")
        data[offset : offset + length] = new.ljust(length, b"\0")
    if not found:
        raise ValueError(f"{path}: it has no run path")
    path.write_bytes(data)


def _strings(data: bytes, path: Path) -> list[tuple[int, int]]:
    """Returns tag and file offset of the strings that the dynamic section names."""
    try:
        ident, *_, offset, _, _, _, size, count, _, _, _ = _HEADER.unpack_from(data)
        if not ident.startswith(_IDENT) or size != _SEGMENT.size:
            raise ValueError(f"{path}: not a 64-bit ELF library")
        segments = [_SEGMENT.unpack_from(data, offset + i * size) for i in range(count)]
        entries = []
        for kind, _, start, _, _, length, _, _ in segments:
            if kind == _PT_DYNAMIC:
                entries = list(_ENTRY.iter_unpack(data[start : start + length]))
        if (_DT_NULL, 0) in entries:
            entries = entries[: entries.index((_DT_NULL, 0))]
        table = next(value for tag, value in entries if tag == _DT_STRTAB)
        # The section names addresses in memory; the segment around one tells where it is on disk.
        base = next(
            table - address + start
            for kind, _, start, address, _, length, _, _ in segments
            if kind == _PT_LOAD and address <= table < address + length
        )
    except (struct.error, StopIteration):
        raise ValueError(f"{path}: not a whole 64-bit ELF library") from None
    wanted = (_DT_NEEDED, _DT_RPATH, _DT_RUNPATH)
    return [(tag, base + value) for tag, value in entries if tag in wanted]


def _text(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode()
