"""The stub of a library's kernels."""

import ast
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from torchmojo.contract import Argument, Contract, KernelContract, Parameter
from torchmojo.toolchain.describe.stub import write_stub

FLOATS = Parameter("dtype", "dtype", ("float32", "float64"))


def kernel(
    name: str, *arguments: Argument, returns: str = "", doc: str = "", **more
) -> KernelContract:
    return KernelContract(
        name=name,
        module="",
        symbol=f"kernel_{name}",
        arguments=arguments,
        returns=returns,
        raises=False,
        doc=doc,
        **{"parameters": (), **more},
    )


def tensor(name: str, **more) -> Argument:
    return Argument(name, **{"kind": "tensor", "dtype": "float32", "rank": 1, **more})


def head(one: KernelContract) -> str:
    """Give the first line of a kernel's function, or its lines up to the colon."""
    text = write_stub(Contract("k.mojo", (one,)))
    start = text.index("def ")
    return text[start : text.index(":\n", start)]


def test_a_whole_stub():
    scaled_add = kernel(
        "scaled_add",
        tensor("out_", dtype="dtype", axes=("n",), writes=True, doc="Where the sum goes."),
        tensor("a", dtype="dtype", axes=("n",)),
        Argument("alpha", "scalar", "Float64", required=False, default=0.5),
        doc="Writes a + alpha.",
        parameters=(FLOATS,),
    )
    assert write_stub(Contract("kernels.mojo", (scaled_add,))) == (
        '"""Kernels of kernels.mojo. Written by torchmojo; do not edit."""\n'
        "\n"
        "from torch import Tensor\n"
        "\n"
        "__all__ = [\n"
        '    "scaled_add",\n'
        "]\n"
        "\n"
        "def scaled_add(out_: Tensor, a: Tensor, alpha: float = 0.5) -> None:\n"
        '    """scaled_add(out_: MutTensor[dtype, 1, "n"], a: Tensor[dtype, 1, "n"], '
        "alpha: Float64 = 0.5)\n"
        "\n"
        "    Writes a + alpha.\n"
        "\n"
        "    Args:\n"
        "        out_: Where the sum goes.\n"
        "\n"
        "    dtype: float32, float64\n"
        '    """\n'
    )


@pytest.mark.parametrize(
    ("argument", "written"),
    [
        (tensor("x"), "x: Tensor"),
        (tensor("x", optional=True), "x: Tensor | None"),
        (tensor("x", optional=True, required=False), "x: Tensor | None = None"),
        (tensor("x", kind="tensors"), "x: Sequence[Tensor]"),
        (Argument("x", "scalar", "Bool"), "x: bool"),
        (Argument("x", "scalar", "UInt8", required=False, default=3), "x: int = 3"),
        (Argument("x", "scalar", "Int", optional=True), "x: int | None"),
        (Argument("x", "scalar", "Float32"), "x: float"),
        (
            Argument("x", "scalar", "Float64", required=False, default=float("inf")),
            "x: float = ...",
        ),
        (Argument("x", "string", "String", required=False, default='it\'s "x"\n'), None),
        (Argument("x", "string", "StaticString"), "x: str"),
        (Argument("x", "list", "Float64"), "x: Sequence[float]"),
        (Argument("x", "list", "Int", optional=True), "x: Sequence[int] | None"),
    ],
)
def test_types_of_arguments(argument, written):
    written = written or f"x: str = {argument.default!r}"
    assert head(kernel("f", argument)) == f"def f({written}) -> None"


@pytest.mark.parametrize(
    ("returns", "choices", "written"),
    [
        ("", (), "None"),
        ("Bool", (), "bool"),
        ("Int", (), "int"),
        ("Float32", (), "float"),
        ("String", (), "str"),
        ("Scalar[dtype]", ("float32", "bfloat16"), "float"),
        ("Scalar[dtype]", ("uint8", "int64"), "int"),
        ("Scalar[dtype]", ("float32", "int64", "bool"), "bool | int | float"),
    ],
)
def test_types_of_results(returns, choices, written):
    parameters = (Parameter("dtype", "dtype", choices),) if choices else ()
    one = kernel("f", tensor("x", dtype="dtype"), returns=returns, parameters=parameters)
    assert head(one) == f"def f(x: Tensor) -> {written}"


def test_a_long_signature_has_a_line_for_each_argument():
    text = head(kernel("f", *(tensor(f"argument_{i}") for i in range(6))))
    assert text.splitlines()[:2] == ["def f(", "    argument_0: Tensor,"]
    assert text.splitlines()[-1] == ") -> None"


def test_a_reserved_name_goes_by_position():
    one = kernel("f", tensor("a"), tensor("lambda"), tensor("b"))
    assert head(one) == "def f(a: Tensor, lambda_: Tensor, /, b: Tensor) -> None"


def test_arguments_from_a_default_on_go_by_name():
    one = kernel(
        "f",
        tensor("a"),
        Argument("b", "scalar", "Int", required=False, default=1),
        tensor("c"),
    )
    assert head(one) == "def f(a: Tensor, *, b: int = 1, c: Tensor) -> None"


def test_a_kernel_named_like_a_type():
    one = kernel("float", Argument("x", "scalar", "Float64"), returns="Float64")
    text = write_stub(Contract("k.mojo", (one,)))
    assert "import builtins\n" in text
    assert "def float(x: builtins.float) -> builtins.float:" in text


def test_a_kernel_with_a_reserved_name_is_left_out():
    text = write_stub(Contract("k.mojo", (kernel("class", tensor("x")), kernel("f", tensor("x")))))
    assert "class" not in text.partition("\n")[2]
    ast.parse(text)


@pytest.mark.parametrize("doc", ['Says """this""".', "A \\ and \\n.", 'Ends in "', "Zeile\n\nÄöü."])
def test_any_doc_string_survives(doc):
    tree = ast.parse(write_stub(Contract("k.mojo", (kernel("f", tensor("x"), doc=doc),))))
    assert doc in ast.get_docstring(tree.body[-1])


def test_mypy_passes_it(tmp_path):
    if find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    every = kernel(
        "every",
        tensor("dst", dtype="dtype", writes=True),
        tensor("parts", kind="tensors"),
        tensor("maybe", optional=True, required=False),
        Argument("sizes", "list", "Int"),
        Argument("name", "string", "String", required=False, default="x"),
        parameters=(FLOATS,),
        returns="Scalar[dtype]",
    )
    odd = kernel("int", Argument("lambda", "scalar", "Int"), returns="Int")
    stub = tmp_path / "kernels.pyi"
    stub.write_text(write_stub(Contract("kernels.mojo", (every, odd))))
    use = tmp_path / "use.py"
    use.write_text("import kernels\nx: float = kernels.every([], [], sizes=[1])\n")
    # torch takes mypy half a minute; without it, Tensor stands for any type.
    options = ("--strict", "--follow-imports=skip", "--ignore-missing-imports")
    assert mypy(*options, stub) == "Success: no issues found in 1 source file\n"
    assert mypy("--strict", "--ignore-missing-imports", *options[1:2], stub, use).endswith(
        "Success: no issues found in 2 source files\n"
    )


def mypy(*words: str | Path) -> str:
    command = [sys.executable, "-m", "mypy", "--cache-dir=/dev/null", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
