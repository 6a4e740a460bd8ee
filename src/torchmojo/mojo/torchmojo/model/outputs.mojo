"""What a model returned: tensors of torch's that this process owns."""

from std.memory import Pointer
from std.utils import IndexList

from torchmojo.layout import Layout
from torchmojo.model.runtime import Torch
from torchmojo.owned import _torch_dtype
from torchmojo.trap import Trap
from torchmojo.view import TensorView


struct Outputs(Movable, Sized):
    """The tensors that one call returned; freed exactly once, when this value ends."""

    var _torch: Torch
    var _handles: List[Int]

    def __init__(out self, torch: Torch, var handles: List[Int]):
        """Takes over handles.

        Args:
            torch: Functions of libtorch.
            handles: Tensors that nobody else deletes.
        """
        self._torch = torch.copy()
        self._handles = handles^

    def __init__(out self, *, deinit move: Self):
        """Takes over from another owner.

        Args:
            move: The former owner, which is gone.
        """
        self._torch = move._torch.copy()
        self._handles = move._handles^

    def __deinit__(deinit self):
        """Frees the tensors."""
        for handle in self._handles:
            if handle != 0:
                self._torch.drop(handle)

    def __len__(self) -> Int:
        """Counts the tensors.

        Returns:
            Their number.
        """
        return len(self._handles)

    def rank(self, index: Int) raises -> Int:
        """Counts the axes of one.

        Args:
            index: Its place, from 0.

        Returns:
            The number of axes.

        Raises:
            Error: There is no such tensor.
        """
        return self._torch.rank(self._at(index))

    def dim(self, index: Int, axis: Int) raises -> Int:
        """Tells a size of one.

        Args:
            index: Its place, from 0.
            axis: Counted from 0.

        Returns:
            The size of the axis.

        Raises:
            Error: There is no such tensor or axis.
        """
        var handle = self._at(index)
        if axis < 0 or axis >= self._torch.rank(handle):
            raise Error(t"Outputs: wanted an axis of {self._torch.rank(handle)}, given {axis}")
        return self._torch.size(handle, axis)

    def tensor[
        dtype: DType, rank: Int
    ](self, index: Int) raises -> TensorView[False, dtype, rank, "", Layout.ANY, origin_of(self)]:
        """Lends a tensor for reading; the view cannot outlive this value.

        Parameters:
            dtype: Its element type.
            rank: Its number of axes.

        Args:
            index: Its place, from 0.

        Returns:
            A view of torch's memory; nothing is copied.

        Raises:
            Error: There is no such tensor, or its dtype or rank is another.
        """
        var handle = self._at(index)
        var data = self.tensor_data[dtype](index)
        if self._torch.rank(handle) != rank:
            raise Error(t"Outputs: {index}: wanted {rank} axes, given {self._torch.rank(handle)}")
        var shape = IndexList[rank]()
        var strides = IndexList[rank]()
        comptime for axis in range(rank):
            shape[axis] = self._torch.size(handle, axis)
            strides[axis] = self._torch.stride(handle, axis)
        return {data, shape, strides, Trap(0)}

    def tensor_data[
        dtype: DType
    ](self, index: Int) raises -> Pointer[Scalar[dtype], origin_of(self)]:
        """Lends the address of a tensor's first element.

        Parameters:
            dtype: Its element type.

        Args:
            index: Its place, from 0.

        Returns:
            A pointer of this value's origin.

        Raises:
            Error: There is no such tensor, or its dtype is another.

        Safety: the pointer is good within the tensor's memory, which has no gaps where it came from
            torch's compiler.
        """
        var handle = self._at(index)
        var given = self._torch.dtype(handle)
        if given != _torch_dtype(dtype):
            raise Error(
                t"Outputs: {index}: wanted {dtype}, given a tensor of torch's dtype {given}"
            )
        # A tensor without elements has no memory; nothing of it is ever read.
        var address = self._torch.data(handle)
        return Pointer[Scalar[dtype], origin_of(self)](
            unsafe_from_address=address if address != 0 else 64
        )

    def _at(self, index: Int) raises -> Int:
        if index < 0 or index >= len(self._handles):
            raise Error(t"Outputs: wanted one of {len(self._handles)} tensors, given {index}")
        return self._handles[index]
