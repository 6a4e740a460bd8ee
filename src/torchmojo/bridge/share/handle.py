"""A handle: one tensor's memory, held by one of three rules until it is released."""

from __future__ import annotations

import ctypes
import sys
import weakref
from types import CodeType, TracebackType
from typing import Any, Literal

from torchmojo.bridge import doors
from torchmojo.bridge.lend import Lease
from torchmojo.bridge.refuse.facts import is_torch_tensor, show
from torchmojo.dtypes import BY_NAME
from torchmojo.errors import HandleError, NoDataError, ReadOnlyError

__all__ = ["Handle", "State", "is_array", "live_handles"]

State = Literal["owned", "borrowed", "borrowed_immutable"]

_live: dict[int, weakref.ref[Handle]] = {}


class Handle:
    """Memory that is held until ``release()``: made by ``torchmojo.share``.

    A context manager, a DLPack producer, and an argument for kernels. It holds its lender, and for
    objects with the buffer protocol the export, so that nobody can close or resize the memory.

    Example:
        >>> import array, torchmojo
        >>> numbers = array.array("f", [1, 2, 3])
        >>> with torchmojo.share(numbers) as handle:
        ...     print(handle.state, handle.dtype, handle.shape, handle.nbytes)
        borrowed float32 (3,) 12
        >>> handle.released
        True
    """

    # The glue reads _target, _address, _shape, _strides and _frozen, see `_glue/handle.mojo`.
    __slots__ = (
        "__weakref__",
        "_address",
        "_at",
        "_code",
        "_dtype",
        "_frozen",
        "_lease",
        "_lender",
        "_owned",
        "_shape",
        "_strides",
        "_target",
    )

    _address: int
    _at: int
    _code: CodeType
    _dtype: Any
    _frozen: bool
    _lease: Lease | None
    _lender: object
    _owned: bool
    _shape: tuple[int, ...]
    _strides: tuple[int, ...]
    _target: Any

    def __new__(cls) -> Handle:
        """Refuses: a handle is made by ``torchmojo.share``."""
        raise TypeError("Handle: wanted torchmojo.share(x), which makes one")

    def __reduce__(self) -> Any:
        """Refuses: a copy would give back what this handle still uses."""
        raise TypeError(
            f"Handle: wanted torchmojo.share(handle), which makes a second one, given a copy or "
            f"pickle of {self!r}"
        )

    @classmethod
    def _make(
        cls,
        lender: object,
        target: object,
        lease: Lease | None,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: Any,
        frozen: bool,
        owned: bool,
        code: CodeType,
        at: int,
    ) -> Handle:
        """Makes a handle; ``lease`` is taken over, all else is described in ``share``."""
        handle = object.__new__(cls)
        handle._lender = lender
        handle._target = target
        handle._lease = lease
        handle._address = address
        handle._shape = shape
        handle._strides = strides
        handle._dtype = dtype
        handle._frozen = frozen
        handle._owned = owned
        handle._code = code
        handle._at = at
        _live[id(handle)] = weakref.ref(handle)
        return handle

    # -- what it is ------------------------------------------------------------------------------

    @property
    def released(self) -> bool:
        """Whether ``release()`` was called."""
        return self._target is None

    @property
    def state(self) -> State:
        """``owned`` (this handle frees), ``borrowed``, or ``borrowed_immutable`` (reading only)."""
        self._open("state")
        return "owned" if self._owned else "borrowed_immutable" if self._frozen else "borrowed"

    @property
    def dtype(self) -> str:
        """Name of the dtype, as torch and NumPy print it."""
        self._open("dtype")
        if is_torch_tensor(self._target):
            return str(self._dtype).removeprefix("torch.")
        return self._dtype.name if self._dtype else self._hold().type_name

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes when the handle was made."""
        self._open("shape")
        return self._shape

    @property
    def strides(self) -> tuple[int, ...] | None:
        """Strides in elements when the handle was made; None where a step is no whole element."""
        self._open("strides")
        whole = self._lease is None or self._lease.strides is not None
        return self._strides if whole else None

    @property
    def device(self) -> str:
        """``cpu``: where the memory is."""
        self._open("device")
        return "cpu"

    @property
    def address(self) -> int:
        """Address of element ``[0, ..., 0]``, checked to be what it was.

        Raises:
            HandleError: The handle was released.
            NoDataError: The lender's memory has moved or changed its shape.
        """
        self._check("address")
        return self._address

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        self._open("nbytes")
        count = self._itemsize
        for n in self._shape:
            count *= n
        return count

    @property
    def lender(self) -> object:
        """The object whose memory this is; None where a capsule handed it over."""
        self._open("lender")
        return self._lender

    @property
    def place(self) -> str:
        """``file:line`` of the call of ``share``."""
        return f"{self._code.co_filename}:{self._line}"

    @property
    def _line(self) -> int:
        for start, end, line in self._code.co_lines():
            if start <= self._at < end:
                return line or 0
        return self._code.co_firstlineno

    @property
    def _itemsize(self) -> int:
        if is_torch_tensor(self._target):
            return int(self._dtype.itemsize)
        return self._hold().itemsize

    def __repr__(self) -> str:
        """Shows state, outline, lender and the line that made it."""
        made = f"made at {self.place}"
        if self.released:
            return f"<handle released, {made}>"
        kind = type(self._lender)
        name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
        of = "" if self._lender is None else f" of {name}"
        return f"<handle {self.state} {self._outline()}{of}, {made}>"

    def _outline(self) -> str:
        short = BY_NAME[self.dtype].short if self.dtype in BY_NAME else self.dtype
        text = f"{short}[{','.join(map(str, self._shape))}] cpu"
        strides = self.strides
        if strides:
            text += f" strides({','.join(map(str, strides))})"
        return text

    # -- its end ---------------------------------------------------------------------------------

    def release(self) -> None:
        """Gives the memory back; what was exported from the handle stays valid.

        Raises:
            HandleError: It was released before.
        """
        if not self._end():
            raise HandleError(
                f"release: wanted an open handle, given one that was released already, made at "
                f"{self.place}"
            )

    def _end(self) -> bool:
        """Ends it; False where that was done. One step decides, also between threads."""
        if _live.pop(id(self), None) is None:
            return False
        # The target first: who reads the lease and then a target has both of an open handle.
        self._target = self._lender = None
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()
        return True

    def __enter__(self) -> Handle:
        """Returns itself."""
        self._open("with")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Releases the handle, unless that was done inside."""
        self._end()

    def __del__(self) -> None:
        """Releases what nobody released."""
        self._end()

    # -- checks ----------------------------------------------------------------------------------

    def _open(self, what: str) -> Any:
        """Returns the target, read once: another thread may release the handle at any time."""
        target = self._target
        if target is None:
            raise HandleError(
                f"{what}: wanted an open handle, given one that was released, made at {self.place}"
            )
        return target

    def _check(self, what: str) -> Any:
        """Compares the lender with what it was and returns the target."""
        target, seen = self._open(what), self._lender
        if type(target) is not Lease:
            seen = target
        elif not is_array(seen):
            return target  # only an array can move though it is exported
        from torchmojo.bridge.share.lender import outline

        now = outline(seen, what)
        if now != (self._address, self._shape, self._strides, self._dtype):
            raise NoDataError(
                f"{what}: wanted the memory that was shared, {self._outline()}, given a lender "
                f"that has moved or changed since, {show(seen)}; share it again"
            )
        return target

    def lend(self, kernel: str, argument: str, writes: bool) -> Any:
        """Returns what a kernel takes in the handle's place, after looking again.

        Args:
            kernel: Its name, for messages.
            argument: Name of the argument.
            writes: Whether the kernel writes it.

        Returns:
            The tensor, exporter or lease that the handle holds.

        Raises:
            HandleError: The handle was released.
            NoDataError: The lender's memory has moved or changed its shape.
            ReadOnlyError: The kernel writes, and the handle lends for reading only.
        """
        target = self._check(f"{kernel}: {argument}")
        if writes and self._frozen:
            raise ReadOnlyError(
                f"{kernel}: {argument}: wanted memory that may be written, given {self!r}; pass a "
                "writable copy"
            )
        return target

    def _hold(self) -> Lease:
        """Returns the lease of a handle that is not torch's."""
        lease = self._lease
        if lease is None:
            self._open("handle")
        assert lease is not None
        return lease

    # -- DLPack ----------------------------------------------------------------------------------

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Lends the memory to another library by DLPack.

        Args:
            stream: None; CPU memory has no stream.
            max_version: Newest DLPack version that the consumer takes; None for the legacy form.
            dl_device: Where the consumer wants it; None or the CPU.
            copy: True for a copy, False for none, None to copy only where it cannot be lent: a
                negative stride, foreign byte order, a misaligned address, a neg or conj bit.

        Returns:
            A capsule that keeps the lender alive by itself, also after ``release()``.

        Raises:
            ExportError: It cannot be lent as asked for; a ``BufferError``.
            HandleError: The handle was released.
            NoDataError: The lender's memory has moved or changed its shape.

        Source: https://dmlc.github.io/dlpack/latest/python_spec.html
        """
        from torchmojo.bridge.share.export import export

        self._check("__dlpack__")
        return export(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns ``(1, 0)``, the CPU."""
        self._open("__dlpack_device__")
        return (1, 0)


