"""From what `mojo doc` says of a file to a contract, and each signature that is refused."""

import dataclasses
import json

import pytest

from torchmojo.contract import Contract
from torchmojo.dtypes import DEFAULT, MOJO
from torchmojo.errors import CompilerNotFoundError, SignatureError
from torchmojo.toolchain.describe.default import read_default
from torchmojo.toolchain.describe.signature import MAX_INSTANCES, SCALARS, Choices, read_contract

ADVICE = (
    ". Change the signature, or start the name with an underscore if it is a helper that Python "
    "does not call"
)
TENSOR = 'TensorView[False, .float32, Int(1), StringSpan(""), Layout.ANY]'


def view(writes=False, dtype="d", rank="Int(1)", axes="", layout="Layout.ANY", kind="TensorView"):
    return f'{kind}[{writes}, {dtype}, {rank}, StringSpan("{axes}"), {layout}]'


def arg(name, type_, *, convention="imm", passing="pos_or_kw", default=None, doc=""):
    entry = {"name": name, "type": type_, "convention": convention, "passingKind": passing}
    return {**entry, "description": doc} | ({} if default is None else {"default": default})


def overload(*args, parameters=(), returns=None, raises=False, where="", **more):
    known = [
        {"name": n, "type": t, **({} if d is None else {"default": d})} for n, t, d in parameters
    ]
    return {
        "args": list(args),
        "parameters": known,
        "returns": {"type": returns} if returns else None,
        "raises": raises,
        "signature": "def f(...)" + (f" where {where}" if where else ""),
        "summary": "",
        "description": "",
        **more,
    }


def module(*functions, name="k", **parts):
    return {"name": name, "functions": list(functions), "summary": "", "description": "", **parts}


def function(name, *overloads):
    return {"name": name, "overloads": list(overloads)}


def read(*overloads, dtypes=None, name="f", where=""):
    document = {"decl": module(function(name, *overloads))}
    return read_contract(document, "k.mojo", Choices(dtypes), {("", name): where} if where else {})


def one(*args, dtypes=None, where="", **fields):
    return read(overload(*args, where=where, **fields), dtypes=dtypes, where=where).kernels[0]


D = (("d", "DType", None),)


# --- what is read -------------------------------------------------------------------------------


def test_tensor_arguments():
    kernel = one(
        arg(
            "out", view(True, axes="h w 3", rank="Int(3)", layout="Layout.ROW_MAJOR"), doc=" Out. "
        ),
        arg("x", view(dtype="DType.uint8", rank="Int(0)")),
        arg("y", view(kind="OptionalView"), default="OptionalView()"),
        arg("z", view(True, kind="ListView", layout="Layout.CHANNELS_LAST", rank="Int(4)")),
        parameters=D,
    )
    plain = [dataclasses.asdict(a) for a in kernel.arguments]
    common = {
        "type": "",
        "axes": (),
        "layout": "any",
        "optional": False,
        "required": True,
        "default": None,
        "doc": "",
        "by_name": False,
        "writes": False,
        "dtype": "d",
        "kind": "tensor",
        "rank": 1,
    }
    assert plain == [
        {
            **common,
            "name": "out",
            "writes": True,
            "rank": 3,
            "axes": ("h", "w", "3"),
            "layout": "row_major",
            "doc": "Out.",
        },
        {**common, "name": "x", "dtype": "uint8", "rank": 0},
        {**common, "name": "y", "optional": True, "required": False},
        {
            **common,
            "name": "z",
            "kind": "tensors",
            "writes": True,
            "rank": 4,
            "layout": "channels_last",
        },
    ]
    assert kernel.required == 3 and kernel.dtypes(kernel.arguments[1]) == ("uint8",)


@pytest.mark.parametrize("mojo", SCALARS)
def test_numbers(mojo):
    kernel = one(
        arg("x", mojo),
        arg("y", f"Optional[{mojo}]", default="None"),
        arg("z", f"List[{mojo}]", passing="kw"),
        arg("t", f"Optional[List[{mojo}]]"),
        returns=mojo,
    )
    assert [(a.kind, a.type, a.optional, a.required, a.by_name) for a in kernel.arguments] == [
        ("scalar", mojo, False, True, False),
        ("scalar", mojo, True, False, False),
        ("list", mojo, False, True, True),
        ("list", mojo, True, True, False),
    ]
    assert kernel.returns == mojo and kernel.parameters == ()


