"""Files that ask for too much, or hold what cannot be mapped: short texts, bounded memory."""

import gc
import io
import os
import tarfile
from pathlib import Path

import pytest
import torch

import torchmojo
from torchmojo import ArgumentError, WeightsError, open_weights
from torchmojo.models.weights import pickles

from . import hostile

# --- texts ----------------------------------------------------------------------------------------

LONG = b"A" * 5_000_000


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02c" + LONG + b"\nb\n.",
        b"\x80\x02c" + LONG.replace(b"AA", b"A ") + b"\nb\n.",
        b"\x80\x04\x8c\x01bc" + LONG + b"\nb\n.",
    ],
    ids=["word", "words", "protocol 4"],
)
@pytest.mark.parametrize("kind", ["raw", "zip"])
def test_a_long_word_makes_no_long_message(tmp_path, data, kind):
    path = tmp_path / "m.pt"
    path.write_bytes(data)
    if kind == "zip":
        hostile.archive_of(path, data)
    with pytest.raises(WeightsError) as caught:
        open_weights(path)
    assert len(str(caught.value)) < 1000 + len(str(path))


def deep(depth: int) -> bytes:
    """Give a header whose dtype is a list in a list in a list."""
    inner = "[" * depth + "]" * depth
    return f'{{"w": {{"dtype": {inner}, "shape": [0], "data_offsets": [0, 0]}}}}'.encode()


def test_long_words_of_a_header(tmp_path):
    word = "A" * 5_000_000
    said = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    for header in ({word: said}, {"w": {**said, "dtype": word}}, {word: 3}, deep(900)):
        path = hostile.safetensors_of(tmp_path / "m.safetensors", header, b"")
        with pytest.raises(WeightsError) as caught:
            open_weights(path)
        assert len(str(caught.value)) < 1000 + len(str(path))


def test_marks_that_turn_the_direction_of_writing(tmp_path):
    with pytest.raises(WeightsError) as caught:
        open_weights(hostile.archive_of(tmp_path / "m.pt", b"\x80\x02cos\n\xe2\x80\xaetxt\n."))
    assert r"given the global os.\u202etxt, which" in str(caught.value)
    path = hostile.saved(tmp_path / "a\u202eb\x1b.pt", {"w": torch.zeros(1)})
    with pytest.raises(WeightsError) as caught:
        open_weights(path, sha256="0" * 64)
    assert r"a\u202eb\x1b.pt: wanted sha256" in str(caught.value)
    module = torch.nn.Module()
    module.register_buffer("v\u202e", torch.zeros(1))
    with open_weights(path) as weights, pytest.raises(WeightsError) as caught:
        weights.bind(module)
    assert all(line.isprintable() for line in str(caught.value).splitlines())
    assert r"v\u202e" in str(caught.value)


def test_a_table_of_many_differences_is_cut(tmp_path):
    path = hostile.saved(tmp_path / "m.pt", {f"{i}": torch.zeros(1) for i in range(100)})
    with pytest.raises(WeightsError) as caught:
        open_weights(path, signature={})
    lines = str(caught.value).splitlines()
    assert len(lines) == 44 and lines[-2] == "and 60 more"


# --- keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [False, True])
def test_numbers_as_keys_are_hashed_as_texts(tmp_path, monkeypatch, call):
    """A file can foresee the hash of a number, and put all of them into one place."""
    made, real = [], pickles._checked
    monkeypatch.setattr(pickles, "_checked", lambda key: made.append(real(key)) or made[-1])
    keys = [k * ((1 << 61) - 1) for k in range(9)]
    assert {hash(key) for key in keys} == {0}
    numbers = [b"\x8a\x09" + key.to_bytes(9, "little", signed=True) + b"N" for key in keys]
    data = b"}(" + b"".join(numbers) + b"u."
    if call:
        pairs = b"".join(number + b"\x86" for number in numbers)
        data = b"ccollections\nOrderedDict\n](" + pairs + b"e\x85R."
    with open_weights(hostile.archive_of(tmp_path / "m.pt", b"\x80\x02" + data)) as weights:
        assert len(weights) == 0
    assert [str(key) for key in made] == [str(key) for key in keys]
    assert len({hash(key) for key in made}) == 9


