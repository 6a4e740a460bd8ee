"""Elements as bits at addresses that need no alignment."""

from std.memory import Pointer


@always_inline
def load[dtype: DType, n: Int = 1](address: Int) -> SIMD[dtype, n]:
    """Reads elements that lie side by side.

    Parameters:
        dtype: Type of an element.
        n: How many.

    Args:
        address: Where the first one is; any number.

    Returns:
        The elements.
    """
    return Pointer[Scalar[dtype], ImmUntrackedOrigin](unsafe_from_address=address).unsafe_load[
        width=n, alignment=1
    ]()


@always_inline
def store[dtype: DType, n: SIMDLength, //](address: Int, value: SIMD[dtype, n]):
    """Writes elements side by side.

    Parameters:
        dtype: Type of an element (inferred).
        n: How many (inferred).

    Args:
        address: Where the first one goes; any number.
        value: The elements.
    """
    Pointer[Scalar[dtype], MutUntrackedOrigin](unsafe_from_address=address).unsafe_store[
        alignment=1
    ](0, value)
