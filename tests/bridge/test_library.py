"""Loading: options, packages, texts, reload, watch, pickle."""

import inspect
import os

import pytest
import torch

import torchmojo
from torchmojo import CompileError, DTypeError, SignatureError

# `where` keeps the number of dtypes small, and with it the time to compile.
FILL = '''"""Fills.

More about it.
"""
from torchmojo import MutTensor

def fill[dtype: DType](dst: MutTensor[dtype, 1], value: Float64) where dtype.is_floating_point():
    """Writes one value everywhere.

    Args:
        dst: What is written.
        value: The value.
    """
    for i in range(dst.dim(0)):
        dst[i] = Scalar[dtype](value){more}
'''


def source(more: str = "") -> str:
    return FILL.replace("{more}", more)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "fills.mojo"
    path.write_text(source(), encoding="utf-8")
    return path


def rewrite(path, text: str) -> None:
    """Save a file so that its time differs, on file systems with coarse times too."""
    before = path.stat().st_mtime_ns
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(before + 10**9, before + 10**9))


# --- what a library shows -----------------------------------------------------------------------


def test_a_library_shows_its_kernels(kinds):
    assert [k.__name__ for k in kinds][:3] == ["echo_bool", "echo_int", "echo_int8"]
    assert len(kinds) == len(list(kinds)) and "echo_bool" in dir(kinds) and "reload" in dir(kinds)
    text = repr(kinds).splitlines()
    assert (
        text[0] == f"<torchmojo library {kinds.path}>" and text[1] == "  echo_bool(x: Bool) -> Bool"
    )
    assert text[-1].startswith("  ") and len(text) == len(kinds) + 1
    assert not hasattr(kinds, "_tell")
    with pytest.raises(KeyError) as caught:
        kinds["ecko"]
    assert caught.value.args[0].startswith(
        "kinds.mojo: no kernel 'ecko'; it has echo_bool, echo_int,"
    )
    assert kinds["echo_int"] is kinds.echo_int


def test_a_kernel_shows_its_signature(file):
    fill = torchmojo.load(file).fill
    assert repr(fill) == (
        "fill(dst: MutTensor[dtype, 1], value: Float64)\n\nWrites one value everywhere.\n\n"
        "Args:\n    dst: What is written.\n    value: The value.\n\n"
        "dtype: float32, float64, float16, bfloat16"
    )
    assert str(fill) == repr(fill)
    assert fill.__doc__ == str(fill) and fill.__module__ == "fills.mojo"
    assert str(inspect.signature(fill)) == "(dst, value)"
    assert inspect.signature(fill).bind(1, value=2).arguments == {"dst": 1, "value": 2}
    assert callable(fill) and fill.contract.doc == "Writes one value everywhere."
    assert torchmojo.load(file)._built.contract.doc == "Fills.\n\nMore about it."


def test_why_a_function_is_no_kernel():
    library = torchmojo.inline(
        "def count(x: Dict[Int, Int]) -> Int: return 0\ndef twice(x: Int) -> Int: return 2 * x\n"
    )
    assert library.twice(2) == 4 and not hasattr(library, "count")
    reason = (
        "is no kernel: argument x: Dict[Int, Int] cannot come from Python; wanted a Tensor, a "
        "MutTensor, Bool, Int, Int8, Int16, Int32, Int64, UInt, UInt8, UInt16, UInt32, UInt64, "
        "Float32, Float64, String, StaticString, or an Optional or List of these"
    )
    with pytest.raises(KeyError) as caught:
        library["count"]
    assert caught.value.args[0] == f"{library.path.name}: 'count' {reason}"
    assert repr(library).splitlines()[1:] == ["  twice(x: Int) -> Int", f"  (count {reason})"]


# --- dtypes -------------------------------------------------------------------------------------

TWO = """
from torchmojo import MutTensor, Tensor

def one[a: DType](x: Tensor[a, 1]) -> String:
    return String(a)

def two[a: DType, b: DType](x: Tensor[a, 1], y: Tensor[b, 1]) -> String:
    return String(t"{a} {b}")
"""


