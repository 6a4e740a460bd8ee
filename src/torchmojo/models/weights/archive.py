"""Finds the records of a zip archive, and refuses one that two readers could read differently.

``zipfile`` reads the directory. What it and torch do not compare is compared here: the directory
with the headers in front of the records, and the records with each other and the file.
"""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from typing import Any, NamedTuple

from torchmojo.models.weights.mapping import FileMapping, fail

__all__ = ["Archive", "Record"]

_LOCAL = struct.Struct("<4s5H3I2H")  # PKWARE APPNOTE 4.3.7
_END = struct.Struct("<4s4H2IH")  # 4.3.16
_END64 = struct.Struct("<4sQ2H2I4Q")  # 4.3.14
_LOCATOR = 20  # bytes between the two, 4.3.15
_PAIR = struct.Struct("<HHQQ")  # 4.5.3, the first two fields
# Two words or more, none of them . or .., without what means something to a file system.
_PLAIN = re.compile(r"(?:(?!\.\.?(?:/|\Z))[^/\\:\0]+(?:/(?!\Z)|\Z)){2,}")
_FLAGS = 0x0808  # sizes follow the record; names are UTF-8
_HAS_DESCRIPTOR, _NONE, _ZIP64 = 0x0008, 0xFFFFFFFF, 0xFFFF


class Record(NamedTuple):
    """Where one record lies.

    Attributes:
        start: Position of its first byte in the file.
        size: Its bytes.
        crc: CRC-32 that the directory gives; 0 where torch was told to compute none.
        stored: Whether the bytes lie as they are, not compressed.
    """

    start: int
    size: int
    crc: int
    stored: bool


