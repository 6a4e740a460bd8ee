"""The kernel at torch's autograd key: straight on where there is nothing to record, else Python.

A Python function at this key costs 4 us in every call. Here a call with plain tensors, no mode in
force and nothing that requires grad goes on to the CPU kernel at once, without a second dispatch.
"""

from std.memory import Pointer
from std.utils import IndexList

from torchmojo._glue.python import Words, word
from torchmojo._glue.table import Slot
from torchmojo_ops.boxed import drop_value
from torchmojo_ops.fail import keep_text, kept_text
from torchmojo_ops.plain import is_plain
from torchmojo_ops.table import Entry, Kind, Spec, function, spec_of, table

comptime _Any = Pointer[Int, MutAnyOrigin]
comptime _Guard = def(_Any, Int) thin abi("C") -> None
comptime _Unguard = def(_Any) thin abi("C") -> None
comptime _Ask = def(Int) thin abi("C") -> Bool
comptime _AskNobody = def() thin abi("C") -> Bool
comptime _FwGrad = def(Int, Int, Int) thin abi("C") -> Int
comptime _Call = def(Int, Int, Int, Int) thin abi("C") -> Int32
comptime _Record = def(Int, Int) thin abi("C") -> Int
comptime _What = def() thin abi("C") -> Int
comptime _Size = def(Int, _Any) thin abi("C") -> Int32
comptime _Item = def(Int, Int, _Any) thin abi("C") -> Int32

comptime IDLE = 0
"""Nothing to record and nothing in the way: the CPU kernel may be called."""
comptime DONE = 1
"""The call has been made; its results are on the stack."""


struct _Found:
    """What the tensors of a call are."""

    var plain: Bool
    var records: Bool
    var grad: Bool

    def __init__(out self):
        self.plain = True
        self.records = False
        var ask = Pointer[_AskNobody, MutUntrackedOrigin](
            unsafe_from_address=word(table(), Entry.DOORS) + Slot.GRAD_ENABLED
        )[]
        self.grad = ask()

    @always_inline
    def look(mut self, handle: Int):
        """Looks at one tensor: its key set, then, where it has autograd's metadata, these."""
        var impl = word(handle, 0)
        if not is_plain(handle):
            self.plain = False
        if word(impl, word(table(), Entry.META_OFFSET)) != 0:
            self._look_at_meta(handle, impl)

    @no_inline
    def _look_at_meta(mut self, handle: Int, impl: Int):
        if self.grad:
            var ask = Pointer[_Ask, MutUntrackedOrigin](
                unsafe_from_address=word(table(), Entry.DOORS) + Slot.REQUIRES_GRAD
            )[]
            if ask(impl):
                self.records = True
        # A tangent: the address of a tensor, which is undefined where there is none.
        var tangent = function[_FwGrad](Entry.FW_GRAD)(impl, 0, handle)
        if tangent != 0 and word(tangent, 0) != word(table(), Entry.UNDEFINED):
            self.records = True


def look(spec: Spec, stack: Int) -> _Found:
    """Looks at every tensor on the stack.

    Args:
        spec: The operator's.
        stack: Its values.
    """
    var found = _Found()
    for i in range(spec.get(Spec.COUNT)):
        var kind = spec.kind(i)
        if kind > Kind.TENSORS:
            continue
        var value = word(stack, 8 * spec.place(i))
        if kind == Kind.TENSOR:
            found.look(value)
        elif kind == Kind.OPTIONAL_TENSOR:
            if value != 0:
                found.look(word(value, 0))
        else:
            var size = 0
            _ = function[_Size](Entry.LIST_SIZE)(value, _out(size))
            for k in range(size):
                var handle = 0
                _ = function[_Item](Entry.LIST_ITEM)(value, k, _out(handle))
                found.look(handle)
    return found^


# One copy in a library, not one a slot: compiling them took most of a build.
@no_inline
def pass_gate(number: Int, stack: Int, mut text: Int) -> Int:
    """Decides what a call at the autograd key has to do, and does it unless it is idle.

    Args:
        number: The operator.
        stack: Its values.
        text: Set to the address of an error's text, for `throw`.

    Returns:
        `IDLE` or `DONE`.
    """
    var spec = spec_of(number)
    var found = look(spec, stack)
    if found.records:
        if word(table(), Entry.RECORD) == 0:
            text = keep_text("a gradient is asked for in a process without Python")
            return DONE
        text = function[_Record](Entry.RECORD)(number, stack)
        return DONE
    var guard = IndexList[2](0, 0)
    var at = Pointer(to=guard).unsafe_bitcast[Int]().unsafe_origin_cast[MutAnyOrigin]()
    function[_Guard](Entry.GUARD)(at, word(table(), Entry.AUTOGRAD_KEYS))
    # The guard holds the address of the thread's key sets, stored as differences from the default.
    var included = word(guard[0], 0)
    var excluded = word(guard[0], 8)
    var verdict = DONE
    if found.plain and included == 0 and excluded == word(table(), Entry.AUTOGRAD_KEYS):
        verdict = IDLE
    else:
        var code = function[_Call](Entry.CALL_DISPATCHER)(
            spec.get(Spec.NAME), spec.get(Spec.OVERLOAD), stack, word(table(), Entry.VERSION)
        )
        if code != 0:
            text = _what()
    function[_Unguard](Entry.UNGUARD)(at)
    return verdict


def _what() -> Int:
    """Returns the text of the error that torch has just caught for us."""
    if word(table(), Entry.WHAT) != 0:
        var text = function[_What](Entry.WHAT)()
        if text != 0 and word_is_text(text):
            return text
    var own = kept_text()
    if own != 0:
        return own
    return keep_text("the operator failed; torch 2.13 and newer can say why")


def word_is_text(address: Int) -> Bool:
    """Tells whether a C string is not empty.

    Args:
        address: Of its first byte.

    Returns:
        False for an empty one.
    """
    return Pointer[UInt8, MutUntrackedOrigin](unsafe_from_address=address)[] != 0


@always_inline
def _out(mut value: Int) -> _Any:
    return Pointer(to=value).unsafe_origin_cast[MutAnyOrigin]()
