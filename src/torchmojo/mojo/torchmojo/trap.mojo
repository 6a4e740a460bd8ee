"""Bounds checks that report instead of aborting, compiled in by `bounds=True` only."""

from std.memory import Pointer
from std.sys import is_defined

comptime CHECK_BOUNDS = is_defined["TORCHMOJO_BOUNDS"]()
"""Whether views check every index; off in release builds, where it costs nothing."""

comptime OUTSIDE = Int.MIN
"""The offset of an element that is not in the tensor."""


@fieldwise_init
struct Trap(TrivialRegisterPassable):
    """The place where the first index outside a tensor is noted.

    A kernel cannot be stopped in the middle of a plain `x[i]`, so the read gives 0, the write is
    dropped, and the call raises `BoundsError` when the kernel returns.
    """

    var address: Int
    """Address of four words in the call's frame (count, axis, index, size); 0 for none."""

    @always_inline
    def note(self, axis: Int, index: Int, size: Int):
        """Notes an index outside the tensor; the first one is kept.

        Args:
            axis: The axis counted from 0.
            index: The index that was used.
            size: The size of that axis.
        """
        if self.address == 0:
            return
        var words = Pointer[Int, MutUntrackedOrigin](unsafe_from_address=self.address)
        words[unsafe_offset=0] += 1
        if words[unsafe_offset=0] == 1:
            words[unsafe_offset=1] = axis
            words[unsafe_offset=2] = index
            words[unsafe_offset=3] = size

    @always_inline
    def scratch[T: AnyType, origin: Origin](self) -> Pointer[T, origin]:
        """Gives eight bytes of the frame that a reference outside the tensor may hit.

        Parameters:
            T: Element type, at most eight bytes.
            origin: The tensor's origin, in whose place the bytes stand.

        Returns:
            A pointer to them.

        Safety: the frame outlives the kernel; views outside a frame have no trap and need bounds.
        """
        return Pointer[T, origin](unsafe_from_address=self.address + 32)
