"""Python numbers and text to Mojo values; only the exact types, the rest is for Python to mend."""

from std.ffi import external_call
from std.memory import Pointer

from torchmojo._glue.code import Code
from torchmojo._glue.table import Slot
from torchmojo._glue.python import Object, address, type_of_object, word


@always_inline
def read_float(doors: Int, object: Object, mut value: Float64) -> Int:
    """Reads a float, or an int that a float64 can hold.

    Args:
        doors: The table.
        object: The argument.
        value: Filled in.

    Returns:
        `Code.OK`, `Code.SCALAR` or `Code.RANGE`.
    """
    var type = type_of_object(address(object))
    if type == word(doors, Slot.FLOAT_TYPE):
        value = external_call["PyFloat_AsDouble", Float64](object)
        return Code.OK
    if type != word(doors, Slot.INT_TYPE):
        return Code.SCALAR
    value = external_call["PyLong_AsDouble", Float64](object)
    return _code_of_error(value == -1.0)


@always_inline
def read_int(doors: Int, object: Object, mut value: Int64, low: Int64, high: Int64) -> Int:
    """Reads an int.

    Args:
        doors: The table.
        object: The argument.
        value: Filled in.
        low: Least value allowed.
        high: Greatest value allowed.

    Returns:
        `Code.OK`, `Code.SCALAR` or `Code.RANGE`.
    """
    if type_of_object(address(object)) != word(doors, Slot.INT_TYPE):
        return Code.SCALAR
    value = external_call["PyLong_AsLongLong", Int64](object)
    var code = _code_of_error(value == -1)
    if code == Code.OK and (value < low or value > high):
        return Code.RANGE
    return code


@always_inline
def read_uint(doors: Int, object: Object, mut value: UInt64, high: UInt64) -> Int:
    """Reads an int that is not negative.

    Args:
        doors: The table.
        object: The argument.
        value: Filled in.
        high: Greatest value allowed.

    Returns:
        `Code.OK`, `Code.SCALAR` or `Code.RANGE`.
    """
    if type_of_object(address(object)) != word(doors, Slot.INT_TYPE):
        return Code.SCALAR
    value = external_call["PyLong_AsUnsignedLongLong", UInt64](object)
    var code = _code_of_error(value == UInt64.MAX)
    if code == Code.OK and value > high:
        return Code.RANGE
    return code


@always_inline
def read_bool(doors: Int, object: Object, mut value: Bool) -> Int:
    """Reads `True` or `False`, which are single objects.

    Args:
        doors: The table.
        object: The argument.
        value: Filled in.

    Returns:
        `Code.OK` or `Code.SCALAR`.
    """
    value = address(object) == word(doors, Slot.TRUE)
    if value or address(object) == word(doors, Slot.FALSE):
        return Code.OK
    return Code.SCALAR


def read_string(doors: Int, object: Object, mut value: StaticString) -> Int:
    """Borrows the UTF-8 bytes of a str.

    Args:
        doors: The table.
        object: The argument; it caches the bytes, so they live as long as it does.
        value: Filled in.

    Returns:
        `Code.OK`, `Code.SCALAR`, or `Code.RANGE` for lone surrogates.
    """
    if type_of_object(address(object)) != word(doors, Slot.STR_TYPE):
        return Code.SCALAR
    var size = 0
    var text = external_call["PyUnicode_AsUTF8AndSize", Int](object, Pointer(to=size))
    if text == 0:
        external_call["PyErr_Clear", NoneType]()
        return Code.RANGE
    var bytes = Pointer[Byte, ImmStaticOrigin](unsafe_from_address=text)
    value = StaticString(unsafe_from_utf8=Span(unsafe_ptr=bytes, length=size))
    return Code.OK


@always_inline
def _code_of_error(maybe: Bool) -> Int:
    """Clears CPython's exception, if the value may stand for one; Python words it better."""
    if maybe and external_call["PyErr_Occurred", Int]() != 0:
        external_call["PyErr_Clear", NoneType]()
        return Code.RANGE
    return Code.OK
