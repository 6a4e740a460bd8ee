"""An argument that is a list or tuple of tensors."""

from std.memory import Pointer

from torchmojo._glue.record import Record
from torchmojo.layout import Layout
from torchmojo.trap import CHECK_BOUNDS, NO_AXIS, Trap
from torchmojo.view import TensorView


@fieldwise_init
struct ListView[
    mut: Bool,
    //,
    writes: Bool,
    dtype: DType,
    rank: Int,
    axes: StaticString,
    layout: Layout,
    origin: Origin[mut=mut],
](ImplicitlyCopyable, Sized):
    """Views of the tensors in a Python list or tuple; nothing is copied.

    Write `TensorList[dtype, rank]` or `MutTensorList[dtype, rank]` in a signature. All tensors of
    one list have the same dtype and rank; sizes may differ unless `axes` names them.

    Parameters:
        mut: Whether the origin can be written (inferred).
        writes: Whether the kernel says that it writes these tensors.
        dtype: Element type.
        rank: Number of axes.
        axes: Names or fixed sizes of the axes.
        layout: Strides that the caller's tensors must have.
        origin: Whose memory this is.
    """

    comptime View = TensorView[
        Self.writes, Self.dtype, Self.rank, Self.axes, Self.layout, Self.origin
    ]
    """The view of one tensor."""

    var _records: Int
    var _count: Int
    var _trap: Trap

    @always_inline
    def __len__(self) -> Int:
        """Returns how many tensors there are.

        Returns:
            The length of the Python list.
        """
        return self._count

    @always_inline
    def __getitem__(self, index: Int) -> Self.View:
        """Returns the view of one tensor.

        Args:
            index: In `0 <= index < len(list)`; outside it the view has size 0 on each axis.

        Returns:
            A view that lives as long as the call.
        """
        comptime nowhere = Pointer[Scalar[Self.dtype], Self.origin](unsafe_from_address=64)
        comptime if CHECK_BOUNDS:
            if not self._trap.has_index(NO_AXIS, index, self._count):
                var stray = self._trap.scratch[Scalar[Self.dtype], Self.origin]()
                return {stray, {fill = 0}, {fill = 0}, self._trap}
        if index < 0 or index >= self._count:
            return {nowhere, {fill = 0}, {fill = 0}, self._trap}
        ref record = Pointer[Record, ImmUntrackedOrigin](unsafe_from_address=self._records)[
            unsafe_offset=index
        ]
        return {
            Pointer[Scalar[Self.dtype], Self.origin](unsafe_from_address=record.address()),
            record.sizes[Self.rank](),
            record.all_strides[Self.rank](),
            self._trap,
        }


comptime TensorList[
    dtype: DType, rank: Int, axes: StaticString = "", layout: Layout = Layout.ANY
] = ListView[mut=False, False, dtype, rank, axes, layout, _]
"""A list of tensors that the kernel only reads.

Parameters:
    dtype: Element type, or a parameter of the kernel that is chosen at run time.
    rank: Number of axes, or a parameter of the kernel.
    axes: A name or a fixed size for each axis, as `"h w 3"`; equal names mean equal sizes.
    layout: Strides that the caller's tensor must have.
"""

comptime MutTensorList[
    dtype: DType, rank: Int, axes: StaticString = "", layout: Layout = Layout.ANY
] = ListView[mut=True, True, dtype, rank, axes, layout, _]
"""A list of tensors that the kernel writes.

Parameters:
    dtype: Element type, or a parameter of the kernel that is chosen at run time.
    rank: Number of axes, or a parameter of the kernel.
    axes: A name or a fixed size for each axis, as `"h w 3"`; equal names mean equal sizes.
    layout: Strides that the caller's tensor must have.
"""
