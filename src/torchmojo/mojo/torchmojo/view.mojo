"""Views of memory that someone else owns: what a kernel gets for a tensor argument."""

from std.memory import Pointer
from std.sys import size_of
from std.utils import IndexList

from torchmojo.layout import Layout
from torchmojo.trap import CHECK_BOUNDS, OUTSIDE, Trap


@fieldwise_init
struct TensorView[
    mut: Bool,
    //,
    writes: Bool,
    dtype: DType,
    rank: Int,
    axes: StaticString,
    layout: Layout,
    origin: Origin[mut=mut],
](ImplicitlyCopyable, Sized):
    """A strided view of a tensor's memory; it owns nothing and copies nothing.

    Write `Tensor[dtype, rank]` or `MutTensor[dtype, rank]` in a kernel's signature, not this name.
    The view is tied to the origin of its memory, so it cannot be returned from a kernel or kept.
    Sizes and strides are 64-bit and counted in elements.

    Parameters:
        mut: Whether the origin can be written (inferred).
        writes: Whether the kernel says that it writes this argument.
        dtype: Element type.
        rank: Number of axes.
        axes: Names or fixed sizes of the axes, as in `"h w 3"`; equal names mean equal sizes.
        layout: Strides that the caller's tensor must have.
        origin: Whose memory this is.
    """

    var data: Pointer[Scalar[Self.dtype], Self.origin]
    """Address of element `[0, ..., 0]`."""
    var shape: IndexList[Self.rank]
    """Size of each axis."""
    var strides: IndexList[Self.rank]
    """Distance between neighbours on each axis, in elements."""
    var trap: Trap
    """Where an index outside the tensor is noted; empty unless bounds are checked."""

    @implicit
    @always_inline
    def __init__[
        m: Bool, w: Bool, a: StaticString, l: Layout, o: Origin[mut=m], //
    ](
        out self: TensorView[False, Self.dtype, Self.rank, "", Layout.ANY, ImmOrigin(o)],
        other: TensorView[w, Self.dtype, Self.rank, a, l, o],
    ):
        """Makes a read-only view of the same memory, so that helpers can take `Tensor[dtype, rank]`.

        Args:
            other: A view with names, a layout or write access.
        """
        self.data = other.data
        self.shape = other.shape
        self.strides = other.strides
        self.trap = other.trap

    @implicit
    @always_inline
    def __init__[
        a: StaticString, l: Layout, o: MutOrigin, //
    ](
        out self: TensorView[True, Self.dtype, Self.rank, "", Layout.ANY, o],
        other: TensorView[True, Self.dtype, Self.rank, a, l, o],
    ):
        """Makes a writable view of the same memory without names or layout.

        Args:
            other: A writable view.
        """
        self.data = other.data
        self.shape = other.shape
        self.strides = other.strides
        self.trap = other.trap

    @always_inline
    def __len__(self) -> Int:
        """Tells the size of the first axis, as `len(tensor)` does in Python.

        Returns:
            The size of axis 0.
        """
        comptime assert Self.rank > 0, "a tensor of rank 0 has no length"
        return self.shape[0]

    @always_inline
    def dim(self, axis: Int) -> Int:
        """Tells the size of an axis.

        Args:
            axis: Counted from 0.

        Returns:
            The number of indices on it.
        """
        return self.shape[axis] if self.trap.has_axis(axis, Self.rank) else 0

    @always_inline
    def stride(self, axis: Int) -> Int:
        """Tells the distance between neighbours on an axis.

        Args:
            axis: Counted from 0.

        Returns:
            Elements; an input's may be negative or 0.
        """
        return self.strides[axis] if self.trap.has_axis(axis, Self.rank) else 0

    @always_inline
    def numel(self) -> Int:
        """Counts the elements.

        Returns:
            The product of all sizes; 1 for rank 0.
        """
        var n = 1
        comptime for i in range(Self.rank):
            n *= self.shape[i]
        return n

    @always_inline
    def unsafe_ptr(self) -> Pointer[Scalar[Self.dtype], Self.origin]:
        """Gives the address of element `[0, ..., 0]`.

        Returns:
            A pointer of the view's origin.

        Safety: the pointer is good as long as the kernel runs, and only within `shape`.
        """
        return self.data

    def is_contiguous(self) -> Bool:
        """Asks whether the elements lie row-major without gaps.

        Returns:
            True also for a tensor without elements.
        """
        comptime if Self.layout == Layout.ROW_MAJOR:
            return True
        if self.numel() == 0:
            return True
        var expected = 1
        comptime for k in range(Self.rank):
            comptime axis = Self.rank - 1 - k
            if self.shape[axis] != 1:
                if self.strides[axis] != expected:
                    return False
                expected *= self.shape[axis]
        return True

    def shares_memory[
        m: Bool, w: Bool, d: DType, r: Int, a: StaticString, l: Layout, o: Origin[mut=m], //
    ](self, other: TensorView[w, d, r, a, l, o]) -> Bool:
        """Asks whether the address ranges of two views meet.

        A kernel that reads neighbours (a blur, a sort) calls it to refuse `f(x, x)`.

        Parameters:
            m: Whether the other origin can be written (inferred).
            w: Whether the other view writes (inferred).
            d: The other element type (inferred).
            r: The other rank (inferred).
            a: The other axes (inferred).
            l: The other layout (inferred).
            o: The other origin (inferred).

        Args:
            other: Any other view.

        Returns:
            False where they are apart, and where one of them has no elements.
        """
        if self.numel() == 0 or other.numel() == 0:
            return False
        var mine = self._range()
        var theirs = other._range()
        return mine[0] < theirs[1] and theirs[0] < mine[1]

    def _range(self) -> Tuple[Int, Int]:
        comptime width = size_of[Scalar[Self.dtype]]()
        var low = Int(self.data)
        var high = low + width
        comptime for i in range(Self.rank):
            var reach = (self.shape[i] - 1) * self.strides[i] * width
            if reach < 0:
                low += reach
            else:
                high += reach
        return (low, high)

    @always_inline
    def _stride[axis: Int](self) -> Int:
        """Returns a stride, as a constant where the layout fixes it."""
        comptime if Self.layout == Layout.ROW_MAJOR and axis == Self.rank - 1:
            return 1
        return self.strides[axis]

    @always_inline
    def _offset(self, index: IndexList[Self.rank], width: Int) -> Int:
        """Returns an element's offset, or `OUTSIDE` where bounds are checked and it is."""
        var offset = 0
        comptime for i in range(Self.rank):
            offset += index[i] * self._stride[i]()
            comptime if CHECK_BOUNDS:
                var reach = width if i == Self.rank - 1 else 1
                if not self.trap.has_index(i, index[i], self.shape[i], reach):
                    return OUTSIDE
        return offset

    @always_inline
    def __getitem__[*Ts: Intable](self, *index: *Ts) -> ref[Self.origin] Scalar[Self.dtype]:
        """Refers to one element: `x[i, j]` reads it, `dst[i, j] = v` writes it.

        Parameters:
            Ts: Integer types of the indices.

        Args:
            index: One index an axis, each in `0 <= i < dim(axis)`; negative ones do not wrap.

        Returns:
            A reference into the tensor's memory.
        """
        comptime assert len(Ts) == Self.rank, "give one index for each axis"
        var at = IndexList[Self.rank]()
        comptime for i in range(Self.rank):
            at[i] = Int(index[i])
        var offset = self._offset(at, 1)
        comptime if CHECK_BOUNDS:
            if offset == OUTSIDE:
                return self.trap.scratch[Scalar[Self.dtype], Self.origin]()[]
        return self.data[unsafe_offset=offset]

    @always_inline
    def load[width: Int, *Ts: Intable](self, *index: *Ts) -> SIMD[Self.dtype, width]:
        """Reads `width` neighbours along the last axis, whatever its stride.

        Parameters:
            width: Number of elements.
            Ts: Integer types of the indices.

        Args:
            index: Index of the first element; the last axis must have `width` elements from there.

        Returns:
            The elements in order.
        """
        comptime assert len(Ts) == Self.rank, "give one index for each axis"
        comptime assert Self.rank > 0, "a tensor of rank 0 has no axis to load along"
        var at = IndexList[Self.rank]()
        comptime for i in range(Self.rank):
            at[i] = Int(index[i])
        var offset = self._offset(at, width)
        comptime if CHECK_BOUNDS:
            if offset == OUTSIDE:
                return 0
        var first = self.data.unsafe_offset(offset)
        var step = self._stride[Self.rank - 1]()
        if step == 1:
            return first.unsafe_load[width=width](0)
        return first.unsafe_strided_load[width=width](step)

    @always_inline
    def store[
        width: Int, *Ts: Intable
    ](self, *index: *Ts, value: SIMD[Self.dtype, width]) where Self.writes:
        """Writes `width` neighbours along the last axis, whatever its stride.

        Parameters:
            width: Number of elements.
            Ts: Integer types of the indices.

        Args:
            index: Index of the first element; the last axis must have `width` elements from there.
            value: What to write.
        """
        comptime assert len(Ts) == Self.rank, "give one index for each axis"
        comptime assert Self.rank > 0, "a tensor of rank 0 has no axis to store along"
        var at = IndexList[Self.rank]()
        comptime for i in range(Self.rank):
            at[i] = Int(index[i])
        var offset = self._offset(at, width)
        comptime if CHECK_BOUNDS:
            if offset == OUTSIDE:
                return
        var first = self.data.unsafe_mut_cast[True]().unsafe_offset(offset)
        var step = self._stride[Self.rank - 1]()
        if step == 1:
            first.unsafe_store(0, value)
        else:
            first.unsafe_strided_store(value, step)

    @always_inline
    def select(
        self, axis: Int, index: Int
    ) -> TensorView[Self.writes, Self.dtype, Self.rank - 1, "", Layout.ANY, Self.origin]:
        """Takes the sub-view at one index of an axis, as `torch.select`.

        Args:
            axis: Counted from 0.
            index: In `0 <= index < dim(axis)`.

        Returns:
            A view of the same memory without that axis.
        """
        comptime assert Self.rank > 0, "a tensor of rank 0 has no axis to select on"
        var shape = IndexList[Self.rank - 1]()
        var strides = IndexList[Self.rank - 1]()
        comptime for i in range(Self.rank - 1):
            var source = i if i < axis else i + 1
            shape[i] = self.shape[source]
            strides[i] = self.strides[source]
        comptime if CHECK_BOUNDS:
            var inside = self.trap.has_axis(axis, Self.rank)
            if not inside or not self.trap.has_index(axis, index, self.shape[axis]):
                var stray = self.trap.scratch[Scalar[Self.dtype], Self.origin]()
                return {stray, {fill = 0}, {fill = 0}, self.trap}
        return {self.data.unsafe_offset(index * self.strides[axis]), shape, strides, self.trap}

    @always_inline
    def slice(
        self, axis: Int, start: Int, end: Int, step: Int = 1
    ) -> TensorView[Self.writes, Self.dtype, Self.rank, "", Layout.ANY, Self.origin]:
        """Takes the sub-view of every `step`-th index in `start ..< end`; ends are clamped.

        Args:
            axis: Counted from 0.
            start: First index; less than 0 means 0.
            end: One past the last index; more than the size means the size.
            step: At least 1.

        Returns:
            A view of the same memory.
        """
        comptime assert Self.rank > 0, "a tensor of rank 0 has no axis to slice"
        if not self.trap.has_axis(axis, Self.rank):
            return {self.data, {fill = 0}, {fill = 0}, self.trap}
        var low = max(0, min(start, self.shape[axis]))
        var high = max(low, min(end, self.shape[axis]))
        var stride = max(1, step)
        var shape = self.shape
        var strides = self.strides
        shape[axis] = (high - low + stride - 1) // stride
        strides[axis] = self.strides[axis] * stride
        return {self.data.unsafe_offset(low * self.strides[axis]), shape, strides, self.trap}

    @always_inline
    def transpose(
        self, first: Int, second: Int
    ) -> TensorView[Self.writes, Self.dtype, Self.rank, "", Layout.ANY, Self.origin]:
        """Exchanges two axes.

        Args:
            first: An axis counted from 0.
            second: The other axis.

        Returns:
            A view of the same memory.
        """
        var shape = self.shape
        var strides = self.strides
        if not (self.trap.has_axis(first, Self.rank) and self.trap.has_axis(second, Self.rank)):
            return {self.data, {fill = 0}, {fill = 0}, self.trap}
        shape[first] = self.shape[second]
        shape[second] = self.shape[first]
        strides[first] = self.strides[second]
        strides[second] = self.strides[first]
        return {self.data, shape, strides, self.trap}


comptime Tensor[
    dtype: DType, rank: Int, axes: StaticString = "", layout: Layout = Layout.ANY
] = TensorView[mut=False, False, dtype, rank, axes, layout, _]
"""A tensor argument that the kernel only reads.

Parameters:
    dtype: Element type, or a parameter of the kernel that is chosen at run time.
    rank: Number of axes, or a parameter of the kernel.
    axes: A name or a fixed size for each axis, as `"h w 3"`; equal names mean equal sizes.
    layout: Strides that the caller's tensor must have.
"""

comptime MutTensor[
    dtype: DType, rank: Int, axes: StaticString = "", layout: Layout = Layout.ANY
] = TensorView[mut=True, True, dtype, rank, axes, layout, _]
"""A tensor argument that the kernel writes.

Parameters:
    dtype: Element type, or a parameter of the kernel that is chosen at run time.
    rank: Number of axes, or a parameter of the kernel.
    axes: A name or a fixed size for each axis, as `"h w 3"`; equal names mean equal sizes.
    layout: Strides that the caller's tensor must have.
"""
