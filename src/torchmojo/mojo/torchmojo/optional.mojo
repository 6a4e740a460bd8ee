"""A tensor argument that may be `None`."""

from std.collections import Optional

from torchmojo.layout import Layout
from torchmojo.view import TensorView


struct OptionalView[
    mut: Bool,
    //,
    writes: Bool,
    dtype: DType,
    rank: Int,
    axes: StaticString,
    layout: Layout,
    origin: Origin[mut=mut],
](Boolable, ImplicitlyCopyable):
    """A view, or nothing where Python passed `None`.

    Mojo cannot spell `Optional[Tensor[dtype, 1]]` with an origin left open, so this type stands for
    it: write `OptionalTensor[dtype, rank]` or `OptionalMutTensor[dtype, rank]` in a signature.

    Parameters:
        mut: Whether the origin can be written (inferred).
        writes: Whether the kernel says that it writes this argument.
        dtype: Element type.
        rank: Number of axes.
        axes: Names or fixed sizes of the axes.
        layout: Strides that the caller's tensor must have.
        origin: Whose memory this is.
    """

    comptime View = TensorView[
        Self.writes, Self.dtype, Self.rank, Self.axes, Self.layout, Self.origin
    ]
    """The view that is there or not."""

    var _view: Optional[Self.View]

    @always_inline
    def __init__(out self):
        """Makes one that holds nothing."""
        self._view = None

    @always_inline
    def __init__(out self, view: Self.View):
        """Makes one that holds a view.

        Args:
            view: The view.
        """
        self._view = view

    @always_inline
    def __bool__(self) -> Bool:
        """Returns whether Python passed a tensor.

        Returns:
            False for `None`.
        """
        return Bool(self._view)

    @always_inline
    def value(self) -> Self.View:
        """Returns the view; ask `if x:` first.

        Returns:
            The view that Python passed.
        """
        return self._view.value()


comptime OptionalTensor[
    dtype: DType, rank: Int, axes: StaticString = "", layout: Layout = Layout.ANY
] = OptionalView[mut=False, False, dtype, rank, axes, layout, _]
"""A tensor argument that the kernel only reads, or `None`.

Parameters:
    dtype: Element type, or a parameter of the kernel that is chosen at run time.
    rank: Number of axes, or a parameter of the kernel.
    axes: A name or a fixed size for each axis, as `"h w 3"`; equal names mean equal sizes.
    layout: Strides that the caller's tensor must have.
"""

comptime OptionalMutTensor[
    dtype: DType, rank: Int, axes: StaticString = "", layout: Layout = Layout.ANY
] = OptionalView[mut=True, True, dtype, rank, axes, layout, _]
"""A tensor argument that the kernel writes, or `None`.

Parameters:
    dtype: Element type, or a parameter of the kernel that is chosen at run time.
    rank: Number of axes, or a parameter of the kernel.
    axes: A name or a fixed size for each axis, as `"h w 3"`; equal names mean equal sizes.
    layout: Strides that the caller's tensor must have.
"""
