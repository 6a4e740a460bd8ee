"""Products and copies of tiles in scratch memory, and the little that both directions share."""

from std.algorithm import vectorize
from std.bit import log2_floor
from std.math import exp, fma, iota
from std.memory import Pointer, bitcast
from std.sys import simd_width_of, size_of
from std.utils import StaticTuple

from torchmojo import MutTensor, Tensor

comptime TILE = 64
"""Queries of a tile, and keys of one: a multiple of `ROWS` and of a vector."""

comptime ROWS = 4
"""Rows of a product that are summed in registers together."""

comptime LOG2E = 1.4426950408889634

comptime Buffer[wide: DType] = Pointer[Scalar[wide], MutUntrackedOrigin]
"""A part of the scratch memory that the kernel owns."""

# What a causal mask leaves of a product of tiles; the rest need not be computed.
comptime ALL = 0
comptime ROWS_ARE_QUERIES = 1
"""Each row sums over the keys that it sees."""
comptime ROWS_ARE_KEYS = 2
"""Each row sums over the queries that see it."""
comptime COLUMNS_ARE_QUERIES = 3
"""Each row has the columns of the queries that see it."""


@no_inline
def product[
    wide: DType, //, adds: Bool = False, shrinks: Bool = False
](
    band: Int,
    c: Buffer[wide],
    c_row: Int,
    a: Buffer[wide],
    a_row: Int,
    a_step: Int,
    b: Buffer[wide],
    b_row: Int,
    rows: Int,
    depth: Int,
    columns: Int,
    shift: Int,
    shrink: Optional[Buffer[wide]] = None,
):
    """Writes `c = a @ b`; `adds` to c, or to c times a factor of each row.

    Args:
        c: Result `[rows, columns]`, the rows rounded up to `ROWS`.
        c_row: From a row of it to the next.
        a: Left side `[rows, depth]`.
        a_row: From a row of it to the next.
        a_step: From an element of its row to the next.
        b: Right side `[depth, columns]`.
        b_row: From a row of it to the next.
        rows: Number of rows.
        depth: How many products are summed.
        columns: A multiple of a vector.
        shift: Query i sees key j where `j <= i + shift`; see `band`.
        shrink: Factors of the rows of c.
    """
    comptime W = simd_width_of[wide]()
    # 16 registers of sums where there are 32, else 8.
    comptime PANEL = W * (4 if W * size_of[Scalar[wide]]() == 64 else 2)

    for panel in range(0, columns, PANEL):
        for row in range(0, rows, ROWS):
            var first = panel
            var start = 0
            var end = depth
            if band == ROWS_ARE_QUERIES:
                end = min(depth, row + ROWS + shift)
            if band == ROWS_ARE_KEYS:
                start = max(0, row - shift)
            if band == COLUMNS_ARE_QUERIES:
                first = max(panel, (row - shift) // W * W)
            var left = a.unsafe_offset(row * a_row + start * a_step)
            var last = min(columns, panel + PANEL)
            comptime for halving in range(3):
                comptime n = PANEL >> halving
                comptime if n >= W:
                    while first + n <= last:
                        _sum[n, adds, shrinks](
                            c.unsafe_offset(row * c_row + first),
                            c_row,
                            left,
                            a_row,
                            a_step,
                            b.unsafe_offset(start * b_row + first),
                            b_row,
                            end - start,
                            shrink.value().unsafe_offset(row) if shrinks else c,
                        )
                        first += n


@always_inline
def _sum[
    n: Int, adds: Bool, shrinks: Bool, wide: DType
](
    c: Buffer[wide],
    c_row: Int,
    a: Buffer[wide],
    a_row: Int,
    a_step: Int,
    b: Buffer[wide],
    b_row: Int,
    depth: Int,
    shrink: Buffer[wide],
):
    """Sums `ROWS` rows of `n` columns in registers."""
    var c0 = SIMD[wide, n](0)
    var c1 = SIMD[wide, n](0)
    var c2 = SIMD[wide, n](0)
    var c3 = SIMD[wide, n](0)
    comptime if adds:
        c0 = c.unsafe_load[width=n](0)
        c1 = c.unsafe_load[width=n](c_row)
        c2 = c.unsafe_load[width=n](2 * c_row)
        c3 = c.unsafe_load[width=n](3 * c_row)
    comptime if shrinks:
        c0 *= shrink[unsafe_offset=0]
        c1 *= shrink[unsafe_offset=1]
        c2 *= shrink[unsafe_offset=2]
        c3 *= shrink[unsafe_offset=3]
    for k in range(depth):
        var right = b.unsafe_load[width=n](k * b_row)
        var left = a.unsafe_offset(k * a_step)
        c0 = fma(SIMD[wide, n](left[]), right, c0)
        c1 = fma(SIMD[wide, n](left[unsafe_offset=a_row]), right, c1)
        c2 = fma(SIMD[wide, n](left[unsafe_offset=2 * a_row]), right, c2)
        c3 = fma(SIMD[wide, n](left[unsafe_offset=3 * a_row]), right, c3)
    c.unsafe_store(0, c0)
    c.unsafe_store(c_row, c1)
    c.unsafe_store(2 * c_row, c2)
    c.unsafe_store(3 * c_row, c3)


@always_inline
def sees[w: Int](i: Int, j: Int, shift: Int) -> SIMD[DType.bool, w]:
    """Tells which of the queries `i, i + 1, ...` see key j."""
    return SIMD[DType.int32, w](Int32(j - shift - i)).le(iota[DType.int32, w]())


@always_inline
def exp2[wide: DType, w: Int](x: SIMD[wide, w]) -> SIMD[wide, w]:
    """Returns 2^x to 1e-7 for float32, 0 below 2^-126."""
    comptime assert wide.is_floating_point(), "an exponential"
    comptime if wide == DType.float64:
        return exp(x * (1 / LOG2E))
    else:
        # Adding 1.5 * 2^23 leaves the nearest integer in the low bits: they become the exponent.
        comptime ROUND = SIMD[wide, w](12582912.0)
        var y = x.lt(-127).select(SIMD[wide, w](-127), x)
        var shifted = y + ROUND
        var f = y - (shifted - ROUND)
        var r = fma(f, SIMD[wide, w](0.0013264727), SIMD[wide, w](0.0096715126))
        r = fma(r, f, SIMD[wide, w](0.0555073374))
        r = fma(r, f, SIMD[wide, w](0.2402224209))
        r = fma(r, f, SIMD[wide, w](0.6931469776))
        r = fma(r, f, SIMD[wide, w](1))
        var power = (bitcast[DType.int32, w](shifted) + 127) << 23
        return r * bitcast[wide, w](power)


@always_inline
def transpose[wide: DType](dst: Buffer[wide], src: Buffer[wide], rows: Int, columns: Int):
    """Writes `dst[c, i] = src[i, c]`; both are multiples of a vector, a row of dst is `TILE`."""
    comptime W = simd_width_of[wide]()
    for i in range(0, rows, W):
        for c in range(0, columns, W):
            var square = StaticTuple[SIMD[wide, W], W]()
            comptime for r in range(W):
                square[r] = src.unsafe_load[width=W]((i + r) * columns + c)
            # Each round of perfect shuffles halves the distance from where a row belongs.
            comptime for _ in range(log2_floor(W)):
                var mixed = StaticTuple[SIMD[wide, W], W]()
                comptime for r in range(W // 2):
                    var both = square[r].interleave(square[r + W // 2])
                    mixed[2 * r] = both.slice[W, offset=0]()
                    mixed[2 * r + 1] = both.slice[W, offset=W]()
                square = mixed
            comptime for r in range(W):
                dst.unsafe_store((c + r) * TILE + i, square[r])


def read[
    dtype: DType, wide: DType
](
    dst: Buffer[wide],
    src: Tensor[dtype, 2],
    first: Int,
    count: Int,
    rows: Int,
    columns: Int,
    factor: Scalar[wide],
):
    """Copies `count` rows times a factor, whatever their strides; zeros follow to both sides."""
    comptime W = simd_width_of[wide]()
    var d = src.dim(1)
    var whole = d // W * W
    for i in range(count):
        var line = src.select(0, first + i)
        var row = dst.unsafe_offset(i * columns)
        for c in range(0, whole, W):
            row.unsafe_store(c, line.load[W](c).cast[wide]() * factor)
        for c in range(whole, d):
            row[unsafe_offset=c] = line[c].cast[wide]() * factor
        for c in range(d, columns):
            row[unsafe_offset=c] = 0
    for at in range(count * columns, rows * columns):
        dst[unsafe_offset=at] = 0


def borrow[
    dtype: DType, wide: DType
](
    memory: Buffer[wide],
    src: Tensor[dtype, 2],
    first: Int,
    count: Int,
    columns: Int,
    again: Bool,
) -> Tuple[Buffer[wide], Int]:
    """Gives `count` rows and the step between them: where they lie, or copied to `memory`.

    Rows that are read again and again are copied unless they are dense: far apart, they would
    drive each other out of the cache.
    """
    comptime if dtype == wide:
        var near = not again or src.stride(0) == columns
        if near and src.stride(1) == 1 and src.dim(1) == columns and count % ROWS == 0:
            var offset = first * src.stride(0) * size_of[Scalar[wide]]()
            var lent = Buffer[wide](unsafe_from_address=Int(src.unsafe_ptr()) + offset)
            return (lent, src.stride(0))
    read(memory, src, first, count, up(count, ROWS), columns, 1)
    return (memory, columns)


def write[
    dtype: DType, wide: DType
](dst: MutTensor[dtype, 2], i: Int, row: Buffer[wide], factor: Scalar[wide]):
    """Writes a row times a factor."""
    comptime W = simd_width_of[wide]()

    def columns[n: Int](c: Int) {var}:
        dst.store(i, c, value=(row.unsafe_load[width=n](c) * factor).cast[dtype]())

    vectorize[W](dst.dim(1), columns)


def up(count: Int, unit: Int) -> Int:
    return (count + unit - 1) // unit * unit
