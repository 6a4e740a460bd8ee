"""Fused attention, `softmax(scale * q @ k^T) @ v`, and its gradient, without a matrix of scores.

As FlashAttention 2: a tile of 64 queries meets the keys 64 at a time, and its softmax is corrected
as greater scores turn up. A tile of scores is kept as `[keys, queries]`: then the maximum and the
sum of a query are taken across vectors, never inside one, and keys and values are read as they lie.

Sums are float32 (float64 for float64), and no order of a sum depends on the number of threads.
"""

from std.math import sqrt

from torchmojo import MutTensor, OwnedTensor, Tensor, num_threads, parallel_for

from backward import Backward
from forward import Forward
from tiles import Buffer, LOG2E, TILE, up

comptime WORK = 1 << 20
"""Multiplications that are worth a thread of their own."""


def attention[
    dtype: DType, wide: DType
](
    dst: MutTensor[dtype, 4, "b h l d"],
    lse: MutTensor[wide, 3, "b h l"],
    q: Tensor[dtype, 4, "b h l d"],
    k: Tensor[dtype, 4, "b g s d"],
    v: Tensor[dtype, 4, "b g s d"],
    causal: Bool = False,
    scale: Optional[Float64] = None,
) raises where (dtype == DType.float64 and wide == DType.float64) or (
    dtype.is_floating_point() and dtype != DType.float64 and wide == DType.float32
):
    """Writes attention and what its gradient needs of the softmax.

    Parameters:
        dtype: Element type.
        wide: What is summed in: float64 for float64, else float32.

    Args:
        dst: Attention `[b, h, l, d]`; 0 where there are no keys.
        lse: Logarithm of the sum of the exponentials of each query's scores `[b, h, l]`.
        q: Queries of `h` heads `[b, h, l, d]`.
        k: Keys of `g` heads, each for `h / g` heads of queries in a row `[b, g, s, d]`.
        v: Values `[b, g, s, d]`.
        causal: Whether query i sees only the keys 0 to i.
        scale: Factor of the scores; `1 / sqrt(d)` where it is `None`.
    """
    var heads = q.dim(1)
    var group = _group(heads, k.dim(1))
    var factor = _factor[wide](q.dim(3), scale) * LOG2E
    var blocks = _blocks(q.dim(2))
    var size = Forward[wide].size(q.dim(3))

    def tiles(start: Int, end: Int, memory: Buffer[wide]) {var}:
        var tile = Forward[wide](memory, q.dim(3))
        for t in range(start, end):
            # First, last, second ...: where later tiles see more keys, threads still share alike.
            var step = t % blocks
            var block = step // 2 if step % 2 == 0 else blocks - 1 - step // 2
            var b = t // blocks // heads
            var h = t // blocks % heads
            tile.run(
                dst.select(0, b).select(0, h),
                lse.select(0, b).select(0, h),
                q.select(0, b).select(0, h),
                k.select(0, b).select(0, h // group),
                v.select(0, b).select(0, h // group),
                block * TILE,
                causal,
                factor,
            )

    _share[wide](
        tiles, q.dim(0) * heads * blocks, min(TILE, q.dim(2)) * k.dim(2) * 2 * q.dim(3), size
    )


def attention_backward[
    dtype: DType, wide: DType
](
    grad_q: MutTensor[dtype, 4, "b h l d"],
    grad_k: MutTensor[dtype, 4, "b g s d"],
    grad_v: MutTensor[dtype, 4, "b g s d"],
    grad: Tensor[dtype, 4, "b h l d"],
    grad_lse: Tensor[wide, 3, "b h l"],
    q: Tensor[dtype, 4, "b h l d"],
    k: Tensor[dtype, 4, "b g s d"],
    v: Tensor[dtype, 4, "b g s d"],
    dst: Tensor[dtype, 4, "b h l d"],
    lse: Tensor[wide, 3, "b h l"],
    causal: Bool = False,
    scale: Optional[Float64] = None,
) raises where (dtype == DType.float64 and wide == DType.float64) or (
    dtype.is_floating_point() and dtype != DType.float64 and wide == DType.float32
):
    """Writes the gradients of `attention`; the probabilities are computed again, tile by tile.

    A thread takes a head of keys with all its queries, so that each sum has one owner.

    Parameters:
        dtype: Element type.
        wide: As for `attention`.

    Args:
        grad_q: Gradient of the queries `[b, h, l, d]`.
        grad_k: Gradient of the keys `[b, g, s, d]`.
        grad_v: Gradient of the values `[b, g, s, d]`.
        grad: Gradient of the attention `[b, h, l, d]`.
        grad_lse: Gradient of `lse` `[b, h, l]`.
        q: As `attention` was given it `[b, h, l, d]`.
        k: As `attention` was given it `[b, g, s, d]`.
        v: As `attention` was given it `[b, g, s, d]`.
        dst: As `attention` wrote it `[b, h, l, d]`.
        lse: As `attention` wrote it `[b, h, l]`.
        causal: As `attention` was given it.
        scale: As `attention` was given it.
    """
    var heads = k.dim(1)
    var group = _group(q.dim(1), heads)
    var factor = _factor[wide](q.dim(3), scale)
    var size = Backward[wide].size(k.dim(2), q.dim(3))

    def owners(start: Int, end: Int, memory: Buffer[wide]) {var}:
        var tiles = Backward[wide](memory, k.dim(2), q.dim(3))
        for t in range(start, end):
            var b = t // heads
            var g = t % heads
            var keys = k.select(0, b).select(0, g)
            var values = v.select(0, b).select(0, g)
            tiles.clear()
            for h in range(g * group, (g + 1) * group):
                for first in range(0, q.dim(2), TILE):
                    tiles.run(
                        grad_q.select(0, b).select(0, h),
                        grad.select(0, b).select(0, h),
                        grad_lse.select(0, b).select(0, h),
                        q.select(0, b).select(0, h),
                        keys,
                        values,
                        dst.select(0, b).select(0, h),
                        lse.select(0, b).select(0, h),
                        first,
                        causal,
                        factor,
                    )
            tiles.finish(grad_k.select(0, b).select(0, g), grad_v.select(0, b).select(0, g))

    var work = group * q.dim(2) * k.dim(2) * 5 * q.dim(3)
    _share[wide](owners, k.dim(0) * heads, work, size)


def _share[
    wide: DType, F: def(Int, Int, Buffer[wide]) -> None
](body: F, n: Int, work: Int, size: Int) raises:
    """Shares `0 ..< n` among torch's threads, each with `size` numbers of scratch memory.

    Args:
        body: What a thread does with its range and its memory.
        n: Number of items.
        work: Multiplications of one.
        size: Numbers that a thread needs.
    """
    var parts = max(1, min(num_threads(), min(n, n * work // WORK)))
    var stride = up(size, 64)
    var scratch = OwnedTensor[wide, 1]((parts * stride,))
    var memory = Buffer[wide](unsafe_from_address=Int(scratch.view().unsafe_ptr()))

    def run(start: Int, end: Int) {imm}:
        for part in range(start, end):
            var own = memory.unsafe_offset(part * stride)
            body(n * part // parts, n * (part + 1) // parts, own)

    parallel_for(run, parts, grain=1)
    scratch^.release()


def _group(heads: Int, shared: Int) raises -> Int:
    """Returns how many heads of queries share one of keys."""
    if shared == 0 or heads % shared != 0:
        if heads == 0:
            return 1
        raise Error(
            t"k: wanted heads that divide the {heads} of q, given {shared}; repeat or drop some"
        )
    return heads // shared


def _factor[wide: DType](d: Int, scale: Optional[Float64]) -> Scalar[wide]:
    return Scalar[wide](scale.value() if scale else 1 / sqrt(Float64(max(1, d))))


def _blocks(count: Int) -> Int:
    return (count + TILE - 1) // TILE
