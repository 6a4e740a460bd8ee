"""What users see of the compiler's messages; the inputs are texts of mojo 1.2.0."""

from pathlib import Path

import pytest

from torchmojo.toolchain.compile.diagnostics import HINTS, explain_failure, hints

USER = Path("/tmp/build/kernels.mojo")
GLUE = Path("/tmp/build/glue.mojo")
TAIL = "/site-packages/modular/bin/mojo: error: failed to parse the provided Mojo source module\n"


def explain(stderr: str) -> str:
    return explain_failure(stderr, {USER: "kernels.mojo"}, GLUE)


def test_syntax_errors_are_kept_with_carets_and_fixes():
    assert explain(
        """\
/tmp/build/kernels.mojo:3:1: error: 'fn' has been removed; use 'def' instead
fn f(a: Tensor[DType.float32, 1]):
^~
def
Imported from /tmp/build/glue.mojo:3:
/tmp/build/kernels.mojo:7:54: error: expected ':' in function definition
def g(a: Tensor[DType.float32, 1], b: Int) -> Float32
                                                     ^
"""
        + TAIL
    ) == (
        """\
kernels.mojo:3:1: error: 'fn' has been removed; use 'def' instead
fn f(a: Tensor[DType.float32, 1]):
^~
def
kernels.mojo:7:54: error: expected ':' in function definition
def g(a: Tensor[DType.float32, 1], b: Int) -> Float32
                                                     ^
hint: write `def` instead of `fn`, and `raises` after the arguments if the body may raise"""
    )


def test_type_error_keeps_its_note():
    assert explain(
        """\
/tmp/build/kernels.mojo:6:12: error: invalid call to 'helper': value passed to 'x' cannot be \
converted from 'StringLiteral["text"]' to 'Int'
    helper("text")
    ~~~~~~ ^~~~~~
/tmp/build/kernels.mojo:3:5: note: function declared here
def helper(x: Int): pass
    ^
"""
        + TAIL
    ) == (
        """\
kernels.mojo:6:12: error: invalid call to 'helper': value passed to 'x' cannot be \
converted from 'StringLiteral["text"]' to 'Int'
    helper("text")
    ~~~~~~ ^~~~~~
kernels.mojo:3:5: note: function declared here
def helper(x: Int): pass
    ^"""
    )


def test_of_notes_elsewhere_only_the_words_are_kept():
    assert explain(
        """\
/tmp/build/kernels.mojo:19:42: error: invalid call to 'store': violated constraint
def write(a: Tensor[DType.float32, 1]): a.store[1](0, 1.0)
                                        ~^~~~~~
Imported from /tmp/build/kernels.mojo:1:
Imported from /site-packages/torchmojo/mojo/torchmojo/__init__.mojo:1:
/site-packages/torchmojo/mojo/torchmojo/view.mojo:18:75: note: constraint declared here \
evaluated to False, expected 'mut'
    def store[width: Int](self, i: Int, v: SIMD[Self.dtype, width]) where Self.mut:
                                                                          ^
/site-packages/torchmojo/mojo/torchmojo/view.mojo:18:9: note: function declared here
    def store[width: Int](self, i: Int, v: SIMD[Self.dtype, width]) where Self.mut:
        ^
"""
        + TAIL
    ) == (
        """\
kernels.mojo:19:42: error: invalid call to 'store': violated constraint
def write(a: Tensor[DType.float32, 1]): a.store[1](0, 1.0)
                                        ~^~~~~~
note: constraint declared here evaluated to False, expected 'mut'
hint: a tensor that the kernel writes is declared `MutTensor`; `Tensor` can only be read"""
    )


def chain(dtype: str, reason: str) -> str:
    """Write what the compiler prints if a kernel fails for one dtype, 3 files deep."""
    return f"""\
/tmp/build/glue.mojo:12:5: error: function instantiation failed
def make(n: Int) abi("C"):
    ^
/tmp/build/glue.mojo:8:24: note: call expansion failed with parameter value(s): \
("dtype": #kgen.dtype.constant<{dtype}> : !kgen.dtype)
        try: user.g[dt](view[dt, 1](n), 1)
                       ^
Included from /tmp/build/glue.mojo:3:
/tmp/build/kernels.mojo:7:5: note: function instantiation failed
def g[dtype: DType](a: Tensor[dtype, 1], b: Int) raises:
    ^
Included from /tmp/build/glue.mojo:3:
/tmp/build/kernels.mojo:8:21: note: call expansion failed with parameter value(s): \
("dtype": #kgen.dtype.constant<{dtype}> : !kgen.dtype)
    _ = inner[dtype](a.load[1](0))
                    ^
Included from /tmp/build/glue.mojo:3:
/tmp/build/kernels.mojo:3:5: note: function instantiation failed
def inner[dtype: DType](x: Scalar[dtype]) -> Scalar[dtype]:
    ^
{reason}/site-packages/modular/bin/mojo: error: failed to run the pass manager
"""


