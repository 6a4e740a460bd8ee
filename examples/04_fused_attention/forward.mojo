"""The forward tiles: the softmax of 64 queries, corrected as greater scores turn up."""

from std.math import log
from std.sys import simd_width_of

from torchmojo import MutTensor, Tensor

from tiles import ALL, Buffer, COLUMNS_ARE_QUERIES, LOG2E, ROWS, ROWS_ARE_QUERIES, TILE
from tiles import borrow, exp2, product, read, sees, transpose, up, write


@fieldwise_init
struct Forward[wide: DType](ImplicitlyCopyable):
    """The tiles of one thread; `columns` is d, rounded up to whole vectors."""

    comptime W = simd_width_of[Self.wide]()

    var columns: Int
    var queries: Buffer[Self.wide]  # [d, TILE]
    var keys: Buffer[Self.wide]  # [TILE, columns]
    var values: Buffer[Self.wide]  # [TILE, columns]
    var scores: Buffer[Self.wide]  # [TILE keys, TILE queries]
    var sums: Buffer[Self.wide]  # [TILE queries, columns]
    var peak: Buffer[Self.wide]  # [TILE]
    var total: Buffer[Self.wide]  # [TILE]
    var shrink: Buffer[Self.wide]  # [TILE]

    def __init__(out self, memory: Buffer[Self.wide], d: Int):
        var columns = up(d, Self.W)
        self.columns = columns
        self.queries = memory
        self.keys = self.queries.unsafe_offset(TILE * columns)
        self.values = self.keys.unsafe_offset(TILE * columns)
        self.scores = self.values.unsafe_offset(TILE * columns)
        self.sums = self.scores.unsafe_offset(TILE * TILE)
        self.peak = self.sums.unsafe_offset(TILE * columns)
        self.total = self.peak.unsafe_offset(TILE)
        self.shrink = self.total.unsafe_offset(TILE)

    @staticmethod
    def size(d: Int) -> Int:
        return 4 * TILE * up(d, Self.W) + TILE * TILE + 3 * TILE

    def run[
        dtype: DType
    ](
        self,
        dst: MutTensor[dtype, 2],
        lse: MutTensor[Self.wide, 1],
        q: Tensor[dtype, 2],
        k: Tensor[dtype, 2],
        v: Tensor[dtype, 2],
        first: Int,
        causal: Bool,
        factor: Scalar[Self.wide],
    ):
        """Writes the rows of `TILE` queries from `first` on."""
        comptime assert Self.wide.is_floating_point(), "a logarithm"
        comptime W = Self.W
        var d = q.dim(1)
        var count = min(TILE, q.dim(0) - first)
        var rows = up(count, W)
        read(self.sums, q, first, count, rows, self.columns, factor)
        transpose(self.queries, self.sums, rows, self.columns)
        for i in range(rows):
            self.peak[unsafe_offset=i] = Scalar[Self.wide].MIN
            self.total[unsafe_offset=i] = 0
            self.shrink[unsafe_offset=i] = 0
        for i in range(up(count, ROWS) * self.columns):
            self.sums[unsafe_offset=i] = 0

        var seen = min(k.dim(0), first + count) if causal else k.dim(0)
        for start in range(0, seen, TILE):
            var length = min(TILE, seen - start)
            var keys = borrow(self.keys, k, start, length, self.columns, False)
            var values = borrow(self.values, v, start, length, self.columns, count > ROWS)
            var shift = first - start
            if causal and shift < TILE - 1:
                self._meet[True](d, count, rows, length, shift, keys, values)
            else:
                self._meet[False](d, count, rows, length, shift, keys, values)

        for i in range(count):
            var total = self.total[unsafe_offset=i]
            # No keys, or no score above -inf: nothing to take a mean of.
            var share = 1 / total if total != 0 else 0
            write(dst, first + i, self.sums.unsafe_offset(i * self.columns), share)
            lse[first + i] = self.peak[unsafe_offset=i] * (1 / LOG2E) + log(total)

    @no_inline
    def _meet[
        masked: Bool
    ](
        self,
        d: Int,
        count: Int,
        rows: Int,
        length: Int,
        shift: Int,
        keys: Tuple[Buffer[Self.wide], Int],
        values: Tuple[Buffer[Self.wide], Int],
    ):
        """Adds a tile of keys; query i sees key j where `j <= i + shift`."""
        comptime W = Self.W
        product(
            COLUMNS_ARE_QUERIES if masked else ALL,
            self.scores,
            TILE,
            keys[0],
            keys[1],
            1,
            self.queries,
            TILE,
            length,
            d,
            rows,
            shift,
        )
        for i in range(0, rows, W):
            var before = self.peak.unsafe_load[width=W](i)
            var peak = before
            for j in range(length):
                var at = self.scores.unsafe_offset(j * TILE + i)
                var score = at.unsafe_load[width=W](0)
                comptime if masked:
                    score = sees[W](i, j, shift).select(
                        score, SIMD[Self.wide, W](Scalar[Self.wide].MIN)
                    )
                    at.unsafe_store(0, score)
                peak = max(peak, score)
            # Where all scores are -inf, -inf - -inf would not be a number.
            var base = peak.eq(Scalar[Self.wide].MIN).select(SIMD[Self.wide, W](0), peak)
            var total = SIMD[Self.wide, W](0)
            for j in range(length):
                var at = self.scores.unsafe_offset(j * TILE + i)
                var part = exp2(at.unsafe_load[width=W](0) - base)
                at.unsafe_store(0, part)
                total += part
            var shrink = exp2(before - base)
            self.peak.unsafe_store(i, peak)
            self.shrink.unsafe_store(i, shrink)
            self.total.unsafe_store(i, self.total.unsafe_load[width=W](i) * shrink + total)
        product[adds=True, shrinks=True](
            ROWS_ARE_QUERIES if masked else ALL,
            self.sums,
            self.columns,
            self.scores,
            1,
            TILE,
            values[0],
            values[1],
            count,
            length,
            self.columns,
            shift,
            self.shrink,
        )
