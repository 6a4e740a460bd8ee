"""One borrowed tensor, as read from its owner: the input of every check."""

from std.memory import Pointer
from std.utils import IndexList

from torchmojo.layout import Layout
from torchmojo.optional import OptionalView
from torchmojo.trap import Trap
from torchmojo.view import TensorView

comptime Int64s = Pointer[Int64, MutUntrackedOrigin]


@fieldwise_init
struct Record(ImplicitlyCopyable):
    """Address, shape, strides and dtype of a borrowed tensor.

    `shape` and `strides` point into the owner; they are good while the caller holds the argument.
    It has the layout of `torchmojo.bridge.lend.lease.Record` in Python, which has one word more.
    """

    comptime USERS = 72
    """Offset of the word that counts calls which run on a lease."""

    var data: Int
    """Address of element `[0, ..., 0]`; may be 0 when there are no elements."""
    var shape: Int
    """Address of `ndim` 64-bit sizes."""
    var strides: Int
    """Address of `ndim` 64-bit strides in elements."""
    var ndim: Int
    """Number of axes."""
    var dtype: Int
    """Torch's number of the dtype."""
    var read_only: Int
    """1 where memory must not be written."""
    var low: Int
    """First byte that any index reaches."""
    var high: Int
    """One past the last byte that any index reaches; equal to `low` when there are no elements."""
    var handle: Int
    """Address of the `at::Tensor`, or 0 for memory that is not torch's."""

    def __init__(out self):
        """Makes an empty record: an argument that was not given."""
        self = Self(0, 0, 0, 0, -1, 0, 0, 0, 0)

    @always_inline
    def given(self) -> Bool:
        """Returns whether an optional argument was given."""
        return self.dtype >= 0

    @always_inline
    def size(self, axis: Int) -> Int:
        """Returns the size of an axis.

        Args:
            axis: Counted from 0.
        """
        return Int(Int64s(unsafe_from_address=self.shape)[unsafe_offset=axis])

    @always_inline
    def stride(self, axis: Int) -> Int:
        """Returns the stride of an axis in elements.

        Args:
            axis: Counted from 0.
        """
        return Int(Int64s(unsafe_from_address=self.strides)[unsafe_offset=axis])

    @always_inline
    def reader[
        dtype: DType, rank: Int, axes: StaticString, layout: Layout, origin: ImmOrigin
    ](self, trap: Int = 0) -> TensorView[mut=False, False, dtype, rank, axes, layout, origin]:
        """Returns the view that the kernel gets for a `Tensor`; dtype and rank have been checked.

        Parameters:
            dtype: Element type.
            rank: Number of axes.
            axes: Names from the signature.
            layout: Layout from the signature.
            origin: A variable of the glue that outlives the kernel.

        Args:
            trap: Address of the argument's trap, or 0.

        Returns:
            A view of the caller's memory.

        Safety: the caller of the glue holds the tensor until the kernel has returned.
        """
        var data = Pointer[Scalar[dtype], origin](unsafe_from_address=self.address())
        return {data, self.sizes[rank](), self.all_strides[rank](), Trap(trap)}

    @always_inline
    def writer[
        dtype: DType, rank: Int, axes: StaticString, layout: Layout, origin: MutOrigin
    ](self, trap: Int = 0) -> TensorView[mut=True, True, dtype, rank, axes, layout, origin]:
        """Returns the view that the kernel gets for a `MutTensor`; see `reader`.

        Parameters:
            dtype: Element type.
            rank: Number of axes.
            axes: Names from the signature.
            layout: Layout from the signature.
            origin: A variable of the glue that outlives the kernel.

        Args:
            trap: Address of the argument's trap, or 0.

        Returns:
            A view of the caller's memory.

        Safety: the caller of the glue holds the tensor until the kernel has returned.
        """
        var data = Pointer[Scalar[dtype], origin](unsafe_from_address=self.address())
        return {data, self.sizes[rank](), self.all_strides[rank](), Trap(trap)}

    @always_inline
    def optional_reader[
        dtype: DType, rank: Int, axes: StaticString, layout: Layout, origin: ImmOrigin
    ](self, trap: Int = 0) -> OptionalView[mut=False, False, dtype, rank, axes, layout, origin]:
        """Returns what the kernel gets for an `OptionalTensor`; see `reader`.

        Parameters:
            dtype: Element type.
            rank: Number of axes.
            axes: Names from the signature.
            layout: Layout from the signature.
            origin: A variable of the glue that outlives the kernel.

        Args:
            trap: Address of the argument's trap, or 0.

        Returns:
            A view, or nothing where the argument was not given.
        """
        if not self.given():
            return {}
        return {self.reader[dtype, rank, axes, layout, origin](trap)}

    @always_inline
    def optional_writer[
        dtype: DType, rank: Int, axes: StaticString, layout: Layout, origin: MutOrigin
    ](self, trap: Int = 0) -> OptionalView[mut=True, True, dtype, rank, axes, layout, origin]:
        """Returns what the kernel gets for an `OptionalMutTensor`; see `reader`.

        Parameters:
            dtype: Element type.
            rank: Number of axes.
            axes: Names from the signature.
            layout: Layout from the signature.
            origin: A variable of the glue that outlives the kernel.

        Args:
            trap: Address of the argument's trap, or 0.

        Returns:
            A view, or nothing where the argument was not given.
        """
        if not self.given():
            return {}
        return {self.writer[dtype, rank, axes, layout, origin](trap)}

    @always_inline
    def address(self) -> Int:
        """Returns the address of the first element, or of nothing where there is none.

        Returns:
            Never 0, which no pointer may be: a tensor without elements may have no memory.
        """
        return self.data if self.data != 0 else 64

    @always_inline
    def sizes[rank: Int](self) -> IndexList[rank]:
        """Returns all sizes.

        Parameters:
            rank: Number of axes, which has been checked.

        Returns:
            A copy, so that a resize by another thread does not reach the kernel.
        """
        var sizes = IndexList[rank]()
        comptime for i in range(rank):
            sizes[i] = self.size(i)
        return sizes

    @always_inline
    def all_strides[rank: Int](self) -> IndexList[rank]:
        """Returns all strides in elements.

        Parameters:
            rank: Number of axes, which has been checked.

        Returns:
            A copy.
        """
        var strides = IndexList[rank]()
        comptime for i in range(rank):
            strides[i] = self.stride(i)
        return strides
