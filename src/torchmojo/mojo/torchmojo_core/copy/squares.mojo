"""Transposes small squares of elements inside vector registers."""

from std.bit import log2_floor
from std.sys import simd_byte_width, size_of
from std.utils import StaticTuple

from torchmojo_core.copy.bits import load, store

comptime edge_of[dtype: DType] = min(simd_byte_width() // size_of[Scalar[dtype]](), 16)
"""Rows of a square: as many as one vector has elements.

Parameters:
    dtype: An unsigned integer as wide as an element.
"""


@always_inline
def _square[dtype: DType, n: Int](dst: Int, src: Int, dst_row: Int, src_step: Int):
    """Copies `n` times `n` elements whose input runs down the output's rows.

    Rounds of perfect shuffles on whole vectors: each interleaves the first half of the rows with
    the second, and after log2(n) of them rows are columns.
    """
    var rows = StaticTuple[SIMD[dtype, n], n]()
    comptime for i in range(n):
        rows[i] = load[dtype, n](src + i * src_step)
    comptime for _round in range(log2_floor(n)):
        var next = StaticTuple[SIMD[dtype, n], n]()
        comptime for i in range(n // 2):
            var both = rows[i].interleave(rows[i + n // 2])
            next[2 * i] = both.slice[n, offset=0]()
            next[2 * i + 1] = both.slice[n, offset=n]()
        rows = next
    comptime for i in range(n):
        store(dst + i * dst_row, rows[i])


def transpose[
    dtype: DType
](dst: Int, src: Int, rows: Int, columns: Int, dst_row: Int, src_step: Int):
    """Copies a tile whose input is dense along the rows' axis, its output along the columns'.

    Parameters:
        dtype: An unsigned integer as wide as an element.

    Args:
        dst: Address of the output's first element.
        src: Address of the input's first element.
        rows: Number of rows, at least `edge_of[dtype]`.
        columns: Number of columns, at least `edge_of[dtype]`.
        dst_row: Step between rows of the output in bytes.
        src_step: Step between columns of the input in bytes.
    """
    comptime width = size_of[Scalar[dtype]]()
    comptime n = edge_of[dtype]
    var r = 0
    while r < rows:
        # The last squares reach back and copy some elements again.
        r = min(r, rows - n)
        var c = 0
        while c < columns:
            c = min(c, columns - n)
            _square[dtype, n](
                dst + r * dst_row + c * width, src + r * width + c * src_step, dst_row, src_step
            )
            c += n
        r += n
