"""What the tests of models share: a policy that refuses copies, a process for each hazard, and one
small model with all that prepared models can have, compiled once a session."""

import os
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path

import pytest

import torchmojo

torch = pytest.importorskip("torch", reason="weights become torch tensors")


@pytest.fixture(autouse=True)
def refusing(request):
    """Refuse what a copy of weights could mend; the tests of copies say `copying`."""
    if "copying" in request.keywords or "weights" not in request.module.__name__:
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


@pytest.fixture
def refused():
    """Give `refused(path, words, **options)`: opening fails, and the text holds the words."""

    def check(path, *words, **options):
        tracemalloc.start()
        try:
            with pytest.raises(torchmojo.WeightsError) as caught:
                torchmojo.open_weights(path, **options)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        text = str(caught.value)
        assert text.startswith("open_weights: "), text
        for word in words:
            assert word in text, text
        assert most < 4 << 20, "something was allocated for what the file says"

    return check


class Small(torch.nn.Module):
    """Tied, strided, scalar and integer weights; a size that varies; a channels-last input."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.first = torch.nn.Linear(4, 8)
        self.second = torch.nn.Linear(8, 8)
        self.tied = torch.nn.Linear(8, 8)
        self.tied.weight = self.second.weight
        self.turned = torch.nn.Parameter(torch.randn(3, 8).t())
        self.register_buffer("scale", torch.tensor(3))
        self.conv = torch.nn.Conv2d(3, 5, 3)

    def forward(self, x, y, image):
        """x: [n, 4], y: [3], image: [2, 3, 7, 5] channels last."""
        hidden = self.tied(self.second(torch.relu(self.first(x))))
        return {
            "sum": hidden @ self.turned + y * self.scale,
            "image": torch.relu(self.conv(image)).mean((2, 3)) + torch.tensor([1.0, 2, 3, 4, 5]),
            "weight": self.turned[1:5],
        }


def small_inputs(n=2):
    generator = torch.Generator().manual_seed(n)
    image = torch.randn(2, 3, 7, 5, generator=generator)
    return (
        torch.randn(n, 4, generator=generator),
        torch.randn(3, generator=generator),
        image.contiguous(memory_format=torch.channels_last),
    )


@pytest.fixture(scope="session")
def small_module():
    return Small().eval().requires_grad_(False)


@pytest.fixture(scope="session")
def inputs():
    """Give `inputs(n)`: x, y and image."""
    return small_inputs


@pytest.fixture(scope="session")
def small(small_module, tmp_path_factory) -> Path:
    """Give the folder; tests copy it before they change it."""
    folder = tmp_path_factory.mktemp("models") / "small"
    sizes = {"x": {0: ("n", 1, 9)}}
    try:
        return torchmojo.prepare(small_module, small_inputs(), folder, dynamic=sizes, threads=1)
    except torchmojo.CompilerNotFoundError as error:
        pytest.skip(str(error))
