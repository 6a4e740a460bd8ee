"""Reads what ``torch.save`` and ``torch.jit.save`` wrote: zip archives, and files of before 1.6."""

from __future__ import annotations

import io
import itertools
import tarfile
from collections.abc import Collection
from typing import Any

from torchmojo.dtypes import BY_NAME
from torchmojo.models.weights.archive import Archive
from torchmojo.models.weights.mapping import FileMapping, fail
from torchmojo.models.weights.pickles import Item, Script, globals_of, read_pickle
from torchmojo.models.weights.record import Entry, Storage, Typed, entry, of_name

__all__ = ["is_legacy", "is_zip", "read_legacy", "read_zip", "refuse"]

_MAGIC = 0x1950A86A20F9469CFC6C  # what torch.save wrote first until 1.5
_MAGIC_PICKLE = b"\x80\x02\x8a\x0a" + _MAGIC.to_bytes(10, "little") + b"."
_PROTOCOL = 1001
_PICKLE_LIMIT = 32 << 20  # a hundred thousand tensors; objects are a hundred times larger
_TEXT_LIMIT = 4096
_DEEPEST, _MOST = 64, 2_000_000
_LOOKED_AT = 16 << 20
_MOST_MEMBERS = 16
_TAR_MAGIC_AT = 257


def is_zip(mapping: FileMapping) -> bool:
    """Returns whether a file begins as a zip archive does."""
    return mapping.memory[:4] == b"PK\3\4"


def is_legacy(mapping: FileMapping) -> bool:
    """Returns whether a file begins as torch.save began one until 1.5."""
    return mapping.memory[: len(_MAGIC_PICKLE)] == _MAGIC_PICKLE


def read_zip(mapping: FileMapping, trusted: bool, every_crc: bool) -> tuple[dict[str, Entry], str]:
    """Reads a zip archive.

    Args:
        mapping: The file.
        trusted: Whether a TorchScript archive is taken.
        every_crc: Whether to compare the CRC-32 of the tensors too.

    Returns:
        The tensors, and the name of the format.

    Raises:
        WeightsError: It is damaged, holds something else, or is not trusted.
    """
    archive, path = Archive(mapping), mapping.path
    records = archive.records
    script = "constants.pkl" in records or any(name.startswith("code/") for name in records)
    if script and not trusted:
        raise fail(path, "wanted weights alone, given a TorchScript archive, which carries code; "
                         "write trusted=True if you know who made it")  # fmt: skip
    if "data.pkl" not in records:
        raise fail(path, "wanted an archive that torch.save wrote, given another one, without "
                         "data.pkl; a .pt2 or a package goes to torch.export.load")  # fmt: skip
    if "byteorder" in records:
        order = archive.bytes_of("byteorder", _TEXT_LIMIT)
        if order != b"little":
            raise fail(path, f"wanted little-endian tensors, given {order!r}; save it again on "
                             "such a machine")  # fmt: skip
    storages: dict[str, Storage] = {}

    def storage_of(identity: tuple[Any, ...]) -> Typed:
        dtype, key, _, count, *_ = identity
        nbytes = _bytes(path, dtype, key, count)
        name = f"data/{key}"
        record = records.get(name)
        if record is None:
            raise fail(path, f"wanted a record {name}, as data.pkl says, given none")
        if record.size != nbytes:
            raise fail(path, f"wanted {nbytes} bytes in {name}, as data.pkl says, given a record "
                             f"of {record.size}; the file is made to mislead")  # fmt: skip
        if key not in storages:
            archive.check_stored(name)
            storages[key] = Storage(key, record.start, nbytes, BY_NAME[dtype])
        return Typed(storages[key], BY_NAME[dtype])

    data = archive.bytes_of("data.pkl", _PICKLE_LIMIT)
    found = read_pickle(path, io.BytesIO(data), storage_of, script)
    if every_crc:
        for name in records:
            archive.check_crc(name)
    return flatten(path, found), "torchscript" if script else "torch"