@pytest.mark.parametrize(
    ("dtypes", "one", "two"),
    [
        (["int8", "bool"], ("int8", "bool"), (("int8", "bool"), ("int8", "bool"))),
        (
            {"one": ["float16"], "two.a": ["int8"], "*": ["uint8", "float8_e5m2"]},
            ("float16",),
            (("int8",), ("uint8", "float8_e5m2")),
        ),
        ({"two": ("float32",), "one": ("float64",)}, ("float64",), (("float32",), ("float32",))),
    ],
)
def test_three_ways_to_choose_dtypes(dtypes, one, two):
    library = torchmojo.inline(TWO, dtypes=dtypes)
    assert tuple(p.choices for p in library.one.contract.parameters) == (one,)
    assert tuple(p.choices for p in library.two.contract.parameters) == two
    for a in one:
        assert library.one(torch.zeros(1, dtype=getattr(torch, a))) == a
    for a in two[0]:
        for b in two[1]:
            x, y = (torch.zeros(1, dtype=getattr(torch, name)) for name in (a, b))
            assert library.two(x, y) == f"{a} {b}"
    with pytest.raises(DTypeError):
        library.one(torch.zeros(1, dtype=torch.int32))


def test_refused_dtypes():
    with pytest.raises(SignatureError, match=r"names 'float33'; wanted one of float32, float64"):
        torchmojo.inline(TWO, dtypes=["float33"])
    with pytest.raises(
        SignatureError, match=r"wanted names among \*, one, one.a, two, two.a, two.b"
    ):
        torchmojo.inline(TWO, dtypes={"three": ["int8"], "*": ["int8"]})


# --- refused sources, by the real compiler ------------------------------------------------------

HEAD = "from torchmojo import MutTensor, Tensor, TensorView, Layout\n"
ADVICE = (
    ". Change the signature, or start the name with an underscore if it is a helper that Python "
    "does not call"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "def f(x: Tensor[DType.int8, 1], *ys: Int): pass",
            "load: f: argument *ys: variadic arguments cannot be called",
        ),
        (
            "def f(x: Tensor[DType.int8, 1], mut y: Int): pass",
            "load: f: argument y: convention 'mut'; wanted none (write a MutTensor where the "
            "kernel writes)",
        ),
        (
            "def f(x: Tensor[DType.int8, 1]): pass\ndef f(x: Tensor[DType.int8, 2]): pass",
            "load: f: 2 overloads; a kernel has one signature",
        ),
        (
            "def f[T: Copyable](x: Tensor[DType.int8, 1]): pass",
            "load: f: parameter T: Copyable has no value at run time; wanted a DType, an Int that "
            "is a tensor's rank, or a default",
        ),
        (
            "def ok[d: DType]() -> Bool: return True\n"
            "def f[d: DType](x: Tensor[d, 1]) where ok[d](): pass",
            "load: f: parameter d: `where ok[d]()` is not understood; wanted conditions on dtypes "
            "and ranks (dtype.is_floating_point(), dtype == DType.float32, rank > 1, and, or, "
            "not), or load(dtypes=...)",
        ),
        (
            "def f[a: DType, b: DType, c: DType]"
            "(x: Tensor[a, 1], y: Tensor[b, 1], z: Tensor[c, 1]): pass",
            "load: f: 13 x 13 x 13 = 2197 combinations of a, b, c, more than 256; narrow them with "
            "a `where` clause or load(dtypes=...)",
        ),
    ],
)
def test_refused_signatures(text, expected):
    with pytest.raises(SignatureError) as caught:
        torchmojo.inline(HEAD + text)
    assert str(caught.value) == expected + ADVICE


def test_a_view_is_not_returned():
    with pytest.raises(SignatureError) as caught:
        torchmojo.inline(
            HEAD + "def f(x: Tensor[DType.int8, 1])"
            ' -> TensorView[False, DType.int8, 1, "", Layout.ANY, x.origin]: return x'
        )
    assert str(caught.value).startswith("load: f: result TensorView[False, .int8, Int(1),")


def test_a_reading_kernel_cannot_write():
    """The compiler refuses it: a Tensor's memory is immutable."""
    with pytest.raises(CompileError) as caught:
        torchmojo.inline(HEAD + "def f(x: Tensor[DType.int8, 1]): x[0] = 1\n")
    assert str(caught.value).startswith("<inline>:2:")
    with pytest.raises(CompileError):
        torchmojo.inline(HEAD + "def f(x: Tensor[DType.int8, 1]): x.store[1](0, value=1)\n")


def test_a_wrong_number_of_indices_does_not_compile():
    with pytest.raises(CompileError, match="give one index for each axis"):
        torchmojo.inline(HEAD + "def f(x: Tensor[DType.int8, 2]) -> Int8: return x[0]\n")


# --- texts, packages, names ---------------------------------------------------------------------


