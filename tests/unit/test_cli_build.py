"""`torchmojo build`: a folder that needs no compiler, and what refuses one that is not fit."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from typer.testing import CliRunner

import torchmojo
from torchmojo.cli import app
from torchmojo.errors import CompileError, LibraryError
from torchmojo.toolchain.compile.compiler import find_compiler
from torchmojo.toolchain.export import elf, folder, manifest, target
from torchmojo.toolchain.export.folder import export
from torchmojo.toolchain.export.manifest import read
from torchmojo.toolchain.library import Options

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="built folders are for Linux")

SOURCE = Path(__file__).with_name("cli_kernels.mojo")
PLAIN = Path(__file__).with_name("cli_plain.mojo")
CPU = "x86-64-v3" if os.uname().machine == "x86_64" else "native"
RUNTIME = ["libAsyncRTRuntimeGlobals.so", "libKGENCompilerRTShared.so", "libMSupportGlobals.so"]
TEXTS = ["NOTICE", "__init__.py", "__init__.pyi", "contract.json", "py.typed"]

# Runs where there is neither a compiler nor its run-time libraries.
ISOLATED = """
import sys
import torch, torchmojo
from torchmojo.toolchain.compile.compiler import find_compiler
try:
    find_compiler()
except torchmojo.CompilerNotFoundError:
    print("no compiler")
kernels = torchmojo.load(sys.argv[1])
out = torch.empty(5)
kernels.scale(out, torch.arange(5.0), 3.0)
print(out.tolist())
print(kernels.last(out))
try:
    kernels.last(out[:0])
except torchmojo.KernelError as error:
    print(error)
import made
print(made.__all__, made.last(out))
with open("/proc/self/maps") as file:
    paths = {line.split()[-1] for line in file if "libKGEN" in line}
print(paths == {sys.argv[1] + "/libKGENCompilerRTShared.so"})
"""


def run(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words], prog_name="torchmojo")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Give a built folder; tests that change it take a copy."""
    place = tmp_path_factory.mktemp("build") / "made"
    export(SOURCE, place, Options(target_cpu=CPU))
    return place


@pytest.fixture
def copy(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))


def change(folder: Path, **values: object) -> None:
    """Change a manifest."""
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def error_of(folder: Path) -> str:
    with pytest.raises(LibraryError) as caught:
        torchmojo.load(folder)
    return str(caught.value)


# --- what is written ----------------------------------------------------------------------------


def test_files(made):
    assert sorted(path.name for path in made.iterdir()) == sorted(
        [*TEXTS, *RUNTIME, "library.so", "manifest.json", "memory.so"]
    )


def test_manifest(made):
    facts = read(made)
    assert (facts.name, facts.sources) == ("cli_kernels.mojo", ("cli_kernels.mojo",))
    assert facts.platform == f"linux {os.uname().machine}"
    assert (facts.torchmojo, facts.mojo) == (torchmojo.__version__, find_compiler().version)
    assert facts.options == {"dtypes": None, "fast_math": False, "bounds": False}
    assert set(facts.files) == {path.name for path in made.iterdir()} - {"manifest.json"}
    assert all(manifest.digest(made / name) == wanted for name, wanted in facts.files.items())


@pytest.mark.skipif(CPU == "native", reason="an x86 CPU's name")
def test_manifest_names_the_cpu(made):
    facts = read(made)
    assert facts.target_cpu == "x86-64-v3"
    assert {"avx2", "fma", "bmi2"} <= set(facts.cpu_features)
    assert not {name for name in facts.cpu_features if name.startswith("avx512")}


def test_nothing_of_the_builder_is_in_it(made):
    places = {str(find_compiler().lib), str(SOURCE.parent), str(made.parent)}
    for path in made.iterdir():
        if path.name not in RUNTIME:
            assert not [place for place in places if place.encode() in path.read_bytes()]
    assert elf.read_dynamic(made / "library.so").runpath == "$ORIGIN"


