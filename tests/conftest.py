"""What all tests share: real files from pinned packages, and the skip of device tests."""

import functools
import hashlib
import importlib.metadata
import os
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

# No deadline: a test never judges speed. On CI the same examples run every time.
hypothesis.settings.register_profile("torchmojo", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("torchmojo")

ASTRONAUT_SHA256 = "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5"


@pytest.fixture(autouse=True)
def nothing_leaks(leak_check):
    """Fail every test that leaves a handle, an export or a second free behind."""


@pytest.fixture(scope="session")
def asset() -> Callable[[str, str, str], Path]:
    """Give `asset(dist, suffix, sha256)`: the path of a file inside an installed package.

    The package is never imported. A missing package or file skips the test with the reason, or
    fails it where CI is set; a file with another hash fails it everywhere.
    """
    return find_asset


@pytest.fixture(scope="session")
def astronaut(asset) -> Path:
    """Give a photograph: PNG, RGB, 512 x 512, one face."""
    return asset("scikit-image", "skimage/data/astronaut.png", ASTRONAUT_SHA256)


def find_asset(dist: str, suffix: str, sha256: str) -> Path:
    try:
        files = importlib.metadata.files(dist) or []
    except importlib.metadata.PackageNotFoundError:
        missing(f"package {dist} is not installed (./dev setup installs it)")
    found = [file.locate() for file in files if str(file).endswith(suffix)]
    if not found:
        missing(f"package {dist} holds no file {suffix}")
    path = Path(found[0])
    actual = digest(path)
    if actual != sha256:
        pytest.fail(f"{suffix} of {dist}: sha256 {sha256} expected, {actual} found")
    return path


@functools.cache
def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def missing(reason: str) -> None:
    """Skip at a desk; on CI, a skip that nobody reads is a failure."""
    if os.environ.get("CI"):
        pytest.fail(f"missing test asset: {reason}")
    pytest.skip(reason)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked device, with the reason, where torch sees no CUDA device."""
    marked = [item for item in items if item.get_closest_marker("device")]
    reason = device_absent() if marked else None
    if reason:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


def device_absent() -> str | None:
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return None if torch.cuda.is_available() else "torch sees no CUDA device"
