"""Every kind of argument and result that a signature can have, and what is refused of each."""

import enum
import math
import sys

import numpy as np
import pytest
import torch

from torchmojo import ArgumentError, DTypeError, KernelError, ShapeError

INTEGERS = {
    "int": (-(2**63), 2**63 - 1),
    "int8": (-128, 127),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint": (0, 2**64 - 1),
    "uint8": (0, 255),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}
MOJO = {name: name.replace("uint", "UInt").replace("int", "Int") for name in INTEGERS}


class Text(str):
    pass


class Number(float):
    pass


class Level(enum.IntEnum):
    HIGH = 7


# --- integers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_arrive_exactly(kinds, name):
    echo = getattr(kinds, f"echo_{name}")
    low, high = INTEGERS[name]
    for value in {low, low + 1, 0, 1, high - 1, high, high // 2}:
        result = echo(value)
        assert result == value and type(result) is int


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_out_of_range_are_refused(kinds, refused, name):
    echo = getattr(kinds, f"echo_{name}")
    low, high = INTEGERS[name]
    for value in (low - 1, high + 1, 10**30, -(10**30)):
        assert refused(ArgumentError, echo, value) == (
            f"echo_{name}: x: wanted a value of {MOJO[name]}, given {value} (int); out of range"
        )


@pytest.mark.parametrize("name", INTEGERS)
def test_optional_integers(kinds, name):
    maybe = getattr(kinds, f"maybe_{name}")
    assert maybe(3) == "3"
    assert maybe(None) == "nothing"
    assert maybe() == ("5" if name == "int" else "nothing")


def test_what_counts_as_an_integer(kinds, refused):
    for value in (7, np.int8(7), np.uint64(7), np.array(7), Level.HIGH):
        assert kinds.echo_int(value) == 7
    assert kinds.echo_int(True) == 1
    given = {
        1.0: "an int for Int, given 1.0 (float)",
        "1": "a number for Int, given '1' (str)",
        None: "a number for Int, given None (NoneType)",
        np.float64(2): "an int for Int, given np.float64(2.0) (float64)",
    }
    for value, text in given.items():
        assert refused(ArgumentError, kinds.echo_int, value) == f"echo_int: x: wanted {text}"
    assert refused(ArgumentError, kinds.echo_int, torch.tensor(1)) == (
        "echo_int: x: wanted a number for Int, given i64[] cpu; write x.item()"
    )
    assert refused(ArgumentError, kinds.echo_int, [1]) == (
        "echo_int: x: wanted an int for Int, given [1] (list)"
    )


# --- floats -------------------------------------------------------------------------------------


def test_float64_arrives_bit_by_bit(kinds):
    values = [0.0, -0.0, 0.1, 5e-324, sys.float_info.max, math.inf, -math.inf, 1e-320, math.pi]
    for value in values:
        result = kinds.echo_float64(value)
        assert type(result) is float
        assert (result, math.copysign(1, result)) == (value, math.copysign(1, value))
    assert math.isnan(kinds.echo_float64(math.nan))
    assert kinds.echo_float64(2**53 + 1) == float(2**53 + 1)


def test_float32_rounds_as_numpy_does(kinds):
    top = float(np.finfo(np.float32).max)
    for value in (0.1, 1e-40, 1e-46, -0.0, top, 3.4028235677973362e38, math.inf, -math.inf):
        expected = float(np.float32(value))
        result = kinds.echo_float32(value)
        assert (result, math.copysign(1, result)) == (expected, math.copysign(1, expected))
    assert math.isnan(kinds.echo_float32(math.nan))


@pytest.mark.parametrize("value", [3.4028235677973366e38, 1e300, -1e300])
def test_a_number_does_not_become_infinite(kinds, refused, value):
    assert refused(ArgumentError, kinds.echo_float32, value) == (
        f"echo_float32: x: wanted a value of Float32, given {value} (float); out of range"
    )


def test_what_counts_as_a_float(kinds, refused):
    for value in (1, True, np.float32(1), np.int8(1), np.array(1.0), Number(1)):
        assert kinds.echo_float64(value) == 1.0
    given = {
        "1.5": "'1.5' (str)",
        None: "None (NoneType)",
        1 + 2j: "(1+2j) (complex)",
    }
    for value, text in given.items():
        assert refused(ArgumentError, kinds.echo_float64, value) == (
            f"echo_float64: x: wanted a number for Float64, given {text}"
        )
    assert refused(ArgumentError, kinds.echo_float64, torch.tensor(1.0)) == (
        "echo_float64: x: wanted a number for Float64, given f32[] cpu; write x.item()"
    )
    assert refused(ArgumentError, kinds.echo_float64, 10**400) == (
        "echo_float64: x: wanted a value of Float64, given 1" + "0" * 56 + "... (int); out of range"
    )


def test_optional_floats(kinds):
    assert [kinds.maybe_float64(), kinds.maybe_float64(None), kinds.maybe_float64(2)] == [
        *("0.5", "nothing", "2.0")
    ]
    assert [kinds.maybe_float32(), kinds.maybe_float32(1.5)] == ["nothing", "1.5"]


# --- bools and text -----------------------------------------------------------------------------


def test_bools(kinds, refused):
    for value in (True, False):
        assert kinds.echo_bool(value) is value
        assert kinds.echo_bool(np.bool_(value)) is value
        assert kinds.maybe_bool(value) == str(value)
    assert kinds.maybe_bool(None) == "nothing"
    given = {1: "1 (int)", None: "None (NoneType)", "True": "'True' (str)", 0.0: "0.0 (float)"}
    for value, text in given.items():
        assert refused(ArgumentError, kinds.echo_bool, value) == (
            f"echo_bool: x: wanted True or False, given {text}"
        )
    assert refused(ArgumentError, kinds.echo_bool, torch.tensor(True)) == (
        "echo_bool: x: wanted True or False, given bool[] cpu; write x.item()"
    )


TEXTS = ["", "a", "a\0b", "ä€😀", "x" * 100_000, "\x7f\r\n\t", "'\"\\"]


@pytest.mark.parametrize("kind", ["string", "static"])
def test_text(kinds, refused, kind):
    echo = getattr(kinds, f"echo_{kind}")
    for text in TEXTS:
        assert echo(text) == text
    assert echo(Text("sub")) == "sub" and type(echo(Text("sub"))) is str
    mojo = {"string": "String", "static": "StaticString"}[kind]
    assert mojo in str(echo)
    for value, given in {1: "1 (int)", None: "None (NoneType)"}.items():
        assert refused(ArgumentError, echo, value) == (
            f"echo_{kind}: x: wanted a str, given {given}"
        )
    assert refused(ArgumentError, echo, "\ud800") == (
        f"echo_{kind}: x: wanted text that UTF-8 can hold, given '\\ud800' (str)"
    )


def test_optional_text(kinds):
    assert [kinds.maybe_string(), kinds.maybe_string(None), kinds.maybe_string("")] == [
        *("default", "nothing", "")
    ]
    assert [kinds.maybe_static(), kinds.maybe_static("ü")] == ["nothing", "ü"]


# --- lists of numbers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "values", "text"),
    [
        ("bool", [True, False], "True;False;"),
        ("int", [2**63 - 1, -(2**63)], "9223372036854775807;-9223372036854775808;"),
        ("int8", [-128, 127], "-128;127;"),
        ("int32", [1, 2, 3], "1;2;3;"),
        ("uint16", [65535], "65535;"),
        ("uint64", [2**64 - 1], "18446744073709551615;"),
        ("float32", [0.5, 1], "0.5;1.0;"),
        ("float64", [0.1, math.inf], "0.1;inf;"),
    ],
)
def test_lists(kinds, name, values, text):
    tell = getattr(kinds, f"list_{name}")
    for given in (values, tuple(values), iter(values), np.array(values)):
        assert tell(given) == text
    assert tell([]) == tell(()) == ""