def is_array(thing: object) -> bool:
    """Returns whether an object is a NumPy array, which can move in spite of an export.

    Args:
        thing: Any object; of a subclass too, whose memory moves by ``resize(refcheck=False)``.
    """
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(thing, numpy.ndarray)


def live_handles() -> list[Handle]:
    """Returns the handles of this process that are not released, oldest first.

    Example:
        >>> import torchmojo
        >>> handle = torchmojo.share(bytearray(8))
        >>> handle in torchmojo.live_handles()
        True
        >>> handle.release()
        >>> handle in torchmojo.live_handles()
        False
    """
    handles = (ref() for ref in list(_live.values()))
    return [handle for handle in handles if handle is not None and not handle.released]


def _open_door() -> None:
    """Tells the door table where a handle keeps what the glue reads."""
    sample: Handle = object.__new__(Handle)
    marker = object()
    names = ("_target", "_address", "_shape", "_strides", "_frozen")
    for i, name in enumerate(names):
        setattr(sample, name, marker)
        for offset in range(16, Handle.__basicsize__, 8):
            if ctypes.c_uint64.from_address(id(sample) + offset).value == id(marker):
                doors.set_word(doors.HANDLE_SLOTS + i, offset)
                break
        else:
            raise RuntimeError(f"no slot {name} in a Handle")
        setattr(sample, name, None)
    doors.set_word(doors.HANDLE_TYPE, id(Handle))


_open_door()
