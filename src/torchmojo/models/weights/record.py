"""What a file says of its tensors, before any of them exists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchmojo.dtypes import BY_NAME, DTypeInfo
from torchmojo.models.weights.mapping import fail

__all__ = ["Entry", "Storage", "Typed", "entry", "of_name"]

_MOST_AXES = 64  # of a torch tensor
_SMALL, _LARGEST = 1 << 30, 1 << 60


@dataclass(eq=False, slots=True)
class Storage:
    """Memory that one or several tensors look at.

    Attributes:
        key: Its name in the file.
        start: Position of its first byte in the file.
        nbytes: Its bytes.
        dtype: That of its first tensor.
        memory: torch's storage over it, once somebody asked for it.
    """

    key: str
    start: int
    nbytes: int
    dtype: DTypeInfo
    memory: Any = None


@dataclass(frozen=True, eq=False, slots=True)
class Typed:
    """A storage as one tensor refers to it: two may give it two dtypes.

    Attributes:
        storage: The storage.
        dtype: The dtype.
    """

    storage: Storage
    dtype: DTypeInfo


@dataclass(frozen=True, eq=False, slots=True)
class Entry:
    """One tensor of a file, checked against its storage.

    Attributes:
        storage: Where it lies.
        dtype: Its dtype.
        shape: Sizes.
        strides: Strides in elements.
        offset: Elements before its first one in the storage.
    """

    storage: Storage
    dtype: DTypeInfo
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def place(self) -> tuple[Any, ...]:
        """What two names have in common that are one tensor."""
        return id(self.storage), self.dtype.name, self.shape, self.strides, self.offset


def entry(
    path: object, name: str, storage: Storage, dtype: DTypeInfo, geometry: tuple[Any, Any, Any]
) -> Entry:
    """Checks sizes, strides and offset against the storage; allocates nothing.

    Args:
        path: The file, for messages.
        name: The tensor's name, for messages.
        storage: Where it lies.
        dtype: Its dtype.
        geometry: Shape, strides and offset as the file says them, of any type.

    Raises:
        WeightsError: They are no numbers, negative, or reach outside the storage.
    """
    shape, strides, offset = geometry
    whole = type(shape) is type(strides) is tuple and len(shape) == len(strides)
    numbers = (offset, *shape, *strides) if whole else ()
    if set(map(type, numbers)) != {int} or min(numbers) < 0:
        raise fail(path, f"{name}: wanted sizes, strides and an offset of at least 0, given others")
    if len(shape) > _MOST_AXES:
        raise fail(path, f"{name}: wanted at most {_MOST_AXES} axes, given {len(shape)}")
    count, reach = 1, offset + 1
    for n, s in zip(shape, strides, strict=True):
        count *= n
        reach += (n - 1) * s
    if count and reach * dtype.width > storage.nbytes:  # torch gives empty tensors any offset
        raise fail(
            path,
            f"{name}: wanted a tensor inside its storage of {storage.nbytes} bytes, given "
            f"{_geometry(dtype, shape, strides, offset)}; the file is damaged or made to mislead",
        )
    if max(numbers) >= _LARGEST or count * dtype.width > max(_SMALL, storage.nbytes):
        given = _geometry(dtype, shape, strides, offset)
        raise fail(path, f"{name}: wanted sizes that memory can hold, given {given}")
    return Entry(storage, dtype, shape, strides, offset)


def of_name(path: object, name: str) -> DTypeInfo:
    """Returns a dtype by the name that torch gives it.

    Args:
        path: The file, for messages.
        name: Such as ``float32``.

    Raises:
        WeightsError: There is none of that name here.
    """
    if name not in BY_NAME:
        raise fail(path, f"wanted a dtype that torchmojo knows, given {name}")
    return BY_NAME[name]


def _geometry(
    dtype: DTypeInfo, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> str:
    return f"{dtype.short}[{_list(shape)}] strides({_list(strides)}) offset {_list((offset,))}"


def _list(numbers: tuple[int, ...]) -> str:
    # A hostile number may have millions of digits, which Python refuses to print.
    return ",".join(str(n) if n < 1 << 64 else "more than 2**64" for n in numbers[:_MOST_AXES])
