"""What ``torchmojo demo`` runs: three picture filters in Mojo beside torch, and a face detector."""

from torchmojo.demo.report import Report, Row
from torchmojo.demo.runner import KERNELS, main, run

__all__ = ["KERNELS", "Report", "Row", "main", "run"]
