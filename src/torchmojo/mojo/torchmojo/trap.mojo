"""Bounds checks that report instead of aborting, compiled in by `bounds=True` only."""

from std.atomic import Atomic
from std.memory import Pointer
from std.sys import is_defined

comptime CHECK_BOUNDS = is_defined["TORCHMOJO_BOUNDS"]()
"""Whether views check every index; off in release builds, where it costs nothing."""

comptime OUTSIDE = Int.MIN
"""The offset of an element that is not in the tensor."""

comptime NO_AXIS = -1
"""Stands for the axis where a list of tensors has no such tensor."""
comptime BAD_AXIS = -2
"""Stands for the axis where a tensor has no such axis."""


@fieldwise_init
struct Trap(TrivialRegisterPassable):
    """The place where the first index outside a tensor is noted, by whichever thread.

    A kernel cannot be stopped in the middle of a plain `x[i]`, so the read gives 0, the write is
    dropped, and the call raises `BoundsError` when the kernel returns.
    """

    var address: Int
    """Address of four words in the call's frame (count, axis, index, size); 0 for none."""

    @always_inline
    def has_axis(self, axis: Int, rank: Int) -> Bool:
        """Checks the number of an axis.

        Args:
            axis: The axis that was asked for.
            rank: How many there are.

        Returns:
            Whether there is such an axis; always true where bounds are not checked.
        """
        comptime if CHECK_BOUNDS:
            if axis < 0 or axis >= rank:
                self.note(BAD_AXIS, axis, rank)
                return False
        return True

    @always_inline
    def has_index(self, axis: Int, index: Int, size: Int, width: Int = 1) -> Bool:
        """Checks an index, and the ones after it that are used with it.

        Args:
            axis: The axis counted from 0, or `NO_AXIS`.
            index: The first index that is used.
            size: The size of that axis.
            width: How many indices are used from there.

        Returns:
            Whether all are inside; always true where bounds are not checked.
        """
        comptime if CHECK_BOUNDS:
            if index < 0 or index > size - width:
                # The end of a range that begins inside, else its begin: no sum that could wrap.
                var more = width - 1 if 0 <= index and index < size else 0
                self.note(axis, index + more, size)
                return False
        return True

    def note(self, axis: Int, index: Int, size: Int):
        """Notes an index outside the tensor; the first one is kept.

        Args:
            axis: The axis counted from 0, `NO_AXIS` or `BAD_AXIS`.
            index: The index that was used.
            size: The size of that axis.
        """
        if self.address == 0:
            return
        var words = Pointer[Int64, MutUntrackedOrigin](unsafe_from_address=self.address)
        # Atomic: in a parallel loop exactly one thread is the first, and tells all three facts.
        if Atomic[Int64].fetch_add(words, Int64(1)) == 0:
            words[unsafe_offset=1] = Int64(axis)
            words[unsafe_offset=2] = Int64(index)
            words[unsafe_offset=3] = Int64(size)

    @always_inline
    def scratch[T: AnyType, origin: Origin](self) -> Pointer[T, origin]:
        """Gives eight bytes of zeros that a reference outside the tensor may hit.

        Parameters:
            T: Element type, at most eight bytes.
            origin: The tensor's origin, in whose place the bytes stand.

        Returns:
            A pointer to them.

        Safety: the frame outlives the kernel; views outside a frame have no trap and need bounds.
        """
        Pointer[Int64, MutUntrackedOrigin](unsafe_from_address=self.address + 32)[] = 0
        return Pointer[T, origin](unsafe_from_address=self.address + 32)