def test_text_and_results():
    kernel = one(arg("s", "String"), arg("t", "StringSpan[ImmStaticOrigin]"), returns="String")
    assert [(a.kind, a.type) for a in kernel.arguments] == [
        ("string", "String"),
        ("string", "StaticString"),
    ]
    assert kernel.returns == "String"
    assert one(arg("x", view()), parameters=D, returns="Scalar[d]").returns == "Scalar[d]"
    for nothing in (None, "None", "NoneType"):
        assert one(arg("x", "Int"), returns=nothing).returns == ""


def test_parameters():
    kernel = one(
        arg("x", view(rank="r")),
        parameters=(*D, ("r", "Int", None), ("width", "Int", "8"), ("flag", "Bool", "True")),
    )
    assert [(p.name, p.kind, p.choices, p.assumed) for p in kernel.parameters] == [
        ("d", "dtype", DEFAULT, True),
        ("r", "rank", ("0", "1", "2", "3", "4", "5"), False),
    ]
    assert "bool" in DEFAULT and not any(name.startswith("float8") for name in DEFAULT)


def test_where_clauses():
    kernel = one(arg("x", view()), parameters=D, where="d.is_half_float()")
    assert kernel.parameters[0].choices == ("float16", "bfloat16")
    assert kernel.where == "d.is_half_float()"
    float8 = one(arg("x", view()), parameters=D, where="d == .float8_e5m2 or d.is_half_float()")
    assert float8.parameters[0].choices == ("float16", "bfloat16", "float8_e5m2")
    named = one(arg("x", view()), parameters=D, where="d == DType.bool or d.is_integral()")
    assert not named.parameters[0].assumed and "bool" in named.parameters[0].choices
    ranks = one(arg("x", view(rank="r")), parameters=(*D, ("r", "Int", None)), where="1 <= r <= 2")
    assert ranks.parameters[1].choices == ("1", "2") and ranks.parameters[0].choices == DEFAULT


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        (["float32"], ("float32",)),
        (("int8", "float8_e5m2", "int8"), ("int8", "float8_e5m2")),
        ({"f": ["float64"]}, ("float64",)),
        ({"f.d": ["float64"], "f": ["int8"], "*": ["int16"]}, ("float64",)),
        ({"*": ["int16"]}, ("int16",)),
        ({}, DEFAULT),
        (None, DEFAULT),
    ],
)
def test_dtypes_chosen_at_load(dtypes, expected):
    kernel = one(arg("x", view()), parameters=D, dtypes=dtypes)
    assert kernel.parameters[0].choices == expected
    assert kernel.parameters[0].assumed == (expected == DEFAULT)


def test_dtypes_chosen_for_each_parameter():
    two = (("a", "DType", None), ("b", "DType", None))
    kernel = one(
        arg("x", view(dtype="a")),
        arg("y", view(dtype="b")),
        parameters=two,
        dtypes={"f.a": ["float32"], "f": ["int8", "int16"]},
    )
    assert [p.choices for p in kernel.parameters] == [("float32",), ("int8", "int16")]


def test_chosen_dtypes_answer_for_a_clause_that_is_not_understood():
    kernel = one(arg("x", view()), parameters=D, where="ok[d]()", dtypes=["float32", "bool"])
    assert kernel.parameters[0].choices == ("float32", "bool")
    within = one(arg("x", view()), parameters=D, where="d.is_integral()", dtypes=["int8", "bool"])
    assert within.parameters[0].choices == ("int8",)


def test_private_functions_and_main_are_no_kernels():
    document = {
        "decl": module(
            function("_helper", overload(arg("x", "Pointer[Int]"))),
            function("main", overload()),
            function("kernel", overload(arg("x", TENSOR))),
            function("counts", overload(arg("x", "Int"), returns="Int")),
            function("odd", overload(arg("x", "Dict[Int, Int]"))),
            function("twice", overload(arg("x", "Int")), overload(arg("x", "Float64"))),
        )
    }
    contract = read_contract(document, "k.mojo", Choices())
    assert [k.name for k in contract.kernels] == ["kernel", "counts"]
    assert [k.symbol for k in contract.kernels] == ["torchmojo_kernel_0", "torchmojo_kernel_1"]
    assert contract.skipped == {
        "odd": "argument x: Dict[Int, Int] cannot come from Python; wanted a Tensor, a MutTensor, "
        f"{', '.join(SCALARS)}, String, StaticString, or an Optional or List of these",
        "twice": "2 overloads; a kernel has one signature",
    }