class Archive:
    """The records of a zip archive whose structure was checked.

    Attributes:
        records: By name, without the folder that all names begin with.
    """

    def __init__(self, mapping: FileMapping) -> None:
        """Reads the directory and compares it with the file."""
        self._mapping = mapping
        try:
            file: Any = mapping.memory  # has what zipfile calls
            with zipfile.ZipFile(file) as read:
                infos, directory, comment = read.infolist(), read.start_dir, read.comment
        except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error) as error:
            raise self._refuse("a whole zip archive", f"one that is damaged ({error})") from None
        self._check_end(infos, directory, comment)
        self.records: dict[str, Record] = {}
        last, before = 0, ""
        root = infos[0].filename.partition("/")[0] + "/" if infos else ""
        for info in sorted(infos, key=lambda info: info.header_offset):
            name = self._check_name(info, root)
            if info.header_offset < last:
                raise self._refuse("records that follow each other", f"{before} over {name}")
            if not last and info.header_offset:
                raise self._refuse("an archive from the first byte on", "one with bytes before it")
            record = self._check_header(info, name)
            last, before = record.start + info.compress_size, name
            if last > directory:
                raise self._refuse("records before the directory", f"{name}, which reaches into it")
            if name in self.records:
                raise self._refuse("a record of each name", f"{name} twice")
            self.records[name] = record

    def _refuse(self, wanted: str, given: str) -> Exception:
        return fail(self._mapping.path, f"wanted {wanted}, given {given}; get the file again")

    def _check_end(self, infos: list[zipfile.ZipInfo], directory: int, comment: bytes) -> None:
        """Compares both ends of the archive, the 32-bit and the 64-bit one, with what was read."""
        memory, end = self._mapping.memory, self._mapping.size - _END.size
        sign, disk, first, here, total, length, start, extra = _END.unpack_from(memory, end)
        if sign != b"PK\5\6" or comment or extra:
            raise self._refuse("an archive to the last byte", "one with a comment or more after it")
        told = [{disk, first} - {_ZIP64}, {here, total} - {_ZIP64}]
        places = [{length} - {_NONE}, {start} - {_NONE}]
        if memory[end - _LOCATOR : end - _LOCATOR + 4] == b"PK\6\7":
            end -= _LOCATOR + _END64.size
            sign, _, _, _, *disks, here, total, length, start = _END64.unpack_from(memory, end)
            told[0] |= set(disks)
            told[1] |= {here, total}
            places[0].add(length)
            places[1].add(start)
        if told[0] - {0}:
            raise self._refuse("an archive in one file", "a part of several")
        wanted = ({len(infos)}, {end - directory}, {directory})
        if (told[1], *places) != wanted:
            raise self._refuse("one directory", "ends of the archive that tell of others")

    def _check_name(self, info: zipfile.ZipInfo, root: str) -> str:
        name = info.orig_filename
        plain = _PLAIN.fullmatch(name) and name == info.filename
        if not plain or not name.startswith(root):
            raise self._refuse("plain names in one folder", f"a record named {name!r}")
        return name[len(root) :]

    def _check_header(self, info: zipfile.ZipInfo, name: str) -> Record:
        """Compares a record's own header with the directory, and returns where the record is."""
        what = f"{name}, whose header and directory entry differ"
        at, memory = info.header_offset, self._mapping.memory
        if at + _LOCAL.size > self._mapping.size:
            raise self._refuse("whole records", f"{name} beyond the end")
        sign, _, flags, method, _, _, crc, packed, size, length, extra = _LOCAL.unpack_from(
            memory, at
        )
        if (sign, flags, method) != (b"PK\3\4", info.flag_bits, info.compress_type):
            raise self._refuse("one account of each record", what)
        if flags & ~_FLAGS:
            raise self._refuse("plain records", f"{name}, which is encrypted or patched")
        start = at + _LOCAL.size + length
        spelled = info.orig_filename.encode("utf-8" if flags & 0x0800 else "cp437")
        if memory[at + _LOCAL.size : start] != spelled:
            raise self._refuse("one account of each record", what)
        if packed == size == _NONE:
            packed, size = self._wide(memory[start : start + extra], what)
        told = (crc, packed, size)
        later = flags & _HAS_DESCRIPTOR and told == (0, 0, 0)
        if not later and told != (info.CRC, info.compress_size, info.file_size):
            raise self._refuse("one account of each record", what)
        stored = method == zipfile.ZIP_STORED
        if stored and info.file_size != info.compress_size:
            raise self._refuse("a size for each record", f"{name}, stored, with two sizes")
        return Record(start + extra, info.file_size, info.CRC, stored)

    def _wide(self, extra: bytes, what: str) -> tuple[int, int]:
        """Reads the 64-bit sizes of a header, packed first, as the directory tells them."""
        at = 0
        while at + 4 <= len(extra):
            kind, length = struct.unpack_from("<HH", extra, at)
            if kind == 1 and length >= 16 and at + _PAIR.size <= len(extra):
                _, _, size, packed = _PAIR.unpack_from(extra, at)
                return packed, size
            at += 4 + length
        raise self._refuse("one account of each record", what)

    def bytes_of(self, name: str, limit: int) -> bytes:
        """Copies a small record out, after checking its CRC.

        Args:
            name: The record.
            limit: Most bytes that it may have.

        Raises:
            WeightsError: It is absent, compressed, too large or damaged.
        """
        record = self.records.get(name)
        if record is None:
            raise self._refuse(f"a record {name}", "none; torch.save wrote no such archive")
        self.check_stored(name)
        if record.size > limit:
            raise self._refuse(f"at most {limit} bytes in {name}", f"{record.size}")
        self.check_crc(name)
        return self._mapping.memory[record.start : record.start + record.size]

    def check_stored(self, name: str) -> None:
        """Refuses a record that is compressed: it cannot be mapped.

        Args:
            name: The record.

        Raises:
            WeightsError: It is compressed.
        """
        if not self.records[name].stored:
            raise fail(
                self._mapping.path,
                f"wanted records that are stored, given {name} compressed; save it with torch.save",
            )

    def check_crc(self, name: str) -> None:
        """Compares the CRC-32 of a record with the directory's.

        Args:
            name: The record.

        Raises:
            WeightsError: They differ. A 0 is what torch writes when told to compute none.
        """
        record = self.records[name]
        with memoryview(self._mapping.memory) as view:
            found = zlib.crc32(view[record.start : record.start + record.size])
        if record.crc and found != record.crc:
            raise self._refuse(f"{name} with CRC-32 {record.crc:08x}", f"{found:08x}")
