"""The records of a list of tensors."""

from torchmojo._glue.record import Record
from torchmojo.layout import Layout
from torchmojo.list import ListView
from torchmojo.trap import Trap


struct Records(Movable):
    """Records of the tensors of one list argument; frees them when the call ends."""

    var list: List[Record]
    """One record a tensor."""
    var words: List[Int]
    """Sizes and strides of all tensors, one tensor after another."""
    var kept: Int
    """Address of the tuple that holds the tensors for the call, or 0."""
    var failed: Int
    """Index of the tensor that was refused."""

    def __init__(out self):
        """Makes an empty list."""
        self.list = []
        self.words = []
        self.kept = 0
        self.failed = -1

    def add(mut self, record: Record):
        """Adds a tensor, with copies of its sizes and strides.

        Args:
            record: A tensor that passed the checks that concern it alone.
        """
        self.list.append(record)
        for i in range(record.ndim):
            self.words.append(record.size(i))
        for i in range(record.ndim):
            self.words.append(record.stride(i))

    def settle(mut self):
        """Points the records to the copies, so that a resize by another thread does not reach the
        kernel, which reads them while it runs."""
        var at = Int(self.words.unsafe_ptr())
        for ref record in self.list:
            record.shape = at
            record.strides = at + 8 * record.ndim
            at += 16 * record.ndim

    @always_inline
    def count(self) -> Int:
        """Returns how many tensors there are.

        Returns:
            The length of the Python list.
        """
        return len(self.list)

    @always_inline
    def at(self, index: Int) -> Record:
        """Returns one record.

        Args:
            index: Less than `count()`.

        Returns:
            A copy.
        """
        return self.list[index]

    @always_inline
    def list_reader[
        dtype: DType, rank: Int, axes: StaticString, layout: Layout, origin: ImmOrigin
    ](self, trap: Int = 0) -> ListView[mut=False, False, dtype, rank, axes, layout, origin]:
        """Returns what the kernel gets for a `TensorList`; see `Record.reader`.

        Parameters:
            dtype: Element type.
            rank: Number of axes.
            axes: Names from the signature.
            layout: Layout from the signature.
            origin: A variable of the glue that outlives the kernel.

        Args:
            trap: Address of the argument's trap, or 0.

        Returns:
            Views of the caller's memory.
        """
        return {Int(self.list.unsafe_ptr()), len(self.list), Trap(trap)}

    @always_inline
    def list_writer[
        dtype: DType, rank: Int, axes: StaticString, layout: Layout, origin: MutOrigin
    ](self, trap: Int = 0) -> ListView[mut=True, True, dtype, rank, axes, layout, origin]:
        """Returns what the kernel gets for a `MutTensorList`; see `Record.writer`.

        Parameters:
            dtype: Element type.
            rank: Number of axes.
            axes: Names from the signature.
            layout: Layout from the signature.
            origin: A variable of the glue that outlives the kernel.

        Args:
            trap: Address of the argument's trap, or 0.

        Returns:
            Views of the caller's memory.
        """
        return {Int(self.list.unsafe_ptr()), len(self.list), Trap(trap)}
