"""Questions about tensors with any number of axes."""

from std.math import isfinite

from torchmojo import Tensor


def count_nonfinite[
    dtype: DType, rank: Int
](x: Tensor[dtype, rank]) -> Int where dtype.is_floating_point():
    """Counts the elements that are infinite or no number.

    Parameters:
        dtype: Element type.
        rank: Number of axes.

    Args:
        x: Any tensor.

    Returns:
        How many there are.
    """
    comptime if rank == 0:
        return 0 if isfinite(x[]) else 1
    else:
        var count = 0
        for i in range(x.dim(0)):
            count += count_nonfinite(x.select(0, i))
        return count


def _rows_per_thread(length: Int) -> Int:
    """Returns how many rows of some length are worth a thread of their own."""
    return 1 + 32768 // max(1, length)
