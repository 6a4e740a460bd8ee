"""Cuts a copy into tiles that fit the caches, and shares them among torch's threads."""

from std.memory import Pointer

from torchmojo._glue.numbers import Numbers
from torchmojo_core.copy.plan import MAX_NDIM, Plan
from torchmojo_core.copy.threads import share_out

comptime _EDGE = 64
# A tile of rows that run along in both tensors, and what is worth a thread of its own.
comptime _GRAIN_BYTES = 131072


@fieldwise_init
struct Tile(TrivialRegisterPassable):
    """A rectangle of elements in two tensors; steps are in bytes.

    Made whole, and never changed: mojo 1.2.0 ends the life of a local structure where a branch
    assigns one of its fields, and may use its place on the stack for something else.
    """

    var dst: Int
    """Address of the first element of the output."""
    var src: Int
    """Address of the first element of the input."""
    var rows: Int
    """Number of rows."""
    var columns: Int
    """Number of elements in a row."""
    var dst_row: Int
    """Step between rows of the output."""
    var src_row: Int
    """Step between rows of the input."""
    var dst_step: Int
    """Step between neighbours in the output, the smallest that it has."""
    var src_step: Int
    """Step between neighbours in the input."""


comptime Context = Pointer[NoneType, MutAnyOrigin]
"""Whatever the caller of `walk` passes to its work."""

comptime TileFn = def(Tile, Context) thin -> None
"""Work on one tile."""


def _row_axis(plan: Plan, width: Int) -> Int:
    """Picks the axis whose steps are rows of tiles: where the input is dense, or the next one."""
    var last = plan.count - 1
    var best = last - 1
    var densest = abs(plan.src_steps[last])
    if densest > width:
        for i in range(last):
            var step = abs(plan.src_steps[i])
            if step != 0 and step < densest:
                best = i
                densest = step
    return best


@always_inline
def _cut(size: Int, step: Int) -> Int:
    """Returns how many pieces of `step`, of which the last takes the rest."""
    return max(size // step, 1)


def walk(plan: Plan, width: Int, work: TileFn, context: Context, function: Int):
    """Calls `work` on tiles that cover the tensors once, on torch's threads if it is worth it.

    Args:
        plan: The axes.
        width: Bytes of the wider element.
        work: What to do to a tile.
        context: Passed on to `work`.
        function: Address of `torch_parallel_for`; 0 to look it up.
    """
    if plan.count < 0:
        return
    var last = plan.count - 1
    var columns = plan.sizes[last] if last >= 0 else 1
    var dst_step = plan.dst_steps[last] if last >= 0 else width
    var src_step = plan.src_steps[last] if last >= 0 else width
    var row = _row_axis(plan, width) if last >= 1 else -1
    var rows = plan.sizes[row] if row >= 0 else 1
    var dst_row = plan.dst_steps[row] if row >= 0 else 0
    var src_row = plan.src_steps[row] if row >= 0 else 0
    # Rows along which both run are cut by size alone. Where the input runs across them, a tile is
    # a square, so that the lines that it touches stay in the first cache until all is read.
    var row_step: Int
    var column_step: Int
    if src_row != 0 and abs(src_row) < abs(src_step):
        row_step = max(_EDGE, _EDGE * _EDGE // columns)
        column_step = max(_EDGE, _EDGE * _EDGE // rows)
    else:
        column_step = _GRAIN_BYTES // width
        row_step = max(1, column_step // columns)
    var down = _cut(rows, row_step)
    var along = _cut(columns, column_step)
    var units = down * along
    for i in range(last):
        if i != row:
            units *= plan.sizes[i]

    def body(start: Int, end: Int) {imm}:
        # Place of the unit `start` in all axes; later ones are reached by counting.
        var place = Numbers[MAX_NDIM](fill=0)
        var dst = plan.dst
        var src = plan.src
        var rest = start
        var column = rest % along
        rest = rest // along
        var line = rest % down
        rest = rest // down
        for k in range(last):
            var axis = last - 1 - k
            if axis != row:
                place[axis] = rest % plan.sizes[axis]
                rest = rest // plan.sizes[axis]
                dst += place[axis] * plan.dst_steps[axis]
                src += place[axis] * plan.src_steps[axis]
        for _ in range(start, end):
            var r = line * row_step
            var c = column * column_step
            var tile = Tile(
                dst=dst + r * dst_row + c * dst_step,
                src=src + r * src_row + c * src_step,
                rows=row_step if line + 1 < down else rows - r,
                columns=column_step if column + 1 < along else columns - c,
                dst_row=dst_row,
                src_row=src_row,
                dst_step=dst_step,
                src_step=src_step,
            )
            work(tile, context)
            column += 1
            if column < along:
                continue
            column = 0
            line += 1
            if line < down:
                continue
            line = 0
            for k in range(last):
                var axis = last - 1 - k
                if axis == row:
                    continue
                dst += plan.dst_steps[axis]
                src += plan.src_steps[axis]
                place[axis] += 1
                if place[axis] < plan.sizes[axis]:
                    break
                dst -= place[axis] * plan.dst_steps[axis]
                src -= place[axis] * plan.src_steps[axis]
                place[axis] = 0

    var tile_bytes = max(min(row_step, rows) * min(column_step, columns) * width, 1)
    share_out(body, units, max(_GRAIN_BYTES // tile_bytes, 1), function)
