"""What the tests of vision share."""

import pytest

from torchmojo.errors import CompilerNotFoundError
from torchmojo.vision import register_operators


@pytest.fixture(scope="session", autouse=True)
def operators():
    """Compile what all tests use, once; skip where there is no compiler."""
    try:
        register_operators()
    except CompilerNotFoundError as error:
        pytest.skip(str(error))
