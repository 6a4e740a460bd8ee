"""The functions of libtorch and of a model's library that are called, by address."""

from std.memory import Pointer

from torchmojo.model.index import Index
from torchmojo.model.system import c_text, loaded_library, open_library, set_default, symbol

comptime Words = Pointer[Int, MutAnyOrigin]
"""An array of addresses or 64-bit numbers that C reads or writes."""

# torch/csrc/inductor/aoti_torch/c/shim.h: data, ndim, sizes, strides, offset, dtype, device, index.
comptime _FromBlob = def(Int, Int, Words, Words, Int, Int32, Int32, Int32, Words) thin abi(
    "C"
) -> Int32
comptime _OfTensor = def(Int, Words) thin abi("C") -> Int32
comptime _Delete = def(Int) thin abi("C") -> Int32
comptime _DType = def(Int, Pointer[Int32, MutAnyOrigin]) thin abi("C") -> Int32
# torch/csrc/inductor/aoti_runtime/interface.h
comptime _Create = def(Words, Int, Int, Int) thin abi("C") -> Int32
comptime _Bind = def(Int, Words, Int, Bool, Bool) thin abi("C") -> Int32
comptime _Run = def(Int, Words, Int, Words, Int, Int, Int) thin abi("C") -> Int32
comptime _Error = def(Words) thin abi("C") -> Int32


def open_torch(path: String, index: Index) raises -> Int:
    """Loads libtorch, or finds the one that this process has.

    Args:
        path: The library; empty for the one that the index names.
        index: The model's.

    Returns:
        What `dlsym` takes.

    Raises:
        Error: It cannot be loaded.
    """
    var handle = loaded_library("libtorch_cpu.so")
    if handle != 0:
        return handle
    # Read when the library is loaded. Threads that wait by spinning would take the other's time.
    set_default("OMP_NUM_THREADS", index.threads)
    set_default("OMP_WAIT_POLICY", "passive")
    return open_library(path if path.byte_length() > 0 else index.hint, True)


@fieldwise_init
struct Torch(Copyable):
    """Functions of libtorch's stable C ABI."""

    var _from_blob: Int
    var _delete: Int
    var _data: Int
    var _sizes: Int
    var _strides: Int
    var _dim: Int
    var _dtype: Int

    @staticmethod
    def of(library: Int) raises -> Torch:
        """Looks all of them up.

        Args:
            library: What `open_torch` gave.

        Returns:
            Their addresses.

        Raises:
            Error: One is missing.
        """
        return Torch(
            symbol(library, "aoti_torch_create_tensor_from_blob"),
            symbol(library, "aoti_torch_delete_tensor_object"),
            symbol(library, "aoti_torch_get_data_ptr"),
            symbol(library, "aoti_torch_get_sizes"),
            symbol(library, "aoti_torch_get_strides"),
            symbol(library, "aoti_torch_get_dim"),
            symbol(library, "aoti_torch_get_dtype"),
        )

    def tensor_over(
        self, data: Int, dtype: Int, sizes: List[Int], strides: List[Int]
    ) raises -> Int:
        """Makes a tensor over memory that stays the caller's.

        Args:
            data: Address of the first element.
            dtype: Torch's number.
            sizes: Size of each axis.
            strides: Stride of each axis.

        Returns:
            A handle; `drop` it once.

        Raises:
            Error: Torch refuses.
        """
        var handle = 0
        var function = self._from_blob
        var code = Pointer(to=function).unsafe_bitcast[_FromBlob]()[](
            data,
            len(sizes),
            _words(sizes),
            _words(strides),
            0,
            Int32(dtype),
            0,
            0,
            Pointer(to=handle).unsafe_origin_cast[MutAnyOrigin](),
        )
        if code != 0:
            raise Error("Model: torch refuses to make a tensor")
        return handle

    def drop(self, handle: Int):
        """Deletes a handle.

        Args:
            handle: A tensor's.
        """
        var function = self._delete
        _ = Pointer(to=function).unsafe_bitcast[_Delete]()[](handle)

    def data(self, handle: Int) -> Int:
        """Tells where a tensor's first element lies.

        Args:
            handle: A tensor's.

        Returns:
            The address.
        """
        return _ask(self._data, handle)

    def rank(self, handle: Int) -> Int:
        """Counts a tensor's axes.

        Args:
            handle: A tensor's.

        Returns:
            Their number.
        """
        return _ask(self._dim, handle)

    def size(self, handle: Int, axis: Int) -> Int:
        """Tells the size of an axis.

        Args:
            handle: A tensor's.
            axis: Counted from 0.

        Returns:
            Its size.
        """
        return Words(unsafe_from_address=_ask(self._sizes, handle))[unsafe_offset=axis]

    def stride(self, handle: Int, axis: Int) -> Int:
        """Tells the stride of an axis.

        Args:
            handle: A tensor's.
            axis: Counted from 0.

        Returns:
            Its stride in elements.
        """
        return Words(unsafe_from_address=_ask(self._strides, handle))[unsafe_offset=axis]

    def dtype(self, handle: Int) -> Int:
        """Tells a tensor's dtype.

        Args:
            handle: A tensor's.

        Returns:
            Torch's number.
        """
        var result = Int32(-1)
        var function = self._dtype
        _ = Pointer(to=function).unsafe_bitcast[_DType]()[](
            handle, Pointer(to=result).unsafe_origin_cast[MutAnyOrigin]()
        )
        return Int(result)


