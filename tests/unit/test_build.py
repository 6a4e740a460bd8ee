"""Building, describing and precompiling with the real compiler; four short builds in all."""

import ctypes
import sys
from pathlib import Path

import pytest

from torchmojo.errors import CompileError, CompilerNotFoundError
from torchmojo.toolchain.compile import build as module
from torchmojo.toolchain.compile.build import BuildFlags, compile_library, document, precompile
from torchmojo.toolchain.compile.compiler import Compiler, cpu_identity, find_compiler
from torchmojo.toolchain.settings import Settings

KERNELS = '''"""Kernels."""

from helper.inner import only_floats


def multiply_add[d: DType](a: Scalar[d], b: Scalar[d], c: Scalar[d]) raises -> Scalar[d]:
    """Returns a * b + c.

    Args:
        a: First factor.
        b: Second factor.
        c: Summand.
    """
    only_floats[d]()
    return a * b + c
'''

INNER = """def only_floats[dtype: DType]():
    comptime assert dtype.is_floating_point(), "only floats are multiplied here"
"""

GLUE = """import kernels as user
from std.sys import is_defined

@export("multiply_add")
def multiply_add(a: Float64, b: Float64, c: Float64) abi("C") -> Float64:
    try:
        return user.multiply_add[DType.float64](a, b, c)
    except e:
        print(e)  # needs the compiler's run-time library
        return 0

@export("checks_bounds")
def checks_bounds() abi("C") -> Bool:
    return is_defined["TORCHMOJO_BOUNDS"]()
"""

QUIET = Settings(progress="0")


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    try:
        return find_compiler()
    except CompilerNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture
def project(tmp_path) -> Path:
    """Make a folder with a kernel file, and a package of which one module is in another folder."""
    project = tmp_path / "project"
    (project / "helper").mkdir(parents=True)
    (project / "kernels.mojo").write_text(KERNELS)
    (project / "helper/__init__.mojo").write_text("")
    (project / "helper/inner.mojo").write_text(INNER)
    (tmp_path / "out").mkdir()
    return project


def user_files(project: Path) -> dict[Path, str]:
    return {
        project / "kernels.mojo": "kernels.mojo",
        project / "helper/inner.mojo": "helper/inner.mojo",
    }


def build(compiler: Compiler, project: Path, glue: str, flags: BuildFlags) -> Path:
    out = project.parent / "out/libk.so"
    compile_library(
        compiler,
        [glue],
        include=[project],
        out=out,
        flags=flags,
        user_files=user_files(project),
        settings=QUIET,
    )
    return out


def test_library_is_built_without_a_c_compiler(compiler, project, monkeypatch):
    if sys.platform == "linux":
        monkeypatch.setenv("PATH", "/nonexistent")
    # A module of this name in the working folder must not be taken for the user's.
    decoy = project.parent / "decoy"
    decoy.mkdir()
    (decoy / "kernels.mojo").write_text("nonsense")
    monkeypatch.chdir(decoy)
    out = build(compiler, project, GLUE, BuildFlags(bounds=True))
    assert sorted(p.name for p in out.parent.iterdir()) == ["libk.so", "part0"]
    library = ctypes.CDLL(str(out))
    library.multiply_add.argtypes = [ctypes.c_double] * 3
    library.multiply_add.restype = ctypes.c_double
    library.checks_bounds.restype = ctypes.c_bool
    # (1 + e)(1 - e) - 1 is 0 when the product is rounded, and -e * e when it is fused with the sum.
    e = 2.0**-30
    assert library.multiply_add(1 + e, 1 - e, -1.0) == 0.0
    assert library.multiply_add(2.0, 3.0, 4.0) == 10.0
    assert library.checks_bounds()


def test_error_inside_a_generic_kernel_is_shown_at_the_users_line(compiler, project):
    glue = GLUE.replace("float64", "int32").replace("Float64", "Int32")
    with pytest.raises(CompileError) as caught:
        build(compiler, project, glue, BuildFlags(optimize=0))
    assert str(caught.value).splitlines() == [
        "helper/inner.mojo:2:5: error: constraint failed: only floats are multiplied here",
        '    comptime assert dtype.is_floating_point(), "only floats are multiplied here"',
        "    ^",
        "kernels.mojo:14:19: note: called from here",
        "    only_floats[d]()",
        "                  ^",
        "kernels.mojo:6:5: note: in this kernel",
        KERNELS.splitlines()[5],
        "    ^",
        "note: compiled with d = int32",
    ]


