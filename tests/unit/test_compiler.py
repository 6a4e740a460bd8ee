"""Finding the compiler, running it, telling CPUs apart."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import torchmojo.toolchain.compile.compiler as module
from torchmojo.errors import CompilerNotFoundError
from torchmojo.toolchain.compile.compiler import (
    Compiler,
    Rejected,
    cpu_identity,
    find_compiler,
    run,
)
from torchmojo.toolchain.settings import Settings

SOURCE = str(Path(module.__file__).parents[3])


def install(folder: Path, version: str | None = "1.2.0", std: bool = True) -> Path:
    """Lay out what the mojo-compiler package installs into a site-packages folder."""
    binary = folder / "modular/bin/mojo"
    binary.parent.mkdir(parents=True)
    binary.write_bytes(b"\x7fELF pretended")
    binary.chmod(0o755)
    (folder / "modular/lib/mojo").mkdir(parents=True)
    if std:
        (folder / "modular/lib/mojo/std.mojoc").touch()
    if version is not None:
        (folder / f"mojo_compiler-{version}.dist-info").mkdir()
    return binary


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """Hide all compilers of this machine."""
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(module, "__file__", str(tmp_path / "a/b/c/d/compiler.py"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("MODULAR_HOME", raising=False)


def reason(settings: Settings) -> str:
    with pytest.raises(CompilerNotFoundError) as caught:
        find_compiler(settings)
    return str(caught.value)


# --- finding one ----------------------------------------------------------------------------------


def test_finds_the_package_of_this_python():
    try:
        compiler = find_compiler(Settings())
    except CompilerNotFoundError as error:
        pytest.skip(str(error))
    assert compiler.version.startswith("1.2.")
    assert compiler.path.is_file()
    assert list(compiler.lib.glob("libKGENCompilerRTShared.*"))
    assert compiler.identity.startswith(f"{compiler.version}-")
    assert "mojo" in run(compiler, ["--version"], Path("/tmp")).stdout.lower()


def test_order_of_places(nowhere, monkeypatch, tmp_path):
    named, wheel = install(tmp_path / "named"), install(tmp_path / "site")
    home, path = install(tmp_path / "home"), install(tmp_path / "somewhere")
    monkeypatch.setenv("PATH", str(path.parent))
    found = find_compiler(Settings())
    assert (found.origin, found.path) == ("PATH", path)
    assert found.rejected == (
        Rejected("TORCHMOJO_MOJO", "not set"),
        Rejected("mojo-compiler package", f"not installed for {sys.executable}"),
        Rejected("MODULAR_HOME", "not set"),
    )
    monkeypatch.setenv("MODULAR_HOME", str(tmp_path / "home"))
    found = find_compiler(Settings())
    assert (found.origin, found.path) == ("MODULAR_HOME", home)
    monkeypatch.setattr(sys, "path", ["", "relative", str(tmp_path / "site")])
    found = find_compiler(Settings())
    assert (found.origin, found.path) == ("wheel", wheel)
    assert found.lib == tmp_path / "site/modular/lib"
    assert found.rejected == (Rejected("TORCHMOJO_MOJO", "not set"),)
    found = find_compiler(Settings(mojo=named))
    assert (found.origin, found.path, found.rejected) == ("TORCHMOJO_MOJO", named, ())


def test_package_beside_torchmojo_comes_first(nowhere, monkeypatch, tmp_path):
    beside = install(tmp_path / "a")  # as __file__ is a/b/c/d/compiler.py
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    install(tmp_path / "site")
    assert find_compiler(Settings()).path == beside


def test_none_found(nowhere, monkeypatch, tmp_path):
    monkeypatch.setenv("MODULAR_HOME", "/nonexistent/home")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    install(tmp_path, version="1.1.3")
    assert reason(Settings()) == (
        "no Mojo compiler of version 1.2.x found; tried\n"
        "  TORCHMOJO_MOJO: not set\n"
        f"  mojo-compiler package ({tmp_path}/modular/bin/mojo): wanted version 1.2.x, "
        "given 1.1.3 (TORCHMOJO_ANY_COMPILER=1 takes it all the same)\n"
        "  MODULAR_HOME=/nonexistent/home: no bin/mojo in it\n"
        "  PATH: no program named mojo\n"
        'To install one: pip install "torchmojo[compiler]"'
    )


def test_compiler_that_was_named_is_not_replaced(nowhere, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    install(tmp_path)
    assert reason(Settings(mojo=Path("/nonexistent/mojo"))) == (
        "no Mojo compiler of version 1.2.x found; tried\n"
        "  TORCHMOJO_MOJO=/nonexistent/mojo: No such file or directory\n"
        "  other places: not tried, because TORCHMOJO_MOJO is set\n"
        'To install one: pip install "torchmojo[compiler]"'
    )


@pytest.mark.parametrize("version", ["1.2.0", "1.2.7", "1.2.0.dev2026080105"])
def test_supported_versions(tmp_path, version):
    binary = install(tmp_path, version)
    assert find_compiler(Settings(mojo=binary)).version == version


@pytest.mark.parametrize("version", ["1.1.9", "1.20.0", "1.3.0", "2.1.2"])
def test_other_versions_need_a_variable(tmp_path, version):
    binary = install(tmp_path, version)
    assert f"wanted version 1.2.x, given {version}" in reason(Settings(mojo=binary))
    assert find_compiler(Settings(mojo=binary, any_compiler=True)).version == version


def test_unfit_files(tmp_path):
    no_std = install(tmp_path / "one", std=False)
    assert f": no standard library in {tmp_path}/one/modular/lib/mojo" in reason(
        Settings(mojo=no_std)
    )
    plain = install(tmp_path / "two")
    plain.chmod(0o644)
    assert ": not executable" in reason(Settings(mojo=plain))
    script = tmp_path / "script"
    script.write_text("#!/usr/bin/perl\n")
    assert ": a script, with no mojo-compiler package behind it" in reason(Settings(mojo=script))
    assert ": Is a directory" in reason(Settings(mojo=tmp_path))
    strange = install(tmp_path / "three", version=None)
    assert ": cannot be started (" in reason(Settings(mojo=strange))


def test_script_of_pip_leads_to_the_binary(tmp_path):
    binary = install(tmp_path / "env/lib/python3.11/site-packages")
    script = tmp_path / "env/bin/mojo"
    script.parent.mkdir()
    script.write_text("#!/usr/bin/python\n")
    assert find_compiler(Settings(mojo=script)).path == binary


def test_conda_tells_the_version(tmp_path, monkeypatch, nowhere):
    binary = install(tmp_path / "x", version=None)
    prefix = binary.parent.parent.rename(tmp_path / "prefix")
    (prefix / "conda-meta").mkdir()
    (prefix / "conda-meta/mojo-compiler-1.2.1-release.json").touch()
    (prefix / "share/max").mkdir(parents=True)
    monkeypatch.setenv("MODULAR_HOME", str(prefix / "share/max"))
    found = find_compiler(Settings())
    assert (found.path, found.version) == (prefix / "bin/mojo", "1.2.1")


def test_version_is_asked_for_where_nothing_tells_it(tmp_path, monkeypatch):
    binary = install(tmp_path, version=None)
    output = b"Mojo 1.2.0 (2016d0cd)\n"
    monkeypatch.setattr(
        subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 0, output.decode(), "")
    )
    assert find_compiler(Settings(mojo=binary)).version == "1.2.0"
    # Two versions are on record, so one of the records is a leftover.
    for version in ("1.1.0", "1.2.5"):
        (tmp_path / f"mojo_compiler-{version}.dist-info").mkdir()
    assert find_compiler(Settings(mojo=binary)).version == "1.2.0"


def test_identity_changes_with_the_compiler(tmp_path):
    binary = install(tmp_path / "one")
    other = install(tmp_path / "two")
    first = find_compiler(Settings(mojo=binary)).identity
    assert first == find_compiler(Settings(mojo=binary)).identity
    assert first != find_compiler(Settings(mojo=other)).identity
    os.utime(binary, (1, 1))
    second = find_compiler(Settings(mojo=binary)).identity
    os.utime(tmp_path / "one/modular/lib/mojo/std.mojoc", (1, 1))
    third = find_compiler(Settings(mojo=binary)).identity
    assert len({first, second, third}) == 3


def test_linker_comes_with_the_compiler(tmp_path, monkeypatch):
    binary = install(tmp_path)
    compiler = find_compiler(Settings(mojo=binary))
    assert compiler.linker is None
    (binary.parent / "lld").touch()
    monkeypatch.setattr(sys, "platform", "linux")
    assert compiler.linker == binary.parent / "lld"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert compiler.linker is None


# --- running it -----------------------------------------------------------------------------------


@pytest.fixture
def pretend(tmp_path):
    """Make a compiler of a shell script."""

    def make(script: str) -> Compiler:
        path = tmp_path / "prefix/bin/mojo"
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return Compiler(path, tmp_path / "prefix/lib", "1.2.0", "wheel", "1.2.0-x")

    return make


def test_run(pretend, tmp_path):
    compiler = pretend('pwd; echo "$@"; cat; echo oops >&2; exit 3')
    done = run(compiler, ["build", Path("a b")], tmp_path)
    assert done.returncode == 3
    assert done.stdout == f"{tmp_path}\nbuild a b\n"
    assert done.stderr == "oops\n"
    assert done.seconds > 0
    assert [path.name for path in tmp_path.iterdir()] == ["prefix"]


def test_environment_is_that_of_this_compiler(pretend, tmp_path, monkeypatch):
    monkeypatch.setenv("MODULAR_HOME", "/other")
    monkeypatch.setenv("MODULAR_MOJO_MAX_IMPORT_PATH", "/other/lib")
    monkeypatch.setenv("MODULAR_MOJO_MAX_SOMETHING", "other")
    monkeypatch.setenv("MODULAR_CACHE_DIR", "/other/cache")
    monkeypatch.setenv("MODULAR_NVPTX_COMPILER_PATH", "/ptxas")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = run(pretend("env"), [], tmp_path, scratch=scratch)
    env = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    private = Path(env["TMPDIR"])
    assert private.parent == scratch
    assert not private.exists()
    assert {key: value for key, value in env.items() if key.startswith("MODULAR_")} == {
        "MODULAR_MAX_PACKAGE_ROOT": f"{tmp_path}/prefix",
        "MODULAR_MOJO_MAX_PACKAGE_ROOT": f"{tmp_path}/prefix",
        "MODULAR_MOJO_MAX_DRIVER_PATH": f"{tmp_path}/prefix/bin/mojo",
        "MODULAR_MOJO_MAX_IMPORT_PATH": f"{tmp_path}/prefix/lib/mojo",
        "MODULAR_CACHE_DIR": str(private / "modular"),
        "MODULAR_CRASH_REPORTING_ENABLED": "false",
        "MODULAR_TELEMETRY_ENABLED": "0",
        "MODULAR_NVPTX_COMPILER_PATH": "/ptxas",
    }


def test_noise_of_the_crash_reporter_is_removed(pretend, tmp_path):
    compiler = pretend(
        "echo 'Failed to initialize Crashpad.  Crash reporting is off.  Cause: x' >&2\n"
        "echo 'k.mojo:1:1: error: crashpad is no type' >&2\n"
        "echo '[1:2:ERROR third_party/crashpad/client/crash.cc:12] open: denied (13)' >&2"
    )
    assert run(compiler, [], tmp_path).stderr == "k.mojo:1:1: error: crashpad is no type\n"


def test_bytes_that_are_no_text(pretend, tmp_path):
    assert run(pretend(r"printf 'caf\351' >&2"), [], tmp_path).stderr == "caf\ufffd"


def test_program_that_cannot_be_started(pretend, tmp_path):
    compiler = pretend("")
    compiler.path.chmod(0o644)
    with pytest.raises(CompilerNotFoundError) as caught:
        run(compiler, [], tmp_path)
    assert str(caught.value) == (
        f"{compiler.path} cannot be started: Permission denied. "
        'To install one: pip install "torchmojo[compiler]"'
    )


INTERRUPTED = """
import sys
from pathlib import Path
from torchmojo.toolchain.compile.compiler import Compiler, run

