"""The folders that ``torchmojo build`` writes and ``torchmojo.load`` opens without a compiler."""

from torchmojo.toolchain.export.folder import Exported, export
from torchmojo.toolchain.export.manifest import MANIFEST, Manifest, check, read

__all__ = ["MANIFEST", "Exported", "Manifest", "check", "export", "read"]
