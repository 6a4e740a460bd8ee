"""Copies between strided tensors, element by element as bits.

An element is 1, 2, 4, 8 or 16 bytes, so that every dtype takes the same five loops. What happens to
the bits on their way happens afterwards, to a tile that is still in the cache.
"""

from std.memory import Pointer
from std.sys import size_of

from torchmojo_core.copy.change import Change
from torchmojo_core.copy.channels import group_of, pick_channel, weave_channels
from torchmojo_core.copy.plan import Plan
from torchmojo_core.copy.rows import copy_elements, copy_runs, fill
from torchmojo_core.copy.squares import edge_of, transpose
from torchmojo_core.copy.walk import Context, Tile, TileFn, walk


@fieldwise_init
struct _Job(TrivialRegisterPassable):
    """What to do to each tile."""

    var copy_tile: TileFn
    var change: Change


def _copy_rows[dtype: DType, n: Int](tile: Tile):
    """Copies a tile of elements that are `n` words of `dtype`, whose output is dense."""
    comptime width = size_of[Scalar[dtype]]() * n
    if tile.src_step == width:
        copy_runs(tile.dst, tile.src, tile.rows, tile.columns * width, tile.dst_row, tile.src_row)
        return
    for r in range(tile.rows):
        var dst = tile.dst + r * tile.dst_row
        var src = tile.src + r * tile.src_row
        if tile.src_step == 0:
            fill[dtype, n](dst, src, tile.columns)
            continue
        comptime if n == 1:
            if tile.columns > group_of[dtype]:
                if tile.src_step == 2 * width:
                    pick_channel[dtype, 2](dst, src, tile.columns)
                    continue
                if tile.src_step == 3 * width:
                    pick_channel[dtype, 3](dst, src, tile.columns)
                    continue
                if tile.src_step == 4 * width:
                    pick_channel[dtype, 4](dst, src, tile.columns)
                    continue
        copy_elements[dtype, n](dst, src, tile.columns, width, tile.src_step)


@always_inline
def _copy_across[dtype: DType](tile: Tile) -> Bool:
    """Copies a tile whose rows lie side by side in the input; False where it is too small."""
    comptime width = size_of[Scalar[dtype]]()
    if tile.rows >= group_of[dtype] and tile.dst_row == tile.columns * width:
        if tile.columns == 2:
            weave_channels[dtype, 2](tile.dst, tile.src, tile.rows, tile.src_step)
            return True
        if tile.columns == 3:
            weave_channels[dtype, 3](tile.dst, tile.src, tile.rows, tile.src_step)
            return True
        if tile.columns == 4:
            weave_channels[dtype, 4](tile.dst, tile.src, tile.rows, tile.src_step)
            return True
    comptime edge = edge_of[dtype]
    comptime if edge >= 4:
        if tile.rows >= edge and tile.columns >= edge:
            transpose[dtype](
                tile.dst, tile.src, tile.rows, tile.columns, tile.dst_row, tile.src_step
            )
            return True
    return False


def _copy_tile[dtype: DType, n: Int](tile: Tile, context: Context):
    """Copies a tile of elements that are `n` words of `dtype`."""
    comptime width = size_of[Scalar[dtype]]() * n
    if tile.dst_step == width:
        comptime if n == 1:
            if tile.src_row == width and tile.src_step != 0 and tile.src_step != width:
                if _copy_across[dtype](tile):
                    return
        if tile.columns >= min(tile.rows, 4):
            _copy_rows[dtype, n](tile)
            return
    if tile.columns >= tile.rows:
        for r in range(tile.rows):
            copy_elements[dtype, n](
                tile.dst + r * tile.dst_row,
                tile.src + r * tile.src_row,
                tile.columns,
                tile.dst_step,
                tile.src_step,
            )
    else:
        for c in range(tile.columns):
            copy_elements[dtype, n](
                tile.dst + c * tile.dst_step,
                tile.src + c * tile.src_step,
                tile.rows,
                tile.dst_row,
                tile.src_row,
            )


def _work(tile: Tile, context: Context):
    """Copies a tile and changes it while it is in the cache."""
    var job = context.unsafe_bitcast[_Job]()[]
    job.copy_tile(tile, context)
    if job.change.kind != Change.NONE:
        job.change.apply(tile)


def tile_copier(width: Int) -> TileFn:
    """Picks the function that copies tiles of elements of one width.

    Args:
        width: 1, 2, 4, 8 or 16 bytes.

    Returns:
        The function; it makes no use of its context.
    """
    if width == 1:
        return _copy_tile[DType.uint8, 1]
    if width == 2:
        return _copy_tile[DType.uint16, 1]
    if width == 4:
        return _copy_tile[DType.uint32, 1]
    if width == 8:
        return _copy_tile[DType.uint64, 1]
    return _copy_tile[DType.uint64, 2]


def copy_strided(plan: Plan, change: Change, function: Int):
    """Copies a strided tensor into another of the same sizes.

    Args:
        plan: The axes of both.
        change: What happens to the elements, and their width.
        function: Address of `torch_parallel_for`; 0 to look it up.
    """
    var job = _Job(tile_copier(change.width), change)
    var context = Pointer(to=job).unsafe_bitcast[NoneType]().unsafe_origin_cast[MutAnyOrigin]()
    walk(plan, change.width, _work, context, function)
