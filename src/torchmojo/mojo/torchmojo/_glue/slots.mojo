"""The arguments of a call in the order of the signature."""

from std.memory import Pointer
from std.utils import StaticTuple

from torchmojo._glue.python import Object


struct Slots[size: Int]:
    """A C array of borrowed objects on the stack, without the bounds checks of `Array`.

    Indices come from generated code, and a check would pull Mojo's run-time library into kernels
    that otherwise need none.

    Parameters:
        size: Number of arguments.
    """

    var _words: StaticTuple[Int, Self.size]

    @always_inline
    def __init__(out self):
        """Makes slots that hold NULL."""
        self._words = StaticTuple[Int, Self.size](fill=0)

    @always_inline
    def __getitem__(self, index: Int) -> Object:
        """Returns an argument.

        Args:
            index: Less than `size`.

        Returns:
            A borrowed object, or NULL where the default is to be used.
        """
        var value = self._words[index]
        return Pointer(to=value).unsafe_bitcast[Object]()[]

    @always_inline
    def __setitem__(mut self, index: Int, value: Object):
        """Puts an argument in its place.

        Args:
            index: Less than `size`.
            value: A borrowed object.
        """
        self._words[index] = Int(value.value()) if value else 0
