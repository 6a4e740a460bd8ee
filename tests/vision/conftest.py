"""What the tests of vision share: none of them runs without torch and a compiler."""

import pytest

from torchmojo.errors import CompilerNotFoundError

pytest.importorskip("torch")


@pytest.fixture(scope="session", autouse=True)
def operators():
    """Compile what all tests use, once; skip where there is no compiler."""
    from torchmojo.vision import register_operators

    try:
        register_operators()
    except CompilerNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def prepare():
    """Give `torchmojo.vision.prepare`; its kernel is compiled once for all sessions."""
    import torch

    from torchmojo import vision

    vision.prepare(torch.zeros(1, 1, dtype=torch.uint8), 1)
    return vision.prepare
