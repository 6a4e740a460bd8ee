"""The TORCHMOJO_* environment variables."""

from dataclasses import fields
from pathlib import Path

import pytest

from torchmojo.toolchain.settings import VARIABLES, Settings, read_settings


def test_defaults():
    assert read_settings({}) == Settings()
    assert read_settings({}).cache_size == 2147483648


def test_every_field_has_a_variable():
    assert {"TORCHMOJO_" + field.name.upper() for field in fields(Settings)} == {
        variable.name for variable in VARIABLES
    }


def test_table_is_ready_for_the_docs():
    for variable in VARIABLES:
        assert variable.default
        assert variable.effect.endswith(".")


def test_empty_counts_as_unset():
    assert read_settings({variable.name: "  " for variable in VARIABLES}) == Settings()


def test_reads_the_process_environment(monkeypatch):
    monkeypatch.setenv("TORCHMOJO_TARGET_CPU", "x86-64-v3")
    assert read_settings().target_cpu == "x86-64-v3"


def test_paths_are_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    settings = read_settings({"TORCHMOJO_MOJO": "bin/mojo", "TORCHMOJO_CACHE_DIR": "~/kernels"})
    assert settings.mojo == tmp_path / "bin/mojo"
    assert settings.cache_dir == Path("/home/someone/kernels")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1073741824", 1073741824),
        ("2GB", 2_000_000_000),
        ("2GiB", 2147483648),
        ("1.5 mib", 1572864),
        ("7kb", 7000),
        ("1 TB", 1_000_000_000_000),
    ],
)
def test_sizes(text, size):
    assert read_settings({"TORCHMOJO_CACHE_SIZE": text}).cache_size == size


def test_any_compiler():
    assert read_settings({"TORCHMOJO_ANY_COMPILER": "1"}).any_compiler
    assert not read_settings({"TORCHMOJO_ANY_COMPILER": "0"}).any_compiler


def test_sanitize():
    assert read_settings({"TORCHMOJO_SANITIZE": "thread"}).sanitize == "thread"
    assert read_settings({"TORCHMOJO_SANITIZE": "none"}).sanitize == "none"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "TORCHMOJO_CACHE_SIZE",
            "lots",
            "environment variable TORCHMOJO_CACHE_SIZE: wanted a size such as 500MB, 2GiB or "
            "1073741824, given 'lots'; unset it to get the default",
        ),
        (
            "TORCHMOJO_CACHE_SIZE",
            "-1",
            "environment variable TORCHMOJO_CACHE_SIZE: wanted a size such as 500MB, 2GiB or "
            "1073741824, given '-1'; unset it to get the default",
        ),
        (
            "TORCHMOJO_TARGET_CPU",
            "-o evil",
            "environment variable TORCHMOJO_TARGET_CPU: wanted native or the name of a CPU, such "
            "as x86-64-v3, given '-o evil'; unset it to get the default",
        ),
        (
            "TORCHMOJO_PROGRESS",
            "yes",
            "environment variable TORCHMOJO_PROGRESS: wanted one of auto, 0, 1, given 'yes'; "
            "unset it to get the default",
        ),
        (
            "TORCHMOJO_ANY_COMPILER",
            "true",
            "environment variable TORCHMOJO_ANY_COMPILER: wanted one of 0, 1, given 'true'; "
            "unset it to get the default",
        ),
        (
            "TORCHMOJO_SANITIZE",
            "memory",
            "environment variable TORCHMOJO_SANITIZE: wanted one of none, address, thread, given "
            "'memory'; unset it to get the default",
        ),
    ],
)
def test_bad_values(name, value, message):
    with pytest.raises(ValueError) as caught:
        read_settings({name: value})
    assert str(caught.value) == message
