"""Files that are damaged or made to mislead: each is refused, and the text names what is wrong."""

import os
import pickle
import struct
import tarfile
import tracemalloc
from pathlib import Path

import pytest
import torch

from torchmojo import WeightsError, open_weights

from . import hostile

# --- pickles ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["zip", "legacy", "raw", "raw 2", "tar"])
def test_a_global_is_named_and_not_called(tmp_path, refused, kind):
    """pytorch GHSA-53q9-r3pm-6pq6: also in the formats that torch read in other ways."""
    path, mark = tmp_path / "m.pt", tmp_path / "owned"
    if kind == "tar":
        member = tmp_path / "pickle"
        member.write_bytes(pickle.dumps(hostile.Canary(mark), protocol=2))
        with tarfile.open(path, "w") as tar:
            tar.add(member, "pickle")
    elif kind.startswith("raw"):
        protocol = 2 if kind == "raw 2" else None
        path.write_bytes(pickle.dumps({"w": hostile.Canary(mark)}, protocol=protocol))
    else:
        new = kind == "zip"
        torch.save({"w": hostile.Canary(mark)}, path, _use_new_zipfile_serialization=new)
    refused(path, "io.open", "imported")
    refused(path, "imported", trusted=True)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x80\x02cos\nsystem\n(X\x01\0\0\0ltR.", "the global os.system"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "SHORT_BINUNICODE"),
        (b"\x80\x02(X\x02\0\0\0lsios\nsystem\n.", "the opcode INST"),
        (b"\x80\x02\x82\x01.", "the opcode EXT1"),
        (b"\x80\x02\x8e" + b"\xff" * 8 + b".", "the opcode BINBYTES8"),
        (b"\x80\x02\xff.", "byte 0xff"),
        (
            b"\x80\x02}\x8b\0\0\0\0Ns.",
            "a number of more than 255 bytes (the opcode LONG4); save the",
        ),
        (
            b"\x80\x02}\x8a\t" + b"\0" * 8 + b"\1Ns.",
            "a number of 65 bits as a key; save the state_dict",
        ),
        (b"\x80\x02", "cut off"),
        (b"\x80\x02X\xff\xff\xff\x7fabc", "cut off"),
        (b"\x80\x02h\x05.", "bytes that are none"),
        (b"\x80\x02}}h.", "bytes that are none"),
        (b"\x80\x02}]Ns.", "a list as a key"),
        (b"\x80\x02})Ns.", "a tuple as a key"),
        (b"\x80\x02]NNs.", "no dictionary"),
        (b"\x80\x02ccollections\nOrderedDict\n))\x81.", "an object of a class"),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}b.", "attributes of something"),
        (b"\x80\x02ctorch\nFloatStorage\n)R.", "no function"),
        (b"\x80\x02X\x01\0\0\0a)R.", "no function"),
        (b"\x80\x02c__torch__.nn\nNet\n)\x81}b.", "the global __torch__.nn.Net"),
        (b"\x80\x02NQ.", "no storage"),
        (b"\x80\x02ctorch._utils\n_rebuild_qtensor\n.", "_rebuild_qtensor"),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(NK\0))Nt.", None),
        (b"\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(NK\0))tRs.", "w: wanted a"),
    ],
)
def test_a_pickle_that_holds_something_else(tmp_path, refused, data, words):
    path = hostile.archive_of(tmp_path / "m.pt", data)
    if words is None:  # plain values alone: nothing to take
        assert len(open_weights(path)) == 0
        return
    refused(path, words)


def test_what_a_pickle_asks_for_is_not_allocated(tmp_path, refused):
    """A memo of four thousand million entries: the reader in C makes room for all of it."""
    path = hostile.archive_of(tmp_path / "m.pt", b"\x80\x02}r\xff\xff\xff\xff.")
    refused(path, "given item 4294967295 of its memo after 0; save the state_dict() alone")
    refused(hostile.archive_of(tmp_path / "n.pt", b"\x80\x02}r\0\0\0\0q\2."), "item 2 of its memo")
    refused(hostile.archive_of(tmp_path / "o.pt", b"\x80\x02}q\0h\1."), "none")
    assert len(open_weights(hostile.archive_of(tmp_path / "p.pt", b"\x80\x02}q\0r\1\0\0\0."))) == 0


