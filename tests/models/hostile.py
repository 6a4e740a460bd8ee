"""Files that are made to mislead, from good ones: archives are taken apart and written anew."""

import io
import json
import struct
import zipfile
from pathlib import Path

import torch


class Canary:
    """Would open a file for writing when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def records_of(path) -> dict[str, bytes]:
    """Give the records of an archive, by name without the folder."""
    with zipfile.ZipFile(path) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def pack(path, records, root="archive", compress=(), align=64) -> Path:
    """Write an archive as torch does: stored, each record at a multiple of 64."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in records.items():
            info = zipfile.ZipInfo(f"{root}/{name}")
            if name in compress:
                info.compress_type = zipfile.ZIP_DEFLATED
            start = archive.fp.tell() + 30 + len(info.filename) + 4
            room = -start % align + align
            info.extra = struct.pack("<HH", 0x4246, room) + b"Z" * room
            archive.writestr(info, data)
    return Path(path)


def changed(path, target, **records) -> Path:
    """Copy an archive with other records in place of some; None leaves one out."""
    names = {"data": "data.pkl"}
    parts = records_of(path)
    for name, data in records.items():
        parts[names.get(name, name.replace("_", "/"))] = data
    return pack(target, {name: data for name, data in parts.items() if data is not None})


def header_at(data: bytes, name: str) -> int:
    """Find the local header of a record."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.getinfo(name).header_offset


def entry_at(data: bytes, name: str) -> int:
    """Find the directory entry of a record."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        at = archive.start_dir
    while True:
        assert data[at : at + 4] == b"PK\1\2"
        length, extra, comment = struct.unpack_from("<3H", data, at + 28)
        if data[at + 46 : at + 46 + length].decode() == name:
            return at
        at += 46 + length + extra + comment


def poke(path, target, at, form, *values) -> Path:
    """Copy a file with some bytes changed."""
    data = bytearray(Path(path).read_bytes())
    struct.pack_into(form, data, at, *values)
    Path(target).write_bytes(data)
    return Path(target)


def pickle_of(shape, strides, offset=0, count=4, key="0", storage="FloatStorage") -> bytes:
    """Write by hand what torch.save writes of one tensor, with any numbers in it."""

    def number(n):
        return b"\x8a" + bytes([n.bit_length() // 8 + 1]) + n.to_bytes(
            n.bit_length() // 8 + 1, "little", signed=True
        )  # fmt: skip

    def text(word):
        return b"X" + struct.pack("<I", len(word)) + word.encode()

    def numbers(values):
        return b"(" + b"".join(map(number, values)) + b"t"

    return (
        b"\x80\x02}" + text("w") + b"ctorch._utils\n_rebuild_tensor_v2\n(("
        + text("storage") + b"ctorch\n" + storage.encode() + b"\n" + text(key) + text("cpu")
        + number(count) + b"tQ" + number(offset) + numbers(shape) + numbers(strides)
        + b"\x89ccollections\nOrderedDict\n)RtRs."
    )  # fmt: skip


def archive_of(path, pickle, data=b"\0" * 16) -> Path:
    """Write an archive with one storage and any pickle."""
    parts = {"data.pkl": pickle, "byteorder": b"little", "data/0": data, "version": b"3\n"}
    return pack(path, parts)


def safetensors_of(path, header, data=b"") -> Path:
    """Write a safetensors file with any header: an object for JSON, or bytes."""
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(head)) + head + data)
    return Path(path)


def saved(path, thing=None, **options) -> Path:
    """Save something by torch: by default one tensor of four elements."""
    torch.save({"w": torch.arange(4.0)} if thing is None else thing, path, **options)
    return Path(path)
