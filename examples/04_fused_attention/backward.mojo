"""The backward tiles: the probabilities once more, and the sums of the five gradients."""

from std.math import fma
from std.sys import simd_width_of

from torchmojo import MutTensor, Tensor

from tiles import ALL, Buffer, COLUMNS_ARE_QUERIES, LOG2E, ROWS, ROWS_ARE_KEYS, ROWS_ARE_QUERIES
from tiles import TILE, exp2, product, read, sees, transpose, up, write


@fieldwise_init
struct Backward[wide: DType](ImplicitlyCopyable):
    """The tiles of one thread, and the sums of a whole head of keys."""

    comptime W = simd_width_of[Self.wide]()

    var columns: Int
    var count: Int
    var q: Buffer[Self.wide]  # [TILE, columns], times scale / ln 2
    var q_across: Buffer[Self.wide]  # [columns, TILE]
    var grad: Buffer[Self.wide]  # [TILE, columns]
    var grad_across: Buffer[Self.wide]  # [columns, TILE]
    var keys: Buffer[Self.wide]  # [TILE, columns]
    var values: Buffer[Self.wide]  # [TILE, columns]
    var grad_q: Buffer[Self.wide]  # [TILE, columns]
    var parts: Buffer[Self.wide]  # [TILE keys, TILE queries], the probabilities
    var slopes: Buffer[Self.wide]  # [TILE keys, TILE queries], the gradients of scores
    var lse: Buffer[Self.wide]  # [TILE]
    var delta: Buffer[Self.wide]  # [TILE]
    var grad_k: Buffer[Self.wide]  # [s, columns]
    var grad_v: Buffer[Self.wide]  # [s, columns]

    def __init__(out self, memory: Buffer[Self.wide], count: Int, d: Int):
        var columns = up(d, Self.W)
        var size = TILE * columns
        self.columns = columns
        self.count = count
        self.q = memory
        self.q_across = self.q.unsafe_offset(size)
        self.grad = self.q_across.unsafe_offset(size)
        self.grad_across = self.grad.unsafe_offset(size)
        self.keys = self.grad_across.unsafe_offset(size)
        self.values = self.keys.unsafe_offset(size)
        self.grad_q = self.values.unsafe_offset(size)
        self.parts = self.grad_q.unsafe_offset(size)
        self.slopes = self.parts.unsafe_offset(TILE * TILE)
        self.lse = self.slopes.unsafe_offset(TILE * TILE)
        self.delta = self.lse.unsafe_offset(TILE)
        self.grad_k = self.delta.unsafe_offset(TILE)
        self.grad_v = self.grad_k.unsafe_offset(up(count, ROWS) * columns)

    @staticmethod
    def size(count: Int, d: Int) -> Int:
        var columns = up(d, Self.W)
        return 7 * TILE * columns + 2 * TILE * (TILE + 1) + 2 * up(count, ROWS) * columns

    def clear(self):
        """Starts the sums of a head of keys."""
        for i in range(up(self.count, ROWS) * self.columns):
            self.grad_k[unsafe_offset=i] = 0
            self.grad_v[unsafe_offset=i] = 0

    def finish[dtype: DType](self, grad_k: MutTensor[dtype, 2], grad_v: MutTensor[dtype, 2]):
        """Writes the sums of a head of keys."""
        for j in range(self.count):
            # The queries were multiplied by 1 / ln 2 for the exponential of 2.
            write(grad_k, j, self.grad_k.unsafe_offset(j * self.columns), 1 / LOG2E)
            write(grad_v, j, self.grad_v.unsafe_offset(j * self.columns), 1)

    def run[
        dtype: DType
    ](
        self,
        grad_q: MutTensor[dtype, 2],
        grad: Tensor[dtype, 2],
        grad_lse: Tensor[Self.wide, 1],
        q: Tensor[dtype, 2],
        k: Tensor[dtype, 2],
        v: Tensor[dtype, 2],
        dst: Tensor[dtype, 2],
        lse: Tensor[Self.wide, 1],
        first: Int,
        causal: Bool,
        factor: Scalar[Self.wide],
    ):
        """Writes the gradient of `TILE` queries from `first` on, and adds to those of the keys."""
        comptime W = Self.W
        var d = q.dim(1)
        var count = min(TILE, q.dim(0) - first)
        var rows = up(count, W)
        # The tile of keys is not needed yet, and holds the results meanwhile.
        read(self.keys, dst, first, count, count, self.columns, 1)
        read(self.grad, grad, first, count, rows, self.columns, 1)
        for i in range(rows):
            var sum = SIMD[Self.wide, W](0)
            if i < count:
                for c in range(i * self.columns, (i + 1) * self.columns, W):
                    var left = self.keys.unsafe_load[width=W](c)
                    sum = fma(left, self.grad.unsafe_load[width=W](c), sum)
            var inside = i < count
            self.delta[unsafe_offset=i] = sum.reduce_add() - grad_lse[first + i] if inside else 0
            self.lse[unsafe_offset=i] = lse[first + i] * LOG2E if inside else 0
        transpose(self.grad_across, self.grad, rows, self.columns)
        read(self.q, q, first, count, rows, self.columns, factor * LOG2E)
        transpose(self.q_across, self.q, rows, self.columns)
        for i in range(up(count, ROWS) * self.columns):
            self.grad_q[unsafe_offset=i] = 0

        var seen = min(k.dim(0), first + count) if causal else k.dim(0)
        for start in range(0, seen, TILE):
            var length = min(TILE, seen - start)
            read(self.keys, k, start, length, up(length, ROWS), self.columns, 1)
            read(self.values, v, start, length, up(length, ROWS), self.columns, 1)
            var shift = first - start
            if causal and shift < TILE - 1:
                self._meet[True](d, count, rows, start, length, shift)
            else:
                self._meet[False](d, count, rows, start, length, shift)

        for i in range(count):
            write(grad_q, first + i, self.grad_q.unsafe_offset(i * self.columns), factor)

    @no_inline
    def _meet[
        masked: Bool
    ](self, d: Int, count: Int, rows: Int, start: Int, length: Int, shift: Int):
        """Adds what a tile of keys and the tile of queries give each other."""
        comptime W = Self.W
        comptime ACROSS = COLUMNS_ARE_QUERIES if masked else ALL
        comptime KEYS = ROWS_ARE_KEYS if masked else ALL
        comptime QUERIES = ROWS_ARE_QUERIES if masked else ALL
        var columns = self.columns
        product(
            ACROSS,
            self.parts,
            TILE,
            self.keys,
            columns,
            1,
            self.q_across,
            TILE,
            length,
            d,
            rows,
            shift,
        )
        product(
            ACROSS,
            self.slopes,
            TILE,
            self.values,
            columns,
            1,
            self.grad_across,
            TILE,
            length,
            d,
            rows,
            shift,
        )
        for j in range(length):
            for i in range(0, rows, W):
                var at = j * TILE + i
                var score = self.parts.unsafe_load[width=W](at)
                var part = exp2(score - self.lse.unsafe_load[width=W](i))
                var slope = self.slopes.unsafe_load[width=W](at)
                slope = part * (slope - self.delta.unsafe_load[width=W](i))
                comptime if masked:
                    var sees = sees[W](i, j, shift)
                    part = sees.select(part, SIMD[Self.wide, W](0))
                    slope = sees.select(slope, SIMD[Self.wide, W](0))
                self.parts.unsafe_store(at, part)
                self.slopes.unsafe_store(at, slope)
        var grad_k = self.grad_k.unsafe_offset(start * columns)
        var grad_v = self.grad_v.unsafe_offset(start * columns)
        product[adds=True](
            KEYS,
            grad_v,
            columns,
            self.parts,
            TILE,
            1,
            self.grad,
            columns,
            length,
            count,
            columns,
            shift,
        )
        product[adds=True](
            KEYS,
            grad_k,
            columns,
            self.slopes,
            TILE,
            1,
            self.q,
            columns,
            length,
            count,
            columns,
            shift,
        )
        product[adds=True](
            QUERIES,
            self.grad_q,
            columns,
            self.slopes,
            1,
            TILE,
            self.keys,
            columns,
            count,
            length,
            columns,
            shift,
        )