def test_error_of_ours_is_shown_whole(compiler, project):
    with pytest.raises(CompileError) as caught:
        build(compiler, project, "import kernels\nnonsense\n", BuildFlags())
    first, second, *_ = str(caught.value).splitlines()
    assert first == "the compiler failed outside your file (please report this):"
    glue = project.parent / "out/part0/_torchmojo_glue.mojo"
    assert second.startswith(f"{glue}:2:1: error: ")


def test_unknown_cpu(compiler, project):
    with pytest.raises(CompileError) as caught:
        build(compiler, project, GLUE, BuildFlags(target_cpu="pentium-9000"))
    assert "unknown target CPU 'pentium-9000'" in str(caught.value)
    assert str(caught.value).splitlines()[-1] == (
        "hint: TORCHMOJO_TARGET_CPU names a CPU that the compiler does not know"
    )


def test_document(compiler, project, monkeypatch):
    monkeypatch.chdir(project.parent)
    parsed = document(compiler, Path("project/kernels.mojo"))
    (function,) = parsed["decl"]["functions"]
    assert function["name"] == "multiply_add"
    assert [arg["name"] for arg in function["overloads"][0]["args"]] == ["a", "b", "c"]


def test_document_shows_errors_at_the_users_line(compiler, project):
    (project / "kernels.mojo").write_text(
        "from helper.inner import only_floats\n\ndef f(x: Int):\n    let y = x\n"
    )
    with pytest.raises(CompileError) as caught:
        document(compiler, project / "kernels.mojo", [], {project / "kernels.mojo": "my file"})
    lines = str(caught.value).splitlines()
    assert lines[0] == "my file:4:5: error: use of unknown declaration 'let'"
    assert lines[-1] == "hint: write `var x = ...` instead of `let x = ...`"
    assert not [line for line in lines if str(project) in line]


def test_precompiled_package_serves_as_include(compiler, project):
    out = project.parent / "out"
    precompile(compiler, project / "helper", out / "helper.mojoc")
    assert [path.name for path in out.iterdir()] == ["helper.mojoc"]
    (project / "helper/inner.mojo").unlink()
    (project / "helper/__init__.mojo").unlink()
    (project / "helper").rmdir()
    document(compiler, project / "kernels.mojo", [out])


def test_precompile_of_a_broken_package(compiler, project):
    (project / "helper/inner.mojo").write_text("def f(:\n")
    (project / "helper/__init__.mojo").write_text("from .inner import f\n")
    with pytest.raises(CompileError, match=r"(?s)outside your file.*helper/inner\.mojo:1:"):
        precompile(compiler, project / "helper", project.parent / "out/helper.mojoc")


# --- flags ----------------------------------------------------------------------------------------


def test_flags_as_arguments():
    assert BuildFlags().arguments() == ["-O3", "--fp-mode", "contract=off"]
    assert BuildFlags(True, True, "x86-64-v3", 1).arguments() == [
        "-O1",
        "--target-cpu",
        "x86-64-v3",
        "-D",
        "TORCHMOJO_BOUNDS=1",
    ]


def test_each_flag_is_in_the_key():
    flags = [
        BuildFlags(),
        BuildFlags(fast_math=True),
        BuildFlags(bounds=True),
        BuildFlags(target_cpu="x86-64-v3"),
        BuildFlags(optimize=1),
    ]
    assert len({flag.key() for flag in flags}) == len(flags)
    assert BuildFlags().key().startswith(f"O3 contract=off bounds=0 cpu={cpu_identity('native')}")


# --- progress -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "wish", "terminal", "shown"),
    [
        ("kernels.mojo (3 kernels)", "auto", True, True),
        ("kernels.mojo (3 kernels)", "auto", False, False),
        ("kernels.mojo (3 kernels)", "1", False, True),
        ("kernels.mojo (3 kernels)", "0", True, False),
        (None, "1", True, False),
    ],
)
def test_progress(capsys, monkeypatch, label, wish, terminal, shown):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setenv("COLUMNS", "80")
    with module._progress(label, Settings(progress=wish)):
        pass
    out, err = capsys.readouterr()
    assert out == ""
    assert ("compiling kernels.mojo (3 kernels) … 0.0 s" in err) == shown
    assert bool(err) == shown


def test_progress_without_standard_error(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with module._progress("kernels.mojo", Settings()):
        pass
