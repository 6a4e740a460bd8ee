"""An image of bytes with any strides, and pointers into scratch memory."""

from std.memory import Pointer

from torchmojo import Tensor

comptime Bytes = Pointer[UInt8, MutUntrackedOrigin]
comptime Floats = Pointer[Float32, MutUntrackedOrigin]
"""A part of the scratch memory that the kernel owns."""

comptime LANES = 16
"""Pixels that are treated together: a vector of AVX-512, two of AVX2, four of NEON."""

comptime MOST = 1 << 30
"""Rows or columns, at most: products of two of them and a few bits fit 63 bits."""

comptime STRIDED = 0
comptime PLANES = 1
"""A row of each channel is packed."""
comptime PACKED_3 = 3
comptime PACKED_4 = 4
"""The channels of a pixel are neighbours, and so are pixels."""


@fieldwise_init
struct Source(ImplicitlyCopyable):
    """Image `[h, w, c]`, and the strides of its axes in bytes."""

    var base: Bytes
    var height: Int
    var width: Int
    var planes: Int  # those that count: alpha does not
    var row: Int
    var column: Int
    var channel: Int
    var kind: Int

    def __init__(out self, image: Tensor[DType.uint8, 3]) raises:
        var channels = image.dim(2)
        if channels != 1 and channels != 3 and channels != 4:
            raise Error(t"src: wanted 1, 3 or 4 channels, given {channels}")
        if image.dim(0) == 0 or image.dim(1) == 0:
            raise Error(t"src: wanted pixels, given {image.dim(0)} x {image.dim(1)}")
        if max(image.dim(0), image.dim(1)) > MOST:
            raise Error(t"src: wanted {MOST} rows and columns at most")
        self.base = Bytes(unsafe_from_address=Int(image.unsafe_ptr()))
        self.height = image.dim(0)
        self.width = image.dim(1)
        self.planes = min(3, channels)
        self.row = image.stride(0)
        self.column = image.stride(1)
        self.channel = image.stride(2)
        self.kind = STRIDED
        if self.column == 1 or self.width == 1:
            self.kind = PLANES
            self.column = 1
        elif self.column == channels and self.channel == 1:
            self.kind = channels

    def at(self, y: Int, plane: Int) -> Bytes:
        """Gives the first pixel of a row of a channel."""
        return self.base.unsafe_offset(y * self.row + plane * self.channel)


def up(count: Int) -> Int:
    """Rounds up to whole vectors."""
    return (count + LANES - 1) // LANES * LANES