def read_legacy(mapping: FileMapping) -> dict[str, Entry]:
    """Reads a file of before torch 1.6: pickles, then one storage after the other.

    Args:
        mapping: The file.

    Raises:
        WeightsError: It is damaged, or holds something else.
    """
    path, file = mapping.path, io.BytesIO(mapping.memory[:_PICKLE_LIMIT])

    def none(_: Any) -> Any:
        raise fail(path, "wanted numbers first, given a tensor")

    magic, protocol = (read_pickle(path, file, none) for _ in range(2))
    if (magic, protocol) != (_MAGIC, _PROTOCOL):
        raise fail(path, f"wanted a file of torch's protocol {_PROTOCOL}, given {protocol!r}")
    read_pickle(path, file, none)  # sizes of C types on the machine
    storages: dict[str, tuple[Storage, int]] = {}

    def storage_of(identity: tuple[Any, ...]) -> Typed:
        dtype, key, _, count, *view = identity
        if any(part is not None for part in view):
            raise fail(path, "wanted whole storages, given a part of one, as torch 0.3 wrote; load "
                             "it with torch and save it again")  # fmt: skip
        nbytes = _bytes(path, dtype, key, count)
        made, before = storages.setdefault(key, (Storage(key, -1, nbytes, BY_NAME[dtype]), count))
        if made.nbytes != nbytes or before != count:
            raise fail(path, f"wanted one size of storage {key}, given two")
        return Typed(made, BY_NAME[dtype])

    found = read_pickle(path, file, storage_of)
    keys = read_pickle(path, file, none)
    if type(keys) is not list or {type(key) for key in keys} - {str} or set(keys) != set(storages):
        raise fail(path, "wanted a list of the storages, given another; the file is damaged")
    at = file.tell()
    for key in keys:
        made, count = storages[key]
        told = int.from_bytes(mapping.memory[at : at + 8], "little")
        if made.start >= 0 or told != count or at + 8 + made.nbytes > mapping.size:
            raise fail(path, f"wanted storage {key} of {count} elements, given {told} in a file of "
                             f"{mapping.size} bytes; it is cut off or damaged")  # fmt: skip
        made.start = at + 8
        at += 8 + made.nbytes
    return flatten(path, found)


def _bytes(path: object, dtype: str, key: Any, count: Any) -> int:
    if type(key) is not str or type(count) is not int or not 0 <= count < 1 << 60:
        raise fail(path, "wanted a name and a number of elements for each storage, given others")
    return count * BY_NAME[dtype].width


def flatten(path: object, found: Any) -> dict[str, Entry]:
    """Gives each tensor of nested containers a name with dots, in their order.

    Args:
        path: The file, for messages.
        found: What a pickle held; one tensor alone is named ``tensor``.

    Raises:
        WeightsError: Two have one name, the nesting is deep, or a tensor is outside its storage.
    """
    if isinstance(found, Item):
        found = {"tensor": found}
    entries: dict[str, Entry] = {}
    seen, stack = 0, [("", iter(_children(found)), 1)]
    while stack:
        prefix, children, depth = stack[-1]
        for word, child in children:
            below = () if type(child) is Item else _children(child)
            if not below and type(child) is not Item:
                continue
            name = f"{prefix}{word}"
            seen += len(below)
            if depth == _DEEPEST or seen > _MOST or len(name) > _TEXT_LIMIT:
                raise fail(
                    path,
                    f"wanted names of at most {_TEXT_LIMIT} letters, {_DEEPEST} containers deep "
                    f"and {_MOST} items in all, given more at {name[:80]}",
                )
            if below:
                stack.append((f"{name}.", iter(below), depth + 1))
                break
            if name in entries:
                raise fail(path, f"wanted a name for each tensor, given {name} twice")
            entries[name] = _entry(path, name, child)
        else:
            stack.pop()
    return entries


def _children(thing: Any) -> Collection[tuple[Any, Any]]:
    if type(thing) is Script:
        thing = thing.state
    if type(thing) is dict:
        return thing.items()
    return list(enumerate(thing)) if type(thing) in (list, tuple) else ()


def _entry(path: object, name: str, item: Item) -> Entry:
    if item.lazy:
        raise fail(path, f"{name}: wanted numbers as they are stored, given a tensor with the "
                         f"{item.lazy}, which turns them when read; save its resolve_conj() or "
                         "resolve_neg()")  # fmt: skip
    typed = item.storage
    if not isinstance(typed, Typed):
        raise fail(path, f"{name}: wanted a tensor over a storage, given one over something else")
    dtype = of_name(path, item.dtype) if item.dtype else typed.dtype
    return entry(path, name, typed.storage, dtype, item.geometry)


def refuse(mapping: FileMapping) -> Exception:
    """Returns the error for a file of no format that is read, and names what it would import.

    Args:
        mapping: The file.
    """
    data = mapping.memory[:_LOOKED_AT]
    kind, pickles = "", [data]
    if data[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar":
        kind, pickles = "a tar archive, as torch wrote until 0.1", _members(data)
    elif data[:1] == b"\x80":
        kind = "a bare pickle"
    names = sorted({name for data in pickles for name in globals_of(data)}) if kind else []
    holds = f", which would import {' and '.join(names)}: nothing was imported" if names else ""
    return fail(mapping.path, f"wanted a file by torch.save or safetensors, given "
                              f"{kind or 'another one'}{holds}")  # fmt: skip


def _members(data: bytes) -> list[bytes]:
    """Cuts the pickles out of a tar archive, for a message; what is sparse is left out.

    Members are never read through ``tarfile``: it writes holes out, of any size that a header says.
    """
    found: list[bytes] = []
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for member in itertools.islice(tar, _MOST_MEMBERS):
                if member.isreg() and not member.issparse():
                    found.append(data[member.offset_data : member.offset_data + member.size])
    except Exception:  # IndexError of a header that is cut off, and what else: it is a message
        pass  # named as far as it goes
    return found