def test_lists_of_what_numpy_and_torch_give(kinds):
    assert kinds.list_int(range(3)) == "0;1;2;"
    assert kinds.list_int(torch.arange(3)) == "0;1;2;"
    assert kinds.list_int([np.int8(1), True, Level.HIGH]) == "1;1;7;"
    # All elements are mended at once: one mended call for each would recurse too deep.
    assert kinds.list_float64([np.float64(1)] * 5000) == "1.0;" * 5000


def test_lists_that_are_refused(kinds, refused):
    given = {
        "abc": "x: wanted a list of Int, given 'abc' (str)",
        5: "x: wanted a list of Int, given 5 (int)",
        None: "x: wanted a list of Int, given None (NoneType)",
        (1, "a"): "x[1]: wanted a number for Int, given 'a' (str)",
        (None,): "x[0]: wanted a number for Int, given None (NoneType)",
        (1, 2.5): "x[1]: wanted an int for Int, given 2.5 (float)",
        (1, 2**63): "x[1]: wanted a value of Int, given 9223372036854775808 (int); out of range",
    }
    for value, text in given.items():
        assert refused(ArgumentError, kinds.list_int, value) == f"list_int: {text}"
    assert refused(ArgumentError, kinds.list_bool, [True, 1]) == (
        "list_bool: x[1]: wanted True or False, given 1 (int)"
    )
    assert refused(ArgumentError, kinds.list_int8, [1, 300]) == (
        "list_int8: x[1]: wanted a value of Int8, given 300 (int); out of range"
    )
    assert refused(ArgumentError, kinds.list_float32, [0, 1e39]) == (
        "list_float32: x[1]: wanted a value of Float32, given 1e+39 (float); out of range"
    )


