"""The traps of one call, where bounds are checked; nothing at all where they are not."""

from std.ffi import external_call

from torchmojo._glue.python import word
from torchmojo.trap import CHECK_BOUNDS

# Count, axis, index, size, and eight bytes that a stray reference may hit.
comptime _WORDS = 5


@always_inline
def new_traps(count: Int) -> Int:
    """Returns the address of zeroed traps, 0 where bounds are not checked.

    Args:
        count: Number of arguments.

    Returns:
        Memory that `free_traps` frees.
    """
    comptime if CHECK_BOUNDS:
        return external_call["calloc", Int](count * _WORDS, Int(8))
    return 0


@always_inline
def trap(traps: Int, index: Int) -> Int:
    """Returns the address of one argument's trap.

    Args:
        traps: All of them, or 0.
        index: Number of the argument.

    Returns:
        0 where bounds are not checked.
    """
    comptime if CHECK_BOUNDS:
        return traps + index * _WORDS * 8 if traps != 0 else 0
    return 0


def sprung(traps: Int, count: Int) -> Int:
    """Returns the number of the first argument that was used outside its bounds.

    Args:
        traps: All traps, or 0.
        count: Number of arguments.

    Returns:
        -1 for none.
    """
    if traps != 0:
        for i in range(count):
            if word(trap(traps, i), 0) != 0:
                return i
    return -1


def describe(traps: Int, index: Int) -> String:
    """Says what happened to a trap.

    Args:
        traps: All traps.
        index: A sprung one.

    Returns:
        Axis, index and size, and how often.
    """
    var at = trap(traps, index)
    return String(t"{word(at, 8)} {word(at, 16)} {word(at, 24)} {word(at, 0)}")


@always_inline
def free_traps(traps: Int):
    """Frees the traps of a call.

    Args:
        traps: All traps, or 0.
    """
    comptime if CHECK_BOUNDS:
        external_call["free", NoneType](traps)
