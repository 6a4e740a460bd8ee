"""Dtypes by torch's numbers, and what a conversion must know of them."""


struct Dtype:
    """The numbers of `torch.dtype`, as torch's C++ side has them."""

    comptime UINT8 = 0
    """`torch.uint8`."""
    comptime INT8 = 1
    """`torch.int8`."""
    comptime INT16 = 2
    """`torch.int16`."""
    comptime INT32 = 3
    """`torch.int32`."""
    comptime INT64 = 4
    """`torch.int64`."""
    comptime FLOAT16 = 5
    """`torch.float16`."""
    comptime FLOAT32 = 6
    """`torch.float32`."""
    comptime FLOAT64 = 7
    """`torch.float64`."""
    comptime BOOL = 11
    """`torch.bool`."""
    comptime BFLOAT16 = 15
    """`torch.bfloat16`."""
    comptime FLOAT8_E5M2 = 23
    """`torch.float8_e5m2`."""
    comptime FLOAT8_E4M3FN = 24
    """`torch.float8_e4m3fn`."""
    comptime UINT16 = 27
    """`torch.uint16`."""
    comptime UINT32 = 28
    """`torch.uint32`."""
    comptime UINT64 = 29
    """`torch.uint64`."""


def width_of(dtype: Int) -> Int:
    """Returns the bytes of an element.

    Args:
        dtype: One of `Dtype`.

    Returns:
        0 for a dtype that is not converted.
    """
    if dtype == Dtype.UINT8 or dtype == Dtype.INT8 or dtype == Dtype.BOOL:
        return 1
    if dtype == Dtype.FLOAT8_E5M2 or dtype == Dtype.FLOAT8_E4M3FN:
        return 1
    if dtype == Dtype.INT16 or dtype == Dtype.UINT16:
        return 2
    if dtype == Dtype.FLOAT16 or dtype == Dtype.BFLOAT16:
        return 2
    if dtype == Dtype.INT32 or dtype == Dtype.UINT32 or dtype == Dtype.FLOAT32:
        return 4
    if dtype == Dtype.INT64 or dtype == Dtype.UINT64 or dtype == Dtype.FLOAT64:
        return 8
    return 0


def is_float(dtype: Int) -> Bool:
    """Tells whether a dtype has fractions.

    Args:
        dtype: One of `Dtype`.

    Returns:
        True for floats of any width.
    """
    var narrow = dtype == Dtype.FLOAT8_E5M2 or dtype == Dtype.FLOAT8_E4M3FN
    var half = dtype == Dtype.FLOAT16 or dtype == Dtype.BFLOAT16
    return narrow or half or dtype == Dtype.FLOAT32 or dtype == Dtype.FLOAT64


def is_signed(dtype: Int) -> Bool:
    """Tells whether an integer may be negative.

    Args:
        dtype: One of `Dtype` that is no float.

    Returns:
        False for bool.
    """
    return Dtype.INT8 <= dtype and dtype <= Dtype.INT64


def lowest_of(dtype: Int) -> Int:
    """Finds the lowest integer of a dtype.

    Args:
        dtype: One of `Dtype` that is no float.

    Returns:
        The integer.
    """
    return Int.MIN >> (64 - 8 * width_of(dtype)) if is_signed(dtype) else 0


def highest_of(dtype: Int) -> Int:
    """Finds the highest integer of a dtype that fits 64 bits with a sign.

    Args:
        dtype: One of `Dtype` that is no float.

    Returns:
        The integer.
    """
    if is_signed(dtype) or dtype == Dtype.UINT64:
        return Int.MAX >> (64 - 8 * width_of(dtype))
    return (1 << 8 * width_of(dtype)) - 1
