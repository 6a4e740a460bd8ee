"""Numbers and text of torch's stack to Mojo values; the types were decided by the schema."""

from std.memory import Pointer

from torchmojo._glue.code import Code
from torchmojo._glue.python import Object, word
from torchmojo_ops.table import Entry, function

comptime _Out = Pointer[Int, MutAnyOrigin]
comptime _Ask = def(Int, _Out) thin abi("C") -> Int32


@always_inline
def _word(slot: Object) -> Int:
    return word(Int(slot.value()), 0)


@always_inline
def unbox_float(bits: Int, mut value: Float64) -> Int:
    """Reads a float: a word that holds the bits of a double."""
    var number = bits
    value = Pointer(to=number).unsafe_bitcast[Float64]()[]
    return Code.OK


@always_inline
def unbox_float(slot: Object, mut value: Float64) -> Int:
    """Reads a float on the stack."""
    return unbox_float(_word(slot), value)


@always_inline
def unbox_int(bits: Int, mut value: Int64, low: Int64, high: Int64) -> Int:
    """Reads an int and compares it with the range of the kernel's type."""
    value = Int64(bits)
    return Code.RANGE if value < low or value > high else Code.OK


@always_inline
def unbox_int(slot: Object, mut value: Int64, low: Int64, high: Int64) -> Int:
    """Reads an int on the stack."""
    return unbox_int(_word(slot), value, low, high)


@always_inline
def unbox_uint(bits: Int, mut value: UInt64, high: UInt64) -> Int:
    """Reads an int that must not be negative: torch has no unsigned scalars."""
    value = UInt64(bits)
    return Code.RANGE if bits < 0 or value > high else Code.OK


@always_inline
def unbox_uint(slot: Object, mut value: UInt64, high: UInt64) -> Int:
    """Reads an unsigned int on the stack."""
    return unbox_uint(_word(slot), value, high)


@always_inline
def unbox_bool(bits: Int, mut value: Bool) -> Int:
    """Reads a bool: the lowest byte of a word."""
    value = bits & 0xFF != 0
    return Code.OK


@always_inline
def unbox_bool(slot: Object, mut value: Bool) -> Int:
    """Reads a bool on the stack."""
    return unbox_bool(_word(slot), value)


def unbox_string(slot: Object, mut value: StaticString) -> Int:
    """Borrows a text that the stack owns."""
    var size = 0
    var data = 0
    var handle = _word(slot)
    _ = function[_Ask](Entry.STRING_LENGTH)(handle, _out(size))
    _ = function[_Ask](Entry.STRING_DATA)(handle, _out(data))
    var bytes = Pointer[Byte, ImmStaticOrigin](unsafe_from_address=data)
    value = StaticString(unsafe_from_utf8=Span(unsafe_ptr=bytes, length=size))
    return Code.OK


@always_inline
def _out(mut value: Int) -> _Out:
    return Pointer(to=value).unsafe_origin_cast[MutAnyOrigin]()