def test_the_same_text_is_compiled_once(monkeypatch):
    text = "def answer() -> Int: return 42\n"
    first = torchmojo.inline(text)
    import torchmojo.toolchain.compile.build as build

    monkeypatch.setattr(build, "compile_library", None)
    monkeypatch.setattr(build, "document", None)
    assert torchmojo.inline(text).answer() == first.answer() == 42


def test_a_package(tmp_path):
    pack = tmp_path / "pack"
    for path, text in {
        "__init__.mojo": '"""A package."""\nfrom .low import doubled\n'
        "def top(x: Int) -> Int: return doubled(x) + 1\n",
        "low.mojo": "def doubled(x: Int) -> Int: return 2 * x\n",
        "_hidden.mojo": "def hidden(x: Int) -> Int: return x\n",
        "sub/__init__.mojo": "from pack.low import doubled\n"
        "def four(x: Int) -> Int: return doubled(doubled(x))\n",
        "sub/deep.mojo": HEAD + "def fill_deep[d: DType](x: MutTensor[d, 1]) where (\n"
        "    d == DType.int8 or d == DType.int16 or d == DType.float32\n"
        ") and d != DType.int16:\n    for i in range(x.dim(0)): x[i] = 7\n",
    }.items():
        (pack / path).parent.mkdir(parents=True, exist_ok=True)
        (pack / path).write_text(text, encoding="utf-8")
    library = torchmojo.load(pack)
    assert {k.__name__ for k in library} == {"top", "doubled", "four", "fill_deep"}
    assert [library.top(5), library.doubled(5), library.four(5)] == [11, 10, 20]
    x = torch.zeros(3, dtype=torch.int8)
    library.fill_deep(x)
    assert x.tolist() == [7, 7, 7]
    with pytest.raises(DTypeError):
        library.fill_deep(x.short())


@pytest.mark.parametrize("name", ["2nd-try.mojo", "def.mojo", "with space.v2.mojo", "ä.mojo"])
def test_any_file_name(tmp_path, name):
    (tmp_path / name).write_text("def answer() -> Int: return 42\n", encoding="utf-8")
    assert torchmojo.load(tmp_path / name).answer() == 42


def test_imports_from_other_folders(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "helper_of_test.mojo").write_text("def seven() -> Int: return 7\n")
    (tmp_path / "k.mojo").write_text(
        "from helper_of_test import seven\ndef answer() -> Int: return seven()\n"
    )
    with pytest.raises(CompileError):
        torchmojo.load(tmp_path / "k.mojo")
    library = torchmojo.load(tmp_path / "k.mojo", include=[tmp_path / "lib"])
    assert library.answer() == 7
    rewrite(tmp_path / "lib" / "helper_of_test.mojo", "def seven() -> Int: return 8\n")
    assert library.reload().answer() == 8


def test_nothing_there(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        torchmojo.load(tmp_path / "none.mojo")
    assert str(caught.value) == (
        f"load: path: wanted a .mojo file or a folder, given {tmp_path / 'none.mojo'}"
    )
    with pytest.raises(FileNotFoundError) as caught:
        torchmojo.load(tmp_path)
    assert str(caught.value) == (
        "load: path: wanted a .mojo file, a folder with __init__.mojo or a folder written by "
        f"`torchmojo build`, given the folder {tmp_path}"
    )


# --- the object itself --------------------------------------------------------------------------


def test_kernels_are_ordinary_objects(kinds):
    kernel = kinds.echo_int
    kernel.note = "mine"
    assert kernel.note == "mine" and kinds.echo_int.note == "mine"
    del kernel.note
    assert {kernel: 1}[kinds.echo_int] == 1 and kernel == kinds.echo_int != kinds.echo_bool
    import weakref

    assert weakref.ref(kernel)() is kernel
    with pytest.raises(TypeError):
        torchmojo.Kernel.__new__(torchmojo.Kernel)(1)


def test_kernels_as_methods_and_callbacks(kinds):
    class Holder:
        call = kinds.echo_int

    assert Holder().call(3) == 3
    assert list(map(kinds.echo_int, range(3))) == [0, 1, 2]
    assert sorted([3, 1], key=kinds.echo_int) == [1, 3]


def test_dtypes_of_torch_are_names(load_kernels):
    library = load_kernels("numbers", dtypes={"fma": [torch.float32, "float64"]})
    assert library.fma.contract.parameters[0].choices == ("float32", "float64")
