"""Exports the C functions that copy and lend memory."""

from torchmojo_core.copy.change import Change
from torchmojo_core.copy.strided import copy_strided
from torchmojo_core.lend import lend_memory
from torchmojo_core.copy.plan import MAX_NDIM, Plan


@export("torchmojo_copy")
def copy(
    dst: Int,
    src: Int,
    ndim: Int,
    sizes: Int,
    dst_steps: Int,
    src_steps: Int,
    width: Int,
    change: Int,
    mask: Int,
    mask_lo: Int,
) abi("C") -> Int32:
    """Copies a strided tensor into another of the same sizes; called without the GIL.

    Runs on torch's threads. Needs no alignment, neither of addresses nor of steps.

    Args:
        dst: Address of the output's first element; no two indices share memory, and none with the
            input.
        src: Address of the input's first element.
        ndim: Number of axes.
        sizes: Address of the sizes; with a 0 among them nothing is read or written.
        dst_steps: Address of the output's steps in bytes; any numbers.
        src_steps: Address of the input's steps in bytes; any numbers, 0 repeats.
        width: Bytes of an element: 1, 2, 4, 8 or 16.
        change: The kind of a `Change`.
        mask: Bits to flip; of 16 bytes, those of the high word.
        mask_lo: Bits to flip in the low word of 16 bytes.

    Returns:
        0, or 1 for a width, change or number of axes that there is no code for; then nothing is
        written.
    """
    return copy_on(0, dst, src, ndim, sizes, dst_steps, src_steps, width, change, mask, mask_lo)


@export("torchmojo_copy_on")
def copy_on(
    parallel_for: Int,
    dst: Int,
    src: Int,
    ndim: Int,
    sizes: Int,
    dst_steps: Int,
    src_steps: Int,
    width: Int,
    change: Int,
    mask: Int,
    mask_lo: Int,
) abi("C") -> Int32:
    """Copies as `torchmojo_copy` does, for a caller that knows torch's function.

    Args:
        parallel_for: Address of `torch_parallel_for` of libtorch; 0 to look it up.
        dst: As in `torchmojo_copy`, like the others.
        src: The input.
        ndim: Number of axes.
        sizes: The sizes.
        dst_steps: The output's steps.
        src_steps: The input's steps.
        width: Bytes of an element.
        change: The kind of a `Change`.
        mask: Bits to flip.
        mask_lo: Bits to flip in the low word.

    Returns:
        As `torchmojo_copy`.
    """
    var what = Change(change, width, UInt64(mask), UInt64(mask_lo))
    if ndim < 0 or ndim > MAX_NDIM or not what.exists():
        return 1
    copy_strided(Plan(dst, src, ndim, sizes, dst_steps, src_steps), what, parallel_for)
    return 0


@export("torchmojo_lend")
def lend(
    owner: Int,
    data: Int,
    ndim: Int,
    sizes: Int,
    strides: Int,
    dtype: Int,
    flags: Int,
    versioned: Int,
    table: Int,
) abi("C") -> Int:
    """Makes a DLPack capsule over memory that a Python object lends; called with the GIL.

    Args:
        owner: Address of the object. A reference is taken; the deleter drops it.
        data: Address of the first element.
        ndim: Number of axes.
        sizes: Address of the sizes, which are copied.
        strides: Address of the strides in elements, which are copied.
        dtype: DLPack's `code | bits << 8 | lanes << 16`.
        flags: DLPack's flags; the legacy form has none.
        versioned: 1 for DLPack 1.0, 0 for the legacy form.
        table: Address of the words that `torchmojo_core.lend` describes, which are never freed.

    Returns:
        A new capsule, or NULL with an exception set.
    """
    return lend_memory(owner, data, ndim, sizes, strides, dtype, flags, versioned != 0, table)
