"""A pytest plugin: put ``pytest_plugins = ["torchmojo.testing.plugin"]`` into ``conftest.py``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from torchmojo.bridge.share.leak import LeakCheck

__all__ = ["leak_check"]


@pytest.fixture
def leak_check() -> Iterator[LeakCheck]:
    """Fails a test that leaves a handle, an export or a second free behind.

    Yields:
        The check, whose ``before`` holds the counts at the start.
    """
    with LeakCheck(()) as check:
        yield check
