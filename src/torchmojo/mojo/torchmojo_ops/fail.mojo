"""Errors that leave an operator: text that lives as long as torch reads it, then a C++ exception."""

from std.ffi import external_call
from std.memory import Pointer

from torchmojo._glue.python import Words, word
from torchmojo_ops.table import Entry, function, table

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
        message = Int("torchmojo: no memory for an error message".as_c_string_span().unsafe_ptr())
    var name = Int("torchmojo".as_c_string_span().unsafe_ptr())
    function[_Throw](Entry.THROW)(False, name, name, 0, message)
