"""libtorch as it lies in this process: functions by name, and tensors that it owns."""

from std.ffi import external_call
from std.memory import Pointer
from std.sys import CompilationTarget

comptime _RTLD_LAZY = 1
comptime _RTLD_NOLOAD_LINUX = 4
comptime _RTLD_NOLOAD_MACOS = 16


@no_inline
def torch_symbol(name: StaticString) -> Int:
    """Returns the address of a function of libtorch, or 0 in a process without torch.

    The library is only looked for, never loaded. Half a microsecond, up to 60 where caches are
    cold; paid only by loops above their grain and by tensors that go to torch.

    Args:
        name: A C function.

    Returns:
        Its address.
    """
    var library = "libtorch_cpu.so"
    var mode = Int32(_RTLD_LAZY | _RTLD_NOLOAD_LINUX)
    comptime if CompilationTarget.is_macos():
        library = "@rpath/libtorch_cpu.dylib"
        mode = Int32(_RTLD_LAZY | _RTLD_NOLOAD_MACOS)
    var handle = external_call["dlopen", Int](library.as_c_string_span(), mode)
    if handle == 0:
        return 0
    var address = external_call["dlsym", Int](handle, name.as_c_string_span())
    # dlopen counted a reference; torch itself stays loaded without ours.
    _ = external_call["dlclose", Int32](handle)
    return address


comptime _Delete = def(Int) thin abi("C") -> Int32


@explicit_destroy("end it by release() or into_address()")
struct TorchTensor(not Deinitable, Movable):
    """An `at::Tensor` that Mojo owns: an `AtenTensorHandle` of torch's stable C ABI.

    Linear, as `OwnedTensor`: it is given to torch once by `into_address`, or ends by `release`.
    """

    var _handle: Int

    def __init__(out self, *, unsafe_from_address: Int):
        """Takes over a handle.

        Args:
            unsafe_from_address: An `AtenTensorHandle` that nobody else deletes.
        """
        self._handle = unsafe_from_address

    def __init__(out self, *, deinit move: Self):
        """Takes over from another owner.

        Args:
            move: The former owner, which is gone.
        """
        self._handle = move._handle

    def address(self) -> Int:
        """Returns the `AtenTensorHandle` for a C function that only borrows it.

        Returns:
            Its address; good until this value ends.
        """
        return self._handle

    def into_address(deinit self) -> Int:
        """Gives up ownership.

        Returns:
            The `AtenTensorHandle`; the taker calls `aoti_torch_delete_tensor_object` once.
        """
        return self._handle

    def release(deinit self):
        """Drops the tensor; the last of its views frees the memory."""
        var function = torch_symbol("aoti_torch_delete_tensor_object")
        if function != 0:
            _ = Pointer(to=function).unsafe_bitcast[_Delete]()[](self._handle)