def test_names_of_keys_that_are_numbers(tmp_path):
    one = torch.ones(1)
    most = (1 << 64) - 1
    thing = {3: one, -1: one, 0.5: one, None: one, True: one, "s": {7: {most: one}}}
    with open_weights(hostile.saved(tmp_path / "m.pt", thing)) as weights:
        assert list(weights) == ["3", "-1", "0.5", "None", "True", f"s.7.{most}"]
    with pytest.raises(WeightsError, match="a name for each tensor, given 1 twice"):
        open_weights(hostile.saved(tmp_path / "n.pt", {1: one, "1": one}))


# --- tensors that are more than numbers over a storage --------------------------------------------


def complexes():
    return torch.tensor([1 + 2j, 3 + 4j])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: complexes().conj(), "t: wanted numbers as they are stored, given a tensor with"),
        (lambda: complexes().conj(), "the conj bit, which turns them when read; save its resolve"),
        (lambda: complexes().conj().imag, "given a tensor with the neg bit"),
        (lambda: torch.nn.Parameter(complexes().conj()), "the conj bit"),
        (lambda: torch.eye(3).to_sparse(), "a sparse tensor (the global torch._utils._rebuild_sp"),
        (lambda: torch.eye(3).to_sparse_csr(), "; save its to_dense(), or its indices and values"),
        (lambda: torch.empty(3, device="meta"), "a tensor on the meta device (the global"),
        (lambda: torch.nn.Buffer(torch.ones(1)), "a subclass of torch.Tensor, or one with attr"),
        (lambda: torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.qint8), "dequantize()"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_tensor_that_is_no_plain_one(tmp_path, refused, make, words):
    """torch keeps bits beside a tensor that turn its numbers when they are read."""
    refused(hostile.saved(tmp_path / "m.pt", {"t": make()}), words)


@pytest.mark.parametrize("legacy", [False, True])
def test_resolved_views_are_what_torch_loads(tmp_path, refused, legacy):
    form = {"_use_new_zipfile_serialization": not legacy}
    state = {"c": complexes().conj(), "n": complexes().conj().imag}
    refused(hostile.saved(tmp_path / "m.pt", state, **form), "c: wanted numbers as they are stored")
    plain = {"c": state["c"].resolve_conj(), "n": state["n"].resolve_neg()}
    path = hostile.saved(tmp_path / "n.pt", plain, **form)
    expected = torch.load(tmp_path / "m.pt", weights_only=True)
    with torchmojo.fallback("copy"), open_weights(path) as weights:
        assert all(torch.equal(weights.tensor(name), expected[name]) for name in state)
    torchmojo.copies(reset=True)


@pytest.mark.parametrize(
    ("beside", "words"),
    [
        (b"]", "something beside it that is not known"),
        (b"}X\1\0\0\0qNs", "with the q bit"),
        (b"}X\4\0\0\0conj]s", "with the conj bit"),
        (b"}N", "something beside it that is not known"),
        (b"}X\4\0\0\0conj\x89s", None),  # it says that there is none
        (b"N", None),
    ],
)
def test_what_stands_beside_a_tensor(tmp_path, refused, beside, words):
    pickled = hostile.pickle_of((4,), (1,))
    assert pickled.count(b")RtR") == 1
    pickled = pickled.replace(b")RtR", b")R" + beside + b"tR")
    path = hostile.archive_of(tmp_path / "m.pt", pickled)
    if words is not None:
        refused(path, words)
        return
    with open_weights(path) as weights:
        assert weights.tensor("w").tolist() == [0] * 4


# --- archives of other kinds ----------------------------------------------------------------------


def sparse_tar(real: int, more: bool = False) -> bytes:
    """Give a tar archive in GNU's old format for files with holes, that says to be this large."""
    head = bytearray(512)
    head[:8] = b"data.pkl"
    head[100:124] = b"0000644\0" + b"0000000\0" * 2
    head[124:148] = b"00000000000\0" * 2
    head[156:157], head[257:265] = b"S", b"ustar  \0"
    head[386:410] = b"00000000000\0" * 2
    head[482] = more  # whether more of its map follows
    head[483:495] = b"\x80" + real.to_bytes(11, "big")
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    assert len(head) == 512
    return bytes(head) + (b"" if more else bytes(1024))


