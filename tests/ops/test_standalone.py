"""Operators of a built folder: from Python, from a process without torchmojo, from C++."""

import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import torchmojo
from torchmojo.cli import app
from torchmojo.errors import ArgumentError, LibraryError
from torchmojo.ops.registry import write_registry

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="built folders are for Linux")

SOURCE = '''\
"""Kernels of a built folder."""

from torchmojo import MutTensor, OptionalTensor, Tensor


def join[
    dtype: DType
](
    dst: MutTensor[dtype, 2, "n m"],
    a: Tensor[dtype, 1, "n"],
    b: Tensor[dtype, 1, "m"],
    alpha: Float64 = 1.0,
) raises:
    """Writes a + alpha * b; raises for 13."""
    if alpha == 13:
        raise Error("alpha is unlucky")
    for i in range(a.dim(0)):
        for j in range(b.dim(0)):
            dst[i, j] = a[i] + Scalar[dtype](alpha) * b[j]


def scale_(x: MutTensor[DType.float32, 1], by: Int8, name: String = "none"):
    """Multiplies by `by` and the length of `name`."""
    for i in range(x.dim(0)):
        x[i] *= Float32(Int(by) * name.byte_length())


def count(number: MutTensor[DType.int64, 1, "3"], x: Tensor[DType.float32, 1]):
    """Writes the length three times."""
    for i in range(3):
        number[i] = Int64(x.dim(0))
'''


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Give a folder built with operators in the namespace mjbuilt."""
    folder = tmp_path_factory.mktemp("standalone")
    source = folder / "joins.mojo"
    source.write_text(SOURCE)
    done = CliRunner().invoke(
        app,
        [
            "build",
            str(source),
            "-o",
            str(folder / "made"),
            "--ops",
            "mjbuilt",
            "--dtypes",
            "float32",
        ],
        prog_name="torchmojo",
    )
    if "no Mojo compiler" in done.output:
        pytest.skip(done.output)
    assert done.exit_code == 0, done.output
    return folder / "made"


def run(code: str, *args: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ops_from_a_built_folder(built):
    out = run(
        """
        import sys, torch, torchmojo
        ops = torchmojo.ops_from(sys.argv[1], namespace="other")
        print(torch.ops.other.join(torch.ones(2), torch.arange(3.0), 2.0).tolist())
        print(*sorted(ops))
        """,
        built,
    )
    assert out.splitlines() == ["[[1.0, 3.0, 5.0], [1.0, 3.0, 5.0]]", "count join scale_"]


def test_a_folder_without_operators(tmp_path):
    source = tmp_path / "joins.mojo"
    source.write_text(SOURCE)
    made = tmp_path / "made"
    done = CliRunner().invoke(
        app, ["build", str(source), "-o", str(made), "--dtypes", "float32"], prog_name="torchmojo"
    )
    assert done.exit_code == 0, done.output
    assert not (made / "operators.so").exists()
    with pytest.raises(LibraryError) as caught:
        torchmojo.ops_from(made, namespace="mjnone")
    assert str(caught.value) == (
        f"op: {made}: wanted kernels with their source, or a folder built with operators, given "
        "one without; build it with `torchmojo build --ops NAMESPACE`"
    )


ALONE = """
import ctypes, sys, torch
library = ctypes.CDLL(sys.argv[1] + "/operators.so")
register = library.torchmojo_register_operators
register.restype = ctypes.c_char_p
print(register())
print(register().decode())
"""


def test_without_torchmojo(built):
    out = run(
        ALONE
        + textwrap.dedent(
            """
            ops = torch.ops.mjbuilt
            print(ops.join.default._schema)
            a, b = torch.arange(4.0)[::2], torch.ones(3)
            print(torch.equal(ops.join(a, b, 2.0), a[:, None] + 2 * b))
            dst = torch.zeros(3, 2).t()
            ops.join.out(a, b, dst=dst)
            print(torch.equal(dst, a[:, None] + b))
            x = torch.ones(3)
            version = x._version
            ops.scale_(x, 3, "four")
            print(x.tolist(), x._version - version)
            print(ops.count(torch.zeros(5)).tolist())
            print(ops.join(a.requires_grad_().detach(), b).shape, "torchmojo" in sys.modules)
            for call in (
                lambda: ops.join(a.detach(), b, 13.0),
                lambda: ops.join(a.detach(), b.double()),
                lambda: ops.join(a.detach(), b[None]),
                lambda: ops.join(a, b),
                lambda: ops.scale_(torch.ones(1).expand(3), 2),
                lambda: ops.scale_(torch.ones(3), 200),
                lambda: ops.join(a.detach(), b, dst=torch.zeros(2, 4)),
            ):
                try:
                    call()
                except RuntimeError as error:
                    print(str(error))
            """
        ),
        built,
    )
    assert out.splitlines() == [
        "None",
        "torchmojo: the operators of this library are registered already",
        "mjbuilt::join(Tensor a, Tensor b, float alpha=1.) -> Tensor",
        "True",
        "True",
        "[12.0, 12.0, 12.0] 1",
        "[5, 5, 5]",
        "torch.Size([2, 3]) False",
        "mjbuilt::join: alpha is unlucky",
        "mjbuilt::join: b: its dtype differs from another argument's that must be the same",
        "mjbuilt::join: b: the kernel does not take its number of axes",
        "a gradient is asked for in a process without Python",
        "mjbuilt::scale_: x: it would be written, and shares memory with itself or another "
        "argument",
        "mjbuilt::scale_: by: the number does not fit the kernel's type",
        "mjbuilt::join: b: an axis has another size than the kernel's signature says",
    ]


BOTH = """
import ctypes, sys, torch, torchmojo