def test_packages():
    kernel = overload(arg("x", TENSOR))
    inner = {"decl": module(function("deep", kernel), name="low")}["decl"]
    document = {
        "decl": module(
            modules=[
                module(function("top", kernel), name="__init__"),
                module(function("a", kernel), name="one"),
                module(function("hidden", kernel), name="_private"),
            ],
            packages=[
                module(
                    modules=[module(function("init", kernel), name="__init__"), inner], name="sub"
                )
            ],
            name="pack",
        )
    }
    contract = read_contract(document, "pack", Choices())
    assert {k.name: k.module for k in contract.kernels} == {
        "top": "",
        "a": "one",
        "init": "sub",
        "deep": "sub.low",
    }


def test_a_contract_survives_json():
    contract = read(
        overload(
            arg("x", view(axes="h w", rank="Int(2)"), doc="Text."),
            arg("n", "List[Int]", default="List(Int(1), __list_literal__=NoneType(None))"),
            arg("s", "Optional[String]", default='String("é")'),
            arg("e", "List[Bool]", default="List()"),
            parameters=(*D,),
            returns="Int",
            raises=True,
        )
    )
    again = Contract.from_json(json.loads(json.dumps(contract.to_json())))
    assert again == contract
    assert [a.default for a in again.kernels[0].arguments] == [None, (1,), "é", ()]


# --- what is refused, with the text -------------------------------------------------------------

