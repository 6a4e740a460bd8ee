"""What the tests of weights share: a policy that refuses copies, and a process for each hazard."""

import os
import subprocess
import sys
import textwrap

import pytest

import torchmojo

pytest.importorskip("torch", reason="weights become torch tensors")


@pytest.fixture(autouse=True)
def refusing(request):
    """Refuse what a copy could mend; the tests of copies say `copying`."""
    if "copying" in request.keywords:
        yield
        return
    everywhere = torchmojo.fallback("error")
    yield
    everywhere.undo()


@pytest.fixture
def child(tmp_path):
    """Give `child(program)`: run Python in a process of its own, in an empty folder."""

    def run(program: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=120
        )

    return run
