"""Copies a row of elements, in one of the ways in which rows lie in memory."""

from std.sys import simd_byte_width, size_of

from torchmojo_core.copy.bits import load, store


def copy_runs(dst: Int, src: Int, rows: Int, bytes: Int, dst_row: Int, src_row: Int):
    """Copies rows of bytes that lie side by side.

    Args:
        dst: Where the first row goes.
        src: Where the first row is.
        rows: How many.
        bytes: Bytes of a row.
        dst_row: Step between rows of the output.
        src_row: Step between rows of the input.
    """
    comptime W = 32  # 16 and 64 are slower, from memory or from the caches (measured)
    for r in range(rows):
        var d = dst + r * dst_row
        var s = src + r * src_row
        var i = 0
        while i + W <= bytes:
            store(d + i, load[DType.uint8, W](s + i))
            i += W
        if i == bytes:
            continue
        if bytes >= W:  # the last ones, and some again
            i = bytes - W
            store(d + i, load[DType.uint8, W](s + i))
            continue
        while i + 8 <= bytes:
            store(d + i, load[DType.uint64](s + i))
            i += 8
        while i < bytes:
            store(d + i, load[DType.uint8](s + i))
            i += 1


@always_inline
def fill[dtype: DType, n: Int](dst: Int, src: Int, count: Int):
    """Repeats an element side by side.

    Parameters:
        dtype: An unsigned integer.
        n: How many of them are an element.

    Args:
        dst: Where the copies go.
        src: Where the element is.
        count: How many copies.
    """
    comptime width = size_of[Scalar[dtype]]() * n
    comptime W = simd_byte_width() // width
    var value = load[dtype, n](src)
    var i = 0
    comptime if n == 1:
        var many = SIMD[dtype, W](value[0])
        while i + W <= count:
            store(dst + i * width, many)
            i += W
    while i < count:
        store(dst + i * width, value)
        i += 1


@always_inline
def copy_elements[dtype: DType, n: Int](dst: Int, src: Int, count: Int, to: Int, come: Int):
    """Copies elements at any steps.

    Parameters:
        dtype: An unsigned integer.
        n: How many of them are an element.

    Args:
        dst: Where the first one goes.
        src: Where the first one is.
        count: How many.
        to: Step of the output in bytes.
        come: Step of the input in bytes.
    """
    var d = dst
    var s = src
    var i = 0
    while i + 4 <= count:
        comptime for k in range(4):
            store(d + k * to, load[dtype, n](s + k * come))
        d += 4 * to
        s += 4 * come
        i += 4
    while i < count:
        store(d, load[dtype, n](s))
        d += to
        s += come
        i += 1