X = arg("x", TENSOR)
CANNOT = (
    "cannot come from Python; wanted a Tensor, a MutTensor, "
    f"{', '.join(SCALARS)}, String, StaticString, or an Optional or List of these"
)
RESULT = (
    f"cannot go to Python; wanted nothing, {', '.join(SCALARS)}, String, Scalar of a dtype "
    "parameter or OwnedTensor"
)
REFUSED = {
    "type": (overload(X, arg("y", "Dict[String, Int]")), f"argument y: Dict[String, Int] {CANNOT}"),
    "pointer": (overload(X, arg("y", "Pointer[Int]")), f"argument y: Pointer[Int] {CANNOT}"),
    "scalar of a parameter": (
        overload(arg("x", view()), arg("y", "Scalar[d]"), parameters=D),
        f"argument y: Scalar[d] {CANNOT}",
    ),
    "list of text": (overload(X, arg("y", "List[String]")), f"argument y: List[String] {CANNOT}"),
    "nested optional": (
        overload(X, arg("y", "Optional[Optional[Int]]")),
        f"argument y: Optional[Optional[Int]] {CANNOT}",
    ),
    "variadic": (
        overload(X, arg("*y", "Int")),
        "argument *y: variadic arguments cannot be called",
    ),
    "variadic by kind": (
        overload(X, arg("y", "Int", passing="var_kw")),
        "argument y: variadic arguments cannot be called",
    ),
    "mut": (
        overload(X, arg("y", "Int", convention="mut")),
        "argument y: convention 'mut'; wanted none (write a MutTensor where the kernel writes)",
    ),
    "ref": (
        overload(X, arg("y", "Int", convention="ref")),
        "argument y: convention 'ref'; wanted none (write a MutTensor where the kernel writes)",
    ),
    "parameter": (
        overload(X, parameters=(("T", "Copyable", None),)),
        "parameter T: Copyable has no value at run time; wanted a DType, an Int that is a tensor's "
        "rank, or a default",
    ),
    "unused dtype": (
        overload(X, parameters=D),
        "parameter d: no tensor argument says what it is",
    ),
    "unused rank": (
        overload(X, parameters=(("r", "Int", None),)),
        "parameter r: no tensor argument says what it is",
    ),
    "tensor default": (
        overload(arg("x", TENSOR, default="TensorView()")),
        "argument x: a tensor has no default",
    ),
    "default": (
        overload(X, arg("y", "Float64", default="Float64.MAX")),
        "argument y: default Float64.MAX is not a plain number or text",
    ),
    "result": (
        overload(X, returns=TENSOR),
        f"result {TENSOR} {RESULT}",
    ),
    "list result": (overload(X, returns="List[Int]"), f"result List[Int] {RESULT}"),
    "result of no parameter": (overload(X, returns="Scalar[d]"), f"result Scalar[d] {RESULT}"),
    "dtype": (
        overload(arg("x", view(dtype=".int128"))),
        "argument x: dtype int128 cannot come from Python",
    ),
    "dtype of nobody": (
        overload(arg("x", view(dtype="q"))),
        "argument x: dtype q is not a parameter of the kernel",
    ),
    "rank of nobody": (
        overload(arg("x", view(dtype=".int8", rank="N"))),
        "argument x: rank N is not a parameter of the kernel",
    ),
    "axes of any rank": (
        overload(
            arg("x", view(dtype=".int8", rank="r", axes="h")), parameters=(("r", "Int", None),)
        ),
        "argument x: axes of a tensor whose rank varies have no names",
    ),
    "number of axes": (
        overload(arg("x", view(dtype=".int8", axes="h w"))),
        'argument x: axes "h w" name 2 axes, rank is 1',
    ),
    "name of an axis": (
        overload(arg("x", view(dtype=".int8", axes="h-1"))),
        "argument x: axis 'h-1': wanted a name, a size or _",
    ),
    "computed axes": (
        overload(arg("x", "TensorView[False, .int8, Int(1), AXES, Layout.ANY]")),
        "argument x: axes AXES are not a plain text",
    ),
    "layout": (
        overload(arg("x", view(dtype=".int8", layout="Layout(7)"))),
        "argument x: layout Layout(7): wanted one of Layout.ANY, Layout.ROW_MAJOR, "
        "Layout.CHANNELS_LAST",
    ),
    "async": (overload(X, **{"async": True}), "async functions cannot be called"),
    "combinations": (
        overload(
            arg("x", view(dtype="a")),
            arg("y", view(dtype="b")),
            arg("z", view(dtype="c")),
            parameters=tuple((n, "DType", None) for n in "abc"),
        ),
        f"13 x 13 x 13 = 2197 combinations of a, b, c, more than {MAX_INSTANCES}; narrow them with "
        "a `where` clause or load(dtypes=...)",
    ),
    "lost clause": (
        overload(arg("x", view()), parameters=D, where="d.is_integral()"),
        "its `where` clause was not found in the source",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    given, text = REFUSED[name]
    with pytest.raises(SignatureError) as caught:
        read(given)
    assert str(caught.value) == f"load: f: {text}{ADVICE}"
    assert isinstance(caught.value, TypeError)


def test_overloads_are_refused():
    with pytest.raises(SignatureError) as caught:
        read(overload(X), overload(X))
    assert str(caught.value) == f"load: f: 2 overloads; a kernel has one signature{ADVICE}"


@pytest.mark.parametrize(
    ("where", "dtypes", "text"),
    [
        (
            "ok[d]()",
            None,
            "parameter d: `where ok[d]()` is not understood; wanted conditions on dtypes and ranks "
            "(dtype.is_floating_point(), dtype == DType.float32, rank > 1, and, or, not), or "
            "load(dtypes=...)",
        ),
        (
            "d.is_integral() and d.is_floating_point()",
            None,
            "parameter d: `where d.is_integral() and d.is_floating_point()` leaves no dtype",
        ),
        ("d.is_integral()", ["float32"], "parameter d: `where d.is_integral()` leaves no dtype"),
        (
            "",
            ["float33"],
            f"parameter d: load(dtypes=...) names 'float33'; wanted one of {', '.join(MOJO)}",
        ),
        ("", [], "parameter d: load(dtypes=...) gives []; wanted a list of names"),
        ("", "int8", "parameter d: load(dtypes=...) gives 'int8'; wanted a list of names"),
        (
            "",
            {"f": "int8"},
            "parameter d: load(dtypes=...) gives 'int8'; wanted a list of names",
        ),
    ],
)
def test_refused_clauses_and_dtypes(where, dtypes, text):
    with pytest.raises(SignatureError) as caught:
        one(arg("x", view()), parameters=D, where=where, dtypes=dtypes)
    assert str(caught.value) == f"load: f: {text}{ADVICE}"


def test_refused_ranks():
    with pytest.raises(SignatureError) as caught:
        one(
            arg("x", view(dtype=".int8", rank="r")), parameters=(("r", "Int", None),), where="r > 5"
        )
    assert str(caught.value) == (
        f"load: f: parameter r: `where r > 5` leaves no rank up to 5{ADVICE}"
    )


def test_dtypes_for_a_kernel_that_is_not_there():
    with pytest.raises(SignatureError) as caught:
        one(arg("x", view()), parameters=D, dtypes={"g": ["int8"]})
    assert str(caught.value) == "load: dtypes: wanted names among *, f, f.d, given 'g'"


def test_one_name_in_two_modules():
    kernel = overload(X)
    document = {
        "decl": module(
            modules=[
                module(function("f", kernel), name="__init__"),
                module(function("f", kernel), name="other"),
            ]
        )
    }
    with pytest.raises(SignatureError) as caught:
        read_contract(document, "pack", Choices())
    assert str(caught.value) == (
        f"load: f: the name stands in two modules (__init__, other){ADVICE}"
    )


def test_no_kernel_at_all():
    with pytest.raises(SignatureError) as caught:
        read_contract({"decl": module()}, "k.mojo", Choices())
    assert str(caught.value) == (
        "load: k.mojo: no kernel found: wanted a public function that takes a Tensor or MutTensor"
    )
    with pytest.raises(SignatureError) as caught:
        read(overload(arg("x", "Dict[Int, Int]")))
    assert str(caught.value) == (
        "load: k.mojo: no kernel found: wanted a public function that takes a Tensor or MutTensor\n"
        f"  f: argument x: Dict[Int, Int] {CANNOT}"
    )


# --- defaults -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("Bool", "True", True),
        ("Int", "Int(-3)", -3),
        ("UInt8", "UInt8(255)", 255),
        ("Float64", "-9.9999999999999995E-8", -1e-7),
        ("Float64", "100", 100.0),
        ("Float64", 'Float64("1")', 1.0),
        ("Float64", "SIMD(0.5)", 0.5),
        ("Float32", "0.10000000000000001", 0.1),
        ("String", '""', ""),
        ("String", r'"a\22\n\t\\\5C\C3\A9\b\00"', 'a"\n\t\\\\é\b\0'),
        ("String", r'"\\22"', r"\22"),
        ("String", 'String("q")', "q"),
        ("StaticString", 'StringSpan("s, t")', "s, t"),
        ("Int", "None", None),
        ("Int", "List(__list_literal__=NoneType(None))", ()),
        ("Int", "List(Int(1), Int(-2), __list_literal__=NoneType(None))", (1, -2)),
        ("Float64", "List()", ()),
        ("String", '"123"', "123"),
    ],
)
def test_defaults(kind, text, expected):
    result = read_default(kind, text)
    assert result == expected and type(result) is type(expected)