def test_building_twice_gives_the_same_bytes(made, tmp_path):
    export(SOURCE, tmp_path / "made", Options(target_cpu=CPU))
    for path in made.iterdir():
        assert (tmp_path / "made" / path.name).read_bytes() == path.read_bytes()


def test_files_are_readable_for_others(made):
    mask = folder.umask()
    assert made.stat().st_mode & 0o777 == 0o755 & ~mask
    assert {path.stat().st_mode & 0o777 for path in made.iterdir()} == {0o644 & ~mask}


def test_stub(made):
    text = (made / "__init__.pyi").read_text()
    ast.parse(text)
    assert "def scale(dst: Tensor, src: Tensor, by: float = 2.0) -> None:" in text


def test_notice_names_the_libraries_and_their_terms(made):
    text = (made / "NOTICE").read_text()
    assert re.findall(r"^    (\S+)$", text, re.MULTILINE) == RUNTIME
    assert "LicenseRef-MAX-Platform-Software-License" in text


def test_a_kernel_that_cannot_raise_needs_no_library(tmp_path):
    text = run("build", PLAIN, "-o", tmp_path / "plain", "--target-cpu", CPU)
    assert text == (
        f"{tmp_path / 'plain'}: scale for {read(tmp_path / 'plain').target_cpu}\n"
        f"use it: kernels = torchmojo.load({str(tmp_path / 'plain')!r})\n"
    )
    assert sorted(path.name for path in (tmp_path / "plain").iterdir()) == sorted(
        [*TEXTS, "library.so", "manifest.json", "memory.so"]
    )
    assert "needs no library of Mojo's" in (tmp_path / "plain" / "NOTICE").read_text()


def test_the_command_says_what_it_copied(tmp_path, made):
    text = run("build", SOURCE, "-o", tmp_path / "b", "--target-cpu", CPU)
    assert text.splitlines()[1] == (
        f"with {', '.join(RUNTIME)}: see NOTICE before you give them to others"
    )
    assert json.loads(
        run("build", SOURCE, "-o", tmp_path / "b", "--target-cpu", CPU, "--json")
    ) == {
        "folder": str(tmp_path / "b"),
        "kernels": ["scale", "last"],
        "target_cpu": read(made).target_cpu,
        "runtime": RUNTIME,
    }


# --- using it -----------------------------------------------------------------------------------


