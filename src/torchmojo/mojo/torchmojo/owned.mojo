"""Memory that a kernel makes: owned by one value at a time, freed exactly once."""

from std.ffi import external_call
from std.memory import Pointer
from std.sys import size_of
from std.utils import IndexList

from torchmojo._managed import UnsafeTensorHandle, managed_from_memory
from torchmojo.layout import Layout
from torchmojo.trap import Trap
from torchmojo.view import TensorView

comptime ALIGNMENT = 64
"""Bytes to which the memory is aligned: a cache line, and the widest vector."""


@explicit_destroy("end it by release(), into_dlpack(), into_handle() or by returning it")
struct OwnedTensor[dtype: DType, rank: Int](not Deinitable, Movable):
    """A row-major tensor that owns its memory.

    It is linear: the compiler refuses a copy, a use after it was moved or ended, and a function that
    forgets it. A kernel that returns one hands it to Python as a torch tensor (a NumPy array where
    torch is not imported) with no copy; whoever lets go last frees the memory.

    Parameters:
        dtype: Element type.
        rank: Number of axes.
    """

    var _data: Int
    var _shape: IndexList[Self.rank]

    def __init__(out self, shape: IndexList[Self.rank]) raises:
        """Allocates memory, 64-byte aligned and not initialised.

        Args:
            shape: Sizes, each 0 or more.

        Raises:
            Error: A size is negative, the bytes do not fit 63 bits, or there is no memory.
        """
        var count = Int128(size_of[Scalar[Self.dtype]]())
        comptime for i in range(Self.rank):
            if shape[i] < 0:
                raise Error(t"OwnedTensor: wanted sizes of 0 or more, given {shape[i]} on axis {i}")
            count *= Int128(shape[i])
            if count > Int128(Int64.MAX - ALIGNMENT):
                raise Error("OwnedTensor: wanted fewer than 2^63 bytes")
        var bytes = max((Int(count) + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT, ALIGNMENT)
        var data = external_call["aligned_alloc", Int](ALIGNMENT, bytes)
        if data == 0:
            raise Error(t"OwnedTensor: no memory for {bytes} bytes")
        self._data = data
        self._shape = shape

    def __init__(out self, *, deinit move: Self):
        """Takes over another owner's memory.

        Args:
            move: The former owner, which is gone.
        """
        self._data = move._data
        self._shape = move._shape

    @always_inline
    def dim(self, axis: Int) -> Int:
        """Tells the size of an axis.

        Args:
            axis: Counted from 0.

        Returns:
            The number of indices on it.
        """
        return self._shape[axis]

    @always_inline
    def view(
        mut self,
    ) -> TensorView[mut=True, True, Self.dtype, Self.rank, "", Layout.ROW_MAJOR, origin_of(self)]:
        """Lends the memory for reading and writing; the view cannot outlive the owner.

        Returns:
            A view whose origin is this owner: a use after `release` or a move does not compile.
        """
        var strides = IndexList[Self.rank]()
        var step = 1
        comptime for k in range(Self.rank):
            comptime axis = Self.rank - 1 - k
            strides[axis] = step
            step *= self._shape[axis]
        var data = Pointer[Scalar[Self.dtype], origin_of(self)](unsafe_from_address=self._data)
        return {data, self._shape, strides, Trap(0)}

    def release(deinit self):
        """Frees the memory."""
        external_call["free", NoneType](self._data)

    def into_handle(deinit self) -> UnsafeTensorHandle:
        """Gives up ownership to a handle that may cross threads or C.

        Returns:
            The new owner, a DLPack managed tensor.
        """
        var code = 2
        comptime if Self.dtype == DType.bool:
            code = 6
        elif Self.dtype == DType.bfloat16:
            code = 4
        elif Self.dtype == DType.float8_e4m3fn:
            code = 10
        elif Self.dtype == DType.float8_e4m3fnuz:
            code = 11
        elif Self.dtype == DType.float8_e5m2:
            code = 12
        elif Self.dtype == DType.float8_e5m2fnuz:
            code = 13
        elif Self.dtype.is_unsigned():
            code = 1
        elif Self.dtype.is_integral():
            code = 0
        return managed_from_memory[Self.rank](
            self._data, self._shape, code, 8 * size_of[Scalar[Self.dtype]]()
        )

    def into_dlpack(deinit self) -> Int:
        """Gives up ownership to whoever takes a `DLManagedTensorVersioned *`.

        Returns:
            Its address; the taker calls its deleter once, on any thread.
        """
        return self^.into_handle().into_address()
