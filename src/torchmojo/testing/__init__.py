"""For tests of programs that use torchmojo: failures on purpose, and a fixture that finds leaks."""

from torchmojo.testing.inject import inject

__all__ = ["inject"]
