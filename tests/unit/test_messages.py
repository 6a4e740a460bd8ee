"""Words of errors: classes, compact notation, one order, a text for each reason."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import torchmojo
from torchmojo import errors
from torchmojo.bridge.code import Code
from torchmojo.bridge.kernel import describe, signature, spell
from torchmojo.bridge.lend import borrow
from torchmojo.bridge.refuse.facts import facts, show
from torchmojo.bridge.refuse.message import refuse
from torchmojo.bridge.refuse.refusal import mend
from torchmojo.contract import Argument, KernelContract, Parameter

BUILTINS = {
    "AliasError": ValueError,
    "ArgumentError": TypeError,
    "BoundsError": IndexError,
    "CompileError": RuntimeError,
    "CompilerNotFoundError": RuntimeError,
    "CopyError": RuntimeError,
    "DTypeError": TypeError,
    "DeviceError": ValueError,
    "ExportError": BufferError,
    "GradError": RuntimeError,
    "HandleError": ValueError,
    "KernelError": RuntimeError,
    "LayoutError": ValueError,
    "LeakError": AssertionError,
    "LibraryError": RuntimeError,
    "ModelError": RuntimeError,
    "NoDataError": ValueError,
    "ReadOnlyError": ValueError,
    "ShapeError": ValueError,
    "SignatureError": TypeError,
    "WeightsError": ValueError,
    "ImageError": ValueError,
}


@pytest.mark.parametrize("name", BUILTINS)
def test_each_error_is_also_a_builtin(name):
    error = getattr(torchmojo, name)
    assert issubclass(error, (BUILTINS[name], torchmojo.TorchmojoError))
    assert issubclass(error, BUILTINS[name]) and issubclass(error, torchmojo.TorchmojoError)
    assert error.__module__ == "torchmojo" and error.__doc__.strip().endswith(".")
    assert repr(error("x")) == f"{name}('x')"


def test_no_error_is_forgotten():
    own = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, torchmojo.TorchmojoError)
    }
    assert own - {"TorchmojoError"} == set(BUILTINS)
    assert own <= set(errors.__all__)
    assert issubclass(torchmojo.CopyWarning, torchmojo.TorchmojoWarning)


# --- compact notation ---------------------------------------------------------------------------


class Plain(torch.Tensor):
    pass


def inference():
    with torch.inference_mode():
        return torch.ones(2)


SHOWN = [
    (lambda: torch.zeros(2, 3), "f32[2,3] cpu strides(3,1)"),
    (lambda: torch.zeros(2, 3).t(), "f32[3,2] cpu strides(1,3)"),
    (lambda: torch.tensor(1), "i64[] cpu"),
    (lambda: torch.zeros(0), "f32[0] cpu strides(1)"),
    (lambda: torch.zeros(1, device="meta"), "f32[1] meta strides(1)"),
    (lambda: torch.zeros(1, dtype=torch.bfloat16), "bf16[1] cpu strides(1)"),
    (lambda: torch.zeros(1, dtype=torch.complex64).conj(), "c64[1] cpu strides(1) conj bit"),
    (lambda: torch.zeros(1, dtype=torch.complex128), "c128[1] cpu strides(1)"),
    (lambda: torch._neg_view(torch.zeros(1)), "f32[1] cpu strides(1) neg bit"),
    (lambda: torch.nn.Parameter(torch.zeros(1)), "f32[1] cpu strides(1) requires_grad"),
    (lambda: torch.zeros(1).as_subclass(Plain), "f32[1] cpu strides(1) (Plain)"),
    (inference, "f32[2] cpu strides(1) inference"),
    (lambda: torch.zeros(2).to_sparse(), "f32[2] cpu sparse_coo"),
    (torch.nn.UninitializedParameter, "f32 (UninitializedParameter)"),
    (lambda: torch.zeros(2, dtype=torch.float8_e8m0fnu), "float8_e8m0fnu[2] cpu strides(1)"),
    (lambda: np.zeros((2, 3)), "f64[2,3] cpu strides(3,1)"),
    (lambda: np.zeros((2, 3), dtype=np.uint8)[::-1, ::-2], "u8[2,2] cpu strides(-3,-2)"),
    (lambda: np.array(1.5), "f64[] cpu"),
    (lambda: b"abc", "u8[3] cpu strides(1) read-only"),
    (lambda: bytearray(2), "u8[2] cpu strides(1)"),
    (lambda: np.zeros(1, dtype=np.complex64), "c64[1] cpu strides(1)"),
    (lambda: np.zeros(1, dtype=">f4"), "f32[1] cpu strides(1) big-endian"),
    (lambda: np.zeros(2, dtype="u1,<f4")["f1"], "f32[2] cpu steps(5) bytes"),
    (lambda: np.zeros(2, dtype="u1,>f4")["f1"], "f32[2] cpu steps(5) bytes big-endian"),
    (lambda: 1, "1 (int)"),
    (lambda: 1.5, "1.5 (float)"),
    (lambda: "a'b", '"a\'b" (str)'),
    (lambda: None, "None (NoneType)"),
    (lambda: [1, 2], "[1, 2] (list)"),
    (lambda: "x" * 100, f"'{'x' * 56}... (str)"),
    (lambda: np.float32(2), "np.float32(2.0) (float32)"),
    (lambda: np.bool_(True), "np.True_ (bool)"),
]


@pytest.mark.parametrize("number", range(len(SHOWN)))
def test_values_are_shown_in_compact_form(number):
    make, text = SHOWN[number]
    assert show(make()) == text


def test_showing_gives_memory_back():
    raw = bytearray(4)
    assert show(raw) == "u8[4] cpu strides(1)"
    raw.extend(b"x")
    lease = borrow(raw, "f: x")
    assert str(facts(lease)) == show(lease) == "u8[5] cpu strides(1)"
    with pytest.raises(BufferError):
        raw.extend(b"x")
    lease.release()
    lease.release()
    raw.extend(b"x")


# --- signatures ---------------------------------------------------------------------------------


def tensor(name, **fields):
    return Argument(name, "tensor", **{"dtype": "d", "rank": 1, **fields})


CONTRACT = KernelContract(
    name="f",
    module="",
    symbol="s",
    parameters=(Parameter("d", "dtype", ("float32", "int8")), Parameter("r", "rank", ("1", "2"))),
    arguments=(
        tensor("out", writes=True, rank=2, axes=("n", "3"), layout="row_major"),
        tensor("x", rank="r"),
        Argument("xs", "tensors", dtype="d", rank=1, writes=True, axes=("n",)),
        tensor("y", axes=("n",), optional=True, required=False),
        Argument("n", "scalar", "Int8", default=3, required=False),
        Argument("t", "string", "String", optional=True, required=False),
        Argument("v", "list", "Float32", default=(1.5,), required=False),
    ),
    returns="Int",
    raises=True,
    where="d != DType.bool",
    doc="Text.",
)


def test_arguments_are_spelled_as_in_mojo():
    assert [spell(CONTRACT, a) for a in CONTRACT.arguments] == [
        'out: MutTensor[d, 2, "n 3", layout=row_major]',
        "x: Tensor[d, r]",
        'xs: MutTensorList[d, 1, "n"]',
        'y: OptionalTensor[d, 1, "n"] = None',
        "n: Int8 = 3",
        "t: Optional[String] = None",
        "v: List[Float32] = (1.5,)",
    ]
    assert describe(CONTRACT).splitlines()[0].endswith(" = (1.5,)) -> Int")
    assert describe(CONTRACT).splitlines()[1:] == [
        *("", "Text.", "", "d: float32, int8", "", "r: 1, 2")
    ]
    assert str(signature(CONTRACT)) == "(out, x, xs, y=None, n=3, t=None, v=(1.5,))"


# --- a text for each reason ---------------------------------------------------------------------

X = torch.zeros(2, 3)
LIST = [torch.zeros(2), torch.zeros(3)]
REASONS = {
    Code.NO_DATA: (0, torch.zeros(2, 3, device="meta"), 0),
    Code.LAYOUT_KIND: (0, X.to_sparse(), 0),
    Code.DEVICE: (0, torch.zeros(2, 3, device="meta"), 0),
    Code.NEG_BIT: (0, torch._neg_view(X), 0),
    Code.CONJ_BIT: (0, X.to(torch.complex64).conj(), 0),
    Code.DTYPE: (0, X.double(), 0),
    Code.SAME_DTYPE: (1, X.char(), 0),
    Code.RANK: (0, X[0], 0),
    Code.SAME_RANK: (1, X[0], 0),
    Code.LAYOUT: (0, torch.zeros(3, 2).t(), 0),
    Code.ALIGNMENT: (0, np.zeros(25, dtype=np.uint8)[1:].view(np.float32).reshape(2, 3), 0),
    Code.AXIS: (0, X, 1),
    Code.READ_ONLY: (0, np.frombuffer(bytes(24), dtype=np.float32).reshape(2, 3), 0),
    Code.GRAD: (0, torch.zeros(2, 3, requires_grad=True), 0),
    Code.SELF_OVERLAP: (0, torch.zeros(1, 1).expand(2, 3), 0),
    Code.PARTIAL_OVERLAP: (0, X, 1),
    Code.RANGE: (4, 300, 0),
    Code.BOUNDS: (0, X, "1 7 3 2"),
    Code.NONE: (0, None, 0),
}


def told(code, index, value, detail):
    values = {"out": X, "x": X, "y": None, "xs": LIST, "n": 3, "t": None, "v": [1.0]}
    argument = CONTRACT.arguments[index]
    values[argument.name] = value
    with pytest.raises(torchmojo.TorchmojoError) as caught:
        refuse(CONTRACT, argument, code, detail, values)
    return caught.value


@pytest.mark.parametrize("code", REASONS)
def test_every_reason_has_words_in_one_order(code):
    error = told(code, *REASONS[code])
    assert type(error) is not torchmojo.TorchmojoError, error
    text = str(error)
    assert re.fullmatch(r"f: \w+(\[\d+\])?: wanted .+, given .+", text), text
    assert "code" not in text and "  " not in text and not text.endswith((".", ";", " "))


def test_no_reason_is_forgotten():
    elsewhere = {Code.OK, Code.FOREIGN, Code.COUNT, Code.SCALAR, Code.RAISED, Code.INFERENCE}
    elsewhere |= {Code.ADOPT, Code.RELEASED, Code.MOVED}  # see the next tests
    assert set(REASONS) | elsewhere == set(Code)


def call_refused(code, *args):
    """Say what glue says when it refuses a call of `f`."""
    return mend(SimpleNamespace(contract=CONTRACT), code, 0, None, args, None)


def test_a_released_handle_has_words():
    handle = torchmojo.share(torch.zeros(2, 3))
    handle.release()
    with pytest.raises(torchmojo.HandleError) as caught:
        call_refused(Code.RELEASED, handle, X, LIST)
    assert str(caught.value) == (
        f"f: out: wanted an open handle, given one that was released, made at {handle.place}"
    )
    assert handle.place.startswith(f"{__file__}:")


def test_a_moved_lender_has_words():
    x = torch.zeros(2, 3)
    with torchmojo.share(x) as handle:
        x.resize_(40, 50)
        with pytest.raises(torchmojo.NoDataError) as caught:
            call_refused(Code.MOVED, handle, X, LIST)
    assert str(caught.value) == (
        "f: out: wanted the memory that was shared, f32[2,3] cpu strides(3,1), given a lender that "
        "has moved or changed since, f32[40,50] cpu strides(50,1); share it again"
    )


def test_a_tensor_that_a_kernel_made_is_adopted():
    capsule = torch.arange(3.0).__dlpack__()
    made = mend(SimpleNamespace(contract=CONTRACT), Code.ADOPT, 0, capsule, (), None)
    assert torch.equal(made, torch.arange(3.0))


def test_places_in_lists():
    assert str(told(Code.DTYPE, 2, [torch.zeros(2), torch.zeros(2).double()], 1)) == (
        "f: xs[1]: wanted f32 or i8, given f64[2] cpu strides(1); make the output so from the "
        "start: what goes into a converted copy is lost"
    )
    assert str(told(Code.AXIS, 2, LIST, 256)) == (
        "f: xs[1]: wanted axis 0 (n) as long as axis 0 of out, f32[2,3] cpu strides(3,1), given "
        "f32[3] cpu strides(1)"
    )
    assert str(told(Code.RANGE, 6, [1.0, 1e300], 1)) == (
        "f: v[1]: wanted a value of Float32, given 1e+300 (float); out of range"
    )
    assert str(told(Code.BOUNDS, 2, LIST, "-1 5 2 1")) == (
        "f: xs: wanted 0 <= index < 2 in the list, given 5"
    )
    assert str(told(Code.BOUNDS, 0, X, "-2 5 2 1")) == "f: out: wanted 0 <= axis < 2, given 5"
