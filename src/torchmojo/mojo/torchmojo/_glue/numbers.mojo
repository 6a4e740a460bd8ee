"""A short row of numbers on the stack, indexed at run time."""


struct Numbers[size: Int](Copyable):
    """Like `Array`, without the bounds checks that pull in Mojo's run-time library.

    Not a `StaticTuple`: that is a value in registers, and an index at run time makes the compiler
    write code for every one of its elements.

    Parameters:
        size: How many numbers.
    """

    var _words: Array[Int, Self.size]

    @always_inline
    def __init__(out self, *, fill: Int):
        """Makes a row of equal numbers.

        Args:
            fill: The number.
        """
        self._words = Array[Int, Self.size](fill=fill)

    @always_inline
    def __getitem__(self, index: Int) -> Int:
        """Reads a number.

        Args:
            index: In `0 <= index < size`.

        Returns:
            The number.
        """
        return self._words.unsafe_ptr()[unsafe_offset=index]

    @always_inline
    def __setitem__(mut self, index: Int, value: Int):
        """Writes a number.

        Args:
            index: In `0 <= index < size`.
            value: The number.
        """
        self._words.unsafe_ptr()[unsafe_offset=index] = value

    @always_inline
    def pointer(mut self) -> Pointer[Int, MutAnyOrigin]:
        """Lends the row to a C function.

        Returns:
            A pointer that is good while the row is alive.
        """
        return self._words.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
