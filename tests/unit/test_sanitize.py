"""Sanitizers: what is built, what is set, and that a run under one finds wrong kernels."""

import ctypes
import importlib.machinery
import importlib.util
import platform
import sys
from pathlib import Path

import pytest

from torchmojo.errors import CompilerNotFoundError, LibraryError
from torchmojo.toolchain.compile import sanitizer
from torchmojo.toolchain.compile.build import BuildFlags
from torchmojo.toolchain.compile.compiler import find_compiler

ROOT = Path(__file__).parents[2]
SYMBOLS = {"address": b"__asan_version_mismatch_check_v8", "thread": b"__tsan_memset"}
NEW = b"__sanitizer_annotate_double_ended_contiguous_container"

linux = pytest.mark.skipif(sys.platform != "linux", reason="sanitizers are for Linux")
plain = pytest.mark.skipif(
    any(hasattr(ctypes.CDLL(None), name) for name in ("__asan_init", "__tsan_init")),
    reason="this process runs under a sanitizer",
)


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture
def dev(monkeypatch):
    """Give `./dev` as a module that works with this Python and sets nothing up."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = importlib.machinery.SourceFileLoader("dev", str(ROOT / "dev"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("dev", loader))
    loader.exec_module(module)
    monkeypatch.setattr(module, "setup", lambda: None)
    monkeypatch.setattr(module, "PYTHON", sys.executable)
    return module


# --- what is built ------------------------------------------------------------------------------


def test_flags():
    plain, *others = (BuildFlags(sanitize=kind) for kind in ("none", "address", "thread"))
    assert plain == BuildFlags()
    for kind, flags in zip(("address", "thread"), others, strict=True):
        assert flags.arguments() == [
            *plain.arguments(),
            *("--sanitize", kind, "--debug-level", "line-tables"),
        ]
        assert f" sanitize={kind}" in flags.key()
    assert "sanitize" not in plain.key()


# --- what is set --------------------------------------------------------------------------------


@linux
@pytest.mark.parametrize("kind", ["address", "thread"])
def test_the_newest_of_llvm_is_preferred(kind, tmp_path):
    short, machine = f"{kind[0]}san", platform.machine()
    assert sanitizer.find_runtime(kind, tmp_path) is None
    number = {"address": 8, "thread": 2}[kind]
    gcc = tmp_path / f"usr/lib/{machine}-linux-gnu/lib{short}.so.{number}"
    put(gcc, b"too old")
    assert sanitizer.find_runtime(kind, tmp_path) is None
    put(gcc, SYMBOLS[kind])
    assert sanitizer.find_runtime(kind, tmp_path) == gcc
    for version in (9, 19):
        place = f"usr/lib/llvm-{version}/lib/clang/{version}/lib/linux"
        llvm = put(tmp_path / place / f"libclang_rt.{short}-{machine}.so", SYMBOLS[kind])
    assert sanitizer.find_runtime(kind, tmp_path) == llvm


def test_environment_of_llvm(tmp_path):
    runtime = put(tmp_path / "libclang_rt.asan-x86_64.so", NEW)
    given = {"LD_PRELOAD": "libmine.so", "ASAN_OPTIONS": "verbosity=1"}
    tool = Path("/tools/llvm-symbolizer")
    assert sanitizer.environment("address", runtime, symbolizer=tool, given=given) == {
        "TORCHMOJO_SANITIZE": "address",
        "LD_PRELOAD": f"{runtime} libmine.so",
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:"
        "external_symbolizer_path=/tools/llvm-symbolizer:verbosity=1",
    }


def test_environment_of_an_old_gcc(tmp_path):
    runtime = put(tmp_path / "libasan.so.8", b"")
    found = sanitizer.environment("address", runtime, given={})
    assert found["LD_PRELOAD"] == f"{runtime} libstdc++.so.6"
    assert found["ASAN_OPTIONS"].endswith(":detect_container_overflow=0")


def test_environment_for_threads(tmp_path):
    found = sanitizer.environment("thread", tmp_path / "libclang_rt.tsan-x86_64.so", given={})
    name, _, path = found["TSAN_OPTIONS"].partition("=")
    assert name == "suppressions"
    assert "race:TensorIterator\n" in Path(path).read_text()


# --- what is refused ----------------------------------------------------------------------------


@plain
def test_a_process_without_the_runtime_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHMOJO_SANITIZE", "address")
    runtime = put(tmp_path / "libclang_rt.asan-x86_64.so", NEW)
    monkeypatch.setattr(sanitizer, "find_runtime", lambda kind: runtime)
    with pytest.raises(LibraryError) as caught:
        sanitizer.chosen()
    assert str(caught.value) == (
        "TORCHMOJO_SANITIZE=address: wanted a process with the run-time library of the address "
        f"sanitizer, given one without; start Python as: env LD_PRELOAD={runtime} "
        "PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 python ..."
    )


@plain
def test_nothing_is_compiled_that_could_not_be_loaded(monkeypatch):
    pytest.importorskip("torch")
    import torchmojo

    compiler()
    monkeypatch.setenv("TORCHMOJO_SANITIZE", "thread")
    monkeypatch.setattr(sanitizer, "find_runtime", lambda kind: None)
    with pytest.raises(LibraryError) as caught:
        torchmojo.inline("def nonsense")
    assert str(caught.value) == (
        "TORCHMOJO_SANITIZE=thread: wanted a process with the run-time library of the thread "
        "sanitizer, given one without; no such library was found; "
        "on Debian: apt-get install libclang-rt-19-dev"
    )


def test_a_missing_runtime_is_named(monkeypatch, capsys):
    monkeypatch.setattr(sanitizer, "find_runtime", lambda kind: None)
    assert sanitizer.main(["address"]) == 1
    assert capsys.readouterr() == (
        "",
        "wanted the run-time library of the address sanitizer, found none; "
        "on Debian: apt-get install libclang-rt-19-dev, or libasan8\n",
    )


@pytest.mark.parametrize(
    ("words", "kind", "rest"),
    [
        (["--sanitize"], "address", []),
        (["-x", "--sanitize", "-k", "list"], "address", ["-x", "-k", "list"]),
        (["--sanitize", "thread", "dev"], "thread", ["dev"]),
        (["--sanitize", "tests/unit::x"], "address", ["tests/unit::x"]),
    ],
)
def test_words_of_dev(dev, words, kind, rest):
    assert dev.parse_sanitize(words) == (kind, rest)


def test_dev_knows_two_sanitizers(dev):
    with pytest.raises(dev.Failed) as caught:
        dev.verb_test(["--sanitize", "memory"])
    assert str(caught.value) == "--sanitize: wanted address or thread, given 'memory'"


# --- what is found ------------------------------------------------------------------------------

WRONG = """
from std.memory import Layout, Pointer, alloc, dealloc
from torchmojo import MutTensor, Tensor, parallel_for

