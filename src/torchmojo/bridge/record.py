"""The record of a foreign tensor: what the glue reads of it, as ``_glue/record.mojo`` lays it out."""

from __future__ import annotations

import ctypes

__all__ = ["Record"]


class Record(ctypes.Structure):
    """Nine words. The lease that holds it also holds the arrays and the lender.

    Attributes:
        data: Address of element ``[0, ..., 0]``.
        shape: Address of ``ndim`` 64-bit sizes.
        strides: Address of ``ndim`` 64-bit strides in elements.
        ndim: Number of axes.
        dtype: Torch's number of the dtype, -1 for one that kernels do not know.
        read_only: 1 where memory must not be written.
        low: First byte that belongs to the lender.
        high: One past its last byte.
        handle: 0; only torch tensors have one.
    """

    _fields_ = (
        ("data", ctypes.c_int64),
        ("shape", ctypes.c_int64),
        ("strides", ctypes.c_int64),
        ("ndim", ctypes.c_int64),
        ("dtype", ctypes.c_int64),
        ("read_only", ctypes.c_int64),
        ("low", ctypes.c_int64),
        ("high", ctypes.c_int64),
        ("handle", ctypes.c_int64),
    )