IN_USER = """\
Included from /tmp/build/glue.mojo:3:
/tmp/build/kernels.mojo:4:5: note: constraint failed: inner: floats only
    comptime assert dtype.is_floating_point(), "inner: floats only"
    ^
"""

IN_PACKAGE = """\
Included from /tmp/build/glue.mojo:3:
/tmp/build/kernels.mojo:4:22: note: call expansion failed with parameter value(s): (...)
    need_float[dtype]()
                     ^
Included from /tmp/build/glue.mojo:1:
torchmojo/view.mojo:23:5: note: function instantiation failed
def need_float[dtype: DType]():
    ^
torchmojo/view.mojo:24:33: note: constraint failed: torchmojo: needs float
    comptime assert dtype.is_floating_point(), "torchmojo: needs float"
    ^
"""


def test_reason_of_a_chain_comes_first():
    assert explain(chain("si32", IN_USER)) == (
        """\
kernels.mojo:4:5: error: constraint failed: inner: floats only
    comptime assert dtype.is_floating_point(), "inner: floats only"
    ^
kernels.mojo:8:21: note: called from here
    _ = inner[dtype](a.load[1](0))
                    ^
kernels.mojo:7:5: note: in this kernel
def g[dtype: DType](a: Tensor[dtype, 1], b: Int) raises:
    ^
note: compiled with dtype = int32"""
    )


def test_reason_in_the_package_is_shown_at_the_users_call():
    assert explain(chain("bf16", IN_PACKAGE)) == (
        """\
kernels.mojo:4:22: error: constraint failed: torchmojo: needs float
    need_float[dtype]()
                     ^
kernels.mojo:8:21: note: called from here
    _ = inner[dtype](a.load[1](0))
                    ^
kernels.mojo:7:5: note: in this kernel
def g[dtype: DType](a: Tensor[dtype, 1], b: Int) raises:
    ^
note: compiled with dtype = bfloat16"""
    )


def test_one_error_for_many_dtypes_is_shown_once():
    text = explain("".join(chain(dtype, IN_USER) for dtype in ("si32", "ui8", "bool", "si32")))
    assert text.count("error:") == 1
    assert text.endswith("\nnote: compiled with dtype = int32; dtype = uint8; dtype = bool")
    text = explain("".join(chain(f"f{n}", IN_USER) for n in range(8)))
    assert text.endswith("dtype = float5; ...")


def test_error_of_the_glue_is_shown_at_the_users_function():
    assert explain(
        """\
/tmp/build/glue.mojo:13:36: error: invalid call to 'g': value passed to 'a' cannot be converted
        try: _ = user.g(view[dt, 1](n), 1)
                 ~~~~~~ ~~~~~~~~~~~^~~
Imported from /tmp/build/glue.mojo:3:
/tmp/build/kernels.mojo:5:5: note: function declared here
def g(a: Tensor[DType.float32, 1], b: Int) raises -> Float32:
    ^
/tmp/build/glue.mojo:13:36: note: .dtype of the first value is 'dt' but the second value is \
'DType.float32'
        try: _ = user.g(view[dt, 1](n), 1)
                                   ^
"""
        + TAIL
    ) == (
        """\
kernels.mojo:5:5: error: torchmojo cannot call this: invalid call to 'g': value passed to 'a' \
cannot be converted
def g(a: Tensor[DType.float32, 1], b: Int) raises -> Float32:
    ^
note: .dtype of the first value is 'dt' but the second value is 'DType.float32'"""
    )


def test_errors_that_follow_from_the_users_are_dropped():
    text = explain(
        f"""\
{USER}:1:6: error: unable to locate module 'nowhere'
from nowhere import thing
     ^
{GLUE}:9:3: error: 'user' value has no attribute 'g'
  user.g()
  ^
"""
    )
    assert text == (
        "kernels.mojo:1:6: error: unable to locate module 'nowhere'\n"
        "from nowhere import thing\n     ^"
    )


def test_warnings_are_dropped():
    text = explain(
        f"{USER}:2:1: warning: unused\nx\n^\n{USER}:2:1: note: here\nx\n^\n"
        f"{USER}:3:1: error: oops\ny\n^\n"
    )
    assert text == "kernels.mojo:3:1: error: oops\ny\n^"


def test_nothing_of_the_users_is_shown_whole():
    stderr = f"{GLUE}:1:1: warning: x\nx\n^\n{GLUE}:9:3: error: y\n  user.g()\n  ^\n{TAIL}"
    assert explain(stderr) == (
        f"the compiler failed outside your file (please report this):\n{stderr.strip()}"
    )
    assert explain("Segmentation fault") == (
        "the compiler failed outside your file (please report this):\nSegmentation fault"
    )