def test_minus_zero_stays():
    assert str(read_default("Float64", "-0.0")) == "-0.0"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("Float64", "Float64.MAX"),
        ("Int", "f(3)"),
        ("String", "NAME"),
        ("Int", "1.5"),
        ("Int", '"a"'),
    ],
)
def test_defaults_that_are_not_plain(kind, text):
    with pytest.raises(ValueError):
        read_default(kind, text)


# --- the compiler's own words -------------------------------------------------------------------

SOURCE = '''
from torchmojo import Layout, MutTensor, OptionalTensor

def f[d: DType, r: Int, width: Int = 4](
    dst: MutTensor[d, 2, "h 3", Layout.ROW_MAJOR],
    x: OptionalTensor[.float32, r] = {},
    *,
    n: List[Int] = [1, -2],
    t: StaticString = "a\\"b\\n",
    m: Optional[Float32] = None,
) raises -> Scalar[d] where (d == DType.float32 or d == .int8 or d == .int16) and r > 3:
    """Does something.

    Parameters:
        d: Dtype.
        r: Rank.
        width: Unused.

    Args:
        dst: The output.
        x: An input.
        n: Numbers.
        t: Text.
        m: Maybe.

    Returns:
        A number.
    """
    return 0
'''


def test_what_the_compiler_prints(tmp_path):
    """The documents above are made by hand; this one is not."""
    from torchmojo.toolchain.compile.build import document
    from torchmojo.toolchain.compile.compiler import find_compiler
    from torchmojo.toolchain.describe.constraint import clauses
    from torchmojo.toolchain.library import MOJO_PACKAGE

    try:
        compiler = find_compiler()
    except CompilerNotFoundError as error:
        pytest.skip(str(error))
    file = tmp_path / "k.mojo"
    file.write_text(SOURCE, encoding="utf-8")
    wheres = {("", name): clause for name, clause in clauses(SOURCE).items()}
    described = document(compiler, file, (MOJO_PACKAGE,))
    kernel = read_contract(described, "k.mojo", Choices(), wheres).kernels[0]
    assert kernel.doc == "Does something."
    assert [(p.name, p.choices) for p in kernel.parameters] == [
        ("d", ("float32", "int8", "int16")),
        ("r", ("4", "5")),
    ]
    assert [(a.name, a.kind, a.default, a.by_name, a.doc) for a in kernel.arguments] == [
        ("dst", "tensor", None, False, "The output."),
        ("x", "tensor", None, False, "An input."),
        ("n", "list", (1, -2), True, "Numbers."),
        ("t", "string", 'a"b\n', True, "Text."),
        ("m", "scalar", None, True, "Maybe."),
    ]
    assert kernel.arguments[0].axes == ("h", "3") and kernel.arguments[0].layout == "row_major"
    assert kernel.raises and kernel.returns == "Scalar[d]"