def test_one_list_is_not_made_into_many(tmp_path):
    """Four bytes for each further copy of a thousand items: as many as the file likes."""
    build = b"ccollections\nOrderedDict\nq\0]q\1(" + b"K\1K\2\x86" * 1000 + b"e"
    size = b"ctorch\nSize\nq\2"
    encode = b"c_codecs\nencode\nq\3X" + struct.pack("<I", 1000) + b"a" * 1000 + b"q\4"
    many = b"h\0h\1\x85Rh\2h\1\x85Rh\3h\4\x85R" * 3000
    path = hostile.archive_of(tmp_path / "m.pt", b"\x80\x02" + build + size + encode + many + b".")
    tracemalloc.start()
    try:
        open_weights(path).close()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 << 20


@pytest.mark.parametrize(
    "name", ["\x1b[2J", "a\nb", "a\0", "\x9b1m", "\ud800", "a\u202eb", "\u2066", "a\u200bb"]
)
def test_a_name_that_a_terminal_obeys(tmp_path, refused, name):
    refused(hostile.saved(tmp_path / "m.pt", {name: torch.zeros(1)}), "names that can be printed")
    header = {name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    path = hostile.safetensors_of(tmp_path / "m.safetensors", header, b"\0" * 4)
    refused(path, "names that can be printed")
    bad = b"\x80\x02c\x1b[2J\nsystem\n."
    with pytest.raises(WeightsError) as caught:
        open_weights(hostile.archive_of(tmp_path / "n.pt", bad))
    assert r"the global \x1b[2J.system" in str(caught.value)


DEEP = """
    import struct, sys
    sys.path.insert(0, "TESTS")
    import hostile, torchmojo
    name = b"X\\x01\\0\\0\\0a"
    deep = {
        "tuple": b"\\x80\\x02)" + b"\\x85" * 300_000 + b".",
        "key": b"\\x80\\x02})" + b"\\x85" * 300_000 + b"Ns.",
        "list": b"\\x80\\x02" + b"]" * 300_000 + b"a" * 299_999 + b".",
        "dict": b"\\x80\\x02" + (b"}" + name) * 200_000 + b"N" + b"s" * 200_000 + b".",
        "itself": b"\\x80\\x02]q\\0h\\0a.",
        "laughs": b"\\x80\\x02]q\\0(" + name * 9 + b"e" + b"".join(
            b"]q" + bytes([i + 1]) + b"(" + b"h" + bytes([i]) + (b"h" + bytes([i])) * 99 + b"e"
            for i in range(9)
        ) + b".",
    }
    for kind, data in deep.items():
        path = hostile.archive_of(kind + ".pt", data)
        try:
            print(kind, len(torchmojo.open_weights(path)))
        except torchmojo.WeightsError as error:
            print(kind, "refused:", str(error).partition(": ")[2][:200])
"""


def test_deep_nesting_ends_no_process(child):
    done = child(DEEP.replace("TESTS", str(Path(__file__).parent)))
    assert done.returncode == 0, done.stderr
    for kind in ("tuple", "key", "list", "dict", "itself", "laughs"):
        assert f"{kind} refused: " in done.stdout, done.stdout
    assert "a tuple as a key" in done.stdout and "64 containers deep" in done.stdout


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "count", "words"),
    [
        ((5,), (1,), 0, 4, "w: wanted a tensor inside its storage of 16 bytes, given f32[5]"),
        ((2, 2), (3, 1), 0, 4, "strides(3,1)"),
        ((4,), (1,), 1, 4, "offset 1"),
        ((0,), (1,), 1 << 62, 4, "sizes that memory can hold"),
        ((-1,), (1,), 0, 4, "at least 0"),
        ((2,), (-1,), 1, 4, "at least 0"),
        ((2,), (1,), -1, 4, "at least 0"),
        ((2, 2), (1,), 0, 4, "at least 0"),
        ((1 << 62,), (1,), 0, 4, "inside its storage"),
        ((1 << 62, 1 << 62), (0, 0), 0, 4, "sizes that memory can hold"),
        ((1 << 40,), (0,), 0, 4, "sizes that memory can hold"),
        ((1 << 700,), (0,), 0, 4, "more than 2**64"),
        ((0, 1 << 63), (1, 1), 0, 4, "sizes that memory can hold"),
        ((1,) * 65, (1,) * 65, 0, 4, "at most 64 axes"),
        (
            (100,),
            (1,),
            0,
            100,
            "wanted 400 bytes in data/0, as data.pkl says, given a record of 16",
        ),
        ((2,), (1,), 0, 2, "wanted 8 bytes in data/0"),
        ((2,), (1,), 0, -2, "a number of elements"),
        ((2,), (1,), 0, 1 << 61, "a number of elements"),
    ],
)
def test_a_tensor_that_reaches_outside(tmp_path, refused, shape, strides, offset, count, words):
    """torch 2.13 with mmap=True gives the bytes of the neighbours for the 400-byte one."""
    pickled = hostile.pickle_of(shape, strides, offset, count)
    refused(hostile.archive_of(tmp_path / "m.pt", pickled), words)