def _ask(address: Int, handle: Int) -> Int:
    """Calls a function that writes one word about a tensor."""
    var result = 0
    var function = address
    _ = Pointer(to=function).unsafe_bitcast[_OfTensor]()[](
        handle, Pointer(to=result).unsafe_origin_cast[MutAnyOrigin]()
    )
    return result


def _words(values: List[Int]) -> Words:
    """Lends a list to C, which only reads it; the caller keeps it alive."""
    return values.unsafe_ptr().unsafe_mut_cast[True]().unsafe_origin_cast[MutAnyOrigin]()


struct Container(Movable):
    """A model's library with its weights bound: what torch calls a container."""

    var _handle: Int
    var _delete: Int
    var _bind: Int
    var _run: Int
    var _error: Int

    def __init__(out self, library: Int, instances: Int) raises:
        """Makes a container without weights.

        Args:
            library: The model's.
            instances: Calls that can run at the same time.

        Raises:
            Error: The library lacks a function, or refuses.
        """
        var function = symbol(library, "AOTInductorModelContainerCreateWithDevice")
        self._delete = symbol(library, "AOTInductorModelContainerDelete")
        self._bind = symbol(
            library, "AOTInductorModelContainerUpdateUserManagedConstantBufferPairs"
        )
        self._run = symbol(library, "AOTInductorModelContainerRun")
        self._error = symbol(library, "AOTInductorGetLastError")
        var handle = 0
        var device: StaticString = "cpu"
        var code = Pointer(to=function).unsafe_bitcast[_Create]()[](
            Pointer(to=handle).unsafe_origin_cast[MutAnyOrigin](),
            instances,
            Int(device.unsafe_ptr()),
            0,
        )
        self._handle = handle
        if code != 0:
            raise Error(t"Model: torch cannot load it: {_last(self._error)}")

    def __init__(out self, *, deinit move: Self):
        """Takes over from another owner.

        Args:
            move: The former owner, which is gone.
        """
        self._handle = move._handle
        self._delete = move._delete
        self._bind = move._bind
        self._run = move._run
        self._error = move._error

    def __deinit__(deinit self):
        """Deletes the container."""
        if self._handle != 0:
            var function = self._delete
            _ = Pointer(to=function).unsafe_bitcast[_Delete]()[](self._handle)

    def check_counts(self, library: Int, inputs: Int, outputs: Int) raises:
        """Refuses an index that names other numbers; the library ends a process that gives them.

        Args:
            library: The model's.
            inputs: How many inputs the index names.
            outputs: How many outputs it names.

        Raises:
            Error: The library has another number of them.
        """
        var has = _ask(symbol(library, "AOTInductorModelContainerGetNumInputs"), self._handle)
        if has != inputs:
            raise Error(t"Model: wanted an index of {has} inputs, given one of {inputs}")
        has = _ask(symbol(library, "AOTInductorModelContainerGetNumOutputs"), self._handle)
        if has != outputs:
            raise Error(t"Model: wanted an index of {has} outputs, given one of {outputs}")

    def bind(self, pairs: List[Int]) raises:
        """Binds weights; their memory stays the caller's.

        Args:
            pairs: Address of a name, then a tensor's handle, for each weight.

        Raises:
            Error: One is missing.
        """
        var function = self._bind
        var code = Pointer(to=function).unsafe_bitcast[_Bind]()[](
            self._handle, _words(pairs), len(pairs) // 2, False, True
        )
        if code != 0:
            raise Error(t"Model: torch cannot bind the weights: {_last(self._error)}")

    def run(self, inputs: List[Int], outputs: List[Int]) raises:
        """Runs the model.

        Args:
            inputs: Handles, which the container takes over, also where it raises.
            outputs: Room for handles, which become the caller's.

        Raises:
            Error: The text is torch's.
        """
        var function = self._run
        var code = Pointer(to=function).unsafe_bitcast[_Run]()[](
            self._handle, _words(inputs), len(inputs), _words(outputs), len(outputs), 0, 0
        )
        if code != 0:
            raise Error(t"Model: torch raises: {_last(self._error)}")


def _last(address: Int) -> String:
    """Copies the text of this thread's last error."""
    var text = 0
    var function = address
    _ = Pointer(to=function).unsafe_bitcast[_Error]()[](
        Pointer(to=text).unsafe_origin_cast[MutAnyOrigin]()
    )
    return c_text(text)
