"""The scalar that a kernel returns, on its way to a Python object."""

from std.ffi import external_call

from torchmojo._glue.python import Object
from torchmojo._managed import UnsafeTensorHandle


struct Result(ImplicitlyCopyable):
    """One number in the widest type of its kind, kept while the GIL is not held."""

    var kind: Int
    """0 nothing, 1 signed, 2 unsigned, 3 float, 4 bool."""
    var signed: Int64
    """The number of kind 1."""
    var unsigned: UInt64
    """The number of kinds 2 and 4."""
    var real: Float64
    """The number of kind 3."""
    var managed: Int
    """Address of a managed tensor that the kernel made; 0 for none. Python gets it or frees it."""

    def __init__(out self):
        """Makes an empty result."""
        self.managed = 0
        self.kind = 0
        self.signed = 0
        self.unsigned = 0
        self.real = 0

    @always_inline
    def set[dtype: DType](mut self, value: Scalar[dtype]):
        """Keeps a number.

        Parameters:
            dtype: Its type.

        Args:
            value: The number.
        """
        comptime if dtype == DType.bool:
            self.kind = 4
            self.unsigned = UInt64(1) if value.__bool__() else UInt64(0)
        elif dtype.is_floating_point():
            self.kind = 3
            self.real = value.cast[DType.float64]()
        elif dtype.is_unsigned():
            self.kind = 2
            self.unsigned = value.cast[DType.uint64]()
        else:
            self.kind = 1
            self.signed = value.cast[DType.int64]()

    @always_inline
    def own(mut self, managed: Int):
        """Keeps a tensor that the kernel made.

        Args:
            managed: Address of its managed tensor.
        """
        self.managed = managed

    def drop(mut self):
        """Frees the tensor of a call that failed after the kernel made it."""
        if self.managed != 0:
            UnsafeTensorHandle(unsafe_from_address=self.managed).release()
            self.managed = 0

    def object(self) -> Object:
        """Returns a new Python object; the GIL is held.

        Returns:
            An int, float or bool.
        """
        if self.kind == 1:
            return external_call["PyLong_FromLongLong", Object](self.signed)
        if self.kind == 2:
            return external_call["PyLong_FromUnsignedLongLong", Object](self.unsigned)
        if self.kind == 3:
            return external_call["PyFloat_FromDouble", Object](self.real)
        return external_call["PyBool_FromLong", Object](Int(self.unsigned))
