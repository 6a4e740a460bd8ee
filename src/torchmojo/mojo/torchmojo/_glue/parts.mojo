"""Complex tensors: Mojo has no complex dtypes, so their parts become a last axis of two floats."""

from std.ffi import external_call

from torchmojo._glue.code import Code
from torchmojo._glue.python import Words
from torchmojo._glue.record import Record

# Torch's numbers of complex32, complex64, complex128 and of their parts.
comptime _FIRST = 8
comptime _LAST = 10
comptime _PARTS = 5 - _FIRST


@always_inline
def is_complex(dtype: Int) -> Bool:
    """Asks whether a dtype is complex.

    Args:
        dtype: Torch's number.

    Returns:
        True for complex32, complex64 and complex128.
    """
    return dtype >= _FIRST and dtype <= _LAST


@no_inline
def split_complex(mut record: Record, mut blocks: Int) -> Int:
    """Describes complex memory as floats with one more axis, as `torch.view_as_real`.

    Args:
        record: Changed where it is complex; left alone where it is not.
        blocks: The call's list of blocks, which owns the new sizes and strides.

    Returns:
        `Code.OK`, or `Code.NO_DATA` where there is no memory left for a few words.
    """
    if not is_complex(record.dtype):
        return Code.OK
    var count = record.ndim + 1
    # A block without an export: the next block, then 0 for the exporter, see `buffer.mojo`.
    var block = external_call["calloc", Int](2 * count + 3, Int(8))
    if block == 0:
        return Code.NO_DATA
    var words = Words(unsafe_from_address=block)
    words[unsafe_offset=0] = blocks
    blocks = block
    for i in range(record.ndim):
        words[unsafe_offset=3 + i] = record.size(i)
        words[unsafe_offset=3 + count + i] = record.stride(i) * 2
    words[unsafe_offset=3 + record.ndim] = 2
    words[unsafe_offset=3 + count + record.ndim] = 1
    record.shape = block + 24
    record.strides = block + 24 + 8 * count
    record.ndim = count
    record.dtype += _PARTS
    return Code.OK