def test_lists_with_defaults(kinds):
    assert kinds.list_default() == "" and kinds.list_default([1]) == "1;"
    assert kinds.list_maybe() == kinds.list_maybe(None) == "nothing"
    assert kinds.list_maybe([]) == "" and kinds.list_maybe([4, 5]) == "4;5;"
    assert kinds.list_filled() == "1;-2;" and kinds.list_filled((3,)) == "3;"


# --- names, defaults, numbers of arguments ------------------------------------------------------

DEFAULTS = (
    "(a: Int, b: Bool = True, c: Int8 = -4, d: UInt64 = 18446744073709551615, e: Float32 = 1.5, "
    "f: Float64 = -1e-07, g: String = 'tab\\t \"quoted\" \\\\ é', h: StaticString = 'static')"
)


def test_defaults_are_those_of_the_source(kinds):
    text = '1|True|-4|18446744073709551615|1.5|-1e-07|tab\t "quoted" \\ é|static'
    assert kinds.defaults(1) == text
    python = [p.default for p in kinds.defaults.__signature__.parameters.values()][1:]
    assert python == [True, -4, 2**64 - 1, 1.5, -1e-7, 'tab\t "quoted" \\ é', "static"]
    assert kinds.defaults(1, *python) == text
    assert str(kinds.defaults) == (
        f"defaults{DEFAULTS} -> String\n\nTells what it was given.\n\nArgs:\n    a: The first.\n"
        "    b: A flag."
    )


def test_keywords_in_any_order(kinds):
    text = "2|False|3|4|0.5|6.0|seven|eight"
    names = dict(zip("abcdefgh", (2, False, 3, 4, 0.5, 6, "seven", "eight"), strict=True))
    assert kinds.defaults(**names) == text
    assert kinds.defaults(**dict(reversed(names.items()))) == text
    assert kinds.defaults(2, False, 3, 4, h="eight", g="seven", f=6, e=0.5) == text
    # A name that is not interned is compared by its characters.
    assert kinds.defaults(**{"".join(["a"]): 2, "h": "x"}).endswith("|x")


def test_wrong_numbers_and_names(kinds, refused):
    expect = {
        (): "a: wanted a value, given none",
        (1, 2, 3, 4, 5, 6, 7, 8, 9): "wanted 8 arguments, given 9",
    }
    for args, text in expect.items():
        assert refused(ArgumentError, kinds.defaults, *args) == (
            f"defaults: {text}; it takes {DEFAULTS}"
        )
    assert refused(ArgumentError, kinds.defaults, 1, z=3) == (
        "defaults: z: wanted one of a, b, c, d, e, f, g, h, given an unknown keyword; "
        f"it takes {DEFAULTS}"
    )
    assert refused(ArgumentError, kinds.defaults, 1, a=3) == (
        "defaults: a: wanted one value, given two"
    )
    assert refused(ArgumentError, kinds.defaults, b=False) == (
        f"defaults: a: wanted a value, given none; it takes {DEFAULTS}"
    )
    assert refused(ArgumentError, kinds.positional_only) == (
        "positional_only: x, y: wanted a value, given none; it takes (x: Int, y: Int)"
    )
    assert refused(ArgumentError, kinds.echo_int, 1, 2) == (
        "echo_int: wanted 1 argument, given 2; it takes (x: Int)"
    )


