"""Memory that a kernel makes: owned by one value at a time, freed exactly once."""

from std.ffi import external_call
from std.memory import Pointer
from std.sys import size_of
from std.utils import IndexList

from torchmojo._managed import UnsafeTensorHandle, managed_from_memory
from torchmojo._torch import TorchTensor, torch_symbol
from torchmojo.layout import Layout
from torchmojo.trap import Trap
from torchmojo.view import TensorView

comptime _Bytes = Pointer[Int, MutAnyOrigin]
# torch_from_blob of torch's stable C ABI (shim.h), torch 2.11: data, ndim, sizes, strides, offset,
# dtype, device type, device index, result, layout, metadata, its size, deleter, its context.
comptime _FromBlob = def(
    Int, Int, _Bytes, _Bytes, Int, Int32, Int32, Int32, _Bytes, Int32, Int, Int, Int, Int
) thin abi("C") -> Int32
comptime _Deleter = def(Int, Int) thin abi("C") -> None


def _free_blob(data: Int, context: Int) abi("C"):
    """Frees the memory of a tensor that torch has let go: C's `free` alone, so any thread will do."""
    external_call["free", NoneType](data)


comptime ALIGNMENT = 64
"""Bytes to which the memory is aligned: a cache line, and the widest vector."""


@explicit_destroy("end it by release(), into_torch(), into_dlpack(), into_handle() or returning it")
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
        var data = Pointer[Scalar[Self.dtype], origin_of(self)](unsafe_from_address=self._data)
        return {data, self._shape, self._strides(), Trap(0)}

    @always_inline
    def _strides(self) -> IndexList[Self.rank]:
        """Returns row-major strides."""
        var strides = IndexList[Self.rank]()
        var step = 1
        comptime for k in range(Self.rank):
            comptime axis = Self.rank - 1 - k
            strides[axis] = step
            step *= self._shape[axis]
        return strides

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

    def into_torch(deinit self) raises -> TorchTensor:
        """Gives the memory to torch, which frees it with the last view of the tensor.

        Returns:
            An `at::Tensor` over the same memory.

        Raises:
            Error: The process has no torch, or one before 2.11, or torch refuses; then the memory
                has been freed.
        """
        comptime number = _torch_dtype(Self.dtype)
        comptime assert number >= 0, "into_torch: torch has no such dtype"
        var function = torch_symbol("torch_from_blob")
        if function == 0:
            external_call["free", NoneType](self._data)
            raise Error("into_torch: wanted torch 2.11 or newer in this process, given none")
        var sizes = self._shape
        var strides = self._strides()
        var result = 0
        var deleter: _Deleter = _free_blob
        var code = Pointer(to=function).unsafe_bitcast[_FromBlob]()[](
            self._data,
            Self.rank,
            Pointer(to=sizes).unsafe_bitcast[Int]().unsafe_origin_cast[MutAnyOrigin](),
            Pointer(to=strides).unsafe_bitcast[Int]().unsafe_origin_cast[MutAnyOrigin](),
            0,
            Int32(number),
            0,
            -1,
            Pointer(to=result).unsafe_origin_cast[MutAnyOrigin](),
            0,
            0,
            0,
            Pointer(to=deleter).unsafe_bitcast[Int]()[],
            0,
        )
        if code != 0:
            external_call["free", NoneType](self._data)
            raise Error("into_torch: torch refuses the memory")
        return TorchTensor(unsafe_from_address=result)


def _torch_dtype(dtype: DType) -> Int:
    """Returns torch's number of a dtype (c10/core/ScalarType.h), -1 where it has none."""
    if dtype == DType.uint8:
        return 0
    if dtype == DType.int8:
        return 1
    if dtype == DType.int16:
        return 2
    if dtype == DType.int32:
        return 3
    if dtype == DType.int64:
        return 4
    if dtype == DType.float16:
        return 5
    if dtype == DType.float32:
        return 6
    if dtype == DType.float64:
        return 7
    if dtype == DType.bool:
        return 11
    if dtype == DType.bfloat16:
        return 15
    if dtype == DType.uint16:
        return 27
    if dtype == DType.uint32:
        return 28
    return 29 if dtype == DType.uint64 else -1
