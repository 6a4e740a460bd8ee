"""What is asked of the system: files, mappings, and libraries by path."""

from std.ffi import external_call
from std.memory import Pointer
from std.sys import CompilationTarget, size_of
from std.utils import IndexList

from torchmojo.layout import Layout
from torchmojo.trap import Trap
from torchmojo.view import TensorView

# `open` itself cannot be called: Mojo's standard library declares it otherwise.
comptime _HERE = Int32(-2) if CompilationTarget.is_macos() else Int32(-100)
comptime _READ_ONLY = Int32(0)
comptime _SEEK_END = Int32(2)
comptime _READ_WRITE = Int32(3)
comptime _PRIVATE = Int32(2)
comptime _LAZY = 1
comptime _GLOBAL = 8 if CompilationTarget.is_macos() else 0x100
comptime _NOLOAD = 16 if CompilationTarget.is_macos() else 4


struct Mapping(Movable):
    """A file in memory, private to this process: nothing that is written reaches the file."""

    var address: Int
    """Address of its first byte; 0 for a file without bytes."""
    var length: Int
    """Its bytes."""

    def __init__(out self, path: String) raises:
        """Maps a file.

        Args:
            path: The file.

        Raises:
            Error: It is missing, or the system has no room for it.
        """
        var name = path
        var file = external_call["openat", Int32](_HERE, name.as_c_string_span(), _READ_ONLY)
        if file < 0:
            raise Error(t"Model: wanted the file {path}, given none that can be read")
        var length = external_call["lseek", Int](file, Int(0), _SEEK_END)
        var address = 0
        if length > 0:
            address = external_call["mmap", Int](
                Int(0), length, _READ_WRITE, _PRIVATE, file, Int(0)
            )
        _ = external_call["close", Int32](file)
        if length < 0 or address == -1:
            raise Error(t"Model: wanted a file that can be mapped, given {path}")
        self.address = address
        self.length = length

    def __init__(out self, *, deinit move: Self):
        """Takes over from another owner.

        Args:
            move: The former owner, which is gone.
        """
        self.address = move.address
        self.length = move.length

    def __deinit__(deinit self):
        """Gives the memory back."""
        if self.address != 0:
            _ = external_call["munmap", Int32](self.address, self.length)

    def view[
        dtype: DType, rank: Int
    ](self, shape: IndexList[rank]) raises -> TensorView[
        False, dtype, rank, "", Layout.ROW_MAJOR, origin_of(self)
    ]:
        """Lends the file's bytes as a tensor; the view cannot outlive the mapping.

        Parameters:
            dtype: What the file holds, in this machine's byte order.
            rank: Number of axes.

        Args:
            shape: Sizes; together they are the whole file.

        Returns:
            A view for reading; nothing is copied.

        Raises:
            Error: The file has another number of bytes.
        """
        var count = 1
        var strides = IndexList[rank]()
        comptime for k in range(rank):
            strides[rank - 1 - k] = count
            count *= shape[rank - 1 - k]
        var bytes = count * size_of[Scalar[dtype]]()
        if bytes != self.length:
            raise Error(t"Mapping: wanted a file of {bytes} bytes, given {self.length}")
        # A file without bytes is not mapped; its view is never read.
        var data = Pointer[Scalar[dtype], origin_of(self)](
            unsafe_from_address=self.address if self.address != 0 else 64
        )
        return {data, shape, strides, Trap(0)}

    def text(self) -> String:
        """Copies all bytes into a text.

        Returns:
            The text; what is not UTF-8 is replaced.
        """
        if self.length == 0:
            return String("")
        var start = Pointer[UInt8, ImmUntrackedOrigin](unsafe_from_address=self.address)
        return String(from_utf8_lossy=Span(unsafe_ptr=start, length=self.length))


def cpu_flags() -> String:
    """Reads what Linux says that this CPU has.

    Returns:
        Names with a space before and after each; empty on other systems.
    """
    try:
        # A server lists hundreds of CPUs, and making the text takes long: the first one will do.
        with open("/proc/cpuinfo", "r") as file:
            var text = file.read(16384)
            for line in text.split("\n"):
                if line.startswith("flags") or line.startswith("Features"):
                    return String(t"{line} ")
    except:
        pass
    return String("")


def open_library(path: String, everywhere: Bool) raises -> Int:
    """Loads a library, or finds it loaded.

    Args:
        path: Its file.
        everywhere: Whether libraries that are loaded later see its symbols.

    Returns:
        What `dlsym` takes.

    Raises:
        Error: The system's loader refuses; the text is its own.
    """
    var name = path
    var mode = Int32(_LAZY | (_GLOBAL if everywhere else 0))
    var handle = external_call["dlopen", Int](name.as_c_string_span(), mode)
    if handle == 0:
        raise Error(t"Model: wanted a library that loads, given {path}: {_loader_error()}")
    return handle


def loaded_library(name: String) -> Int:
    """Looks for a library that is loaded already, and shows its symbols to later ones.

    Args:
        name: Its name without a folder.

    Returns:
        What `dlsym` takes, or 0.
    """
    var copy = name
    return external_call["dlopen", Int](copy.as_c_string_span(), Int32(_LAZY | _NOLOAD | _GLOBAL))


def symbol(library: Int, name: StaticString) raises -> Int:
    """Finds a function.

    Args:
        library: From `open_library`.
        name: The function.

    Returns:
        Its address.

    Raises:
        Error: The library has none of that name.
    """
    var address = external_call["dlsym", Int](library, name.as_c_string_span())
    if address == 0:
        raise Error(
            t"Model: wanted a library with {name}, given one without; prepare the model with torch "
            t"2.13 or newer"
        )
    return address


def set_default(name: StaticString, value: String):
    """Sets an environment variable that is not set.

    Args:
        name: The variable.
        value: Its value.
    """
    var copy = value
    _ = external_call["setenv", Int32](name.as_c_string_span(), copy.as_c_string_span(), Int32(0))


def c_text(address: Int) -> String:
    """Copies a C string.

    Args:
        address: Its first byte, or 0.

    Returns:
        The text; empty for 0.
    """
    if address == 0:
        return String("")
    var length = external_call["strlen", Int](address)
    if length == 0:
        return String("")
    var start = Pointer[UInt8, ImmUntrackedOrigin](unsafe_from_address=address)
    return String(from_utf8_lossy=Span(unsafe_ptr=start, length=length))


def _loader_error() -> String:
    return c_text(external_call["dlerror", Int]())
