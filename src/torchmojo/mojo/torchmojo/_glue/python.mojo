"""The few CPython functions that glue needs, by their C names."""

from std.ffi import c_int, external_call
from std.memory import Pointer

comptime Object = Optional[Pointer[NoneType, MutUntrackedOrigin]]
"""A `PyObject *`; borrowed unless said otherwise."""
comptime Objects = Pointer[Object, MutUntrackedOrigin]
"""A C array of `PyObject *`."""
comptime Words = Pointer[Int, MutUntrackedOrigin]
"""Memory read as 64-bit words."""


@always_inline
def address(object: Object) -> Int:
    """Returns an object's address; 0 for NULL.

    Args:
        object: Any object.
    """
    return Int(object.value()) if object else 0


@always_inline
def object_at(address: Int) -> Object:
    """Returns the object at an address.

    Args:
        address: Of a `PyObject`; 0 for NULL.
    """
    var value = address
    return Pointer(to=value).unsafe_bitcast[Object]()[]


@always_inline
def word(base: Int, offset: Int) -> Int:
    """Reads the 64-bit word at an offset in bytes.

    Args:
        base: Address of a structure that is alive.
        offset: Distance in bytes.
    """
    return Words(unsafe_from_address=base + offset)[]


@always_inline
def type_of_object(object: Int) -> Int:
    """Returns the address of an object's type (`ob_type`, the second word of a `PyObject`).

    Args:
        object: Address of the object.
    """
    return word(object, 8)


def new_int(value: Int) -> Object:
    """Returns a new Python int.

    Args:
        value: Its value.
    """
    return external_call["PyLong_FromLongLong", Object](value)


def new_str(text: String) -> Object:
    """Returns a new Python str; bytes that are not UTF-8 are replaced.

    Args:
        text: Its text.
    """
    return external_call["PyUnicode_DecodeUTF8", Object](
        text.unsafe_ptr(), text.byte_length(), "replace".as_c_string_span()
    )


def release(object: Object):
    """Drops an owned reference; NULL is fine.

    Args:
        object: The reference.
    """
    external_call["Py_DecRef", NoneType](object)