def test_the_writer_of_these_pickles_writes_what_torch_reads(tmp_path):
    path = hostile.archive_of(tmp_path / "m.pt", hostile.pickle_of((2, 2), (2, 1)))
    assert torch.load(path, weights_only=True)["w"].tolist() == [[0, 0], [0, 0]]
    with open_weights(path) as weights:
        assert weights.signature == {"w": ("float32", (2, 2))}


@pytest.mark.parametrize(("storage", "key"), [("QInt8Storage", "0"), ("Tensor", "0")])
def test_another_storage(tmp_path, refused, storage, key):
    pickled = hostile.pickle_of((4,), (1,), key=key, storage=storage)
    refused(hostile.archive_of(tmp_path / "m.pt", pickled), f"the global torch.{storage}")


def test_a_storage_that_is_not_there(tmp_path, refused):
    pickled = hostile.pickle_of((4,), (1,), key="../x")
    refused(hostile.archive_of(tmp_path / "m.pt", pickled), "data/../x", "none")


# --- archives -----------------------------------------------------------------------------------


def test_every_cut_is_refused(tmp_path, refused):
    data = hostile.saved(tmp_path / "m.pt").read_bytes()
    for length in range(0, len(data), 7):
        (tmp_path / "cut.pt").write_bytes(data[:length])
        refused(tmp_path / "cut.pt")


def test_bytes_changed_one_by_one_give_a_refusal_or_the_same_tensor(tmp_path):
    """No byte of an archive is worse than a named refusal; with CRCs, none gives other numbers."""
    data = hostile.saved(tmp_path / "m.pt").read_bytes()
    path = tmp_path / "flipped.pt"
    opened = 0
    for at in range(0, len(data), 3):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        try:
            with open_weights(path, verify="crc") as weights:
                opened += 1
                assert {n: weights.tensor(n).tolist() for n in weights} == {"w": [0, 1, 2, 3]}
        except WeightsError:
            continue
    assert 0 < opened < len(data) // 3  # padding, times, and the like


@pytest.mark.parametrize("name", ["data/0", "data.pkl", "byteorder"])
def test_a_compressed_record(tmp_path, refused, name):
    """torch 2.13 with mmap=True maps the compressed bytes as numbers."""
    parts = hostile.records_of(hostile.saved(tmp_path / "m.pt"))
    path = hostile.pack(tmp_path / "c.pt", parts, compress=[name])
    refused(path, f"{name} compressed")


@pytest.mark.parametrize(
    "name", ["../evil", "/evil", "a//b", "./a", "a\\b", "c:evil", "data/", "data/0\0x"]
)
def test_a_hostile_name(tmp_path, refused, name):
    parts = hostile.records_of(hostile.saved(tmp_path / "m.pt"))
    parts["zz"] = b"1234"
    path = hostile.pack(tmp_path / "n.pt", parts)
    data = path.read_bytes().replace(b"archive/zz", f"archive/{name}".encode()[:10].ljust(10, b"/"))
    if len(f"archive/{name}") > 10:  # lengths change: write it again instead
        del parts["zz"]
        parts[name.replace("\0", "?")] = b"1234"
        data = hostile.pack(tmp_path / "n.pt", parts).read_bytes()
        data = data.replace(b"data/0?x", b"data/0\0x")
    path.write_bytes(data)
    refused(path, "wanted plain names in one folder")


