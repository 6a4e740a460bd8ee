"""Rows of floats to rows of the output: colours, mean and scale, dtype, layout."""

from std.algorithm import vectorize
from std.math import fma
from std.memory import Pointer
from std.utils import IndexList

from torchmojo import MutTensor

from source import Floats, LANES

comptime RED = 0.299
comptime GREEN = 0.587
comptime BLUE = 0.114
"""Weights of Rec. 601, as OpenCV and Pillow have them."""


@fieldwise_init
struct Finish[dtype: DType](ImplicitlyCopyable):
    """What becomes of a pixel's channels: `planes[k] * factor[k] + shift[k]`."""

    comptime Values = Pointer[Scalar[Self.dtype], MutUntrackedOrigin]

    var dst: Self.Values  # [c, h, w] of the picture, without its padding
    var channels: Int
    var width: Int
    var strides: IndexList[3]
    var planes: IndexList[3]
    var gray: Bool  # one output channel of red, green and blue, whose planes are given
    var factor: SIMD[DType.float32, 4]
    var shift: SIMD[DType.float32, 4]

    def __init__(out self, dst: MutTensor[Self.dtype, 3], gray: Bool):
        self.dst = Self.Values(unsafe_from_address=Int(dst.unsafe_ptr()))
        self.channels = dst.dim(0)
        self.width = dst.dim(2)
        self.strides = IndexList[3](dst.stride(0), dst.stride(1), dst.stride(2))
        self.planes = IndexList[3](0, 0, 0)
        self.gray = gray
        self.factor = 0
        self.shift = 0

    def row(self, y: Int, upper: Floats, lower: Floats, weight: Float32, stride: Int):
        """Writes output row y, between two rows `[planes, w]` of the source.

        Args:
            y: Output row.
            upper: The row above.
            lower: The row below.
            weight: Of the row below.
            stride: Floats between planes.
        """
        var line = self.dst.unsafe_offset(y * self.strides[1])
        var dense = self.strides[2] == 1
        if self.gray:

            def mixed[n: Int](x: Int) {var}:
                var r = self._load[n](upper, lower, self.planes[0] * stride + x, weight)
                var g = self._load[n](upper, lower, self.planes[1] * stride + x, weight)
                var b = self._load[n](upper, lower, self.planes[2] * stride + x, weight)
                var sum = fma(b, type_of(b)(BLUE), fma(g, type_of(b)(GREEN), r * RED))
                self._write[n](line, x, dense, self.convert[n](0, sum))

            vectorize[LANES](self.width, mixed)
        elif self.channels == 3 and self.strides[0] == 1 and self.strides[2] == 3:

            def pixels[n: Int](x: Int) {var}:
                comptime if n == LANES:
                    var a = self._value[LANES](0, upper, lower, x, weight, stride)
                    var b = self._value[LANES](1, upper, lower, x, weight, stride)
                    var c = self._value[LANES](2, upper, lower, x, weight, stride)
                    var all = a.join(b).join(c.join(c)).shuffle[mask=_turns()]()
                    line.unsafe_store(3 * x, all.slice[2 * LANES, offset=0]())
                    line.unsafe_store(3 * x + 2 * LANES, all.slice[LANES, offset=2 * LANES]())
                else:
                    comptime for k in range(3):
                        var value = self._value[n](k, upper, lower, x, weight, stride)
                        line.unsafe_store(3 * x + k, value)

            vectorize[LANES](self.width, pixels)
        else:
            for k in range(self.channels):
                var plane = line.unsafe_offset(k * self.strides[0])

                def values[n: Int](x: Int) {var}:
                    var value = self._value[n](k, upper, lower, x, weight, stride)
                    self._write[n](plane, x, dense, value)

                vectorize[LANES](self.width, values)

    @always_inline
    def _write[n: Int](self, line: Self.Values, x: Int, dense: Bool, value: SIMD[Self.dtype, n]):
        if dense:
            line.unsafe_store(x, value)
        else:
            comptime for i in range(n):
                line[unsafe_offset=(x + i) * self.strides[2]] = value[i]

    @always_inline
    def _value[
        n: Int
    ](self, k: Int, upper: Floats, lower: Floats, x: Int, weight: Float32, stride: Int) -> SIMD[
        Self.dtype, n
    ]:
        return self.convert[n](k, self._load[n](upper, lower, self.planes[k] * stride + x, weight))

    @always_inline
    def _load[
        n: Int
    ](self, upper: Floats, lower: Floats, at: Int, weight: Float32) -> SIMD[DType.float32, n]:
        var above = upper.unsafe_load[width=n](at)
        return fma(lower.unsafe_load[width=n](at) - above, type_of(above)(weight), above)

    @always_inline
    def convert[n: Int](self, k: Int, value: SIMD[DType.float32, n]) -> SIMD[Self.dtype, n]:
        comptime F = SIMD[DType.float32, n]
        var result = fma(value, F(self.factor[k]), F(self.shift[k]))
        comptime if Self.dtype == DType.uint8:
            # To the nearest, halves to even; the sum leaves the integer in the last bits.
            result = min(max(result, F(0)), F(255))
            return (result + F(8388608)).cast[DType.int32]().cast[Self.dtype]()
        else:
            return result.cast[Self.dtype]()


def _turns() -> IndexList[4 * LANES]:
    """Orders three vectors by pixel; the last quarter is not used."""
    var mask = IndexList[4 * LANES]()
    for i in range(LANES):
        for k in range(3):
            mask[3 * i + k] = k * LANES + i
        mask[3 * LANES + i] = i
    return mask
