"""What the tests of operators share: the kernels, operators made of them, and a child process."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import torchmojo
from torchmojo.errors import CompilerNotFoundError

KERNELS = Path(__file__).parent / "kernels" / "ops.mojo"
SPACE = "mjtest"


def load(**options):
    """Load the kernels; what they need is compiled once for all sessions."""
    try:
        return torchmojo.load(KERNELS, **options)
    except CompilerNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def refusing(request):
    """Refuse what a copy could mend, in every thread; the tests of copies say `copying`."""
    if "copying" in request.keywords:
        yield
        return
    everywhere = torchmojo.fallback("error")
    yield
    everywhere.undo()


@pytest.fixture(scope="session")
def kernels():
    """Give the kernels for direct calls."""
    return load()


def make_ops(kernels, space=SPACE) -> SimpleNamespace:
    """Make the operators that most tests use."""
    op = torchmojo.op
    names = SimpleNamespace(kernels=kernels)

    @op(f"{space}::add", kernels.add)
    def add(a, b, alpha=1.0):
        """Add."""
        return torch.empty_like(a)

    @op(f"{space}::mul", kernels.mul)
    def mul(a, b):
        return torch.empty_like(a)

    @op(f"{space}::powers", kernels.powers)
    def powers(x):
        return torch.empty_like(x), x.new_empty(x.shape[0])

    @op(f"{space}::scale_", kernels.scale_)
    def scale_(x, by): ...

    @op(f"{space}::outer", kernels.outer)
    def outer(a, b):
        return a.new_empty(a.shape[0], b.size(0))

    @op(f"{space}::tell", kernels.tell)
    def tell(x, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p):  # noqa: E741
        return x.new_empty(32)

    @op(f"{space}::maybe", kernels.maybe)
    def maybe(x, y, a, b, c, d, e):
        return torch.empty_like(x)

    @op(f"{space}::total", kernels.total)
    def total(x, xs):
        return torch.empty_like(x)

    @op(f"{space}::total_list", kernels.total_list)
    def total_list(xs):
        return torch.empty_like(xs[0])

    @op(f"{space}::number_", kernels.number_)
    def number_(xs, start): ...

    @op(f"{space}::flip", kernels.flip)
    def flip(x):
        return torch.empty_like(x)

    @op(f"{space}::sizes", kernels.sizes)
    def sizes(x):
        return x.new_empty(7, dtype=torch.int64)

    @op(f"{space}::touch", kernels.touch)
    def touch(x):
        return torch.empty_like(x)

    @op(f"{space}::double", kernels.double)
    def double(x):
        return torch.empty_like(x)

    @op(f"{space}::rows", kernels.rows)
    def rows(x):
        return x.new_empty(6)

    @op(f"{space}::square_complex", kernels.square_complex)
    def square_complex(z):
        return torch.empty_like(z)

    @op(f"{space}::add_by_rule", kernels.add)
    def add_by_rule(a, b, alpha):
        if a.shape[0] > 3:
            return torch.empty_like(a)
        return a.new_empty(a.shape[0])

    for name, made in locals().items():
        if isinstance(made, torchmojo.Op):
            setattr(names, name, made)
    return names


@pytest.fixture(scope="session")
def ops(kernels):
    """Give the operators of `make_ops`, which no test takes out."""
    return make_ops(kernels)


@pytest.fixture
def ns(request):
    """Give a namespace of its own."""
    return "mj" + "".join(c for c in request.node.name if c.isalnum())[:60]


def run_in_child(code: str, timeout: float = 240, **env: str) -> str:
    head = (
        "from pathlib import Path\n"
        "import torch, torchmojo\n"
        f"kernels = torchmojo.load({str(KERNELS)!r})\n"
        'torchmojo.fallback("error")\n'
    )
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", head + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **env},
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"child ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


@pytest.fixture(scope="session")
def run_child(kernels):
    """Give `run_child(code)`: run Python in a new process that has loaded `kernels`."""
    return run_in_child


def text_of(call, *args, **keywords) -> str:
    """Call what must fail with torch's error; give its text."""
    with pytest.raises((RuntimeError, torchmojo.TorchmojoError)) as caught:
        call(*args, **keywords)
    return str(caught.value)


def close(given, wanted) -> None:
    """Compare values, dtype and shape exactly."""
    torch.testing.assert_close(given, wanted, rtol=0, atol=0, equal_nan=True)