def test_a_record_outside_the_folder(tmp_path, refused):
    data = hostile.saved(tmp_path / "m.pt").read_bytes()
    assert data.count(b"m/version") == 2
    (tmp_path / "n.pt").write_bytes(data.replace(b"m/version", b"q/version"))
    refused(tmp_path / "n.pt", "plain names in one folder", "q/version")


def test_a_record_twice(tmp_path, refused):
    data = hostile.pack(
        tmp_path / "m.pt", {"data.pkl": b"\x80\x02}.", "data/0": b"1", "data/1": b"2"}
    )
    (tmp_path / "n.pt").write_bytes(data.read_bytes().replace(b"data/1", b"data/0"))
    refused(tmp_path / "n.pt", "data/0 twice")


def test_records_that_overlap(tmp_path, refused):
    """Two entries of the directory with one place: a bomb, or two names of one buffer."""
    parts = {"data.pkl": b"\x80\x02}.", "data/0": b"1" * 64, "data/1": b"1" * 64}
    path = hostile.pack(tmp_path / "m.pt", parts)
    data = path.read_bytes()
    first = hostile.header_at(data, "archive/data/0")
    at = hostile.entry_at(data, "archive/data/1")
    refused(hostile.poke(path, tmp_path / "n.pt", at + 42, "<I", first), "data/0 over data/1")
    # with the sizes of one that holds the other
    second = hostile.header_at(data, "archive/data/1")
    size = second - first
    one = hostile.entry_at(data, "archive/data/0")
    path = hostile.poke(path, tmp_path / "o.pt", one + 20, "<II", size, size)
    path = hostile.poke(path, tmp_path / "o.pt", first + 18, "<II", size, size)
    refused(path, "data/0 over data/1")


@pytest.mark.parametrize(
    ("offset", "form", "value", "words"),
    [
        (0, "<I", 0x04034B51, "differ"),  # signature
        (6, "<H", 0x0809, "differ"),  # encrypted, in the header alone
        (8, "<H", 8, "differ"),  # compressed, in the header alone
        (14, "<I", 1, "differ"),  # CRC
        (18, "<I", 15, "differ"),  # sizes
        (22, "<I", 15, "differ"),
        (30, "<B", 0x62, "differ"),  # name
        (28, "<H", 0xFFF0, "reaches into it"),  # length of the extra field: moves the payload
    ],
)
def test_a_header_that_contradicts_the_directory(tmp_path, refused, offset, form, value, words):
    path = hostile.saved(tmp_path / "m.pt")
    at = hostile.header_at(path.read_bytes(), "m/data/0")
    refused(hostile.poke(path, tmp_path / "n.pt", at + offset, form, value), words)


def test_an_encrypted_record(tmp_path, refused):
    path = hostile.saved(tmp_path / "m.pt")
    data = path.read_bytes()
    at, entry = hostile.header_at(data, "m/data/0"), hostile.entry_at(data, "m/data/0")
    hostile.poke(path, tmp_path / "n.pt", at + 6, "<H", 0x0809)
    refused(
        hostile.poke(tmp_path / "n.pt", tmp_path / "n.pt", entry + 8, "<H", 0x0809), "encrypted"
    )


