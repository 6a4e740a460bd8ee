"""One call of an operator: torch's stack in place of Python's arguments.

It has the methods of `torchmojo._glue.Frame`, so that one text of glue serves both. A refusal goes to
Python, which words it, or mends the call with copies as for a direct call.
"""

from std.ffi import external_call
from std.memory import Pointer
from std.utils import IndexList

from torchmojo._glue.code import Code
from torchmojo._glue.doors import acquire_handle, claim, raise_version
from torchmojo._glue.overlap import overlaps_in_part, overlaps_itself
from torchmojo._glue.python import Object, Words, word
from torchmojo._glue.record import Record
from torchmojo._glue.records import Records
from torchmojo._glue.slots import Slots
from torchmojo_ops.allocation import allocate
from torchmojo_ops.fail import keep_refusal, keep_text
from torchmojo_ops.plain import acquire_plain, acquire_result, is_plain
from torchmojo_ops.table import Entry, Kind, Spec, function, spec_of, table

comptime _Delete = def(Int) thin abi("C") -> Int32
comptime _Out = Pointer[Int, MutAnyOrigin]
comptime _Size = def(Int, _Out) thin abi("C") -> Int32
comptime _Item = def(Int, Int, _Out) thin abi("C") -> Int32
# operator, code, argument, detail, the values of the arguments -> text, or 0 where it is mended
comptime _Refuse = def(Int, Int, Int, Int, _Out) thin abi("C") -> Int


@always_inline
def _address(slot: Object) -> Int:
    return Int(slot.value()) if slot else 0


@always_inline
def _object(address: Int) -> Object:
    var value = address
    return Pointer(to=value).unsafe_bitcast[Object]()[]


@always_inline
def delete_tensor(handle: Int):
    """Drops a reference to a tensor.

    Args:
        handle: Owned; 0 is fine.
    """
    if handle != 0:
        _ = function[_Delete](Entry.DELETE_TENSOR)(handle)


