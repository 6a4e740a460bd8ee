"""Conversions of strided tensors between dtypes.

Every value passes through 64 bits, which hold any value of any dtype. So there is one loop for each
dtype that is read and one for each that is written, not one for each pair.
"""

from std.atomic import Atomic
from std.memory import Pointer, stack_allocation

from torchmojo_core.cast.dtypes import Dtype, highest_of, is_float, lowest_of, width_of
from torchmojo_core.cast.values import (
    GROUP,
    find_outside,
    integers_to_doubles,
    read_values,
    to_bools,
    write_values,
)
from torchmojo_core.copy.bits import load, store
from torchmojo_core.copy.plan import Plan
from torchmojo_core.copy.strided import tile_copier
from torchmojo_core.copy.walk import Context, Tile, TileFn, walk

# Values at a time: both buffers together leave room in the first cache.
comptime _COUNT = 1024


@fieldwise_init
struct _Job:
    """What all tiles of a conversion share; it lies in memory once."""

    var dst_dtype: Int
    var src_dtype: Int
    var scatter: TileFn
    """Copies elements of the output's width."""
    var gather: TileFn
    """Copies elements of the input's width."""
    var lowest: Int
    """Range of integers that fit the output; of uint64, the half above it counts as negative."""
    var highest: Int
    var failures: Int64
    """Counts tiles with an integer that does not fit."""
    var bad: Int
    """Address where the first such integer is noted."""

    def convert(mut self, values: Int, count: Int) -> Bool:
        """Turns values of the input's kind into values of the output's kind.

        Args:
            values: Address of the values.
            count: How many.

        Returns:
            False for an integer that does not fit.
        """
        if is_float(self.src_dtype):
            if self.dst_dtype == Dtype.BOOL:
                to_bools[DType.float64](values, count)
        elif self.dst_dtype == Dtype.BOOL:
            to_bools[DType.uint64](values, count)
        elif is_float(self.dst_dtype):
            var single = self.dst_dtype != Dtype.FLOAT64
            if self.src_dtype == Dtype.UINT64:
                integers_to_doubles[DType.uint64](values, count, single)
            else:
                integers_to_doubles[DType.int64](values, count, single)
        elif self.src_dtype != self.dst_dtype:
            var place = find_outside(values, count, self.lowest, self.highest)
            if place >= 0:
                # Atomic: one thread is the first, and notes its integer.
                if Atomic[Int64].fetch_add(Pointer(to=self.failures), Int64(1)) == 0:
                    store(self.bad, load[DType.int64, 1](values + 8 * place))
                return False
        return True


def _work(tile: Tile, context: Context):
    """Converts a tile, as many values at a time as the buffers hold."""
    ref job = context.unsafe_bitcast[_Job]()[]
    var raw = Int(stack_allocation[_COUNT, UInt64]())
    var values = Int(stack_allocation[_COUNT, UInt64]())
    var dst_width = width_of(job.dst_dtype)
    var src_width = width_of(job.src_dtype)
    var along = min(tile.columns, _COUNT)
    var down = _COUNT // along
    for r in range(0, tile.rows, down):
        for c in range(0, tile.columns, along):
            if Atomic[Int64].load(Pointer(to=job.failures)) != 0:
                return
            var rows = min(down, tile.rows - r)
            var columns = min(along, tile.columns - c)
            var dst = tile.dst + r * tile.dst_row + c * tile.dst_step
            var src = tile.src + r * tile.src_row + c * tile.src_step
            var count = rows * columns
            # One dense row of whole groups needs no buffer of its own.
            var whole = rows == 1 and count % GROUP == 0
            if whole and tile.src_step == src_width:
                read_values(job.src_dtype, values, src, count)
            else:
                job.gather(
                    Tile(
                        dst=raw,
                        src=src,
                        rows=rows,
                        columns=columns,
                        dst_row=columns * src_width,
                        src_row=tile.src_row,
                        dst_step=src_width,
                        src_step=tile.src_step,
                    ),
                    context,
                )
                read_values(job.src_dtype, values, raw, count)
            if not job.convert(values, count):
                return
            if whole and tile.dst_step == dst_width:
                write_values(job.dst_dtype, dst, values, count)
            else:
                write_values(job.dst_dtype, raw, values, count)
                job.scatter(
                    Tile(
                        dst=dst,
                        src=raw,
                        rows=rows,
                        columns=columns,
                        dst_row=tile.dst_row,
                        src_row=columns * dst_width,
                        dst_step=tile.dst_step,
                        src_step=dst_width,
                    ),
                    context,
                )


def can_cast(dst_dtype: Int, src_dtype: Int) -> Bool:
    """Tells whether there is a conversion.

    Args:
        dst_dtype: The output's `Dtype`.
        src_dtype: The input's `Dtype`.

    Returns:
        False for dtypes that are not known, and from floats to integers.
    """
    if width_of(dst_dtype) == 0 or width_of(src_dtype) == 0:
        return False
    return is_float(dst_dtype) or dst_dtype == Dtype.BOOL or not is_float(src_dtype)


def cast_strided(plan: Plan, dst_dtype: Int, src_dtype: Int, bad: Int) -> Bool:
    """Converts a strided tensor into another of the same sizes.

    Args:
        plan: The axes of both.
        dst_dtype: The output's `Dtype`.
        src_dtype: The input's `Dtype`.
        bad: Address where an integer is noted that does not fit.

    Returns:
        False if there was one; then a part of the output is written.
    """
    var job = _Job(
        dst_dtype=dst_dtype,
        src_dtype=src_dtype,
        scatter=tile_copier(width_of(dst_dtype)),
        gather=tile_copier(width_of(src_dtype)),
        lowest=max(lowest_of(src_dtype), lowest_of(dst_dtype)),
        highest=highest_of(dst_dtype),
        failures=0,
        bad=bad,
    )
    var context = Pointer(to=job).unsafe_bitcast[NoneType]().unsafe_origin_cast[MutAnyOrigin]()
    walk(plan, max(width_of(dst_dtype), width_of(src_dtype)), _work, context, 0)
    return context.unsafe_bitcast[_Job]()[].failures == 0
