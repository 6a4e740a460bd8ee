"""`where` clauses: found in the source, evaluated on dtypes and ranks."""

import itertools

import pytest

from torchmojo.dtypes import BY_NAME
from torchmojo.toolchain.describe.constraint import Constraint, UnknownConstraintError, clauses

FLOATS = ["float32", "float64", "float16", "bfloat16"]
FLOAT8 = ["float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz"]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
ALL = [*FLOATS, *FLOAT8, *SIGNED, *UNSIGNED, "bool"]


def allowed(text: str, parameters=("d",), parameter="d") -> list[str]:
    clause = Constraint(text, parameters)
    return [name for name in ALL if clause.allows({parameter: name})]


def test_the_names_are_known():
    assert set(ALL) <= set(BY_NAME)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ALL),
        ("  ", ALL),
        ("d.is_floating_point()", [*FLOATS, *FLOAT8]),
        ("d.is_float8()", FLOAT8),
        ("d.is_half_float()", ["float16", "bfloat16"]),
        ("d.is_integral()", [*SIGNED, *UNSIGNED]),
        ("d.is_unsigned()", UNSIGNED),
        ("d.is_signed()", [*FLOATS, *FLOAT8, *SIGNED]),
        ("d.is_numeric()", ALL[:-1]),
        ("not d.is_numeric()", ["bool"]),
        ("d == DType.float32", ["float32"]),
        ("DType.float32 == d", ["float32"]),
        ("d == .float32", ["float32"]),
        ("(d == .bool)", ["bool"]),
        ("d != DType.float32 and d.is_half_float()", ["float16", "bfloat16"]),
        ("d == DType.int8 or d == DType.bool", ["int8", "bool"]),
        ("d == DType.int8 or d == DType.bool or d == DType.uint8", ["int8", "uint8", "bool"]),
        ("not (d.is_integral() or d.is_floating_point())", ["bool"]),
        ("(d.is_half_float() or d.is_unsigned()) and d != DType.uint8", [
            *("float16", "bfloat16", "uint16", "uint32", "uint64")
        ]),
        ("d.is_half_float() or d.is_unsigned() and d != DType.uint8", [
            *("float16", "bfloat16", "uint16", "uint32", "uint64")
        ]),
        ("d.is_signed() and (d.is_integral() or d == DType.float32)", ["float32", *SIGNED]),
        ("d == DType.complex64", []),
    ],
)  # fmt: skip
def test_one_parameter(text, expected):
    assert allowed(text) == expected


def test_conditions_on_others_leave_a_parameter_open():
    text = "a == DType.float32 and b.is_integral()"
    assert allowed(text, ("a", "b"), "b") == [*SIGNED, *UNSIGNED]
    assert allowed(text, ("a", "b"), "a") == ["float32"]
    either = "a == DType.float32 or b == DType.float32"
    assert allowed(either, ("a", "b"), "a") == ALL
    assert allowed("not (a == DType.float32)", ("a", "b"), "b") == ALL


def test_all_parameters_together():
    clause = Constraint("a == DType.int8 or (b == a and rank > 1)", ("a", "b", "rank"))
    found = [
        (a, b, rank)
        for a, b, rank in itertools.product(("int8", "bool"), ("int8", "bool"), "012")
        if clause.allows({"a": a, "b": b, "rank": rank})
    ]
    assert found == [
        *[("int8", b, rank) for b in ("int8", "bool") for rank in "012"],
        ("bool", "bool", "2"),
    ]


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("rank > 1", "2345"),
        ("rank >= 1", "12345"),
        ("rank < 2", "01"),
        ("1 <= rank <= 3", "123"),
        ("rank == 2 or rank == 4", "24"),
        ("rank != 0", "12345"),
        ("not rank < 3", "345"),
        ("d.is_integral() and rank == 1", "1"),
    ],
)
def test_ranks(text, ranks):
    clause = Constraint(text, ("d", "rank"))
    assert "".join(r for r in "012345" if clause.allows({"rank": r})) == ranks


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("is_ok[d]()", "is_ok[d]()"),
        ("d == FLOAT", "d == FLOAT"),
        ("d.is_pretty()", "d.is_pretty()"),
        ("d.is_integral() or d.is_pretty()", "d.is_pretty()"),
        ("False and d.is_integral()", "False"),
        ("d < DType.int8", "d < DType.int8"),
        ("d in (DType.int8, DType.int16)", "d in (DType.int8, DType.int16)"),
        ("d.is_integral(", "d.is_integral("),
        ("size_of[d]() == 4", "size_of[d]() == 4"),
        ("e.is_integral()", "e.is_integral()"),
        ("rank * 2 == 4", "rank * 2 == 4"),
        ("d if d.is_integral() else d", "d if d.is_integral() else d"),
        ("width > 4", "width > 4"),
    ],
)
def test_unknown_forms_are_named(text, part):
    clause = Constraint(text, ("d", "rank"))
    with pytest.raises(UnknownConstraintError) as caught:
        clause.allows({"d": "int8"})
    assert str(caught.value) == part


# --- finding the clause -------------------------------------------------------------------------


def test_clauses_of_a_file():
    source = '''"""def doc[d: DType]() where no: text"""

# def comment(x: Int) where no:

def plain(x: Int): pass

def one[d: DType](x: Tensor[d, 1]) where d.is_integral(): pass

def two[
    d: DType
](
    x: Tensor[d, 1, "where: h"],  # where this: no
    y: Dict[String, Int] = {"a": 1},
) raises -> Scalar[d] where (
    d == DType.float32  # or: not
    or d == .int8
) and d != DType.bool:
    """Text where nobody: looks."""
    def inner(i: Int) where i > 0: pass
    var s = "def quoted() where no:"

struct S:
    def method[e: DType](self) where e == DType.int8: pass

async def later[d: DType]() where d.is_unsigned(): pass
def both[d: DType](x: Int) where d == DType.int8 or d == DType.int16 where d != DType.int8: pass
def `quoted`[d: DType]() where d.is_numeric(): pass
def text[d: DType](x: String = 'it''s: "where"') where d.is_float8(): pass
def escaped[d: DType](x: String = "\\" where no: ") where d.is_signed(): pass
'''
    assert clauses(source) == {
        "one": "d.is_integral()",
        "two": "(d == DType.float32 or d == .int8) and d != DType.bool",
        "later": "d.is_unsigned()",
        "both": "(d == DType.int8 or d == DType.int16) and (d != DType.int8)",
        "quoted": "d.is_numeric()",
        "text": "d.is_float8()",
        "escaped": "d.is_signed()",
    }


@pytest.mark.parametrize(
    "source", ["", "def", "def f", "def f(", "def f() where", "where x:", "def f("]
)
def test_text_that_is_cut_short(source):
    assert isinstance(clauses(source), dict)
