"""Changes bits of elements in place: byte order, sign, two's complement."""

from std.bit import byte_swap
from std.sys import simd_byte_width, size_of

from torchmojo_core.copy.bits import load, store
from torchmojo_core.copy.walk import Tile


@fieldwise_init
struct Change(TrivialRegisterPassable):
    """What happens to each element."""

    comptime NONE = 0
    """Nothing."""
    comptime SWAP = 1
    """Its bytes are reversed."""
    comptime FLIP = 2
    """The bits of a mask are flipped: negation of a float, for one."""
    comptime NEGATE = 3
    """It is negated as a two's complement integer."""

    var kind: Int
    """One of the above."""
    var width: Int
    """Bytes of an element: 1, 2, 4, 8 or 16."""
    var mask: UInt64
    """Bits to flip; of 16 bytes, those of the high word."""
    var mask_lo: UInt64
    """Bits to flip in the low word of 16 bytes."""

    def exists(self) -> Bool:
        """Tells whether there is code for this change of this width.

        Returns:
            False for a kind or a width that is unknown, and for negation of 16 bytes.
        """
        if self.kind < Change.NONE or self.kind > Change.NEGATE:
            return False
        if self.width == 16:
            return self.kind != Change.NEGATE
        return self.width == 1 or self.width == 2 or self.width == 4 or self.width == 8

    def apply(self, tile: Tile):
        """Changes the output of a tile.

        Args:
            tile: What has been copied.
        """
        for r in range(tile.rows):
            var row = tile.dst + r * tile.dst_row
            if self.width == 1:
                self._apply_row[DType.uint8](row, tile.columns, tile.dst_step)
            elif self.width == 2:
                self._apply_row[DType.uint16](row, tile.columns, tile.dst_step)
            elif self.width == 4:
                self._apply_row[DType.uint32](row, tile.columns, tile.dst_step)
            elif self.width == 8:
                self._apply_row[DType.uint64](row, tile.columns, tile.dst_step)
            else:
                self._apply_wide(row, tile.columns, tile.dst_step)

    @always_inline
    def _changed[
        dtype: DType, n: SIMDLength
    ](self, value: SIMD[dtype, n], mask: SIMD[dtype, n]) -> SIMD[dtype, n]:
        if self.kind == Change.SWAP:
            comptime if dtype != DType.uint8:
                return byte_swap(value)
        elif self.kind == Change.FLIP:
            return value ^ mask
        elif self.kind == Change.NEGATE:
            return ~value + 1
        return value

    def _apply_row[dtype: DType](self, row: Int, count: Int, step: Int):
        comptime width = size_of[Scalar[dtype]]()
        comptime W = simd_byte_width() // width
        var mask = self.mask.cast[dtype]()
        var i = 0
        if step == width:
            while i + W <= count:
                var at = row + i * width
                store(at, self._changed(load[dtype, W](at), SIMD[dtype, W](mask)))
                i += W
        while i < count:
            var at = row + i * step
            store(at, self._changed(load[dtype, 1](at), SIMD[dtype, 1](mask)))
            i += 1

    def _apply_wide(self, row: Int, count: Int, step: Int):
        var mask = SIMD[DType.uint64, 2](self.mask_lo, self.mask)
        for i in range(count):
            var value = load[DType.uint64, 2](row + i * step)
            if self.kind == Change.SWAP:
                # Both halves and their order.
                value = byte_swap(value).shuffle[1, 0]()
            else:
                value ^= mask
            store(row + i * step, value)