def test_known_fault_outside_is_not_to_be_reported():
    assert explain(
        "Mojo/stdlib/std/simd.mojo:2942:13: error: SIMD vector length must be a power of two "
        "between 1 and 2^15, found '!kgen.simd<3, f32>'\n"
    ) == (
        "the compiler failed outside your file:\n"
        "Mojo/stdlib/std/simd.mojo:2942:13: error: SIMD vector length must be a power of two "
        "between 1 and 2^15, found '!kgen.simd<3, f32>'\n"
        "hint: the width in `SIMD[dtype, width]` is 1, 2, 4, 8 ..."
    )


def test_chain_outside_the_users_files_is_shown_whole():
    stderr = f"{GLUE}:1:5: error: function instantiation failed\ndef f():\n    ^\n"
    assert explain(stderr).startswith("the compiler failed outside your file (please report this)")


def test_files_are_known_by_any_path(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    path = tmp_path / "real/kernels.mojo"
    path.touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path)
    ways = ("link/kernels.mojo", "real/kernels.mojo", "real/../link/kernels.mojo")
    for shown in (path, *ways, *(tmp_path / way for way in ways)):
        assert explain_failure(f"{shown}:1:2: error: in {path}", {path: "k.mojo"}) == (
            "k.mojo:1:2: error: in k.mojo"
        )


def test_a_path_is_not_replaced_inside_another():
    names = {Path("/a/b.mojo"): "b.mojo", Path("/x/a/b.mojo"): "other.mojo"}
    text = explain_failure("/a/b.mojo:1:1: error: see /x/a/b.mojo, /a/b.mojoc, /a/b.mojo", names)
    assert text == "b.mojo:1:1: error: see other.mojo, /a/b.mojoc, b.mojo"


def test_types_of_views_are_shown_as_one_writes_them():
    assert explain(
        f"{USER}:1:1: error: cannot be converted from "
        """'TensorView[False, .float32, Int(1), StringSpan(""), Layout.ANY, origin]' to """
        """'TensorView[True, dtype, rank, StringSpan("h w"), Layout.ANY, a.origin]'\n"""
    ) == (
        "kernels.mojo:1:1: error: cannot be converted from 'Tensor[DType.float32, 1]' to "
        """'MutTensor[dtype, rank, "h w"]'"""
    )


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (
            "error: 'Optional' parameter 'T' has 'AnyType' type, but value has type "
            "'AnyStruct[TensorView[False, .float32]]'",
            "write `OptionalTensor[dtype, rank]` instead of `Optional[Tensor[dtype, rank]]`",
        ),
        (
            "error: 'List' parameter 'T' has 'AnyType' type, but value has type "
            "'AnyStruct[Tensor[DType.float32, 1]]'",
            "write `TensorList[dtype, rank]` instead of `List[Tensor[dtype, rank]]`",
        ),
        (
            "error: 'Tensor[DType.float32, 1]' is not concrete, use '[]' to bind missing\n"
            "def r(a: Tensor[DType.float32, 1]) -> Tensor[DType.float32, 1]: return a\n",
            "a view cannot be returned: it lives as long as the call; take a `MutTensor` argument "
            "and write into it",
        ),
        (
            "error: expected ')' in argument list\ndef f(inout x: Int): pass",
            "argument conventions are now `mut` (was inout), `var` (owned), nothing (borrowed)",
        ),
        (
            "error: 'raise' requires a surrounding 'try' block or the enclosing function to",
            "write `raises` after the argument list: `def f(...) raises:`",
        ),
        (
            "error: package 'algorithm' does not contain 'parallelize'",
            "`max` and `layout` are packages of their own, not part of mojo-compiler; "
            "`from torchmojo import parallel_for` runs a loop on torch's threads",
        ),
        (
            "error: unable to locate module 'memory'",
            "modules of the standard library are imported as `from std.math import sqrt`",
        ),
        (
            "error: use of unknown declaration 'float32'",
            "element types are written `DType.float32`, or are a parameter: "
            "`def f[dtype: DType](...)`",
        ),
        (
            "error: cannot implicitly convert 'Int' value to 'Float32'",
            "numbers are not converted silently: write `Float32(x)`, `Int(i)` or `x.cast[dtype]()`",
        ),
        (
            "lld: error: cannot open output file k.so: No space left on device",
            "the disk is full: free some space, or set TORCHMOJO_CACHE_DIR to a folder elsewhere",
        ),
        (
            "no message\nthe compiler was killed by SIGKILL",
            "the system may have run out of memory; a build takes about 300 MB",
        ),
    ],
)
def test_hints(text, advice):
    assert hints(text) == [advice]


def test_hint_about_returning_needs_a_returned_view():
    assert hints("error: 'X' is not concrete, bind\ndef f(l: List[Tensor[d, 1]]): pass\n") == []


def test_hints_are_single_lines():
    assert not [advice for _, advice in HINTS if "\n" in advice]
    assert hints("all is well") == []
