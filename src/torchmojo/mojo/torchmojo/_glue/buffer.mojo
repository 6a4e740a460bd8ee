"""The second door: borrows memory through CPython's buffer protocol (PEP 3118).

NumPy arrays, `bytes`, `bytearray`, `array.array`, `mmap` and `memoryview` come this way without a
Python frame. Only plain cases are taken: native byte order, one of the known formats, strides that
are multiples of the element. Everything else is left to Python, which words the refusal.
"""

from std.ffi import external_call
from std.memory import Pointer

from torchmojo._glue.code import Code
from torchmojo._glue.python import Object, Words, address, release, word
from torchmojo._glue.record import Record
from torchmojo._glue.table import Slot

# A block is: the next block, a `Py_buffer` (cpython/object.h), strides in elements.
comptime _BUFFER = 8
comptime _BUF = _BUFFER + 0
comptime _OBJ = _BUFFER + 8
comptime _ITEMSIZE = _BUFFER + 24
comptime _READONLY_NDIM = _BUFFER + 32  # two 32-bit ints
comptime _FORMAT = _BUFFER + 40
comptime _SHAPE = _BUFFER + 48
comptime _STRIDES = _BUFFER + 56
comptime _SUBOFFSETS = _BUFFER + 64
comptime _OWN_STRIDES = _BUFFER + 80
comptime _MAX_NDIM = 8
comptime _BLOCK = _OWN_STRIDES + 8 * _MAX_NDIM

comptime _RECORDS_RO = Int32(0x1C)  # PyBUF_RECORDS_RO: strides and format, writable or not


@no_inline
def borrow(doors: Int, object: Int, mut record: Record, mut blocks: Int) -> Int:
    """Borrows the memory of an object with the buffer protocol.

    Args:
        doors: The table, which counts open exports.
        object: Address of any object.
        record: Filled in.
        blocks: Head of the call's list of exports; a new one is put in front. `give_back` ends them,
            and until then the exporter cannot be resized or closed.

    Returns:
        `Code.OK`, or `Code.FOREIGN` where Python has to look at the object.
    """
    if external_call["PyObject_CheckBuffer", Int32](object) == 0:
        return Code.FOREIGN
    # On the heap: the address is kept as a number, which a stack variable must not have.
    var block = external_call["malloc", Int](_BLOCK)
    if block == 0:
        return Code.FOREIGN
    if external_call["PyObject_GetBuffer", Int32](object, block + _BUFFER, _RECORDS_RO) != 0:
        external_call["PyErr_Clear", NoneType]()
        external_call["free", NoneType](block)
        return Code.FOREIGN
    if not _read(block, record):
        external_call["PyBuffer_Release", NoneType](block + _BUFFER)
        external_call["free", NoneType](block)
        return Code.FOREIGN
    Words(unsafe_from_address=block)[] = blocks
    blocks = block
    Words(unsafe_from_address=doors + Slot.EXPORTS)[] += 1
    return Code.OK


def keep(object: Object, mut blocks: Int, users: Int = 0) -> Int:
    """Holds an object until the call ends.

    Args:
        object: A new reference, which is taken over; NULL where CPython had no memory.
        blocks: The call's list of blocks.
        users: Address of a word that counts calls which run on the object's memory, or 0.

    Returns:
        `Code.OK`, or `Code.NO_DATA` where there is no memory left for a block.
    """
    var block = external_call["calloc", Int](Int(1), Int(_BLOCK))
    if block == 0 or not object:
        external_call["PyErr_Clear", NoneType]()
        external_call["free", NoneType](block)
        release(object)
        return Code.NO_DATA
    # As the exporter of no bytes: PyBuffer_Release drops the reference and does nothing else.
    Words(unsafe_from_address=block + _OBJ)[] = address(object)
    Words(unsafe_from_address=block)[] = blocks
    blocks = block
    if users != 0:
        Words(unsafe_from_address=users)[] += 1
        Words(unsafe_from_address=block + _BUF)[] = users
    return Code.OK


