"""The dtypes that can cross the border, with their names on each side of it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BY_CODE", "BY_DLPACK", "BY_NAME", "DEFAULT", "MOJO", "DTypeInfo"]


@dataclass(frozen=True, slots=True)
class DTypeInfo:
    """One dtype.

    Attributes:
        name: Name in torch, NumPy and Mojo (``DType.<name>``).
        short: Name in messages, as in ``f32[2,3]``.
        code: Torch's number (c10/core/ScalarType.h); the glue dispatches on it.
        dlpack: DLPack type code and bits (dlpack.h, DLDataTypeCode).
        width: Bytes of an element.
        formats: Format letters of the buffer protocol (PEP 3118) in native order.
        kind: ``f`` float, ``i`` signed, ``u`` unsigned, ``b`` bool, ``8`` float8, ``c`` complex.
        parts: For a complex dtype, that of its real and imaginary parts: Mojo has no complex
            dtypes, so a kernel sees two floats on a last axis named ``complex``.
    """

    name: str
    short: str
    code: int
    dlpack: tuple[int, int]
    width: int
    formats: str
    kind: str
    parts: str = ""


_TABLE = (
    DTypeInfo("float32", "f32", 6, (2, 32), 4, "f", "f"),
    DTypeInfo("float64", "f64", 7, (2, 64), 8, "d", "f"),
    DTypeInfo("float16", "f16", 5, (2, 16), 2, "e", "f"),
    DTypeInfo("bfloat16", "bf16", 15, (4, 16), 2, "", "f"),
    DTypeInfo("uint8", "u8", 0, (1, 8), 1, "Bc", "u"),
    DTypeInfo("int8", "i8", 1, (0, 8), 1, "b", "i"),
    DTypeInfo("int16", "i16", 2, (0, 16), 2, "h", "i"),
    DTypeInfo("int32", "i32", 3, (0, 32), 4, "i", "i"),
    DTypeInfo("int64", "i64", 4, (0, 64), 8, "lqn", "i"),
    DTypeInfo("uint16", "u16", 27, (1, 16), 2, "H", "u"),
    DTypeInfo("uint32", "u32", 28, (1, 32), 4, "I", "u"),
    DTypeInfo("uint64", "u64", 29, (1, 64), 8, "LQN", "u"),
    DTypeInfo("bool", "bool", 11, (6, 8), 1, "?", "b"),
    DTypeInfo("float8_e5m2", "f8e5m2", 23, (12, 8), 1, "", "8"),
    DTypeInfo("float8_e4m3fn", "f8e4m3fn", 24, (10, 8), 1, "", "8"),
    DTypeInfo("float8_e5m2fnuz", "f8e5m2fnuz", 25, (13, 8), 1, "", "8"),
    DTypeInfo("float8_e4m3fnuz", "f8e4m3fnuz", 26, (11, 8), 1, "", "8"),
    DTypeInfo("complex32", "c32", 8, (5, 32), 4, "", "c", "float16"),
    DTypeInfo("complex64", "c64", 9, (5, 64), 8, "", "c", "float32"),
    DTypeInfo("complex128", "c128", 10, (5, 128), 16, "", "c", "float64"),
)

BY_NAME = {info.name: info for info in _TABLE}
BY_CODE = {info.code: info for info in _TABLE}
BY_DLPACK = {info.dlpack: info for info in _TABLE}

MOJO = tuple(info.name for info in _TABLE if info.kind != "c")
"""The dtypes that Mojo has."""

DEFAULT = tuple(info.name for info in _TABLE if info.kind not in "8c")
"""What a dtype parameter takes when its kernel does not say; float8 must be named."""
