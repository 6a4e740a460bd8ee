"""One call: its arguments put in order, its refusal, its GIL and its result."""

from std.ffi import external_call
from std.memory import Pointer

from torchmojo._glue.buffer import give_back, keep
from torchmojo._glue.code import Code
from torchmojo._glue.doors import acquire, claim, raise_version
from torchmojo._glue.python import Object, Objects, address, new_int, new_str, release, word
from torchmojo._glue.overlap import overlaps_in_part, overlaps_itself
from torchmojo._glue.record import Record
from torchmojo._glue.records import Records
from torchmojo._glue.slots import Slots
from torchmojo._glue.table import Slot
from torchmojo._managed import into_capsule

# Offsets in a kernel object; `torchmojo.bridge.kernel` lays it out.
comptime _DOORS = 24
comptime _NAMES = 32
comptime _MEND = 40


def _put(tuple: Object, index: Int, item: Object, borrowed: Bool = False):
    """Puts an object into a new tuple, which owns a reference from then on."""
    if borrowed:
        external_call["Py_IncRef", NoneType](item)
    _ = external_call["PyTuple_SetItem", Int32](tuple, index, item)


@fieldwise_init
struct Frame(ImplicitlyCopyable):
    """The arguments of one call, borrowed from the caller for as long as the call lasts.

    CPython keeps every argument alive until a vectorcall returns, so nothing here counts references
    and no error path can leak one.
    """

    var kernel: Object
    """The kernel object that is called."""
    var args: Objects
    """Positional arguments, then the values of keywords."""
    var count: Int
    """Number of positional arguments."""
    var keywords: Object
    """Tuple of the keywords' names, or NULL."""
    var doors: Int
    """Address of the door table."""
    var blocks: Int
    """Buffer exports that end with the call."""

    @always_inline
    def __init__(out self, kernel: Object, args: Objects, nargsf: UInt, keywords: Object):
        """Takes over the arguments of a vectorcall.

        Args:
            kernel: The callable.
            args: Its arguments.
            nargsf: Their number, with `PY_VECTORCALL_ARGUMENTS_OFFSET` in the top bit.
            keywords: Names, or NULL.
        """
        self.kernel = kernel
        self.args = args
        self.count = Int(nargsf & ~(UInt(1) << 63))
        self.keywords = keywords
        self.doors = word(address(kernel), _DOORS)
        self.blocks = 0

    @always_inline
    def bind[size: Int, //, most: Int, least: Int](self, mut slots: Slots[size]) -> Bool:
        """Puts positional and keyword arguments into the order of the signature.

        Parameters:
            most: Number of parameters.
            least: How many of them have no default.

        Args:
            slots: Filled in; NULL where the default is to be used.

        Returns:
            False where the number or a name is wrong.
        """
        if self.count > most:
            return False
        for i in range(self.count):
            slots[i] = self.args[unsafe_offset=i]
        if self.keywords:
            if not self._bind_keywords[most](slots):
                return False
        comptime if least > 0:
            if self.count < least:
                for i in range(self.count, least):
                    if not slots[i]:
                        return False
        return True

    @no_inline
    def _bind_keywords[size: Int, //, most: Int](self, mut slots: Slots[size]) -> Bool:
        var names = word(address(self.kernel), _NAMES)
        var given = external_call["PyTuple_Size", Int](self.keywords)
        for k in range(given):
            var name = external_call["PyTuple_GetItem", Object](self.keywords, k)
            var found = -1
            # Names in calls are interned, so that identity nearly always decides.
            for i in range(most):
                if external_call["PyTuple_GetItem", Int](names, i) == address(name):
                    found = i
            if found < 0:
                for i in range(most):
                    var own = external_call["PyTuple_GetItem", Object](names, i)
                    if external_call["PyUnicode_Compare", Int32](own, name) == 0:
                        found = i
            if found < 0 or slots[found]:
                return False
            slots[found] = self.args[unsafe_offset=self.count + k]
        return True

    @always_inline
    def tensor(
        mut self,
        slot: Object,
        mut record: Record,
        writes: Bool,
        rank: Int,
        layout: Int,
        parts: Bool,
    ) -> Int:
        """Reads and checks a tensor argument; see `acquire`.

        Args:
            slot: The argument.
            record: Filled in.
            writes: Whether the kernel writes it.
            rank: Number of axes, -1 for any.
            layout: Code of the layout.
            parts: Whether complex numbers are taken as two floats on a last axis.

        Returns:
            A `Code`.
        """
        return acquire(self.doors, slot, record, self.blocks, writes, rank, layout, parts)

    @always_inline
    def is_none(self, slot: Object) -> Bool:
        """Returns whether an optional argument was left out or is `None`.

        Args:
            slot: The argument, or NULL.
        """
        return not slot or address(slot) == word(self.doors, Slot.NONE)

    def length(self, slot: Object) -> Int:
        """Returns the length of a list or tuple, -1 for anything else.

        Args:
            slot: The argument.
        """
        var type = word(address(slot), 8)
        if type == word(self.doors, Slot.LIST_TYPE):
            return external_call["PyList_Size", Int](slot)
        if type == word(self.doors, Slot.TUPLE_TYPE):
            return external_call["PyTuple_Size", Int](slot)
        return -1

    def item(self, slot: Object, index: Int) -> Object:
        """Returns a borrowed element of a list or tuple.

        Args:
            slot: The list or tuple; the GIL is held, so it cannot change meanwhile.
            index: Less than its length.
        """
        if word(address(slot), 8) == word(self.doors, Slot.LIST_TYPE):
            return external_call["PyList_GetItem", Object](slot, index)
        return external_call["PyTuple_GetItem", Object](slot, index)

    def hold(mut self, slot: Object, mut records: Records) -> Int:
        """Makes a tuple of a list argument's tensors, which the call holds.

        The caller holds the list, not what is in it: another thread may take a tensor out of the
        list while the kernel runs. The tuple may start a garbage collection, and that may run code
        which frees a storage; so it is made before any record is read.

        Args:
            slot: The argument.
            records: Told where the tuple is; it stays 0 for anything but a list or tuple.

        Returns:
            `Code.OK`, or `Code.NO_DATA` where there is no memory for it.
        """
        if self.length(slot) < 0:
            return Code.OK
        var kept = external_call["PySequence_Tuple", Object](slot)
        var code = keep(kept, self.blocks)
        if code == Code.OK:
            records.kept = address(kept)
        return code

    def tensors(
        mut self,
        mut records: Records,
        writes: Bool,
        rank: Int,
        layout: Int,
        parts: Bool,
    ) -> Int:
        """Reads and checks the tensors of a list argument.

        Args:
            records: From `hold`; filled in.
            writes: Whether the kernel writes them.
            rank: Number of axes, -1 for any.
            layout: Code of the layout.
            parts: Whether complex numbers are taken as two floats on a last axis.

        Returns:
            A `Code`; `records.failed` says which tensor it is about.
        """
        if records.kept == 0:
            return Code.SCALAR
        for k in range(external_call["PyTuple_Size", Int](records.kept)):
            records.failed = k
            var record = Record()
            var item = external_call["PyTuple_GetItem", Object](records.kept, k)
            var code = acquire(self.doors, item, record, self.blocks, writes, rank, layout, parts)
            if code != Code.OK:
                return code
            records.add(record)
        records.settle()
        return Code.OK

    @always_inline
    def claim(self, record: Record) -> Int:
        """Checks that autograd allows a write in place and that no element is there twice.

        Args:
            record: An output.

        Returns:
            A `Code`.
        """
        var code = claim(self.doors, record)
        if code == Code.OK and overlaps_itself(record):
            return Code.SELF_OVERLAP
        return code

    def claim(self, mut records: Records) -> Int:
        """Checks each output of a list, also against the others.

        Args:
            records: Outputs.

        Returns:
            A `Code`; `records.failed` says which tensor it is about.
        """
        for k in range(records.count()):
            records.failed = k
            var code = self.claim(records.at(k))
            if code != Code.OK:
                return code
            for j in range(k):
                if overlaps_in_part(records.at(k), records.at(j)):
                    return Code.PARTIAL_OVERLAP
        return Code.OK

    @always_inline
    def raise_version(self, record: Record):
        """Raises the version counter of an output.

        Args:
            record: An output that passed every check.
        """
        raise_version(self.doors, record)

    def raise_version(self, records: Records):
        """Raises the version counters of a list of outputs.

        Args:
            records: Outputs that passed every check.
        """
        for k in range(records.count()):
            raise_version(self.doors, records.at(k))

    @no_inline
    def refuse(mut self, code: Int, index: Int = 0, detail: Int = 0) -> Object:
        """Hands the call to Python, which raises the right error or mends the call and repeats it.

        Args:
            code: A `Code`.
            index: Number of the argument.
            detail: What the code needs besides, such as an axis.

        Returns:
            What Python returns; NULL with an exception set.
        """
        self.close()
        return self._mend(code, index, new_int(detail))

    @no_inline
    def raised(self, code: Int, index: Int, text: String) -> Object:
        """Reports what the kernel raised.

        Args:
            code: `Code.RAISED` or `Code.BOUNDS`.
            index: Number of the argument, where one is meant.
            text: The Mojo error's text.

        Returns:
            NULL with an exception set.
        """
        return self._mend(code, index, new_str(text))

    def _mend(self, code: Int, index: Int, detail: Object) -> Object:
        """Calls `mend(kernel, code, index, detail, args, keywords)`; takes over `detail`."""
        var named = 0
        if self.keywords:
            named = external_call["PyTuple_Size", Int](self.keywords)
        var total = self.count + named
        var args = external_call["PyTuple_New", Object](total)
        # PyObject_Vectorcall would be shorter, but CPython 3.10 has it only in its headers.
        var call = external_call["PyTuple_New", Object](Int(6))
        var number = new_int(code)
        var place = new_int(index)
        if not (args and call and number and place and detail):
            release(args)
            release(call)
            release(number)
            release(place)
            release(detail)
            return None
        for i in range(total):
            _put(args, i, self.args[unsafe_offset=i], borrowed=True)
        var names = self.keywords
        if not names:
            names = Objects(unsafe_from_address=self.doors + Slot.NONE)[]
        _put(call, 0, self.kernel, borrowed=True)
        _put(call, 1, number)
        _put(call, 2, place)
        _put(call, 3, detail)
        _put(call, 4, args)
        _put(call, 5, names, borrowed=True)
        var mend = word(address(self.kernel), _MEND)
        var result = external_call["PyObject_Call", Object](mend, call, Int(0))
        release(call)
        return result

    @always_inline
    def close(mut self):
        """Gives back what the call borrowed; the GIL is held and the kernel has returned."""
        if self.blocks != 0:
            give_back(self.doors, self.blocks)
            self.blocks = 0

    @always_inline
    def none(self) -> Object:
        """Returns a new reference to `None`."""
        var none = Objects(unsafe_from_address=self.doors + Slot.NONE)[]
        external_call["Py_IncRef", NoneType](none)
        return none

    @always_inline
    def release_gil(self) -> Int:
        """Lets other Python threads run; no object may be touched until `take_gil`."""
        return external_call["PyEval_SaveThread", Int]()

    @always_inline
    def take_gil(self, state: Int):
        """Waits for the GIL.

        Args:
            state: What `release_gil` returned.
        """
        external_call["PyEval_RestoreThread", NoneType](state)

    def adopt(mut self, managed: Int) -> Object:
        """Hands a tensor that the kernel made to Python, which owns it from now on.

        Args:
            managed: Address of its managed tensor.

        Returns:
            A torch tensor or a NumPy array over the same memory.
        """
        var capsule = into_capsule(managed)
        if capsule == 0:
            return None
        return self._mend(
            Code.ADOPT,
            0,
            Object(Pointer[NoneType, MutUntrackedOrigin](unsafe_from_address=capsule)),
        )

    def text(self, value: String) -> Object:
        """Returns a new str object.

        Args:
            value: Its text.

        Returns:
            A new reference.
        """
        return new_str(value)