def register():
    library = ctypes.CDLL(sys.argv[1] + "/operators.so")
    library.torchmojo_register_operators.restype = ctypes.c_char_p
    return library.torchmojo_register_operators()

def load():
    try:
        return torchmojo.ops_from(sys.argv[1], namespace="mjboth")
    except torchmojo.LibraryError as error:
        return str(error)

first, second = (register, load) if sys.argv[2] == "register" else (load, register)
first()
print(second())
print(torch.ops.mjbuilt.count(torch.ones(4)).tolist() if first is register else
      torch.ops.mjboth.count(torch.ones(4)).tolist())
"""


@pytest.mark.parametrize(
    ("first", "text"),
    [
        ("register", "given one whose operators torchmojo_register_operators has registered"),
        ("load", "the operators of this library are registered already"),
    ],
)
def test_one_folder_in_both_ways(built, first, text):
    """Two owners of one table would call each other's kernels."""
    told, counted = run(BOTH, built, first).splitlines()
    assert text in told
    assert counted == "[4, 4, 4]"


def test_what_it_refuses(built, tmp_path):
    """No torch in the process, another version of torch, a library without a registry."""
    without_torch = ALONE.replace(", torch", "")
    [text, _] = run(without_torch, built).splitlines()
    assert "wanted a process that has loaded libtorch_cpu.so, given none" in text
    other = tmp_path / "other"
    shutil.copytree(built, other)
    library = (other / "operators.so").read_bytes()
    # The registry's second word is this version of torch's.
    registry = write_registry(torchmojo.load(built)._built.contract, "mjbuilt")
    head = registry[:16]
    assert library.count(head) == 1
    changed = head[:8] + bytes([head[8] ^ 1]) + head[9:]
    (other / "operators.so").write_bytes(library.replace(head, changed))
    [text, _] = run(ALONE, other).splitlines()
    assert re.search(
        rf"wanted torch {re.escape(torch.__version__)}, for which joins.mojo was built, given "
        "another; build it again with that one",
        text,
    )


