"""Floats of 8 and 16 bits to double precision and back, by their bits.

By bits and not by the CPU: some CPUs lack the instructions, and those for bfloat16 take subnormals
for zeros. Rounding is to nearest, ties to even; NaN stays NaN with its sign.
"""

from std.memory import bitcast


@fieldwise_init
struct Format(TrivialRegisterPassable):
    """Layout of a float: a sign, an exponent, a fraction."""

    var exponent: Int
    """Bits of the exponent."""
    var fraction: Int
    """Bits of the fraction."""
    var special: Int
    """Bits of the first value that is no finite number, infinity or else NaN."""
    var last: Int
    """Bits of the value that all too large numbers round to."""
    var nan: Int
    """Bits of a NaN; the sign comes on top."""

    def bias(self) -> Int:
        """Computes what is added to an exponent.

        Returns:
            The bias.
        """
        return (1 << (self.exponent - 1)) - 1

    def sign(self) -> Int:
        """Computes the sign bit.

        Returns:
            Bits of minus zero.
        """
        return 1 << (self.exponent + self.fraction)


comptime FLOAT16 = Format(5, 10, 0x7C00, 0x7C00, 0x7E00)
"""IEEE half precision."""
comptime BFLOAT16 = Format(8, 7, 0x7F80, 0x7F80, 0x7FC0)
"""The upper half of single precision."""
comptime FLOAT8_E5M2 = Format(5, 2, 0x7C, 0x7C, 0x7F)
"""The upper half of half precision."""
comptime FLOAT8_E4M3FN = Format(4, 3, 0x7F, 0x7E, 0x7F)
"""Without infinity: what is too large becomes 448, as in torch 2.13; torch 2.10 made it NaN."""


@always_inline
def decode[format: Format, n: SIMDLength](bits: SIMD[DType.uint64, n]) -> SIMD[DType.float64, n]:
    """Converts to double precision, which holds every value.

    Parameters:
        format: Layout of the input.
        n: How many (inferred).

    Args:
        bits: Bits of floats in the low end.

    Returns:
        Their values.
    """
    comptime shift = UInt64(52 - format.fraction)
    comptime sign = UInt64(format.sign())
    comptime rebias = UInt64(1023 - format.bias()) << 52
    # Worth of the last bit of a subnormal. By a product of normal numbers: a CPU may have been told
    # to take subnormals for zeros (torch.set_flush_denormal).
    comptime least = Float64(from_bits=UInt64(1024 - format.bias() - format.fraction) << 52)
    var size = bits & (sign - 1)
    var normal = bitcast[DType.float64, n]((size << shift) + rebias)
    var small = size.cast[DType.int32]().cast[DType.float64]() * least
    var value = size.lt(UInt64(1 << format.fraction)).select(small, normal)
    var special = bitcast[DType.float64, n](size << shift | UInt64(0x7FF << 52))
    value = size.ge(UInt64(format.special)).select(special, value)
    var signs = (bits & sign) << UInt64(63 - format.exponent - format.fraction)
    return bitcast[DType.float64, n](bitcast[DType.uint64, n](value) | signs)


@always_inline
def encode[format: Format, n: SIMDLength](value: SIMD[DType.float32, n]) -> SIMD[DType.uint32, n]:
    """Rounds single precision.

    Parameters:
        format: Layout of the output.
        n: How many (inferred).

    Args:
        value: Any floats.

    Returns:
        Bits in the low end.
    """
    comptime shift = UInt32(23 - format.fraction)
    comptime rebias = UInt32(127 - format.bias()) << 23
    comptime least = rebias + (1 << 23)
    # Its last bit is worth as much as the last one of a subnormal: the CPU's own addition rounds.
    comptime magic = rebias + ((shift + 1) << 23)
    comptime infinity = UInt32(0x7F800000)
    var bits = bitcast[DType.uint32, n](value)
    var size = bits & 0x7FFFFFFF
    var half = (size >> shift & 1) + ((1 << (shift - 1)) - 1)
    var normal = min((size - rebias + half) >> shift, UInt32(format.last))
    var sum = bitcast[DType.float32, n](size) + Float32(from_bits=magic)
    var small = bitcast[DType.uint32, n](sum) - magic
    # Where exponents are as wide as those of the input, subnormals round as all others do.
    var result = normal if rebias == 0 else size.lt(least).select(small, normal)
    result = size.gt(infinity).select(UInt32(format.nan), result)
    return result | (bits & 0x80000000) >> UInt32(31 - format.exponent - format.fraction)
