"""Exports the C function that converts dtypes."""

from torchmojo_core.cast.strided import can_cast, cast_strided
from torchmojo_core.copy.plan import MAX_NDIM, Plan


@export("torchmojo_cast")
def cast(
    dst: Int,
    src: Int,
    ndim: Int,
    sizes: Int,
    dst_steps: Int,
    src_steps: Int,
    dst_dtype: Int,
    src_dtype: Int,
    bad: Int,
) abi("C") -> Int32:
    """Converts a strided tensor into another of the same sizes; called without the GIL.

    Runs on torch's threads. Values are those of torch's `.to`, but an integer that does not fit
    ends the conversion. Needs no alignment, neither of addresses nor of steps.

    Args:
        dst: Address of the output's first element; no two indices share memory, and none with the
            input.
        src: Address of the input's first element.
        ndim: Number of axes.
        sizes: Address of the sizes; with a 0 among them nothing is read or written.
        dst_steps: Address of the output's steps in bytes; any numbers.
        src_steps: Address of the input's steps in bytes; any numbers, 0 repeats.
        dst_dtype: The output's dtype by torch's number.
        src_dtype: The input's dtype by torch's number.
        bad: Address of 64 bits, for the first integer that does not fit; of uint64, its bits.

    Returns:
        0; 1 for dtypes or a number of axes that there is no code for, float to integer among it:
        nothing is written; 2 for an integer that does not fit: a part of the output is written.
    """
    if ndim < 0 or ndim > MAX_NDIM or not can_cast(dst_dtype, src_dtype):
        return 1
    var plan = Plan(dst, src, ndim, sizes, dst_steps, src_steps)
    return 0 if cast_strided(plan, dst_dtype, src_dtype, bad) else 2
