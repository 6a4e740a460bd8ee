"""Greedy suppression of candidates that are sorted already, each compared with few kept boxes.

Kept boxes stand in the cells of a grid, each in all the cells that it touches, as many side by side
as a vector holds. A candidate whose IoU with a kept box is above `t` has more than `t` of its width
in common with it, and of its height. A stretch of that length meets the part of the candidate that
begins `t` of its width after its left side and ends `t` before its right side (for `t` above one
half: its middle). So a candidate looks into the cells of that part alone, mostly one. The grid is
folded like a torus, so that boxes far away need no memory; strangers in a cell cost time only.

docs/design/nms.md proves that this keeps what comparing all pairs keeps.
"""

from std.math import floor
from std.memory import Pointer, bitcast
from std.sys import simd_width_of

from order import Buffer, address_of, key_type

comptime FEW = 48
"""Candidates for which a grid is not worth its memory."""

comptime MAX_CELLS = 32
"""Cells that a kept box may stand in; one that touches more is looked at by every candidate."""

comptime SLACK = 1e-4
"""Relative: far more than the rounding of an IoU, far less than a cell."""

comptime SMALLEST = 1e-30
"""The least area whose IoUs have no more than that rounding."""


struct Greedy[wide: DType](Movable):
    """The kept boxes of one group.

    Parameters:
        wide: float32 or float64.
    """

    comptime lanes = simd_width_of[Self.wide]()
    comptime block = 5 * Self.lanes
    """Numbers of a block: left, top, right, bottom and area of as many boxes as a vector holds."""

    comptime Vector = SIMD[Self.wide, Self.lanes]
    comptime Box = SIMD[Self.wide, 4]

    var threshold: Scalar[Self.wide]
    """The greatest number that is not above the threshold asked for."""
    var nearly: Scalar[Self.wide]
    """A little less: what is below needs no division."""
    var smaller: Bool
    """Whether intersections are measured by the smaller box, not by the union."""
    var careful: Bool
    """Whether every pair is compared, as the proof does not hold."""
    var inset: Scalar[Self.wide]
    """Part of a side that a candidate's cells leave out at either end."""
    var scale: Self.Box
    """Cells per unit, across and down, twice."""
    var side: Int
    """Cells along a side of the grid, a power of two."""
    var heads: List[Int32]
    """The newest block of each cell, -1 for none; the last one is of boxes that all look at."""
    var blocks: List[Scalar[Self.wide]]
    var used: List[Int32]
    """Boxes in each block."""
    var older: List[Int32]
    """The block before each one, of the same cell."""

    def __init__(out self, threshold: Float64, smaller: Bool):
        """Prepares for groups that are suppressed one after the other.

        Args:
            threshold: IoU above which a box is suppressed.
            smaller: Whether intersections are measured by the smaller box, not by the union.
        """
        self.threshold = round_down[Self.wide](threshold)
        self.nearly = self.threshold - abs(self.threshold) * Scalar[Self.wide](SLACK)
        self.smaller = smaller
        self.careful = False
        # Next to 0 an intersection may be too small for its rounding: then the whole box is looked at.
        self.inset = min(self.threshold, 0.5) * Scalar[Self.wide](1 - SLACK)
        if self.threshold < Scalar[Self.wide](SLACK):
            self.inset = 0
        self.scale = 1
        self.side = 1
        self.heads = List[Int32]()
        self.blocks = List[Scalar[Self.wide]]()
        self.used = List[Int32]()
        self.older = List[Int32]()

    def __init__(out self, *, deinit move: Self):
        """Takes over another one's memory.

        Args:
            move: The former owner.
        """
        self.threshold = move.threshold
        self.nearly = move.nearly
        self.smaller = move.smaller
        self.careful = move.careful
        self.inset = move.inset
        self.scale = move.scale
        self.side = move.side
        self.heads = move.heads^
        self.blocks = move.blocks^
        self.used = move.used^
        self.older = move.older^

    def run(mut self, corners: Buffer[Self.wide], n: Int, limit: Int, kept: Buffer[DType.bool]):
        """Marks the candidates of a group that are kept.

        Args:
            corners: Four numbers a candidate, best first, without NaN.
            n: Number of candidates.
            limit: How many may be kept.
            kept: One mark a candidate: False, and True on return where it is kept.
        """
        self._begin(corners, n)
        var count = 0
        for i in range(n):
            if count == limit:
                return
            var box = corners.unsafe_load[width=4](4 * i)
            var width = box[2] - box[0]
            var height = box[3] - box[1]
            var area = width * height
            if not self.careful and not (width > 0 and height > 0 and area < Scalar[Self.wide].MAX):
                # Its intersections are empty, or its union endless: an IoU of 0 or NaN.
                kept[unsafe_offset=i] = True
                count += 1
                continue
            if self._is_suppressed(box, area):
                continue
            kept[unsafe_offset=i] = True
            count += 1
            self._keep(box, area)

    def _begin(mut self, corners: Buffer[Self.wide], n: Int):
        """Empties the grid and chooses its cells for what is to come."""
        self.blocks.clear()
        self.used.clear()
        self.older.clear()
        self.careful = self.smaller or not self.threshold >= 0
        self.side = 0
        var widths = Int64(0)
        var heights = Int64(0)
        var proper = 0
        for i in range(n):
            var box = corners.unsafe_load[width=4](4 * i)
            var width = box[2] - box[0]
            var height = box[3] - box[1]
            var area = width * height
            if width > 0 and height > 0 and area < Scalar[Self.wide].MAX:
                if area < Scalar[Self.wide](SMALLEST):
                    self.careful = True
                # The mean of floats' bits is nearly that of their logarithms: no box, however
                # large, makes the cells too large for all the others.
                widths += _bits(width)
                heights += _bits(height)
                proper += 1
        if proper > FEW and not self.careful:
            self.side = 8
            while self.side < 256 and 2 * self.side * self.side < n:
                self.side *= 2
            var across = _per_cell[Self.wide](widths // Int64(proper))
            var down = _per_cell[Self.wide](heights // Int64(proper))
            self.scale = Self.Box(across, down, across, down)
        self.heads.clear()
        self.heads.resize(self.side * self.side + 1, -1)

    def _is_suppressed(self, box: Self.Box, area: Scalar[Self.wide]) -> Bool:
        """Tells whether a kept box suppresses a candidate."""
        if self._meets(self.side * self.side, box, area):
            return True
        if self.side == 0:
            return False
        var size = box.shuffle[2, 3, 2, 3]() - box.shuffle[0, 1, 0, 1]()
        var cells = self._cells(box + size * Self.Box(1, 1, -1, -1) * self.inset)
        # Where the sum rounds, the part may end before it begins, in one cell: then it is that one.
        var left = Int(min(cells[0], cells[2]))
        var right = Int(max(cells[0], cells[2]))
        var top = Int(min(cells[1], cells[3]))
        var bottom = Int(max(cells[1], cells[3]))
        for y in range(top, min(bottom + 1, top + self.side)):
            var row = (y & (self.side - 1)) * self.side
            for x in range(left, min(right + 1, left + self.side)):
                if self._meets(row + (x & (self.side - 1)), box, area):
                    return True
        return False

    def _keep(mut self, box: Self.Box, area: Scalar[Self.wide]):
        """Puts a box into its cells."""
        if self.side > 0:
            var cells = self._cells(box)
            var across = Int(cells[2]) - Int(cells[0]) + 1
            var down = Int(cells[3]) - Int(cells[1]) + 1
            if across <= MAX_CELLS and down <= MAX_CELLS and across * down <= MAX_CELLS:
                for y in range(Int(cells[1]), Int(cells[3]) + 1):
                    var row = (y & (self.side - 1)) * self.side
                    for x in range(Int(cells[0]), Int(cells[2]) + 1):
                        self._append(row + (x & (self.side - 1)), box, area)
                return
        self._append(self.side * self.side, box, area)

    @always_inline
    def _cells(self, box: Self.Box) -> SIMD[DType.int32, 4]:
        """Returns the columns and rows that corners lie in; they rise where corners do."""
        comptime far = Self.Box(1 << 29)
        return floor(box * self.scale).clamp(-far, far).cast[DType.int32]()

    @always_inline
    def _meets(self, cell: Int, box: Self.Box, area: Scalar[Self.wide]) -> Bool:
        """Tells whether a box of a cell has an IoU above the threshold with a candidate."""
        var left = Self.Vector(box[0])
        var top = Self.Vector(box[1])
        var right = Self.Vector(box[2])
        var bottom = Self.Vector(box[3])
        var block = Int(self.heads.unsafe_get(cell))
        var start = self.blocks.unsafe_ptr()
        while block >= 0:
            var p = start.unsafe_offset(block * Self.block)
            var width = min(p.unsafe_load[width=Self.lanes](2 * Self.lanes), right) - max(
                p.unsafe_load[width=Self.lanes](0), left
            )
            var height = min(p.unsafe_load[width=Self.lanes](3 * Self.lanes), bottom) - max(
                p.unsafe_load[width=Self.lanes](Self.lanes), top
            )
            width = width.gt(0).select(width, 0)
            height = height.gt(0).select(height, 0)
            var common = width * height
            var areas = p.unsafe_load[width=Self.lanes](4 * Self.lanes)
            # In this order, each step rounded: so are the numbers of torchvision.
            var union_ = areas + area - common
            if self.smaller:
                union_ = Self.Vector(area).lt(areas).select(area, areas)
            if self.careful or common.gt(union_ * self.nearly).reduce_or():
                if (common / union_).gt(self.threshold).reduce_or():
                    return True
            block = Int(self.older.unsafe_get(block))
        return False

    def _append(mut self, cell: Int, box: Self.Box, area: Scalar[Self.wide]):
        """Puts a box into a cell."""
        var block = Int(self.heads[cell])
        if block < 0 or Int(self.used[block]) == Self.lanes:
            # Empty places are NaN, of which no comparison is true.
            var blank = Scalar[Self.wide](0) / Scalar[Self.wide](0)
            self.older.append(Int32(block))
            block = len(self.used)
            self.used.append(0)
            self.blocks.resize(len(self.blocks) + Self.block, blank)
            self.heads[cell] = Int32(block)
        var place = Int(self.used[block])
        var start = block * Self.block + place
        comptime for i in range(4):
            self.blocks[start + i * Self.lanes] = box[i]
        self.blocks[start + 4 * Self.lanes] = area
        self.used[block] = Int32(place + 1)


def round_down[wide: DType](x: Float64) -> Scalar[wide]:
    """Returns the greatest number that is not above `x`: what exceeds one exceeds the other."""
    comptime key = key_type[wide]()
    var near = x.cast[wide]()
    if not (near.cast[DType.float64]() > x):
        return near
    var bits = bitcast[key](near)
    if near == 0:
        return bitcast[wide](bitcast[key](Scalar[wide](-0.0)) | 1)
    return bitcast[wide](bits - 1 if near > 0 else bits + 1)


def _bits[wide: DType](x: Scalar[wide]) -> Int64:
    """Returns the bits of a positive number, without those that a sum has no room for."""
    comptime if wide == DType.float64:
        return Int64(bitcast[DType.uint64](x) >> 32)
    else:
        return Int64(bitcast[DType.uint32](x))


def _per_cell[wide: DType](bits: Int64) -> Scalar[wide]:
    """Returns how many cells are in a unit, where sides have these bits on average."""
    var size: Scalar[wide]
    comptime if wide == DType.float64:
        size = bitcast[wide](UInt64(bits) << 32)
    else:
        size = bitcast[wide](UInt32(bits))
    return min(1 / size, Scalar[wide](1e30))