def test_a_kernel_without_arguments(kinds, refused):
    assert kinds.nothing() is None
    assert refused(ArgumentError, kinds.nothing, 1) == (
        "nothing: wanted no arguments, given 1; it takes ()"
    )
    assert refused(ArgumentError, kinds.nothing, x=1) == (
        "nothing: x: wanted no argument, given an unknown keyword; it takes ()"
    )


def test_arguments_that_mojo_takes_in_one_way_only(kinds):
    assert kinds.positional_only(1, 2) == 12
    assert kinds.keyword_only(1) == 17 and kinds.keyword_only(1, y=3) == 13
    assert kinds.keyword_required(y=3, w=4) == 1324 and kinds.keyword_required(5, w=6, y=7) == 5726
    assert str(kinds.keyword_required.__signature__) == "(x=1, *, y, z=2, w)"


def test_required_arguments_behind_defaults(kinds, refused):
    takes = "it takes (x: Int = 1, y: Int, z: Int = 2, w: Int)"
    for args, names, missing in (
        ((), {}, "y, w"),
        ((1,), {}, "y, w"),
        ((1, 2), {}, "w"),
        ((1, 2, 3), {}, "w"),
        ((), {"w": 1}, "y"),
        ((1,), {"y": 2, "z": 1}, "w"),
    ):
        assert refused(ArgumentError, kinds.keyword_required, *args, **names) == (
            f"keyword_required: {missing}: wanted a value, given none; {takes}"
        )


def test_unpacked_calls(kinds):
    args, names = [1], {"b": False}
    assert kinds.defaults(*args, **names).startswith("1|False|")
    assert kinds.defaults.__call__(*args, **names).startswith("1|False|")


# --- raising ------------------------------------------------------------------------------------


def test_a_raise_becomes_a_kernel_error(kinds, refused):
    assert refused(KernelError, kinds.fails, "böse\nzwei") == "fails: böse\nzwei"
    assert refused(KernelError, kinds.fails, "") == "fails: "
    assert kinds.fails("x", really=False) == 1
    with pytest.raises(RuntimeError, match=r"^fails: x$"):
        kinds.fails("x")


def test_what_was_written_before_a_raise_stays(kinds, refused):
    dst = torch.zeros(3)
    assert refused(KernelError, kinds.add, dst, torch.ones(3), torch.ones(3), 77.0) == (
        "add: seventy-seven"
    )
    assert dst.tolist() == [78.0, 0.0, 0.0]


# --- tensors in and out -------------------------------------------------------------------------


def test_tensors_are_not_copied(kinds):
    x = torch.arange(6.0)
    assert kinds.address(x) == kinds.address_out(x) == x.data_ptr()
    assert kinds.address(x[2:]) == x.data_ptr() + 8
    array = x.numpy()
    assert kinds.address(array[3:]) == kinds.address_out(array[3:]) == x.data_ptr() + 12


@pytest.mark.parametrize("n", [0, 1, 7, 64, 1009])
def test_add(kinds, n):
    a, b = torch.randn(n), torch.randn(n)
    dst = torch.full((n,), math.nan)
    assert kinds.add(dst, a, b) is None
    assert torch.equal(dst, a + b)
    kinds.add(alpha=0.5, b=b, a=a, dst=dst)
    assert torch.equal(dst, a + 0.5 * b)


ALL = [
    *("float32", "float64", "float16", "bfloat16", "uint8", "int8", "int16", "int32", "int64"),
    *("uint16", "uint32", "uint64", "bool"),
]


@pytest.mark.parametrize("name", ALL)
def test_scalar_of_every_dtype_comes_back(kinds, name):
    dtype = getattr(torch, name)
    if dtype == torch.bool:
        values = [True, False]
    elif dtype.is_floating_point:
        values = [0.0, -1.5, torch.finfo(dtype).max, torch.finfo(dtype).tiny, math.inf]
    else:
        values = [0, 1, torch.iinfo(dtype).max, torch.iinfo(dtype).min]
    for value in values:
        result = kinds.first(torch.tensor([value], dtype=dtype))
        assert result == value and type(result) is type(value)


