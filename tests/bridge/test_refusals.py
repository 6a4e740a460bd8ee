"""Tensors that are refused before their memory is touched, and those that only look odd."""

import warnings

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import torchmojo
from torchmojo import (
    AliasError,
    DeviceError,
    DTypeError,
    GradError,
    LayoutError,
    NoDataError,
    ReadOnlyError,
    ShapeError,
)

F32 = "f32[4] cpu strides(1)"
NO_DATA = "wanted a tensor with memory of its own, given"
FUNCTORCH = (
    f"{NO_DATA} {F32}{{}} (a tensor under a function transform); "
    "call the kernel outside of torch.vmap, grad and functionalize"
)


class Plain(torch.Tensor):
    pass


class Dispatching(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Talking(torch.Tensor):
    """Every use of it in Python runs code of its author."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError("this code must not run")


def fake(shape=(4,)):
    with FakeTensorMode():
        return torch.empty(shape)


def nested(layout):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a notice that nested tensors are a prototype
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)


def quantized():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8)


def csr():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.eye(4).to_sparse_csr()


def freed(offset=0, size=0):
    tensor = torch.ones(4 + offset)[offset:]
    tensor.untyped_storage().resize_(size)
    return tensor


COMPLEX = torch.tensor([1 + 2j, 3 - 4j, 5j, 6])
STRIDED = "wanted a strided tensor, given {}; write x.to_dense() or take its values"
BITS = "wanted values as they lie in memory, given {}; write x.resolve_{}(), which copies"
DTYPE = "wanted f32, given {}; write x.to(torch.float32), which copies"
LOST = "make the output so from the start: what goes into a converted copy is lost"

ODD = {
    "meta": (
        lambda: torch.empty(4, device="meta"),
        DeviceError,
        "wanted cpu, given f32[4] meta strides(1); a meta tensor has no data; call the kernel on "
        "real tensors",
    ),
    "negated": (
        lambda: torch._neg_view(torch.ones(4)),
        LayoutError,
        BITS.format(f"{F32} neg bit", "neg"),
    ),
    "imaginary part of a conjugate": (
        lambda: COMPLEX.conj().imag,
        LayoutError,
        BITS.format("f32[4] cpu strides(2) neg bit", "neg"),
    ),
    "slice of it": (
        lambda: COMPLEX.conj().imag[1:3],
        LayoutError,
        BITS.format("f32[2] cpu strides(2) neg bit", "neg"),
    ),
    "one element of it": (
        lambda: COMPLEX.conj().imag[1:2],
        LayoutError,
        BITS.format("f32[1] cpu strides(2) neg bit", "neg"),
    ),
    "row of its transpose": (
        lambda: COMPLEX.reshape(2, 2).conj().imag.t()[0],
        LayoutError,
        BITS.format("f32[2] cpu strides(4) neg bit", "neg"),
    ),
    "conjugated": (
        COMPLEX.conj,
        LayoutError,
        BITS.format("c64[4] cpu strides(1) conj bit", "conj"),
    ),
    "complex": (
        lambda: COMPLEX,
        DTypeError,
        "wanted f32, given c64[4] cpu strides(1); pass it to an argument whose last axis is "
        "named `complex`, or torch.view_as_real(x), a view with a last axis of 2",
    ),
    "fake": (
        fake,
        NoDataError,
        f"{NO_DATA} {F32} (FakeTensor); call the kernel on real tensors, outside of tracing "
        "and compiled code",
    ),
    "sparse": (
        lambda: torch.ones(4).to_sparse(),
        LayoutError,
        STRIDED.format("f32[4] cpu sparse_coo"),
    ),
    "sparse that requires grad": (
        lambda: torch.ones(4).to_sparse().requires_grad_(),
        LayoutError,
        STRIDED.format("f32[4] cpu sparse_coo requires_grad"),
    ),
    "compressed": (csr, LayoutError, STRIDED.format("f32[4,4] cpu sparse_csr")),
    "mkldnn": (
        lambda: torch.ones(4).to_mkldnn(),
        LayoutError,
        STRIDED.format("f32[4] cpu _mkldnn"),
    ),
    "nested": (lambda: nested(torch.strided), LayoutError, STRIDED.format("f32 nested")),
    "jagged": (
        lambda: nested(torch.jagged),
        NoDataError,
        f"{NO_DATA} f32 (NestedTensor) nested; call the kernel on real tensors, outside of "
        "tracing and compiled code",
    ),
    "quantized": (
        quantized,
        DTypeError,
        "wanted f32, given quint8[4] cpu strides(1); write x.dequantize(), which copies, or "
        "x.int_repr()",
    ),
    "uninitialized": (
        torch.nn.UninitializedParameter,
        NoDataError,
        f"{NO_DATA} f32 (UninitializedParameter); run the module once on an input, so that it gets "
        "its shape",
    ),
    "uninitialized buffer": (
        torch.nn.UninitializedBuffer,
        NoDataError,
        f"{NO_DATA} f32 (UninitializedBuffer); run the module once on an input, so that it gets "
        "its shape",
    ),
    "zeros without memory": (
        lambda: torch._efficientzerotensor(4),
        NoDataError,
        f"{NO_DATA} {F32} (zeros that take no memory); write torch.zeros_like(x)",
    ),
    "subclass with dispatch": (
        lambda: torch.Tensor._make_subclass(Dispatching, torch.ones(4)),
        NoDataError,
        f"{NO_DATA} {F32} (Dispatching); call the kernel on real tensors, outside of "
        "tracing and compiled code",
    ),
    "freed": (
        freed,
        NoDataError,
        f"wanted 16 bytes for its shape and strides, given {F32} (a storage of 0 bytes); a failed "
        "resize_ leaves such a tensor; make it anew",
    ),
    "freed with an offset": (
        lambda: freed(3),
        NoDataError,
        f"wanted 28 bytes for its shape and strides, given {F32} (a storage of 0 bytes); a failed "
        "resize_ leaves such a tensor; make it anew",
    ),
    "cut by one byte": (
        lambda: freed(4, 31),
        NoDataError,
        f"wanted 32 bytes for its shape and strides, given {F32} (a storage of 31 bytes); a failed "
        "resize_ leaves such a tensor; make it anew",
    ),
    "double": (
        lambda: torch.ones(4, dtype=torch.float64),
        DTypeError,
        DTYPE.format("f64[4] cpu strides(1)"),
    ),
    "a dtype that no kernel takes": (
        lambda: torch.ones(4).to(torch.float8_e8m0fnu),
        DTypeError,
        DTYPE.format("float8_e8m0fnu[4] cpu strides(1)"),
    ),
    "subclass that talks": (
        lambda: torch.ones(4, dtype=torch.float64).as_subclass(Talking),
        DTypeError,
        DTYPE.format("f64[4] cpu strides(1) (Talking)"),
    ),
}


def as_output(text):
    """Give what is said of an output: nobody would see what is written into a copy."""
    given, _, advice = text.partition("; ")
    return f"{given}; {LOST}" if "which copies" in advice else text


@pytest.mark.parametrize("name", ODD)
def test_odd_tensors_are_refused(kinds, refused, name):
    make, error, text = ODD[name]
    x, dst = torch.ones(4), torch.zeros(4)
    assert refused(error, kinds.add, dst, make(), x) == f"add: a: {text}"
    assert refused(error, kinds.add, make(), x, x) == f"add: dst: {as_output(text)}"
    assert refused(error, kinds.pick_first, make()) == f"pick_first: x: {text}"
    assert refused(error, kinds.sum_list, dst, [x, make()]) == f"sum_list: xs[1]: {text}"
    assert refused(error, kinds.number_list, (make(),), 1.0) == (
        f"number_list: xs[0]: {as_output(text)}"
    )
    # A foreign object beside it sends the call through Python first.
    assert refused(error, kinds.add, memoryview(dst.numpy()), make(), x) == f"add: a: {text}"
    assert dst.tolist() == [0] * 4 and dst._version == 0 and x._version == 0


@pytest.mark.parametrize("name", ODD)
def test_explain_says_the_same(kinds, name):
    make, _, text = ODD[name]
    told = torchmojo.explain(make(), kinds.add.a)
    failed = [check for check in told if not check.ok]
    further = ["dtype"] if name == "conjugated" else []  # what cannot be mended by its first advice
    assert not told.ok and [check.name for check in failed[1:]] == further
    assert f"wanted {failed[0].wanted}, given" in text and text.endswith(failed[0].advice)


def test_scalars_keep_their_lazy_bits(views, refused):
    x = COMPLEX.conj()[1].imag
    assert x.ndim == 0 and x.is_neg()
    assert refused(LayoutError, views.scalar_of, x) == (
        "scalar_of: x: " + BITS.format("f32[] cpu neg bit", "neg")
    )
    assert views.scalar_of(x.resolve_neg()) == 4.0


def test_fake_tensors_inside_their_mode(kinds, refused):
    real, dst = torch.ones(4), torch.zeros(4)
    with FakeTensorMode():
        x = torch.empty(4)
        assert refused(NoDataError, kinds.add, dst, x, real).startswith(f"add: a: {NO_DATA}")
        assert refused(NoDataError, kinds.add, x, real, real).startswith(f"add: dst: {NO_DATA}")
        kinds.add(dst, real, real)  # real ones stay real
    assert dst.tolist() == [2.0] * 4


@pytest.mark.parametrize("transform", ["vmap", "grad", "vjp", "jvp", "functionalize"])
def test_function_transforms_are_refused(kinds, refused, transform):
    x, dst = torch.ones(4), torch.zeros(4)
    note = " requires_grad" if transform in ("grad", "vjp") else ""

    def seen(a):
        assert refused(NoDataError, kinds.add, dst, a, x) == f"add: a: {FUNCTORCH.format(note)}"
        assert refused(NoDataError, kinds.add, a, x, x) == f"add: dst: {FUNCTORCH.format(note)}"
        kinds.add(dst, x, x)
        return a.sum()

    {
        "vmap": lambda: torch.vmap(seen)(torch.ones(2, 4)),
        "grad": lambda: torch.func.grad(seen)(x),
        "vjp": lambda: torch.func.vjp(seen, x),
        "jvp": lambda: torch.func.jvp(seen, (x,), (x,)),
        "functionalize": lambda: torch.func.functionalize(seen)(x.clone()),
    }[transform]()
    assert dst.tolist() == [2.0] * 4


def test_forward_gradients_show_no_memory_of_their_own(kinds):
    """A dual tensor is a plain tensor with a tangent: its primal is read."""
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.ones(4), torch.ones(4))
        dst = torch.zeros(4)
        kinds.add(dst, dual, dual)
        assert dst.tolist() == [2.0] * 4


def test_refusals_print_nothing(kinds, refused, capfd):
    dst, x = torch.zeros(4), torch.ones(4)
    for make, error, _ in ODD.values():
        refused(error, kinds.add, dst, make(), x)
    torch.vmap(lambda a: refused(NoDataError, kinds.add, dst, a, x) and a)(torch.ones(2, 4))
    assert capfd.readouterr() == ("", "")


# --- plain subclasses ---------------------------------------------------------------------------


def test_plain_subclasses_are_tensors(kinds):
    for kind in (Plain, Talking, torch.nn.Buffer):
        x = torch.ones(4)
        y = kind(x) if kind is torch.nn.Buffer else x.as_subclass(kind)
        with torch._C.DisableTorchFunctionSubclass():
            version = y._version
            kinds.add(y, y, torch.ones(4))
            assert y._version == version + 1 and x.tolist() == [2.0] * 4
    assert kinds.address(torch.ones(4).as_subclass(Plain))


def test_more_subclasses_than_the_table_holds(kinds, run_child):
    """A17: also where a subclass passes as an alias, the version counter is the tensor's own."""
    run_child(
        """
        kinds = torchmojo.load(KERNELS / "kinds.mojo")
        for i in range(40):
            kind = type(f"Sub{i}", (torch.Tensor,), {})
            x = torch.ones(4).as_subclass(kind)
            for again in range(3):
                kinds.add(x, x, torch.ones(4))
            assert x.as_subclass(torch.Tensor).tolist() == [4.0] * 4
            assert x._version == 3, (i, x._version)
            y = torch.nn.Parameter(torch.ones(4)).as_subclass(kind)
            try:
                kinds.add(y, y, y)
            except torchmojo.GradError:
                pass
            else:
                raise AssertionError("written")
        """
    )


# --- zombies ------------------------------------------------------------------------------------


def test_a_failed_resize_is_noticed(kinds, refused, zombie):
    """A06a: the shape says 10 elements, the storage holds 3."""
    dst = torch.zeros(10)
    assert refused(NoDataError, kinds.add, dst, zombie, dst.clone()) == (
        "add: a: wanted 40 bytes for its shape and strides, given f32[10] cpu strides(1) "
        "(a storage of 12 bytes); a failed resize_ leaves such a tensor; make it anew"
    )
    refused(NoDataError, kinds.add, zombie, dst, dst)
    kinds.address(zombie[:3])


def test_storage_that_shrinks_between_calls(kinds, refused):
    """A06b: looked at anew on every call."""
    x, dst = torch.ones(1 << 16), torch.zeros(1 << 16)
    kinds.add(dst, x, x)
    x.untyped_storage().resize_(1 << 15)
    refused(NoDataError, kinds.add, dst, x, dst.clone())
    x.untyped_storage().resize_(0)
    refused(NoDataError, kinds.add, dst, x, dst.clone())


def test_tensors_without_elements_need_no_memory(kinds):
    empty = torch.ones(4)[:0]
    empty.untyped_storage().resize_(0)
    kinds.add(empty, empty, torch.empty(0))
    assert kinds.total_float32(torch.empty(0)) == 0


# --- autograd -----------------------------------------------------------------------------------

GRAD = (
    "wanted a tensor that autograd does not record, given f32[3] cpu strides(1) requires_grad; "
    "call the kernel under torch.no_grad(), or write into x.detach()"
)


def test_leaf_that_requires_grad(kinds, refused):
    """A17b, as torch refuses x.mul_(2)."""
    x = torch.ones(3, requires_grad=True)
    p = torch.nn.Parameter(torch.ones(3))
    for leaf in (x, p):
        assert refused(GradError, kinds.scale, leaf, 2.0) == f"scale: x: {GRAD}"
        assert refused(GradError, kinds.scale, leaf * 1, 2.0) == f"scale: x: {GRAD}"
        assert refused(GradError, kinds.number_list, [torch.ones(3), leaf], 2.0) == (
            f"number_list: xs[1]: {GRAD}"
        )
        assert leaf.tolist() == [1, 1, 1] and leaf._version == 0
        with torch.no_grad():
            kinds.scale(leaf, 2.0)
        assert leaf.tolist() == [2, 2, 2] and leaf._version == 1
        kinds.scale(leaf.detach(), 2.0)
        assert leaf.tolist() == [4, 4, 4] and leaf._version == 2
    with pytest.raises(RuntimeError):
        kinds.scale(x, 2.0)


def test_reading_a_parameter(kinds):
    """A15c."""
    p = torch.nn.Parameter(torch.arange(3.0))
    assert kinds.total_float32(p) == 3.0
    assert p.requires_grad and p.grad_fn is None and p.grad is None and p._version == 0
    y = p * 2
    assert kinds.total_float32(y) == 6.0 and y.grad_fn is not None and y._version == 0


def test_a_write_under_no_grad_is_seen_by_backward(kinds):
    """A17a: the silent failure would be a gradient of 20."""
    x = torch.ones(3, requires_grad=True)
    y = x * 1.0
    loss = (y * y).sum()
    with torch.no_grad():
        kinds.scale(y, 10.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_write_through_a_view_is_seen_by_backward(kinds):
    x = torch.ones(3, requires_grad=True)
    y = x * 1.0
    loss = (y * y).sum()
    with torch.no_grad():
        kinds.scale(y.detach()[1:], 10.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_versions_rise_once_for_each_output(views, refused):
    a, b, src = torch.zeros(4), torch.zeros(4), torch.zeros(4)
    views.outputs(a)
    assert (a._version, b._version) == (1, 0)
    views.outputs(a, b)
    assert (a._version, b._version) == (2, 1)
    refused(
        torchmojo.KernelError, views.outputs, a, b, True
    )  # it may have written before it raised
    assert (a._version, b._version) == (3, 2)
    refused(ShapeError, views.outputs, a, b[None])
    refused(AliasError, views.outputs, a, a[1:])
    assert (a._version, b._version) == (3, 2)
    views.inputs_first(src, a)
    assert (a._version, src._version) == (4, 0)
    base = torch.zeros(8)
    views.outputs(base[:4], base[4:])
    assert base._version == 2


def test_inference_tensors(kinds, refused):
    with torch.inference_mode():
        x = torch.ones(4)
        kinds.scale(x, 2.0)
        normal = torch.zeros(4)
        kinds.add(normal, x, x)
    assert kinds.total_float32(x) == 8.0
    assert refused(GradError, kinds.scale, x, 2.0) == (
        "scale: x: wanted a tensor that may be written here, given f32[4] cpu strides(1) "
        "inference; an inference tensor can be written under torch.inference_mode() only"
    )
    with torch.no_grad():
        refused(GradError, kinds.scale, x, 2.0)
    assert x.tolist() == [2.0] * 4
    outside = torch.ones(4)
    with torch.inference_mode():
        kinds.scale(outside, 3.0)
    assert outside.tolist() == [3.0] * 4 and outside._version == 1
    leaf = torch.ones(4, requires_grad=True)
    with torch.inference_mode():
        kinds.scale(leaf, 3.0)
    assert leaf._version == 1


# --- storage that is copied on write ------------------------------------------------------------


def test_reading_does_not_copy_a_lazy_clone(kinds, refused):
    base = torch.arange(4.0)
    clone = torch._lazy_clone(base)
    dst = torch.zeros(4)
    kinds.add(dst, clone, base)
    torchmojo.explain(clone, kinds.add.a)
    refused(ShapeError, kinds.add, dst[:3], clone, base)
    assert dst.tolist() == [0, 2, 4, 6]
    assert torch._C._is_cow_tensor(clone) and torch._C._is_cow_tensor(base)
    assert torch._C._data_address(clone) == torch._C._data_address(base)


def test_writing_copies_a_lazy_clone(kinds):
    base = torch.arange(4.0)
    for target, other in ((0, 1), (1, 0)):
        pair = [base.clone()]
        pair.append(torch._lazy_clone(pair[0]))
        kinds.scale(pair[target], 10.0)
        assert pair[target].tolist() == [0, 10, 20, 30] and pair[other].tolist() == [0, 1, 2, 3]
        assert not torch._C._is_cow_tensor(pair[target])


# --- alignment ----------------------------------------------------------------------------------


def test_misaligned_memory(kinds, refused):
    raw = np.zeros(17, dtype=np.uint8)
    assert raw.ctypes.data % 16 == 0
    odd = raw[1:].view(np.float32)
    x = torch.ones(4)
    text = "wanted an address that is a multiple of 4, given f32[4] cpu strides(1) (past one by 1);"
    assert refused(LayoutError, kinds.add, x, odd, x) == f"add: a: {text} write x.copy()"
    assert refused(LayoutError, kinds.add, odd, x, x) == f"add: dst: {text} {LOST}"
    as_torch = torch.frombuffer(raw, dtype=torch.float32, offset=1, count=4)
    assert refused(LayoutError, kinds.add, x, as_torch, x) == f"add: a: {text} write x.clone()"
    assert not raw.any()
    bytes_ = torch.zeros(9, dtype=torch.uint8)[1:]
    assert kinds.tail_uint8(bytes_, 3) == 0


# --- read-only memory ---------------------------------------------------------------------------


def test_read_only_memory(kinds, refused, tmp_path):
    """A08: reading needs no copy, writing is refused, nothing changes."""
    x = torch.ones(4)
    np.save(tmp_path / "a.npy", np.arange(4, dtype=np.float32))
    content = (tmp_path / "a.npy").read_bytes()
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    frozen = np.arange(4, dtype=np.float32)
    frozen.flags.writeable = False
    for ro in (mapped, frozen, memoryview(bytes(mapped)).cast("f"), np.frombuffer(bytes(16), "f4")):
        dst = torch.zeros(4)
        kinds.add(dst, ro, x)
        assert dst.tolist() == [v + 1 for v in ro]
        assert kinds.address(ro) == np.asarray(ro).__array_interface__["data"][0]
        assert refused(ReadOnlyError, kinds.add, ro, x, x) == (
            "add: dst: wanted memory that may be written, given f32[4] cpu strides(1) read-only; "
            "pass a writable copy"
        )
        refused(ReadOnlyError, kinds.number_list, [x, ro], 1.0)
    assert (tmp_path / "a.npy").read_bytes() == content and frozen.tolist() == [0, 1, 2, 3]
    kinds.scale(frozen[:0], 1.0)  # nothing to write


# --- more than 2**31 elements -------------------------------------------------------------------


def test_more_than_two_billion_elements(kinds):
    """A22a: sizes and offsets are 64-bit; only the last page is touched."""
    x = torch.empty(2**31 + 64, dtype=torch.uint8)
    x[-64:] = torch.arange(1, 65, dtype=torch.uint8)
    assert kinds.tail_uint8(x, 64) == 2080 and kinds.tail_uint8(x, 1) == 64
    assert kinds.tail_uint8(x.numpy(), 64) == 2080


def test_more_than_two_billion_indices_of_one_element(kinds, views, refused):
    """A22b: as an input it is one byte, as an output it is refused."""
    x = torch.full((1,), 7, dtype=torch.uint8).expand(2**31 + 5)
    assert kinds.tail_uint8(x, 3) == 21
    refused(AliasError, views.touch, x, torch.zeros(1, dtype=torch.uint8))


# --- the slow way in ----------------------------------------------------------------------------


def test_an_unknown_torch_passes_through_dlpack(run_child):
    """If a fact about torch cannot be proved, the same checks are made in Python."""
    out = run_child(
        """
        import warnings
        from torchmojo.bridge import aten
        aten.symbols = lambda: {"aoti_torch_get_dim": 0}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            kinds = torchmojo.load(KERNELS / "kinds.mojo")
        print(len(caught), caught[0].category.__name__, caught[0].message)
        torchmojo.fallback("error")
        x = torch.ones(4)
        kinds.add(x, x, x)
        print(x.tolist(), x._version)
        p = torch.nn.Parameter(torch.ones(4))
        print(kinds.total_float32(p))
        views = torchmojo.load(KERNELS / "views.mojo")
        z = torch._neg_view(torch.ones(4))
        for call, args in (
            (kinds.scale, (p, 2.0)),
            (kinds.add, (x, z, x)),
            (kinds.add, (x, x.double(), x)),
            (kinds.add, (x, x[:1].expand(4).numpy()[:3], x)),
            (kinds.scale, (x[:1].expand(4), 1.0)),
            (views.inputs_first, (x[1:], x[:-1])),
            (kinds.add, (x, torch.empty(4, device="meta"), x)),
            (kinds.sum_list, (x, [torch.ones(4), x.to_sparse()])),
        ):
            try:
                call(*args)
            except torchmojo.TorchmojoError as error:
                print(type(error).__name__, error)
        print(x._version)
        with torch.no_grad():
            kinds.scale(p, 2.0)
        print(p._version, kinds.first(torch.tensor([1.5], dtype=torch.bfloat16)))
        """
    )
    lines = out.splitlines()
    assert lines[0].startswith(f"1 TorchmojoWarning torchmojo: torch {torch.__version__} differs")
    assert lines[1:3] == ["[2.0, 2.0, 2.0, 2.0] 1", "4.0"]
    assert [line.split(" ", 1)[0] for line in lines[3:11]] == [
        *("GradError", "LayoutError", "DTypeError", "ShapeError", "AliasError", "AliasError"),
        *("DeviceError", "LayoutError"),
    ]
    assert lines[4] == f"LayoutError add: a: {BITS.format(f'{F32} neg bit', 'neg')}"
    assert lines[11:] == ["1", "1 1.5"]


MODES = {
    "inference_mode": "with torch.inference_mode():",
    "no_grad": "with torch.no_grad():",
    "fake": "from torch._subclasses.fake_tensor import FakeTensorMode\nwith FakeTensorMode():",
    "device": "with torch.device('meta'):",
    "dispatch": (
        "from torch.utils._python_dispatch import TorchDispatchMode\n"
        "class Mode(TorchDispatchMode):\n"
        "    def __torch_dispatch__(self, *args, **kwargs): raise RuntimeError('mode')\n"
        "with Mode():"
    ),
    "function": (
        "from torch.overrides import TorchFunctionMode\n"
        "class Mode(TorchFunctionMode):\n"
        "    def __torch_function__(self, *args, **kwargs): raise RuntimeError('mode')\n"
        "with Mode():"
    ),
}


@pytest.mark.parametrize("mode", MODES)
def test_the_first_call_may_come_under_any_mode(run_child, mode):
    """What torch is made of is looked up once, in a thread that no mode of the caller reaches."""
    code = f"""
import warnings
warnings.simplefilter("error")
import torchmojo
kinds = torchmojo.load(KERNELS / "kinds.mojo")
import torch
x = torch.ones(3)
{MODES[mode]}
    kinds.add(x, x, x)
from torchmojo.bridge.aten import open_door
print(x.tolist(), open_door().open)
"""
    assert run_child(code, bare=True) == "[2.0, 2.0, 2.0] True\n"
