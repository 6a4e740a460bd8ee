"""Complex tensors: two floats on a last axis called `complex`, in the memory that they lie in."""

import numpy as np
import pytest
import torch

import torchmojo
from torchmojo import AliasError, DTypeError, GradError, LayoutError, ShapeError

Z = [1 + 2j, 3 - 4j, -5j, 6 + 0j]


def test_parts_of_complex_numbers(views):
    for z in (
        torch.tensor(Z),
        torch.view_as_real(torch.tensor(Z)),
        np.array(Z, dtype=np.complex64),
        torch.tensor(Z)[::2].repeat(2)[:4] * 1,
        torch.tensor([v for v in Z for _ in "ab"])[1::2],
        np.array(Z[::-1], dtype=np.complex64)[::-1],
    ):
        expected = np.asarray(z if np.iscomplexobj(z) else torch.view_as_complex(z))
        real, imaginary = torch.zeros(4), torch.zeros(4)
        views.split_complex(real, imaginary, z)
        assert real.tolist() == expected.real.tolist()
        assert imaginary.tolist() == expected.imag.tolist()


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("name", ["complex32", "complex64", "complex128"])
def test_every_complex_dtype_in_place(views, name):
    z = torch.tensor(Z, dtype=torch.complex128).to(getattr(torch, name))
    parts = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}[name]
    assert views.conjugate(z) == f"{parts} 2 1 {z.data_ptr()}"
    assert z.to(torch.complex128).tolist() == [complex(v).conjugate() for v in Z]
    assert z._version == 1
    assert views.conjugate(z[1::2]) == f"{parts} 4 1 {z[1:].data_ptr()}"
    assert z.to(torch.complex128).tolist() == [1 - 2j, 3 - 4j, 5j, 6 + 0j]


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_numpy_in_place(views, dtype):
    z = np.array(Z, dtype=dtype)
    views.conjugate(z)
    assert z.tolist() == [v.conjugate() for v in Z]
    views.conjugate(z[::-2])
    assert z.tolist() == [1 - 2j, 3 - 4j, 5j, 6 + 0j]


def test_complex_through_dlpack(views, producer):
    lender = producer([1, 2, 3, 4], (2,), dtype=(5, 64, 1))
    real, imaginary = torch.zeros(2), torch.zeros(2)
    views.split_complex(real, imaginary, lender)
    assert (real.tolist(), imaginary.tolist()) == ([1, 3], [2, 4])
    assert lender.deletes() == [1]


def test_shapes_and_layouts(views, refused):
    z = torch.zeros(2, 3, dtype=torch.complex64)
    assert views.complex_any(z, torch.zeros(3)) == views.complex_any(z, torch.tensor(1.0)) == 23
    assert views.complex_dense(z) == 12
    assert refused(LayoutError, views.complex_dense, z.t()) == (
        "complex_dense: z: wanted contiguous (row-major), given c64[3,2] cpu strides(1,3); "
        "write x.contiguous(), which copies"
    )
    assert refused(ShapeError, views.complex_dense, torch.zeros(2, 3, 4)) == (
        "complex_dense: z: wanted a complex tensor, or size 2 (real and imaginary part) on axis "
        "2, given f32[2,3,4] cpu strides(12,4,1)"
    )
    refused(ShapeError, views.complex_dense, z[0])
    assert views.complex_dense(torch.zeros(0, 3, dtype=torch.complex64)) == 0
    refused(DTypeError, views.complex_dense, z.to(torch.complex128))
    # Complex numbers are nothing to an argument that does not ask for their parts.
    refused(DTypeError, views.complex_any, z, z[0])


def test_lazy_bits_are_refused(views, refused):
    """A15: a conjugated tensor lies in memory as it was before."""
    z = torch.tensor(Z).conj()
    assert refused(LayoutError, views.conjugate, z) == (
        "conjugate: z: wanted values as they lie in memory, given c64[4] cpu strides(1) conj bit; "
        "make the output so from the start: what goes into a converted copy is lost"
    )
    refused(LayoutError, views.complex_dense, torch.zeros(2, 2, dtype=torch.complex64).mH)
    refused(LayoutError, views.conjugate, torch._neg_view(torch.tensor(Z)))
    real, imaginary = torch.zeros(4), torch.zeros(4)
    views.split_complex(real, imaginary, z.resolve_conj())
    assert imaginary.tolist() == [-2, 4, 5, 0]


def test_complex_outputs(views, refused):
    z = torch.tensor(Z)
    refused(AliasError, views.conjugate, z[:1].expand(4))
    with pytest.raises(GradError):
        views.conjugate(z.clone().requires_grad_())
    # The parts of one tensor are apart from each other, and not apart from the whole.
    parts = torch.view_as_real(z.clone())
    views.split_complex(parts[:, 0], torch.zeros(4), z)
    refused(AliasError, views.split_complex, parts[:, 0], torch.zeros(4), parts)
    assert not torchmojo.explain(z[:1].expand(4), views.conjugate.z).ok