@pytest.mark.parametrize("source", ["float64", "int32"])
@pytest.mark.parametrize("target", ["float32", "int64", "uint8"])
def test_two_dtype_parameters(kinds, source, target):
    src = torch.arange(5, dtype=getattr(torch, source))
    dst = torch.zeros(5, dtype=getattr(torch, target))
    kinds.cast_to(dst, src)
    assert dst.tolist() == [0, 1, 2, 3, 4]


def test_two_dtype_parameters_refuse_each_other(kinds, refused):
    f32, i32 = torch.zeros(2), torch.zeros(2, dtype=torch.int32)
    assert refused(DTypeError, kinds.cast_to, i32, i32) == (
        "cast_to: dst: wanted f32 or u8 or i64, given i32[2] cpu strides(1); make the output so "
        "from the start: what goes into a converted copy is lost"
    )
    assert refused(DTypeError, kinds.cast_to, f32, f32) == (
        "cast_to: src: wanted f64 or i32, given f32[2] cpu strides(1); "
        "write x.to(torch.float64), which copies"
    )


def test_a_condition_on_two_dtypes_together(kinds, refused):
    f, i = torch.zeros(2), torch.zeros(2, dtype=torch.int8)
    assert [kinds.either(f, f), kinds.either(f, i), kinds.either(i, f)] == [3, 1, 2]
    assert refused(DTypeError, kinds.either, i, i) == (
        "either: y: wanted what `where (a == DType.float32 or b == DType.float32) and "
        "(a == DType.float32 or a == DType.int8) and (b == DType.float32 or b == DType.int8)` "
        "allows, given i8[2] cpu strides(1) beside x: i8[2] cpu strides(1)"
    )


def test_conditions_together_where_arguments_are_left_out(kinds, refused):
    """What was not given takes the first choice that the condition allows."""
    f, i = torch.zeros(2), torch.zeros(2, dtype=torch.int8)
    assert kinds.paired(f) == kinds.paired(f, f) == kinds.paired(f, None) == "float32 float32"
    assert kinds.paired(i) == kinds.paired(i, i) == "int8 int8"
    assert refused(DTypeError, kinds.paired, i, f) == (
        "paired: y: wanted what `where a == b and (a == DType.int8 or a == DType.float32)` allows, "
        "given f32[2] cpu strides(1) beside x: i8[2] cpu strides(1)"
    )
    assert kinds.paired_lists([], []) == "float32 int8 0 0"
    assert kinds.paired_lists([i], []) == "int8 float32 1 0"
    assert kinds.paired_lists((), (i, i)) == "float32 int8 0 2"
    assert kinds.paired_lists([], [f]) == "int8 float32 0 1"
    assert "beside xs: i8[2]" in refused(DTypeError, kinds.paired_lists, [i], [i])
    refused(DTypeError, kinds.paired_lists, [], [f.double()])
    assert kinds.nothing_given() == "float16 2 False"
    assert kinds.nothing_given(f.bfloat16()[None, None]) == "bfloat16 3 True"
    refused(ShapeError, kinds.nothing_given, f.half())


def test_dtypes_that_a_clause_names(kinds, refused):
    x = torch.tensor([1.5])
    assert kinds.narrow(x.to(torch.float8_e5m2)) == kinds.narrow(x.to(torch.float8_e4m3fn)) == "1.5"
    assert kinds.halves(x.half()) == kinds.halves(x.bfloat16()) == "1.5"
    assert refused(DTypeError, kinds.halves, x) == (
        "halves: x: wanted f16 or bf16, given f32[1] cpu strides(1); "
        "write x.to(torch.float16), which copies"
    )


def test_optional_tensors(kinds, refused):
    x = torch.tensor([1.5, 2.5])
    assert kinds.pick_first() == kinds.pick_first(None) == "nothing"
    assert kinds.pick_first(x) == kinds.pick_first(x.numpy()) == "1.5"
    assert kinds.put_maybe(None, 1.0) is False
    assert kinds.put_maybe(x, 3.0) is True and x.tolist() == [3.0, 3.0]
    assert refused(ArgumentError, kinds.put_maybe) == (
        "put_maybe: x, value: wanted a value, given none; "
        "it takes (x: OptionalMutTensor[float32, 1], value: Float32)"
    )
    assert refused(ShapeError, kinds.pick_first, x[None]) == (
        "pick_first: x: wanted 1 axis, given f32[1,2] cpu strides(2,1); "
        "pass a tensor with 1 axis, for instance by x.reshape(...) or x[None]"
    )