@no_inline
def give_back(doors: Int, blocks: Int):
    """Ends every export of a call; the GIL is held.

    Args:
        doors: The table, which counts open exports.
        blocks: Head of the list, or 0.
    """
    var block = blocks
    while block != 0:
        var next = word(block, 0)
        # The second word of a `Py_buffer` is the exporter; a block without one only owns words.
        if word(block, _OBJ) != 0:
            if word(block, _ITEMSIZE) != 0:
                Words(unsafe_from_address=doors + Slot.EXPORTS)[] -= 1
            elif word(block, _BUF) != 0:  # an object of `keep` that counts its users
                Words(unsafe_from_address=word(block, _BUF))[] -= 1
            external_call["PyBuffer_Release", NoneType](block + _BUFFER)
        external_call["free", NoneType](block)
        block = next


def _read(block: Int, mut record: Record) -> Bool:
    """Fills a record from a `Py_buffer`; False where it is not a plain case."""
    var both = word(block, _READONLY_NDIM)
    var read_only = both & 0xFFFF_FFFF
    var ndim = both >> 32
    var itemsize = word(block, _ITEMSIZE)
    if ndim < 0 or ndim > _MAX_NDIM or itemsize <= 0 or word(block, _SUBOFFSETS) != 0:
        return False
    if ndim > 0 and (word(block, _SHAPE) == 0 or word(block, _STRIDES) == 0):
        return False
    var dtype = _dtype(word(block, _FORMAT), itemsize)
    if dtype < 0:
        return False
    for i in range(ndim):
        var step = word(word(block, _STRIDES), 8 * i)
        if step % itemsize != 0:
            return False
        Words(unsafe_from_address=block + _OWN_STRIDES + 8 * i)[] = step // itemsize
    record.data = word(block, _BUF)
    record.shape = word(block, _SHAPE)
    record.strides = block + _OWN_STRIDES
    record.ndim = ndim
    record.dtype = dtype
    record.read_only = read_only
    record.handle = 0
    # The exporter vouches for its shape and strides, as every user of the protocol must trust.
    record.low = 0
    record.high = Int.MAX
    return True


def _dtype(format: Int, itemsize: Int) -> Int:
    """Returns torch's number of the dtype of a PEP 3118 format, -1 for any other."""
    if format == 0:  # no format means bytes
        return 0 if itemsize == 1 else -1
    var text = Pointer[UInt8, ImmUntrackedOrigin](unsafe_from_address=format)
    var at = 0
    var first = Int(text[])
    # `@` and `=` are native; `<` is too on every machine that Mojo compiles for.
    if first == ord("@") or first == ord("=") or first == ord("<"):
        at = 1
    var letter = Int(text[unsafe_offset=at])
    if letter == ord("Z"):  # NumPy's mark of complex numbers: Zf and Zd
        var part = Int(text[unsafe_offset=at + 1])
        if part != 0 and text[unsafe_offset=at + 2] != 0:
            return -1
        if part == ord("f") and itemsize == 8:
            return 9
        return 10 if part == ord("d") and itemsize == 16 else -1
    if letter == 0 or text[unsafe_offset=at + 1] != 0:
        return -1
    if letter == ord("f") and itemsize == 4:
        return 6
    if letter == ord("d") and itemsize == 8:
        return 7
    if letter == ord("e") and itemsize == 2:
        return 5
    if letter == ord("?") and itemsize == 1:
        return 11
    if letter == ord("B") or letter == ord("c"):
        return 0 if itemsize == 1 else -1
    if letter == ord("b"):
        return 1 if itemsize == 1 else -1
    if (
        letter == ord("h")
        or letter == ord("i")
        or letter == ord("l")
        or letter == ord("q")
        or letter == ord("n")
    ):
        return 2 if itemsize == 2 else 3 if itemsize == 4 else 4 if itemsize == 8 else -1
    if (
        letter == ord("H")
        or letter == ord("I")
        or letter == ord("L")
        or letter == ord("Q")
        or letter == ord("N")
    ):
        return 27 if itemsize == 2 else 28 if itemsize == 4 else 29 if itemsize == 8 else -1
    return -1
