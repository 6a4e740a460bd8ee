"""Takes channels apart and puts them together: elements two, three or four apart.

Pixels, complex numbers, corners of boxes. Whole vectors are read and shuffled; nothing outside the
first and the last element of a row is touched.
"""

from std.sys import size_of
from std.utils import IndexList

from torchmojo_core.copy.bits import load, store

# Short vectors, though longer ones need fewer instructions: rows that come from beyond the caches
# are read faster (measured), and shuffles of many narrow elements take the compiler long.
comptime _BYTES = 16

comptime group_of[dtype: DType] = _BYTES // size_of[Scalar[dtype]]()
"""Elements of a channel that are read at a time, and thus the fewest that a row must have.

Parameters:
    dtype: An unsigned integer as wide as an element.
"""


def _picks[n: Int, k: Int, first: Int]() -> IndexList[4 * n]:
    """Says where elements `first`, `first + k`, ... of `k * n` are in what `_pick` reads."""
    var places = IndexList[4 * n](0)
    for i in range(n):
        var element = first + i * k
        places[i] = element if element < 2 * n else element - (k - 4) * n
    return places


@always_inline
def _pick[dtype: DType, n: Int, k: Int, first: Int](src: Int) -> SIMD[dtype, n]:
    """Reads `k * n` elements and returns every `k`-th of them, from `first` on."""
    comptime width = size_of[Scalar[dtype]]()
    # Two overlapping halves: there are no vectors of three.
    var both = load[dtype, 2 * n](src).join(load[dtype, 2 * n](src + (k - 2) * n * width))
    return both.shuffle[_picks[n, k, first]()]().slice[n]()


@always_inline
def pick_channel[dtype: DType, k: Int](dst: Int, src: Int, count: Int):
    """Copies every `k`-th element, side by side.

    Parameters:
        dtype: An unsigned integer as wide as an element.
        k: 2, 3 or 4.

    Args:
        dst: Where the first one goes.
        src: Where the first one is.
        count: How many, more than `group_of[dtype]`.
    """
    comptime width = size_of[Scalar[dtype]]()
    comptime n = group_of[dtype]
    var i = 0
    # Reads up to the element before the next one that is wanted.
    while i + n < count:
        store(dst + i * width, _pick[dtype, n, k, 0](src + i * k * width))
        i += n
    # The last ones, and some again, by a read that ends with the last one.
    i = count - n
    store(dst + i * width, _pick[dtype, n, k, k - 1](src + (i * k - (k - 1)) * width))


def _weaves[n: Int, k: Int, part: Int]() -> IndexList[4 * n]:
    """Says which elements of `k` vectors side by side make vector `part` of the result."""
    var places = IndexList[4 * n](0)
    for i in range(n):
        var element = part * n + i
        places[i] = element % k * n + element // k
    return places


@always_inline
def weave_channels[dtype: DType, k: Int](dst: Int, src: Int, count: Int, channel: Int):
    """Copies `k` channels into pixels side by side.

    Parameters:
        dtype: An unsigned integer as wide as an element.
        k: 2, 3 or 4.

    Args:
        dst: Where the first pixel goes.
        src: Where the first element of the first channel is.
        count: How many pixels, at least `group_of[dtype]`.
        channel: Step between the channels in bytes.
    """
    comptime width = size_of[Scalar[dtype]]()
    comptime n = group_of[dtype]
    var i = 0
    while i < count:
        i = min(i, count - n)  # the last ones, and some again
        var s = src + i * width
        var a = load[dtype, n](s).join(load[dtype, n](s + channel))
        var b = a
        comptime if k > 2:
            b = load[dtype, n](s + 2 * channel).join(load[dtype, n](s + (k - 1) * channel))
        var all = a.join(b)
        comptime for part in range(k):
            store(
                dst + (i * k + part * n) * width,
                all.shuffle[_weaves[n, k, part]()]().slice[n](),
            )
        i += n