def test_64_bit_sizes(tmp_path, refused):
    """torch writes 64-bit ends always; sizes in a 64-bit field must be those of the directory."""
    parts = hostile.records_of(hostile.saved(tmp_path / "m.pt"))
    path = hostile.pack(tmp_path / "n.pt", parts)
    data = bytearray(path.read_bytes())
    at = hostile.header_at(bytes(data), "archive/data/0")
    length = struct.unpack_from("<H", data, at + 26)[0]
    field = at + 30 + length
    assert struct.unpack_from("<H", data, at + 28)[0] >= 24, "room for the field"
    struct.pack_into("<II", data, at + 18, 0xFFFFFFFF, 0xFFFFFFFF)
    struct.pack_into("<HHQQ", data, field, 1, 16, 16, 16)
    rest = struct.unpack_from("<H", data, at + 28)[0] - 24
    struct.pack_into("<HH", data, field + 20, 0x4246, rest)
    path.write_bytes(data)
    with open_weights(path) as weights:
        assert weights.tensor("w").tolist() == [0, 1, 2, 3]
    refused(hostile.poke(path, tmp_path / "o.pt", field + 4, "<Q", 400), "differ")
    refused(hostile.poke(path, tmp_path / "o.pt", field, "<H", 7), "differ")


@pytest.mark.parametrize(
    ("back", "form", "value", "words"),
    [
        (22 + 20 + 56 - 24, "<Q", 1 << 40, "one directory"),  # entries, 64-bit
        (22 + 20 + 56 - 32, "<Q", 3, "one directory"),
        (22 + 20 + 56 - 16, "<I", 1, "several"),
        (22 + 20 + 56 - 48, "<Q", 1 << 62, ""),  # place of the directory
        (22 - 8, "<H", 3, "one directory"),
        (22 - 10, "<H", 3, "one directory"),
        (22 - 16, "<I", 64, "one directory"),
        (22 - 4, "<H", 1, "several"),
    ],
)
def test_ends_that_differ(tmp_path, refused, back, form, value, words):
    path = hostile.saved(tmp_path / "m.pt")
    at = len(path.read_bytes()) - back
    refused(hostile.poke(path, tmp_path / "n.pt", at, form, value), words)


def test_bytes_before_and_after(tmp_path, refused):
    data = hostile.saved(tmp_path / "m.pt").read_bytes()
    (tmp_path / "n.pt").write_bytes(data + b"more")
    refused(tmp_path / "n.pt", "archive")
    (tmp_path / "n.pt").write_bytes(b"PK\3\4" + data)
    refused(tmp_path / "n.pt")
    (tmp_path / "n.pt").write_bytes(data[:-2] + b"\4\0more")
    refused(tmp_path / "n.pt", "comment")


def test_numbers_of_a_big_machine(tmp_path, refused):
    path = hostile.saved(tmp_path / "m.pt")
    refused(hostile.changed(path, tmp_path / "n.pt", byteorder=b"big"), "little-endian", "big")


def test_checksums(tmp_path, refused):
    path = hostile.saved(tmp_path / "m.pt")
    data = path.read_bytes()
    at = data.index(struct.pack("<4f", 0, 1, 2, 3))
    bad = hostile.poke(path, tmp_path / "n.pt", at, "<f", 9)
    with open_weights(bad) as weights:
        assert weights.tensor("w").tolist() == [9, 1, 2, 3]
    refused(bad, "data/0 with CRC-32", verify="crc")
    at = data.index(b"\x80\x02}")
    refused(hostile.poke(path, tmp_path / "n.pt", at + 1, "<B", 3), "data.pkl with CRC-32")


def test_checksums_that_torch_was_told_to_leave_out(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        path = hostile.saved(tmp_path / "m.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    with open_weights(path, verify="crc") as weights:
        assert weights.tensor("w").tolist() == [0, 1, 2, 3]


def test_another_archive(tmp_path, refused):
    refused(hostile.pack(tmp_path / "m.pt2", {"archive_format": b"pt2"}), "torch.export.load")
    (tmp_path / "m.pt").write_bytes(b"")
    refused(tmp_path / "m.pt", "an empty one")
    (tmp_path / "m.pt").write_bytes(b"hello, world")
    refused(tmp_path / "m.pt", "given another one")
    refused(tmp_path, "a folder")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "pipe")


# --- files of before torch 1.6 ------------------------------------------------------------------


def test_every_cut_of_a_legacy_file_is_refused(tmp_path, refused):
    path = hostile.saved(tmp_path / "m.pt", _use_new_zipfile_serialization=False)
    data = path.read_bytes()
    for length in range(1, len(data), 5):
        (tmp_path / "cut.pt").write_bytes(data[:length])
        refused(tmp_path / "cut.pt")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b"K\x04N", b"K\x05N", "of 5 elements, given 4"),
        (b"M\xe9\x03.", b"M\xea\x03.", "protocol 1001"),
        (b"\4\0\0\0\0\0\0\0\0\0\0\0\0\0\x80?", b"\5\0\0\0\0\0\0\0\0\0\0\0\0\0\x80?", "given 5"),
    ],
)
def test_a_legacy_file_that_contradicts_itself(tmp_path, refused, old, new, words):
    path = hostile.saved(tmp_path / "m.pt", _use_new_zipfile_serialization=False)
    data = path.read_bytes()
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))
    refused(path, words)