def fill(dst: MutTensor[DType.float32, 1]):
    def body(start: Int, end: Int) {imm}:
        for i in range(start, end):
            dst[i] = Float32(i)
    parallel_for(body, dst.dim(0), 1)

def past(dst: MutTensor[DType.float32, 1]):
    dst.unsafe_ptr().unsafe_store(dst.dim(0), Float32(1))  # line of past

def place(src: Tensor[DType.float32, 1]) -> Int:
    return Int(src.unsafe_ptr())

def late(dst: MutTensor[DType.float32, 1], address: Int):
    var p = Pointer[Float32, ImmUntrackedOrigin](unsafe_from_address=address)
    dst[0] = p[]  # line of late

def freed(dst: MutTensor[DType.float32, 1]):
    var own = alloc(Layout[Float32](count=8))
    var p = own.unsafe_ptr().unsafe_origin_cast[MutUntrackedOrigin]()
    for i in range(8):
        p[unsafe_offset=i] = dst[0]
    dealloc(own^)
    dst[0] = p[unsafe_offset=dst.dim(0) % 8]  # line of freed

def racy(dst: MutTensor[DType.float32, 1]):
    def body(start: Int, end: Int) {imm}:
        for i in range(start, end):
            dst[0] = dst[0] + Float32(i)  # line of racy
    parallel_for(body, dst.dim(0), 1)
"""

TESTS = """
from pathlib import Path
import pytest, torch, torchmojo

@pytest.fixture(scope="module")
def wrong():
    torch.set_num_threads(2)
    return torchmojo.load(Path(__file__).with_name("wrong.mojo"))

def test_right(wrong):
    for _ in range(5):
        x = torch.zeros(1001)
        wrong.fill(x)
        assert torch.equal(x.add_(1), torch.arange(1.0, 1002))

def test_past(wrong):
    wrong.past(torch.zeros(10))

def test_late(wrong):
    x = torch.zeros(100)
    place = wrong.place(x)
    del x
    wrong.late(torch.zeros(1), place)

def test_freed(wrong):
    wrong.freed(torch.zeros(10))

def test_racy(wrong):
    wrong.racy(torch.zeros(1000))
"""


def compiler():
    """Find the compiler, or skip the test."""
    try:
        return find_compiler()
    except CompilerNotFoundError as error:
        pytest.skip(str(error))


@pytest.mark.slow
@linux
@pytest.mark.parametrize(
    ("kind", "name", "found"),
    [
        ("address", "right", None),
        ("address", "past", "AddressSanitizer: heap-buffer-overflow"),
        ("address", "late", "AddressSanitizer: heap-use-after-free"),
        ("address", "freed", "AddressSanitizer: heap-use-after-free"),
        ("thread", "right", None),
        ("thread", "racy", "ThreadSanitizer: data race"),
    ],
)
def test_a_run_of_wrong_kernels_fails(dev, kind, name, found, tmp_path, monkeypatch, capfd):
    pytest.importorskip("torch")
    compiler()
    if sanitizer.find_runtime(kind) is None:
        pytest.skip(f"no {kind} sanitizer on this machine; {sanitizer.INSTALL[kind]}")
    (tmp_path / "wrong.mojo").write_text(WRONG)
    test = tmp_path / "test_wrong.py"
    test.write_text(TESTS)
    words = ["--sanitize", kind, f"{test}::test_{name}", "-p", "no:cacheprovider"]
    if found is None:
        dev.verb_test(words)
        assert "1 passed" in capfd.readouterr().out
        return
    with pytest.raises(dev.Failed) as caught:
        dev.verb_test(words)
    assert caught.value.status != 0
    assert str(caught.value) == f"the {kind} sanitizer found errors (1 reports)"
    report = capfd.readouterr().out
    assert found in report
    line = 1 + WRONG.splitlines().index(
        next(line for line in WRONG.splitlines() if line.endswith(f"# line of {name}"))
    )
    assert f"wrong.mojo:{line}" in report
