"""Why a call was refused. Python turns the number into a message; see `bridge/refuse/refusal.py`."""


struct Code:
    """The reasons, with the same numbers as `torchmojo.bridge.code.Code` in Python."""

    comptime OK = 0
    """Nothing to refuse."""
    comptime FOREIGN = 1
    """Not a type that the fast door knows: Python borrows it and calls again."""
    comptime NO_DATA = 2
    """No memory of its own, or less memory than shape and strides say."""
    comptime LAYOUT_KIND = 3
    """Sparse, nested or another layout without strides."""
    comptime DEVICE = 4
    """Memory that a CPU kernel cannot reach."""
    comptime NEG_BIT = 5
    """A lazily negated view: memory holds the values with the other sign."""
    comptime DTYPE = 6
    """A dtype that the kernel does not take."""
    comptime SAME_DTYPE = 7
    """Two arguments share a dtype parameter and differ."""
    comptime RANK = 8
    """Another number of axes than the signature says."""
    comptime SAME_RANK = 9
    """Two arguments share a rank parameter and differ."""
    comptime LAYOUT = 10
    """Strides differ from the layout that the signature asks for."""
    comptime ALIGNMENT = 11
    """The address is not a multiple of the element size."""
    comptime AXIS = 12
    """An axis has another size than its name or number says."""
    comptime READ_ONLY = 13
    """The kernel would write memory that must not be written."""
    comptime GRAD = 14
    """The kernel would write a tensor that requires grad while autograd records."""
    comptime INFERENCE = 15
    """The kernel would write an inference tensor outside inference mode."""
    comptime SELF_OVERLAP = 16
    """Two indices of an output are the same memory."""
    comptime PARTIAL_OVERLAP = 17
    """An output shares some memory with another argument, but is not the same view."""
    comptime COUNT = 18
    """Too few or too many arguments, or a keyword that is unknown or given twice."""
    comptime SCALAR = 19
    """A Python object that is not the number, text or list that the signature says."""
    comptime RANGE = 20
    """A number that does not fit the type in the signature."""
    comptime RAISED = 21
    """The kernel raised."""
    comptime BOUNDS = 22
    """The kernel used an index outside a tensor."""
    comptime NONE = 23
    """None for an argument that is not optional."""
    comptime CONJ_BIT = 24
    """A lazily conjugated view: memory holds the values with the other imaginary sign."""
    comptime ADOPT = 25
    """No refusal: the kernel made a tensor that Python is to own."""
    comptime RELEASED = 26
    """A handle that has been released."""
    comptime MOVED = 27
    """A handle whose lender has another address, shape or strides than when it was made."""
