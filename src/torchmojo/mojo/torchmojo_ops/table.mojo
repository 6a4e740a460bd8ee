"""The table of a library of operators: addresses that Python looks up once, in the library itself.

A function that torch calls gets a stack of values and nothing else, so that it must find by itself
what it needs. The linker puts a zeroed table into the library's own data (see `link` in
`toolchain/compile/build.py`), and one instruction reads its address.
"""

from std.memory import Pointer
from std.sys import CompilationTarget
from std.sys._assembly import inlined_assembly

from torchmojo._glue.python import Words, word


struct Entry:
    """Offsets of the words of the table; `torchmojo.ops.native` fills them in."""

    comptime DOORS = 0
    """The door table of the process, as for direct calls."""
    comptime KEYS_OFFSET = 8
    """Offset of the dispatch key set in a `TensorImpl`."""
    comptime META_OFFSET = 16
    """Offset of the pointer to autograd's metadata in a `TensorImpl`."""
    comptime PLAIN_KEYS = 24
    """The key set of a plain CPU tensor that autograd knows."""
    comptime INFERENCE_KEYS = 32
    """The key set of a plain CPU tensor made in inference mode."""
    comptime GUARD = 40
    """`c10::impl::ExcludeDispatchKeyGuard`, its constructor."""
    comptime UNGUARD = 48
    """Its destructor."""
    comptime AUTOGRAD_KEYS = 56
    """What is excluded below autograd."""
    comptime FW_GRAD = 64
    """`c10::TensorImpl::_fw_grad`."""
    comptime EMPTY_STRIDED = 72
    """`aoti_torch_empty_strided`."""
    comptime DELETE_TENSOR = 80
    """`aoti_torch_delete_tensor_object`."""
    comptime THROW = 88
    """`aoti_torch_check`, which throws."""
    comptime CALL_DISPATCHER = 96
    """`torch_call_dispatcher`."""
    comptime VERSION = 104
    """The ABI version that it is told."""
    comptime LIST_SIZE = 112
    """`torch_list_size`."""
    comptime LIST_ITEM = 120
    """`torch_list_get_item`."""
    comptime DELETE_LIST = 128
    """`torch_delete_list`."""
    comptime STRING_LENGTH = 136
    """`torch_string_length`."""
    comptime STRING_DATA = 144
    """`torch_string_c_str`."""
    comptime DELETE_STRING = 152
    """`torch_delete_string`."""
    comptime REFUSE = 160
    """Python's way out: words a refusal, or mends the call; 0 in a process without Python."""
    comptime RECORD = 168
    """Python's autograd: calls the formula's forward; 0 in a process without Python."""
    comptime TEXT_KEY = 176
    """A `pthread_key_t` for the text of the error of a thread."""
    comptime WHAT = 184
    """`torch_exception_get_what_without_backtrace`, 0 before torch 2.13."""
    comptime UNDEFINED = 192
    """The address of `c10::UndefinedTensorImpl`'s one object."""
    comptime SPECS = 512
    """One word for each operator: the address of its `Spec`."""


@always_inline
def _data[name: StaticString]() -> Int:
    """Returns the address of data that the linker put into this library."""
    comptime symbol = String(t"_binary_{name}_start")
    comptime if CompilationTarget.is_x86():
        return inlined_assembly[
            String(t"movq {symbol}@GOTPCREL(%rip), $0"),
            Int,
            constraints="=r",
            has_side_effect=False,
        ]()
    else:
        return inlined_assembly[
            String(t"adrp $0, :got:{symbol}\nldr $0, [$0, :got_lo12:{symbol}]"),
            Int,
            constraints="=r",
            has_side_effect=False,
        ]()


@always_inline
def table() -> Int:
    """Returns the address of the table of this library."""
    return _data["torchmojo_table"]()


@always_inline
def registry() -> Int:
    """Returns the address of what this library registers without Python; see `standalone`."""
    return _data["torchmojo_registry"]()


@always_inline
def function[F: TrivialRegisterPassable](entry: Int) -> F:
    """Returns a C function of the table.

    Parameters:
        F: Its type.

    Args:
        entry: Its offset.
    """
    return Pointer[F, MutUntrackedOrigin](unsafe_from_address=table() + entry)[]


struct Kind:
    """Where an argument of a kernel comes from."""

    comptime TENSOR = 0
    """A tensor on the stack."""
    comptime OPTIONAL_TENSOR = 1
    """A tensor or None."""
    comptime TENSORS = 2
    """A list of tensors."""
    comptime SCALAR = 3
    """A number."""
    comptime OPTIONAL_SCALAR = 4
    """A number or None."""
    comptime STRING = 5
    """Text."""
    comptime OPTIONAL_STRING = 6
    """Text or None."""
    comptime LIST = 7
    """A list of numbers."""
    comptime OPTIONAL_LIST = 8
    """A list of numbers or None."""
    comptime OUTPUT = 9
    """A tensor that is made here."""
    comptime LEFT_OUT = 10
    """The kernel's own default."""


@fieldwise_init
struct Spec(TrivialRegisterPassable):
    """How an operator's stack becomes a kernel's arguments: words that Python wrote and keeps.

    Words: 0 number of the operator, 1 arguments of the kernel, 2 values on the stack, 3 results,
    4 address of the name "ns::name", 5 address of the overload's name, 6 whether it writes an
    input, 7 address of the names of the kernel's arguments, NUL behind each. Then per argument of
    the kernel two words: a `Kind`, and its place on the stack or the address of an `Allocation`'s
    words.
    """

    var address: Int

    comptime NUMBER = 0
    comptime COUNT = 8
    comptime VALUES = 16
    comptime RESULTS = 24
    comptime NAME = 32
    comptime OVERLOAD = 40
    comptime WRITES = 48
    comptime NAMES = 56
    comptime ARGUMENTS = 64

    @always_inline
    def get(self, offset: Int) -> Int:
        """Returns a word.

        Args:
            offset: In bytes.
        """
        return word(self.address, offset)

    @always_inline
    def kind(self, argument: Int) -> Int:
        """Returns the `Kind` of an argument.

        Args:
            argument: Its number in the kernel's signature.
        """
        return word(self.address, Self.ARGUMENTS + 16 * argument)

    @always_inline
    def place(self, argument: Int) -> Int:
        """Returns where an argument comes from.

        Args:
            argument: Its number in the kernel's signature.
        """
        return word(self.address, Self.ARGUMENTS + 16 * argument + 8)


@always_inline
def spec_of(number: Int) -> Spec:
    """Returns the spec of an operator of this library.

    Args:
        number: The operator's.
    """
    return Spec(word(table() + Entry.SPECS, 8 * number))
