"""Runs the command-line tool: ``python -m torchmojo``."""

import sys

from torchmojo.cli import main

sys.exit(main())
