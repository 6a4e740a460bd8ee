"""Errors that leave an operator: text that lives as long as torch reads it, then a C++ exception."""

from std.ffi import external_call
from std.memory import Pointer

from torchmojo._glue.code import Code
from torchmojo._glue.python import word
from torchmojo_ops.table import Entry, Spec, function, table

comptime _Throw = def(Bool, Int, Int, UInt32, Int) thin abi("C") -> None


def keep_text(text: String) -> Int:
    """Copies a text to where the thread's next error will overwrite it.

    The exception unwinds through this frame's caller without running destructors, so that nothing
    of Mojo's may be alive then; the buffer belongs to the thread and is freed with it.

    Args:
        text: The message.

    Returns:
        Address of a C string.
    """
    return _keep(Int(text.unsafe_ptr()), text.byte_length())


def keep_refusal(spec: Spec, code: Int, argument: Int, detail: Int) -> Int:
    """Words a refusal in a process without Python, which would say more.

    Args:
        spec: The operator's.
        code: A `Code`.
        argument: Which of the kernel's.
        detail: For what a kernel raised the address of its text.

    Returns:
        Address of a C string.
    """
    var name = spec.get(Spec.NAME)
    if code == Code.RAISED or code == Code.BOUNDS:
        return _keep_joined(name, ": ", 0, "", detail)
    var argument_name = spec.get(Spec.NAMES)
    for _ in range(argument):
        argument_name += _length(argument_name) + 1
    return _keep_joined(name, ": ", argument_name, ": ", Int(_reason(code).unsafe_ptr()))


def _reason(code: Int) -> StaticString:
    """Returns what is wrong, with a NUL behind it."""
    if code == Code.COUNT:
        return "torch has no memory for a result\0"
    if code == Code.NO_DATA:
        return "it has less memory than its shape says\0"
    if code == Code.LAYOUT_KIND:
        return "it is sparse, nested or of another layout without strides\0"
    if code == Code.DEVICE:
        return "it is not in the CPU's memory\0"
    if code == Code.NEG_BIT or code == Code.CONJ_BIT:
        return "its values are lazily negated or conjugated; resolve them first\0"
    if code == Code.DTYPE:
        return "the kernel does not take its dtype\0"
    if code == Code.SAME_DTYPE:
        return "its dtype differs from another argument's that must be the same\0"
    if code == Code.RANK or code == Code.SAME_RANK:
        return "the kernel does not take its number of axes\0"
    if code == Code.LAYOUT:
        return "its strides differ from the layout that the kernel asks for\0"
    if code == Code.ALIGNMENT:
        return "its address is not a multiple of its element size\0"
    if code == Code.AXIS:
        return "an axis has another size than the kernel's signature says\0"
    if code == Code.READ_ONLY or code == Code.INFERENCE:
        return "it must not be written\0"
    if code == Code.GRAD:
        return "it requires grad and would be written\0"
    if code == Code.SELF_OVERLAP or code == Code.PARTIAL_OVERLAP:
        return "it would be written, and shares memory with itself or another argument\0"
    if code == Code.RANGE:
        return "the number does not fit the kernel's type\0"
    return "the operator refuses it\0"


def _keep_joined(a: Int, b: StaticString, c: Int, d: StaticString, e: Int) -> Int:
    """Keeps five texts in a row; those given by address are C strings, or 0."""
    var size = _length(a) + b.byte_length() + _length(c) + d.byte_length() + _length(e)
    var made = external_call["malloc", Int](size + 1)
    if made == 0:
        return 0
    var at = made
    for i in range(5):
        var text = a if i == 0 else (c if i == 2 else e)
        var length = _length(text)
        if i == 1 or i == 3:
            text = Int(b.unsafe_ptr()) if i == 1 else Int(d.unsafe_ptr())
            length = b.byte_length() if i == 1 else d.byte_length()
        _ = external_call["memcpy", Int](at, text, length)
        at += length
    var kept = _keep(made, size)
    external_call["free", NoneType](made)
    return kept


def _length(text: Int) -> Int:
    return external_call["strlen", Int](text) if text != 0 else 0


def kept_text() -> Int:
    """Returns the text of the thread's last error.

    Returns:
        Address of a C string, or 0 where there was none.
    """
    return external_call["pthread_getspecific", Int](UInt32(word(table(), Entry.TEXT_KEY)))


def _keep(text: Int, size: Int) -> Int:
    var key = UInt32(word(table(), Entry.TEXT_KEY))
    var old = external_call["pthread_getspecific", Int](key)
    if text == old:
        return old
    var made = external_call["realloc", Int](old, size + 1)
    if made == 0:
        return 0
    _ = external_call["memcpy", Int](made, text, size)
    Pointer[UInt8, MutUntrackedOrigin](unsafe_from_address=made)[unsafe_offset=size] = 0
    _ = external_call["pthread_setspecific", Int32](key, made)
    return made


@no_inline
def throw(text: Int):
    """Throws `c10::Error`; no destructor of Mojo's runs on its way.

    Args:
        text: Address of a C string; 0 for no memory.
    """
    # Kept for a gate further out, to which torch does not always tell what it caught.
    var message = _keep(text, external_call["strlen", Int](text)) if text != 0 else 0
    if message == 0:
        message = Int("torchmojo: no memory for an error message\0".unsafe_ptr())
    var name = Int("torchmojo\0".unsafe_ptr())
    function[_Throw](Entry.THROW)(False, name, name, 0, message)