folder = Path(sys.argv[1])
compiler = Compiler(folder / "prefix/bin/mojo", folder, "1.2.0", "wheel", "x")
try:
    run(compiler, [], folder)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_interrupt_kills_the_compiler_and_its_children(pretend, tmp_path):
    pretend("sleep 300 & echo $$ $! > pids.part; mv pids.part pids; wait")
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, tmp_path],
        env={**os.environ, "PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        pids = tmp_path / "pids"
        deadline = time.monotonic() + 60
        while not pids.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[0] == "interrupted\n"
    for pid in pids.read_text().split():
        while running(int(pid)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pids", "prefix"]


def running(pid: int) -> bool:
    """Tell whether a process runs; one that is dead but not reaped by init does not."""
    try:
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False


# --- telling CPUs apart ---------------------------------------------------------------------------


def test_named_cpu():
    assert cpu_identity("x86-64-v3") == "x86-64-v3"


def test_native_cpu_is_a_hash():
    identity = cpu_identity("native")
    assert identity.startswith("native-")
    assert len(identity) == len("native-") + 16
    assert identity == cpu_identity("native")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/cpuinfo")
def test_facts_of_the_cpu(monkeypatch):
    first = "processor\t: 0\nvendor_id\t: X\nmodel name\t: One\ncpu MHz\t: 2.5\nflags\t: a b\n\n"

    def facts(text: str) -> str:
        import io

        monkeypatch.setattr(Path, "open", lambda *a, **k: io.StringIO(text))
        return module._cpu_facts().partition("\n")[2]

    assert facts(first) == "vendor_id=X\nmodel name=One\nflags=a b"
    assert facts(first + first) == facts(first)
    assert facts("processor\t: 0\nFeatures\t: fp asimd\n") == "Features=fp asimd"
    assert facts("") == ""