struct Boxed[arguments: Int]:
    """The arguments of one call; owns every handle on the stack until `finish`.

    Parameters:
        arguments: How many the kernel takes.
    """

    var spec: Spec
    var stack: Int
    var doors: Int
    var blocks: Int
    var values: IndexList[Self.arguments]
    """One word for each argument of the kernel: a handle, or the address of a value; Python reads
    them when it words a refusal."""

    @always_inline
    def __init__(out self, number: Int, stack: Int):
        """Takes over a stack.

        Args:
            number: Number of the operator.
            stack: Address of its values.
        """
        self.spec = spec_of(number)
        self.stack = stack
        self.doors = word(table(), Entry.DOORS)
        self.blocks = 0
        self.values = IndexList[Self.arguments](fill=0)

    @always_inline
    def bind[count: Int, //, most: Int, least: Int](mut self, mut slots: Slots[count]) -> Bool:
        """Puts the stack into the order of the kernel's signature and makes the results.

        Parameters:
            most: Arguments of the kernel.
            least: Not needed here.

        Args:
            slots: Filled in: handles of tensors, addresses of other values, that of the table for
                None, NULL for a default.

        Returns:
            False where torch has no memory for a result.
        """
        var made = True
        comptime for i in range(most):
            var kind = self.spec.kind(i)
            var place = self.spec.place(i)
            var value = 0
            if kind == Kind.OUTPUT:
                value = allocate(self.stack, place)
                if value == 0:
                    made = False  # Python reads the other values for its words
            elif kind == Kind.TENSOR:
                value = word(self.stack, 8 * place)
            elif kind == Kind.OPTIONAL_TENSOR:
                value = word(self.stack, 8 * place)
                value = word(value, 0) if value != 0 else 0
            elif (
                kind == Kind.OPTIONAL_SCALAR
                or kind == Kind.OPTIONAL_STRING
                or kind == Kind.OPTIONAL_LIST
            ):
                value = word(self.stack, 8 * place)
            elif kind != Kind.LEFT_OUT:
                value = self.stack + 8 * place
            self.values[i] = value
            # None given is not the same as nothing given, which asks for the kernel's default.
            if value == 0 and kind != Kind.LEFT_OUT:
                value = table()
            slots[i] = _object(value)
        return made

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
        """Reads and checks a tensor; see `torchmojo._glue.acquire`."""
        var handle = _address(slot)
        if writes and self._made(handle):
            return acquire_result(self.doors, handle, record, self.blocks, rank, layout, parts)
        if is_plain(handle):
            return acquire_plain(
                self.doors, handle, record, self.blocks, writes, rank, layout, parts
            )
        return acquire_handle(self.doors, handle, record, self.blocks, writes, rank, layout, parts)

    @always_inline
    def _made(self, handle: Int) -> Bool:
        """Returns whether a tensor is a result that was made here."""
        comptime for i in range(Self.arguments):
            if self.spec.kind(i) == Kind.OUTPUT and self.values[i] == handle:
                return True
        return False

    @always_inline
    def is_none(self, slot: Object) -> Bool:
        """Returns whether an optional argument is None or left out."""
        return not slot or _address(slot) == table()

    def length(self, slot: Object) -> Int:
        """Returns the length of a list of numbers."""
        var size = 0
        var list = word(_address(slot), 0)
        _ = function[_Size](Entry.LIST_SIZE)(list, _out(size))
        return size

    def item(self, slot: Object, index: Int) -> Int:
        """Returns the word of a number in a list."""
        var value = 0
        var list = word(_address(slot), 0)
        _ = function[_Item](Entry.LIST_ITEM)(list, index, _out(value))
        return value

    @always_inline
    def claim(self, record: Record) -> Int:
        """Checks an output; see `torchmojo._glue.Frame.claim`."""
        var code = claim(self.doors, record)
        if code == Code.OK and overlaps_itself(record):
            return Code.SELF_OVERLAP
        return code

    def claim(self, mut records: Records) -> Int:
        """Checks each output of a list, also against the others."""
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
        """Raises the version counter of an output."""
        raise_version(self.doors, record)

    def raise_version(self, records: Records):
        """Raises the version counters of a list of outputs."""
        for k in range(records.count()):
            raise_version(self.doors, records.at(k))

    def hold(mut self, slot: Object, mut records: Records) -> Int:
        """Notes where the list of tensors is, which the stack owns."""
        records.kept = word(_address(slot), 0)
        return Code.OK

    def tensors(
        mut self, mut records: Records, writes: Bool, rank: Int, layout: Int, parts: Bool
    ) -> Int:
        """Reads and checks the tensors of a list; see `torchmojo._glue.Frame.tensors`."""
        var size = 0
        _ = function[_Size](Entry.LIST_SIZE)(records.kept, _out(size))
        for k in range(size):
            records.failed = k
            var record = Record()
            var handle = 0
            _ = function[_Item](Entry.LIST_ITEM)(records.kept, k, _out(handle))
            var code = acquire_handle(
                self.doors, handle, record, self.blocks, writes, rank, layout, parts
            )
            if code != Code.OK:
                return code
            records.add(record)
        records.settle()
        return Code.OK

    # -- its end

    @no_inline
    def refuse(mut self, code: Int, index: Int = 0, detail: Int = 0) -> Int:
        """Hands the call to Python.

        Returns:
            0 where Python has mended the call, else the address of the error's text.
        """
        self.close()
        if word(table(), Entry.REFUSE) == 0:
            return keep_refusal(self.spec, code, index, detail)
        var values = self.values
        return function[_Refuse](Entry.REFUSE)(
            self.spec.get(Spec.NUMBER),
            code,
            index,
            detail,
            Pointer(to=values).unsafe_bitcast[Int]().unsafe_origin_cast[MutAnyOrigin](),
        )

    @no_inline
    def raised(mut self, code: Int, index: Int, text: String) -> Int:
        """Reports what the kernel raised; see `refuse`."""
        return self.refuse(code, index, keep_text(text))

    @always_inline
    def none(self) -> Int:
        """Returns that all went well."""
        return 0

    @always_inline
    def close(mut self):
        """Frees what describes complex tensors."""
        var block = self.blocks
        while block != 0:
            var next = word(block, 0)
            external_call["free", NoneType](block)
            block = next
        self.blocks = 0

    @always_inline
    def release_gil(self) -> Int:
        """Does nothing: torch has released the GIL."""
        return 0

    @always_inline
    def take_gil(self, state: Int):
        """Does nothing."""
        pass

    @always_inline
    def finish(self, text: Int) -> Int:
        """Drops the inputs, and puts the results onto the stack or drops them too.

        Args:
            text: From the call: 0 for success.

        Returns:
            The text, for `throw` in the outermost frame.
        """
        comptime for i in range(Self.arguments):
            var kind = self.spec.kind(i)
            if kind != Kind.OUTPUT and kind != Kind.SCALAR and kind != Kind.LEFT_OUT:
                drop_value(kind, word(self.stack, 8 * self.spec.place(i)))
        var at = 0
        comptime for i in range(Self.arguments):
            if self.spec.kind(i) == Kind.OUTPUT:
                var handle = self.values[i]
                if text != 0:
                    delete_tensor(handle)
                else:
                    Words(unsafe_from_address=self.stack + 8 * at)[] = handle
                at += 1
        return text


def drop_inputs(number: Int, stack: Int):
    """Drops everything that a stack owns.

    Args:
        number: The operator.
        stack: Its values.
    """
    var spec = spec_of(number)
    for i in range(spec.get(Spec.COUNT)):
        var kind = spec.kind(i)
        if kind != Kind.OUTPUT and kind != Kind.LEFT_OUT:
            drop_value(kind, word(stack, 8 * spec.place(i)))


def drop_value(kind: Int, value: Int):
    """Drops what a word of the stack owns.

    Args:
        kind: Its `Kind`.
        value: The word.
    """
    if kind == Kind.TENSOR:
        delete_tensor(value)
    elif kind == Kind.STRING:
        _ = function[_Delete](Entry.DELETE_STRING)(value)
    elif kind == Kind.LIST:
        _ = function[_Delete](Entry.DELETE_LIST)(value)
    elif kind == Kind.TENSORS:
        var size = 0
        _ = function[_Size](Entry.LIST_SIZE)(value, _out(size))
        for k in range(size):
            var handle = 0
            _ = function[_Item](Entry.LIST_ITEM)(value, k, _out(handle))
            delete_tensor(handle)
        _ = function[_Delete](Entry.DELETE_LIST)(value)
    elif value != 0 and kind != Kind.SCALAR:
        var inner = Kind.SCALAR
        if kind == Kind.OPTIONAL_TENSOR:
            inner = Kind.TENSOR
        elif kind == Kind.OPTIONAL_STRING:
            inner = Kind.STRING
        elif kind == Kind.OPTIONAL_LIST:
            inner = Kind.LIST
        drop_value(inner, word(value, 0))
        # Made by `new StableIValue` in torch; its `operator delete` is C's free.
        external_call["free", NoneType](value)


@always_inline
def _out(mut value: Int) -> _Out:
    return Pointer(to=value).unsafe_origin_cast[MutAnyOrigin]()
