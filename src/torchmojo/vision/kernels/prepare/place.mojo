"""Where an output pixel looks in the source, along one axis, and with what weights."""

from std.math import ceildiv, floor

from source import Floats

comptime NEAREST = 0
comptime BILINEAR = 1
comptime ANTIALIAS = 2
comptime AREA = 3


def pair(mode: Int, i: Int, source: Int, size: Int) -> Tuple[Int, Float32]:
    """Gives a pixel and the weight of the one after it; the pair lies inside the source.

    Args:
        mode: `NEAREST` or `BILINEAR`.
        i: Output pixel.
        source: Pixels of the source along this axis.
        size: Pixels of the output along this axis.

    Returns:
        The first of the pair, and the weight of the second; 0 and 0 where there is one pixel only.
    """
    var first: Int
    var weight = Float32(0)
    if mode == NEAREST:
        # Torch's roundings ("nearest-exact"): the same pixel, whatever the sizes.
        var scale = Float32(source) / Float32(size)
        first = Int(floor(Float32((Float64(i) + 0.5) * Float64(scale))))
    else:
        var place = max(0.0, Float64((2 * i + 1) * source) / Float64(2 * size) - 0.5)
        first = Int(place)
        weight = Float32(place - Float64(first))
    if first >= source - 1:
        first = max(0, source - 2)
        weight = Float32(1 if source > 1 else 0)
    return (first, weight)


@fieldwise_init
struct Window(ImplicitlyCopyable):
    """The pixels that one output pixel is a weighted mean of."""

    var first: Int
    var count: Int
    var center: Float64
    var inverse: Float64  # of the reach of one weight, in source pixels; 0 for equal weights

    @staticmethod
    def of(mode: Int, i: Int, source: Int, size: Int) -> Self:
        """Finds the window of an output pixel, for `ANTIALIAS` or `AREA`."""
        if mode == AREA:
            var start = i * source // size
            return Self(start, ceildiv((i + 1) * source, size) - start, 0, 0)
        var scale = Float64(source) / Float64(size)
        var center = Float64((2 * i + 1) * source) / Float64(2 * size)
        var reach = max(1.0, scale)
        var first = max(0, Int(center - reach + 0.5))
        var end = min(source, Int(center + reach + 0.5))
        return Self(first, end - first, center, 1 / reach)

    @staticmethod
    def most(mode: Int, source: Int, size: Int) -> Int:
        """Gives the largest count of pixels of a window."""
        var scale = ceildiv(source, size)
        return min(source, scale + 2 if mode == AREA else 2 * max(1, scale) + 3)

    def weigh(self, k: Int) -> Float64:
        """Gives the weight of a pixel of the window; they do not sum to 1 yet."""
        if self.inverse == 0:
            return 1
        var place = Float64(self.first + k) + 0.5
        return max(0.0, 1 - abs(place - self.center) * self.inverse)

    def weights(self, dst: Floats, total: Int):
        """Writes the weights, which sum to 1, and zeros up to `total`."""
        var sum = Float64(0)
        for k in range(self.count):
            sum += self.weigh(k)
        for k in range(self.count):
            dst[unsafe_offset=k] = Float32(self.weigh(k) / sum)
        for k in range(self.count, total):
            dst[unsafe_offset=k] = 0
