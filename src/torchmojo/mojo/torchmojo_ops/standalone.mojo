"""Registers a library's operators in a process without Python: a C++ or Mojo program.

All that it needs lies in the library itself, as words that `torchmojo.ops.registry` wrote: which
functions of torch go where, facts about tensors of that very version of torch, schemas and specs.
Offsets in them count from the registry's start.
"""

from std.ffi import external_call
from std.memory import Pointer
from std.utils import IndexList

from torchmojo._glue.doors import get_int
from torchmojo._glue.python import Words, word
from torchmojo._glue.table import Slot
from torchmojo_ops.table import Entry, Kind, Spec, function, registry, table

comptime _Out = Pointer[Int, MutAnyOrigin]
comptime _Version = def() thin abi("C") -> UInt64
comptime _Init = def(Int, Int, UInt32, _Out) thin abi("C") -> Int32
comptime _InitImpl = def(Int, Int, Int, UInt32, _Out) thin abi("C") -> Int32
comptime _Define = def(Int, Int) thin abi("C") -> Int32
comptime _Impl = def(Int, Int, Int, Int) thin abi("C") -> Int32
comptime _Delete = def(Int) thin abi("C") -> Int32
comptime _EmptyStrided = def(Int, _Out, _Out, Int32, Int32, Int32, _Out) thin abi("C") -> Int32

comptime _LAZY = Int32(1)
comptime _NO_LOAD = Int32(4)


struct _Head:
    """Words at the registry's start."""

    comptime FORMAT = 0
    """0 in a library that was not built for programs without Python."""
    comptime ABI = 8
    """What `aoti_torch_abi_version` says."""
    comptime WRONG_TORCH = 16
    """A text for another version of torch."""
    comptime DOORS_SIZE = 24
    """Bytes of the door table."""
    comptime FUNCTIONS = 32
    """Count and offset of rows: table 0 or doors 1, offset, library 0 or 1, name, if optional."""
    comptime CONSTANTS = 48
    """Count and offset of rows: table 0 or doors 1, offset, value."""
    comptime OPERATORS = 64
    """Count and offset of rows: namespace, schema, name with overload, number, spec, and the two
    symbols."""


@always_inline
def _text(text: StaticString) -> Int:
    """Returns the address of a literal that ends in a NUL."""
    return Int(text.unsafe_ptr())


def register_operators() -> Int:
    """Puts every operator of this library into torch's dispatcher.

    torch must be loaded already, of the version that the library was built with.

    Returns:
        0, or the address of a C string that says why not.
    """
    var base = registry()
    if word(base, _Head.FORMAT) == 0:
        return _text("torchmojo: this library was built without --ops\0")
    if word(table(), Entry.VERSION) != 0:
        return _text("torchmojo: the operators of this library are registered already\0")
    var torch = _open("libtorch_cpu.so\0")
    var core = _open("libc10.so\0")
    if torch == 0 or core == 0:
        return _text("torchmojo: wanted a process that has loaded libtorch_cpu.so, given none\0")
    var version = _find(torch, _text("aoti_torch_abi_version\0"))
    if version == 0 or Int(_function[_Version](version)()) != word(base, _Head.ABI):
        return base + word(base, _Head.WRONG_TORCH)
    if not _fill(base, torch, core):
        return base + word(base, _Head.WRONG_TORCH)
    if not _tensors_are_as_told(torch):
        return base + word(base, _Head.WRONG_TORCH)
    var own = _own_handle()
    var count = word(base, _Head.OPERATORS)
    for i in range(count):
        var row = base + word(base, _Head.OPERATORS + 8) + 56 * i
        if not _register(base, row, torch, own):
            return _text("torchmojo: torch refuses an operator; is its name taken?\0")
    return 0


def _open(name: StaticString) -> Int:
    return _open_at(_text(name))


def _open_at(name: Int) -> Int:
    return external_call["dlopen", Int](_pointer(name), _LAZY | _NO_LOAD)


@always_inline
def _pointer(address: Int) -> Pointer[NoneType, MutUntrackedOrigin]:
    """Returns an address as the type by which `torchmojo/_torch.mojo` passes texts: the compiler
    takes one signature for each C function."""
    return Pointer[NoneType, MutUntrackedOrigin](unsafe_from_address=address)


def _find(library: Int, name: Int) -> Int:
    return external_call["dlsym", Int](library, _pointer(name))


def _own_handle() -> Int:
    """Returns the handle of this very library."""
    var info = IndexList[4](fill=0)
    var at = Pointer(to=info).unsafe_bitcast[Int]().unsafe_origin_cast[MutAnyOrigin]()
    _ = external_call["dladdr", Int32](table(), at)
    return _open_at(info[0])