# --- safetensors --------------------------------------------------------------------------------

W = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
V = {"dtype": "F32", "shape": [4], "data_offsets": [16, 32]}


@pytest.mark.parametrize(
    ("header", "size", "words"),
    [
        ({"w": {**W, "data_offsets": [0, 20]}}, 20, "w: wanted 16 bytes"),
        ({"w": {**W, "data_offsets": [16, 0]}}, 16, "w: wanted 16 bytes"),
        ({"w": {**W, "data_offsets": [-16, 0]}}, 16, "at least 0"),
        ({"w": {**W, "shape": [-4]}}, 16, "at least 0"),
        ({"w": {**W, "shape": [4.0]}}, 16, "at least 0"),
        ({"w": {**W, "shape": [True] * 2}}, 16, "at least 0"),
        ({"w": {**W, "shape": [1 << 62, 4]}}, 16, "w: wanted 73"),
        ({"w": {**W, "shape": [1 << 64]}}, 16, "at least 0"),
        ({"w": {**W, "shape": [1] * 70 + [4]}}, 16, "at most 64 axes"),
        ({"w": {**W, "dtype": "F4"}}, 16, "given 'F4'"),
        ({"w": {**W, "dtype": []}}, 16, "given []"),
        ({"w": {**W, "more": 1}}, 16, "wanted dtype, shape and data_offsets"),
        ({"w": 3}, 16, "wanted dtype, shape and data_offsets"),
        ({"w": W, "v": W}, 16, "overlaps another"),
        ({"v": V}, 32, "leaves a hole"),
        ({"w": W}, 20, "wanted"),
        ({"w": W}, 12, "wanted"),
        ({"__metadata__": {"a": 1}, "w": W}, 16, "texts in __metadata__"),
        ({"__metadata__": 1, "w": W}, 16, "texts in __metadata__"),
        (b'{"w": 1, "w": 2}', 0, "a name twice"),
        (b"{" * 100_000, 0, "JSON header"),
        (b'{"w":' * 100_000, 0, "JSON header"),
        (b'{"w": NaN', 0, "JSON header"),
        (b"{\xff}", 0, "JSON header"),
    ],
)
def test_a_header_that_breaks_a_rule(tmp_path, refused, header, size, words):
    refused(hostile.safetensors_of(tmp_path / "m.safetensors", header, b"\0" * size), words)


def test_a_header_that_is_cut_off_or_too_long(tmp_path, refused):
    path = hostile.safetensors_of(tmp_path / "m.safetensors", {"w": W}, b"\0" * 16)
    data = path.read_bytes()
    for length in (9, 20, len(data) - 17, len(data) - 1):
        path.write_bytes(data[:length])
        refused(path)
    path.write_bytes(struct.pack("<Q", 1 << 63) + data[8:])
    refused(path, "header")


def test_the_writer_of_these_headers_writes_what_safetensors_reads(tmp_path):
    reader = pytest.importorskip("safetensors.torch")
    path = hostile.safetensors_of(
        tmp_path / "m.safetensors", {"w": W}, torch.arange(4.0).numpy().tobytes()
    )
    assert reader.load_file(path)["w"].tolist() == [0, 1, 2, 3]
    with open_weights(path) as weights:
        assert weights.signature == {"w": ("float32", (4,))}