def test_registry_is_refused(kernels):
    contract = kernels._built.contract
    with pytest.raises(ArgumentError) as caught:
        write_registry(contract, "a b")
    assert str(caught.value) == "build: --ops: wanted a namespace, such as vision, given a b"


@pytest.mark.slow
def test_many_kernels_have_a_table_of_their_size(tmp_path):
    """A table of a fixed 4 KiB would be overrun by the 113th kernel."""
    source = tmp_path / "many.mojo"
    head = "from torchmojo import MutTensor\n\n\n"
    source.write_text(
        head
        + "\n\n".join(
            f"def k{i}_(x: MutTensor[DType.float32, 1]):\n    x[0] = {i}\n" for i in range(130)
        )
    )
    ops = torchmojo.ops_from(source, namespace="mjmany")
    x = torch.zeros(1)
    for i in 0, 112, 113, 129:
        ops[f"k{i}_"](x)
        assert x.item() == i
    for made in ops.values():
        made.unregister()


CPP = r"""
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <iostream>
#include <thread>

int main(int, char** arguments) {
  void* library = dlopen(arguments[1], RTLD_NOW);
  if (!library) { std::cerr << dlerror() << "\n"; return 2; }
  auto start = (const char* (*)())dlsym(library, "torchmojo_register_operators");
  if (const char* error = start()) { std::cerr << error << "\n"; return 3; }
  auto join = c10::Dispatcher::singleton().findSchemaOrThrow("mjbuilt::join", "")
      .typed<at::Tensor(const at::Tensor&, const at::Tensor&, double)>();
  auto a = at::arange(4, at::kFloat).slice(0, 0, 4, 2), b = at::ones(3);
  bool right = at::equal(join.call(a, b, 2.0), a.unsqueeze(1) + 2 * b);
  std::thread([&] { right = right && at::equal(join.call(a, b, 1.0), a.unsqueeze(1) + b); }).join();
  std::cout << right << "\n";
  for (double alpha : {13.0, 1.0}) {
    try { join.call(a, alpha == 13.0 ? b : b.to(at::kDouble), alpha); }
    catch (const c10::Error& error) { std::cout << error.what_without_backtrace() << "\n"; }
  }
}
"""


@pytest.mark.slow
def test_from_cpp(built, tmp_path):
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = Path(torch.__file__).parent
    (tmp_path / "main.cpp").write_text(CPP)
    program = tmp_path / "main"
    lib = folder / "lib"
    subprocess.run(
        [
            *(compiler, "-std=c++20", "-w", tmp_path / "main.cpp", "-o", program),
            *(f"-I{folder / 'include'}", f"-L{lib}", f"-Wl,-rpath,{lib}", "-Wl,--no-as-needed"),
            *("-ltorch_cpu", "-lc10", "-ldl", "-pthread"),
        ],
        check=True,
        timeout=240,
    )
    done = subprocess.run(
        [program, built / "operators.so"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "1",
        "mjbuilt::join: alpha is unlucky",
        "mjbuilt::join: b: its dtype differs from another argument's that must be the same",
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's own, of its trees
def test_aoti_package(ops, tmp_path):
    """An AOTInductor package with operators inside, with and without sizes compiled in."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)

        def forward(self, x):
            y = self.linear(x).reshape(-1)
            square, cube = torch.ops.mjtest.powers(y)
            return torch.ops.mjtest.add(square, cube, 0.5) * 2

    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("AOTInductor needs a C++ compiler")
    net, x = Net().eval(), torch.randn(4, 8)
    rows = {"x": {0: torch.export.Dim("rows", min=2, max=64)}}
    with torch.no_grad():
        exported = torch.export.export(net, (x,), dynamic_shapes=rows)
        path = torch._inductor.aoti_compile_and_package(
            exported, package_path=str(tmp_path / "net.pt2")
        )
        run = torch._inductor.aoti_load_package(path)
        for count in 4, 7, 64:
            x = torch.randn(count, 8)
            torch.testing.assert_close(run(x), net(x))
