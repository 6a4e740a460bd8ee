"""The command-line tool ``torchmojo``."""

from torchmojo.cli.app import app, main

__all__ = ["app", "main"]
