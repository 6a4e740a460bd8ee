"""Reads and writes rows of values in 64 bits: integers with or without a sign, or doubles.

Rows lie side by side and are worked on in groups of `GROUP`: what follows a row up to a whole group
is read, and written, too.
"""

from std.memory import bitcast
from std.sys import size_of

from torchmojo_core.copy.bits import load, store
from torchmojo_core.cast.dtypes import Dtype
from torchmojo_core.cast.floats import (
    BFLOAT16,
    FLOAT16,
    FLOAT8_E4M3FN,
    FLOAT8_E5M2,
    Format,
    decode,
    encode,
)

comptime GROUP = 16
"""Values that are worked on at a time."""

comptime _INTEGERS = [DType.uint8, DType.int8, DType.int16, DType.int32, DType.uint16, DType.uint32]
comptime _NUMBERS = [
    Dtype.UINT8,
    Dtype.INT8,
    Dtype.INT16,
    Dtype.INT32,
    Dtype.UINT16,
    Dtype.UINT32,
]


def read_values(dtype: Int, values: Int, raw: Int, count: Int):
    """Widens elements to 64 bits.

    Args:
        dtype: Their `Dtype`.
        values: Address of what is written.
        raw: Address of the elements.
        count: How many.
    """
    comptime for i in range(len(_INTEGERS)):
        comptime type = _INTEGERS[i]
        comptime number = _NUMBERS[i]
        if dtype == number:
            for k in range(0, count, GROUP):
                var part = load[type, GROUP](raw + k * size_of[Scalar[type]]())
                store(values + 8 * k, part.cast[DType.int64]())
            return
    if dtype == Dtype.BOOL:
        for k in range(0, count, GROUP):
            var part = load[DType.uint8, GROUP](raw + k)
            store(values + 8 * k, part.ne(0).cast[DType.int64]())
    elif dtype == Dtype.FLOAT32:
        for k in range(0, count, GROUP):
            var part = load[DType.float32, GROUP](raw + 4 * k)
            store(values + 8 * k, part.cast[DType.float64]())
    elif dtype == Dtype.FLOAT16:
        _read_floats[FLOAT16, DType.uint16](values, raw, count)
    elif dtype == Dtype.BFLOAT16:
        _read_floats[BFLOAT16, DType.uint16](values, raw, count)
    elif dtype == Dtype.FLOAT8_E5M2:
        _read_floats[FLOAT8_E5M2, DType.uint8](values, raw, count)
    elif dtype == Dtype.FLOAT8_E4M3FN:
        _read_floats[FLOAT8_E4M3FN, DType.uint8](values, raw, count)
    else:  # 64 bits already
        for k in range(0, count, GROUP):
            store(values + 8 * k, load[DType.uint64, GROUP](raw + 8 * k))


def write_values(dtype: Int, raw: Int, values: Int, count: Int):
    """Narrows 64 bits to elements.

    Args:
        dtype: Their `Dtype`, which holds all values: floats are rounded, integers only cut off.
        raw: Address of what is written.
        values: Address of the values.
        count: How many.
    """
    if dtype == Dtype.FLOAT32:
        for k in range(0, count, GROUP):
            var part = load[DType.float64, GROUP](values + 8 * k)
            store(raw + 4 * k, part.cast[DType.float32]())
    elif dtype == Dtype.FLOAT16:
        _write_floats[FLOAT16, DType.uint16](raw, values, count)
    elif dtype == Dtype.BFLOAT16:
        _write_floats[BFLOAT16, DType.uint16](raw, values, count)
    elif dtype == Dtype.FLOAT8_E5M2:
        _write_floats[FLOAT8_E5M2, DType.uint8](raw, values, count)
    elif dtype == Dtype.FLOAT8_E4M3FN:
        _write_floats[FLOAT8_E4M3FN, DType.uint8](raw, values, count)
    elif dtype == Dtype.UINT8 or dtype == Dtype.INT8 or dtype == Dtype.BOOL:
        _write_integers[DType.uint8](raw, values, count)
    elif dtype == Dtype.UINT16 or dtype == Dtype.INT16:
        _write_integers[DType.uint16](raw, values, count)
    elif dtype == Dtype.UINT32 or dtype == Dtype.INT32:
        _write_integers[DType.uint32](raw, values, count)
    else:
        _write_integers[DType.uint64](raw, values, count)


def _read_floats[format: Format, bits: DType](values: Int, raw: Int, count: Int):
    for k in range(0, count, GROUP):
        var part = load[bits, GROUP](raw + k * size_of[Scalar[bits]]())
        store(values + 8 * k, decode[format](part.cast[DType.uint64]()))


def _write_floats[format: Format, bits: DType](raw: Int, values: Int, count: Int):
    for k in range(0, count, GROUP):
        # By way of single precision, as torch does it: a tie may round twice.
        var part = load[DType.float64, GROUP](values + 8 * k).cast[DType.float32]()
        store(raw + k * size_of[Scalar[bits]](), encode[format](part).cast[bits]())


def _write_integers[type: DType](raw: Int, values: Int, count: Int):
    for k in range(0, count, GROUP):
        var part = load[DType.uint64, GROUP](values + 8 * k)
        store(raw + k * size_of[Scalar[type]](), part.cast[type]())


# --- between reading and writing ----------------------------------------------------------------


def find_outside(values: Int, count: Int, lowest: Int, highest: Int) -> Int:
    """Finds an integer outside a range.

    Args:
        values: Address of integers with a sign.
        count: How many; no more are looked at.
        lowest: The first one of the range.
        highest: The last one of the range.

    Returns:
        Its place, -1 for none.
    """
    for k in range(0, count, GROUP):
        var part = load[DType.int64, GROUP](values + 8 * k)
        if (part.lt(Int64(lowest)) | part.gt(Int64(highest))).reduce_or():
            for i in range(k, min(k + GROUP, count)):
                var value = Int(load[DType.int64, 1](values + 8 * i)[0])
                if value < lowest or value > highest:
                    return i
    return -1


def integers_to_doubles[type: DType](values: Int, count: Int, single: Bool):
    """Converts integers to doubles in place.

    Parameters:
        type: With or without a sign.

    Args:
        values: Address of the values.
        count: How many.
        single: Whether they round to single precision, once: as doubles they might round twice.
    """
    for k in range(0, count, GROUP):
        var part = load[type, GROUP](values + 8 * k)
        if single:
            store(values + 8 * k, part.cast[DType.float32]().cast[DType.float64]())
        else:
            store(values + 8 * k, part.cast[DType.float64]())


def to_bools[type: DType](values: Int, count: Int):
    """Replaces values by 0 for zeros and 1 for all else, NaN among it, in place.

    Parameters:
        type: Doubles, or integers.

    Args:
        values: Address of the values.
        count: How many.
    """
    for k in range(0, count, GROUP):
        var part = load[type, GROUP](values + 8 * k)
        store(values + 8 * k, (~part.eq(0)).cast[DType.uint64]())  # NaN is not equal
