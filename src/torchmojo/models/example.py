"""Examples of inputs: sizes and a dtype, without values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torchmojo.dtypes import BY_NAME
from torchmojo.errors import ArgumentError

__all__ = ["Example", "read_examples"]

_DIGITS = re.compile(r"[0-9]+")
_LIST = r"\s*[0-9]+\s*(,\s*[0-9]+\s*)*,?\s*"
_SIZES = re.compile(rf"{_LIST}|\s*\({_LIST}\)\s*")
_WANTED = 'sizes such as (1, 3, 224, 224) or "1,3,224,224:float32"'


@dataclass(frozen=True, slots=True)
class Example:
    """An input of a model in outline.

    Attributes:
        sizes: Its shape.
        dtype: Name of its dtype, as torch prints it.
    """

    sizes: tuple[int, ...]
    dtype: str = "float32"

    def __str__(self) -> str:
        """Prints it as ``f32[1,3,224,224]``."""
        return f"{BY_NAME[self.dtype].short}[{','.join(map(str, self.sizes))}]"

    def tensor(self, device: str = "cpu") -> Any:
        """Returns a new tensor: numbers from 0 to 1 by a seed of its own, zeros for integers.

        Zeros are valid indices everywhere. The process's random numbers are left as they are.

        Args:
            device: Where it shall live.
        """
        import torch

        dtype = getattr(torch, self.dtype)
        if BY_NAME[self.dtype].kind not in "f8c":
            return torch.zeros(self.sizes, dtype=dtype, device=device)
        values = torch.rand(self.sizes, generator=torch.Generator().manual_seed(0))
        return values.to(device=device, dtype=dtype)


def read_examples(
    value: Any, operation: str, argument: str, dtype: str = "float32"
) -> tuple[Example, ...]:
    """Reads what a user writes for the inputs of one call.

    Args:
        value: Sizes (a sequence of integers), a text such as ``1,3,224,224:float32``, a tensor,
            an `Example`, or a sequence of these for a model with several inputs.
        operation: First word of an error.
        argument: Second word of an error.
        dtype: The dtype where none is given.

    Returns:
        One for each input.

    Raises:
        ArgumentError: It is none of these, a size is negative, or a dtype is not known.
    """
    if isinstance(value, (str, Example)) or hasattr(value, "dtype"):
        return (_read(value, operation, argument, dtype),)
    items = _items(value, operation, argument)
    if all(_is_size(item) for item in items):
        return (_read(items, operation, argument, dtype),)
    return tuple(_read(item, operation, argument, dtype) for item in items)


def _items(value: Any, operation: str, argument: str) -> tuple[Any, ...]:
    if not isinstance(value, Iterable) or not (items := tuple(value)):
        raise ArgumentError(f"{operation}: {argument}: wanted {_WANTED}, given {value!r}")
    return items


def _is_size(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)


def _read(value: Any, operation: str, argument: str, dtype: str) -> Example:
    """Reads the outline of one input."""
    if isinstance(value, Example):
        return value
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        sizes, dtype = tuple(value.shape), str(value.dtype).removeprefix("torch.")
    elif isinstance(value, str):
        words, colon, name = value.partition(":")
        dtype = name.strip() if colon else dtype
        # Not what int takes: 1_0 and digits of other scripts are slips.
        plain_sizes = _SIZES.fullmatch(words)
        sizes = tuple(int(word) for word in _DIGITS.findall(words)) if plain_sizes else ()
    else:
        sizes = _items(value, operation, argument)
    plain = isinstance(value, str) or not hasattr(value, "dtype")
    if (plain and not sizes) or not all(_is_size(size) and size >= 0 for size in sizes):
        raise ArgumentError(f"{operation}: {argument}: wanted {_WANTED}, given {value!r}")
    if dtype not in BY_NAME:
        raise ArgumentError(
            f"{operation}: {argument}: wanted a dtype such as float32, int64 or bool, given "
            f"{dtype!r}"
        )
    return Example(sizes, dtype)