@pytest.mark.parametrize("size", [1 << 30, 1 << 44])
@pytest.mark.parametrize("more", [False, True])
def test_holes_of_a_tar_archive_are_not_written_out(tmp_path, refused, size, more):
    """`refused` measures what is allocated: a header of 512 bytes may say any size."""
    (tmp_path / "m.pt").write_bytes(sparse_tar(size, more))
    refused(tmp_path / "m.pt", "given a tar archive, as torch wrote until 0.1")


def test_a_member_larger_than_its_archive(tmp_path, refused):
    info = tarfile.TarInfo("pickle")
    info.size = 1 << 40
    head = info.tobuf(tarfile.GNU_FORMAT)
    (tmp_path / "m.pt").write_bytes(head + b"\x80\x02cos\nsystem\n.".ljust(512, b"\0"))
    refused(tmp_path / "m.pt", "given a tar archive", "os.system")


def test_a_message_does_not_read_without_end(tmp_path, refused):
    """What a refused file would import is looked for in a million opcodes and sixteen members."""
    many = b"\x80\x04" + b"N" * 1_000_000 + b"cos\nsystem\n."
    (tmp_path / "m.pt").write_bytes(many)
    refused(tmp_path / "m.pt", "given a bare pickle")
    with pytest.raises(WeightsError) as caught:
        open_weights(tmp_path / "m.pt")
    assert "system" not in str(caught.value)
    with tarfile.open(tmp_path / "t.pt", "w") as tar:
        for i in range(17):
            data = f"cos\nf{i}\n.".encode()
            info = tarfile.TarInfo(f"{i:02}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    with pytest.raises(WeightsError) as caught:
        open_weights(tmp_path / "t.pt")
    assert "os.f15" in str(caught.value) and "os.f16" not in str(caught.value)


# --- what a system refuses ------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["a\0b", b"a.pt", 3, None, "\ud800"])
def test_a_path_that_is_none(path):
    with pytest.raises(ArgumentError, match="open_weights: path: wanted a path of text without"):
        open_weights(path)
    gc.collect()  # what is left of the mapping closes itself, without a traceback


@pytest.mark.skipif(not Path("/sys/kernel/notes").exists(), reason="needs sysfs")
def test_a_file_that_cannot_be_mapped(refused):
    refused("/sys/kernel/notes", "wanted a file that can be mapped", "; write copy=True")


def test_a_file_larger_than_memory_is_not_copied(tmp_path, refused):
    path = tmp_path / "m.pt"
    path.write_bytes(b"PK\3\4")
    try:
        os.truncate(path, 1 << 42)
    except OSError as error:
        pytest.skip(f"no holes in files here: {error}")
    refused(path, "wanted a file that can be copied", "; leave out copy=True", copy=True)
    path.unlink()


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ({"sha256": b"0" * 64}, "sha256: wanted 64 hex digits, given b'000"),
        ({"sha256": "0" * 63 + "\n"}, "sha256: wanted 64 hex digits"),
        ({"sha256": 3}, "sha256: wanted 64 hex digits, given 3"),
        ({"key": 3}, "key: wanted a name, given 3"),
        ({"signature": ["w"]}, "signature: wanted a mapping of names to tensors or (dtype, shape)"),
        ({"signature": {"w": 3}}, "signature: wanted a tensor or (dtype, shape) for each name"),
        ({"signature": {"w": ("float32", 4)}}, "signature: wanted a tensor or (dtype, shape)"),
        ({"signature": {"w": "A" * 10_000}}, "signature: wanted a tensor or (dtype, shape)"),
    ],
)
def test_arguments_of_another_kind(tmp_path, argument, words):
    with pytest.raises(ArgumentError) as caught:
        open_weights(hostile.saved(tmp_path / "m.pt"), **argument)
    assert str(caught.value).startswith(f"open_weights: {words}")
    assert len(str(caught.value)) < 400