@always_inline
def _function[F: TrivialRegisterPassable](address: Int) -> F:
    var box = address
    return Pointer(to=box).unsafe_bitcast[F]()[]


@always_inline
def _set(address: Int, value: Int):
    Words(unsafe_from_address=address)[] = value


def _fill(base: Int, torch: Int, core: Int) -> Bool:
    """Fills the table and a door table of this library's own."""
    var doors = external_call["calloc", Int](1, word(base, _Head.DOORS_SIZE))
    if doors == 0:
        return False
    for i in range(word(base, _Head.FUNCTIONS)):
        var row = base + word(base, _Head.FUNCTIONS + 8) + 40 * i
        var library = torch if word(row, 16) == 0 else core
        # The program's own first: it may hold a copy of torch's data, by which torch goes too.
        var found = _find(0, base + word(row, 24))
        if found == 0:
            found = _find(library, base + word(row, 24))
        if found == 0 and word(row, 32) == 0:
            return False
        _set((table() if word(row, 0) == 0 else doors) + word(row, 8), found)
    for i in range(word(base, _Head.CONSTANTS)):
        var row = base + word(base, _Head.CONSTANTS + 8) + 24 * i
        _set((table() if word(row, 0) == 0 else doors) + word(row, 8), word(row, 16))
    _set(table() + Entry.DOORS, doors)
    var key = UInt32(0)
    var at = Pointer(to=key).unsafe_origin_cast[MutAnyOrigin]()
    if external_call["pthread_key_create", Int32](at, _find(0, _text("free\0"))) != 0:
        return False
    _set(table() + Entry.TEXT_KEY, Int(key))
    return True


def _tensors_are_as_told(torch: Int) -> Bool:
    """Proves on a live tensor where its key set and autograd's metadata are."""
    var size = 1
    var handle = 0
    var at = Pointer(to=size).unsafe_origin_cast[MutAnyOrigin]()
    var code = function[_EmptyStrided](Entry.EMPTY_STRIDED)(
        1, at, at, Int32(6), 0, -1, Pointer(to=handle).unsafe_origin_cast[MutAnyOrigin]()
    )
    if code != 0:
        return False
    var impl = word(handle, 0)
    var dim = 0
    var right = (
        word(impl, word(table(), Entry.KEYS_OFFSET)) == word(table(), Entry.PLAIN_KEYS)
        and word(impl, word(table(), Entry.META_OFFSET)) == 0
        and get_int(word(table(), Entry.DOORS), Slot.GET_DIM, handle, dim)
        and dim == 1
    )
    _ = function[_Delete](Entry.DELETE_TENSOR)(handle)
    return right


def _register(base: Int, row: Int, torch: Int, own: Int) -> Bool:
    """Defines one overload and registers its two kernels; torch keeps the handles for ever."""
    var namespace = base + word(row, 0)
    var name = base + word(row, 16)
    var spec = base + word(row, 32)
    _set_addresses(base, spec)
    _set(table() + Entry.SPECS + 8 * word(row, 24), spec)
    var file = _text("torchmojo\0")
    var library = 0
    var out = Pointer(to=library).unsafe_origin_cast[MutAnyOrigin]()
    var init = _function[_Init](_find(torch, _text("aoti_torch_library_init_fragment\0")))
    var define = _function[_Define](_find(torch, _text("aoti_torch_library_def\0")))
    if init(namespace, file, 1, out) != 0 or define(library, base + word(row, 8)) != 0:
        return False
    var init_impl = _function[_InitImpl](_find(torch, _text("aoti_torch_library_init_impl\0")))
    var impl = _function[_Impl](_find(torch, _text("torch_library_impl\0")))
    for i in range(2):
        var key = _text("CPU\0") if i == 0 else _text("AutogradCPU\0")
        var kernel = _find(own, base + word(row, 40 + 8 * i))
        var kernels = 0
        var kernels_out = Pointer(to=kernels).unsafe_origin_cast[MutAnyOrigin]()
        if kernel == 0 or init_impl(namespace, key, file, 1, kernels_out) != 0:
            return False
        if impl(kernels, name, kernel, word(table(), Entry.VERSION)) != 0:
            return False
    return True


def _set_addresses(base: Int, spec: Int):
    """Turns the offsets of a spec into addresses."""
    for offset in range(Spec.NAME, Spec.OVERLOAD + 1, 8):
        _set(spec + offset, base + word(spec, offset))
    _set(spec + Spec.NAMES, base + word(spec, Spec.NAMES))
    for i in range(word(spec, Spec.COUNT)):
        var at = spec + Spec.ARGUMENTS + 16 * i
        if word(at, 0) == Kind.OUTPUT:
            _set(at + 8, base + word(at, 8))
