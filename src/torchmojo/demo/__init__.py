"""What ``torchmojo demo`` runs: three picture filters in Mojo, checked and timed against torch."""

from torchmojo.demo.report import Report, Row
from torchmojo.demo.runner import KERNELS, main, run

__all__ = ["KERNELS", "Report", "Row", "main", "run"]