def test_none_for_a_tensor(kinds, refused):
    x = torch.zeros(2)
    assert refused(ArgumentError, kinds.add, x, None, x) == "add: a: wanted a tensor, given None"


def test_things_that_are_no_tensors(kinds, refused):
    x = torch.zeros(2)
    for thing, name in {
        (1.0, 2.0): "builtins.tuple",
        1: "builtins.int",
        "a": "builtins.str",
    }.items():
        assert refused(DTypeError, kinds.add, x, thing, x) == (
            "add: a: wanted a tensor (torch, NumPy, or any object with the buffer protocol or "
            f"__dlpack__), given {name}"
        )


# --- lists of tensors ---------------------------------------------------------------------------


@pytest.mark.parametrize("make", [list, tuple])
@pytest.mark.parametrize("count", [0, 1, 2, 33])
def test_lists_of_tensors(kinds, make, count):
    xs = [torch.randn(5) for _ in range(count)]
    dst = torch.full((5,), math.nan)
    assert kinds.sum_list(dst, make(xs)) == count
    assert torch.equal(dst, sum(xs, torch.zeros(5)))
    assert kinds.sum_list(dst, make(x.numpy() for x in xs)) == count
    assert torch.equal(dst, sum(xs, torch.zeros(5)))


def test_lists_of_tensors_to_write(kinds):
    xs = [torch.zeros(n) for n in (3, 0, 5)] + [np.zeros(2, dtype=np.float32)]
    before = [x._version for x in xs[:3]]
    kinds.number_list(xs, 10.0)
    assert [x.tolist() for x in xs] == [[10.0] * 3, [], [12.0] * 5, [13.0] * 2]
    assert [x._version - v for x, v in zip(xs, before, strict=False)] == [1, 1, 1]


def test_lists_of_tensors_that_are_refused(kinds, refused):
    x = torch.zeros(4)
    foreign = np.zeros(3, dtype=np.float32)
    expect = {
        ArgumentError: [
            (5, "xs: wanted a list of tensors, given 5 (int)"),
            (None, "xs: wanted a list of tensors, given None (NoneType)"),
            ({}, "xs: wanted a list of tensors, given {} (dict)"),
            ([None], "xs[0]: wanted a tensor, given None"),
            ([foreign, x.numpy(), None], "xs[2]: wanted a tensor, given None"),
            (x[None], "xs: wanted a list of tensors, given f32[1,4] cpu strides(4,1)"),
        ],
        DTypeError: [
            (
                [x.clone(), 1],
                "xs[1]: wanted a tensor (torch, NumPy, or any object with the buffer protocol or "
                "__dlpack__), given builtins.int",
            ),
            (
                [x.clone(), x.double()],
                "xs[1]: wanted f32, given f64[4] cpu strides(1); write x.to(torch.float32), which "
                "copies",
            ),
            (
                [x.clone(), np.zeros(4)],
                "xs[1]: wanted f32, given f64[4] cpu strides(1); "
                'write x.astype("float32"), which copies',
            ),
        ],
        ShapeError: [
            (
                [x.clone(), foreign],
                "xs[1]: wanted axis 0 (n) as long as axis 0 of dst, f32[4] cpu strides(1), given "
                "f32[3] cpu strides(1)",
            ),
            (
                [x.clone(), x[None].clone()],
                "xs[1]: wanted 1 axis, given f32[1,4] cpu strides(4,1); pass a tensor with 1 axis, "
                "for instance by x.reshape(...) or x[None]",
            ),
        ],
    }
    for error, cases in expect.items():
        for xs, text in cases:
            assert refused(error, kinds.sum_list, x, xs) == f"sum_list: {text}"
            # The same where the output is foreign and the call goes through Python.
            assert refused(error, kinds.sum_list, memoryview(x.numpy()), xs) == f"sum_list: {text}"