def test_it_works_without_a_compiler(made, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    for packages in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for path in Path(packages).iterdir():
            if not path.name.startswith(("modular", "mojo", "torchmojo")) and path.suffix != ".pth":
                (site / path.name).symlink_to(path)
    package = Path(torchmojo.__file__).parent
    shutil.copytree(package, site / "torchmojo", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(made, tmp_path / "elsewhere" / "made")
    done = subprocess.run(
        [sys.executable, "-S", "-c", ISOLATED, str(tmp_path / "elsewhere" / "made")],
        env={
            "PATH": "",
            "HOME": str(tmp_path),
            "PYTHONPATH": f"{site}:{tmp_path / 'elsewhere'}",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "no compiler",
        "[0.0, 3.0, 6.0, 9.0, 12.0]",
        "12.0",
        "last: there is none",
        "['scale', 'last'] 12.0",
        "True",
    ]


def test_show_looks_at_a_folder_for_another_machine(copy):
    change(copy, platform="linux riscv64")
    assert run("show", copy).startswith("scale(dst: MutTensor[float32")
    assert run("stub", copy) == (copy / "__init__.pyi").read_text()


# --- what is refused ----------------------------------------------------------------------------


def test_a_changed_library(copy):
    library = copy / "library.so"
    wanted = read(copy).files["library.so"][:16]
    library.write_bytes(library.read_bytes()[:-1] + b"\1")
    assert error_of(copy) == (
        f"load: {copy}: wanted library.so with sha256 {wanted}, given "
        f"{manifest.digest(library)[:16]}; it was changed or cut off: build or copy the folder "
        "again"
    )


@pytest.mark.parametrize("name", ["contract.json", *RUNTIME])
def test_every_file_that_is_run_is_checked(copy, name):
    (copy / name).write_bytes((copy / name).read_bytes() + b" ")
    assert error_of(copy).startswith(f"load: {copy}: wanted {name} with sha256 ")


def test_texts_may_be_changed(copy):
    (copy / "NOTICE").write_text("none")
    assert len(torchmojo.load(copy)) == 2


def test_a_missing_library(copy):
    (copy / RUNTIME[0]).unlink()
    assert error_of(copy) == (
        f"load: {copy}: libAsyncRTRuntimeGlobals.so is missing; build or copy the folder again"
    )


def test_another_system(copy):
    change(copy, platform="linux riscv64")
    assert error_of(copy) == (
        f"load: {copy}: wanted a library for linux {os.uname().machine}, given one for "
        "linux riscv64; build it on such a machine"
    )


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86 CPUs")
def test_another_cpu(copy, monkeypatch):
    monkeypatch.setattr(target, "cpu_flags", lambda: frozenset({"fpu", "avx", "pni", "bmi1"}))
    change(copy, cpu_features=["x87", "sse3", "avx", "avx2", "bmi", "bmi2", "rdrnd"])
    assert error_of(copy) == (
        f"load: {copy}: wanted a library for this CPU, given one for x86-64-v3, which needs avx2, "
        "bmi2; build it with --target-cpu x86-64-v3, or x86-64 for every 64-bit x86 CPU"
    )


def test_another_format(copy):
    change(copy, format=0, torchmojo="0.0.1")
    assert error_of(copy) == (
        f"load: {copy}: wanted a library of format {manifest.FORMAT}, given 0, made by torchmojo "
        "0.0.1; build it again with `torchmojo build`"
    )
    assert run("show", copy, code=1).startswith(f"error: load: {copy}: wanted a library of format")


@pytest.mark.parametrize(
    "text", ["{", f'{{"made_by": "torchmojo build", "format": {manifest.FORMAT}}}']
)
def test_a_damaged_manifest(copy, text):
    (copy / "manifest.json").write_text(text)
    assert error_of(copy).startswith(f"load: {copy}: manifest.json is ")


# --- where it is put ----------------------------------------------------------------------------


def test_an_earlier_build_is_replaced(made, copy):
    (copy / "library.so").write_bytes(b"old")
    (copy / "__pycache__").mkdir()
    change(copy, format=0)
    export(SOURCE, copy, Options(target_cpu=CPU))
    assert (copy / "library.so").read_bytes() == (made / "library.so").read_bytes()
    assert not (copy / "__pycache__").exists()
    assert list(copy.parent.iterdir()) == [copy]


def test_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "new")
    export(SOURCE, tmp_path / "link", Options(target_cpu=CPU))
    assert (tmp_path / "link").is_symlink() and (tmp_path / "new" / "library.so").is_file()


def test_a_folder_with_other_files_is_refused(copy):
    (copy / "mine.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    assert run("build", SOURCE, "-o", copy, "--target-cpu", CPU, code=1) == (
        f"error: build: {copy}: wanted a new or empty folder, or an earlier build, given one that "
        "holds mine.txt; name another, or write into this one with --force\n"
    )
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before


def test_force_keeps_other_files(made, tmp_path):
    place = tmp_path / "mixed"
    place.mkdir()
    (place / "mine.txt").write_text("mine")
    (place / "NOTICE").write_text("mine too")
    run("build", SOURCE, "-o", place, "--target-cpu", CPU, "--force")
    assert (place / "mine.txt").read_text() == "mine"
    assert (place / "NOTICE").read_bytes() == (made / "NOTICE").read_bytes()
    assert len(torchmojo.load(place)) == 2


def test_a_file_in_its_place_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    for words in ([], ["--force"]):
        assert run("build", SOURCE, "-o", tmp_path / "file", *words, code=1) == (
            f"error: build: {tmp_path / 'file'}: wanted a folder, given a file; name another "
            "place\n"
        )


def test_a_failure_leaves_what_was_there(made, copy, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    (copy / "library.so").write_bytes(b"old")
    monkeypatch.setattr(manifest.Manifest, "write", fail)
    with pytest.raises(OSError, match="No space left"):
        export(SOURCE, copy, Options(target_cpu=CPU))
    assert (copy / "library.so").read_bytes() == b"old"
    assert list(copy.parent.iterdir()) == [copy]


def test_an_unknown_cpu(tmp_path):
    text = run("build", SOURCE, "-o", tmp_path / "b", "--target-cpu", "z80", code=1)
    assert text == (
        "error: build: target CPU: wanted a name that LLVM knows, such as x86-64-v3, given 'z80'\n"
    )
    assert not (tmp_path / "b").exists()


def test_another_system_than_linux(tmp_path, monkeypatch):
    monkeypatch.setattr(folder.sys, "platform", "darwin")
    with pytest.raises(LibraryError) as caught:
        export(SOURCE, tmp_path / "b", Options())
    assert str(caught.value) == (
        "build: wanted Linux, given darwin; use torchmojo.load, which keeps what it compiles in "
        "its cache"
    )


# --- CPUs and ELF files -------------------------------------------------------------------------

V3 = ["cx16", "sahf", "popcnt", "sse3", "sse4.1", "ssse3", "avx2", "bmi", "f16c", "lzcnt", "movbe"]
HASWELL = "fpu cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3 avx avx2 bmi1 bmi2 f16c fma abm movbe"


@pytest.mark.parametrize(
    ("features", "flags", "lacking"),
    [
        (V3, HASWELL, ()),
        (V3, "fpu cx16 pni ssse3", ("sahf", "popcnt", "sse4.1", *V3[6:])),
        (["avx512f", "avx512vbmi2", "amx-tile", "sha"], HASWELL, None),
        (["avx512vbmi2", "avx512bf16"], "avx512_vbmi2 avx512_bf16", ()),
        (["amx-tile", "avxvnniint8", "sha"], "amx_tile avx_vnni_int8 sha_ni", ()),
        (["pku", "invpcid", "xsaves", "rdrnd", "clzero", "shstk", "avx10.1"], HASWELL, ()),
        (
            ["neon", "lse", "dotprod", "fullfp16", "sve"],
            "fp asimd atomics asimddp asimdhp",
            ("sve",),
        ),
        (V3, "", ()),  # a system that tells nothing
    ],
)
def test_missing(features, flags, lacking):
    wanted = tuple(features) if lacking is None else lacking
    assert target.missing(features, frozenset(flags.split())) == wanted


def test_this_machine_is_fit_for_itself():
    native = target.resolve(find_compiler(), "native")
    assert native.cpu != "native"
    assert target.missing(native.features) == ()


def test_resolve_refuses_an_unknown_cpu():
    with pytest.raises(CompileError, match="given 'z80'"):
        target.resolve(find_compiler(), "z80")


def test_needed_libraries():
    library = find_compiler().lib / "libKGENCompilerRTShared.so"
    assert {"libAsyncRTRuntimeGlobals.so", "libMSupportGlobals.so", "libc.so.6"} <= set(
        elf.read_dynamic(library).needed
    )


def test_a_run_path_has_no_room_for_a_longer_one(copy):
    with pytest.raises(ValueError, match=re.escape("no room for the run path '/a/long/path'")):
        elf.set_runpath(copy / "library.so", "/a/long/path")


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF\x01\x01" + bytes(100), bytes(4096)])
def test_other_files_are_no_libraries(tmp_path, data):
    path = tmp_path / "file.so"
    path.write_bytes(data)
    with pytest.raises(ValueError, match="64-bit ELF library"):
        elf.read_dynamic(path)


def test_a_library_that_was_cut_off(made, tmp_path):
    data = (made / "library.so").read_bytes()
    path = tmp_path / "cut.so"
    for length in range(0, len(data), 997):
        path.write_bytes(data[:length])
        try:
            assert "libc.so.6" in elf.read_dynamic(path).needed
        except ValueError as error:
            assert str(path) in str(error)
