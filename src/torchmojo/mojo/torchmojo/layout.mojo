"""What a kernel asks of the strides of a tensor argument."""


@fieldwise_init
struct Layout(Equatable, TrivialRegisterPassable, Writable):
    """The memory layouts that a signature can ask for.

    The caller's tensor is checked against it before the kernel runs, so the kernel may rely on it.
    """

    var code: Int
    """The number that stands for the layout in the contract."""

    comptime ANY = Self(0)
    """Any strides: transposed, sliced, expanded (inputs) and negative ones."""
    comptime ROW_MAJOR = Self(1)
    """Contiguous with the last axis fastest, as `torch.contiguous_format`."""
    comptime CHANNELS_LAST = Self(2)
    """Axes `[n, c, h, w]` or `[n, c, d, h, w]` stored with `c` fastest, as `torch.channels_last`."""
