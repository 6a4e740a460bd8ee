"""Tells why a value is taken or refused by a kernel's argument, check by check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torchmojo.bridge.code import Code
from torchmojo.bridge.kernel import BoundArgument
from torchmojo.bridge.lend import borrow, is_capsule, look
from torchmojo.bridge.refuse.check import Check, checks
from torchmojo.bridge.refuse.facts import is_torch_tensor, show
from torchmojo.errors import ArgumentError, TorchmojoError
from torchmojo.spelling import spell

__all__ = ["Explanation", "explain"]


class Explanation(Sequence[Check]):
    """The checks of one value for one argument: data to loop over, a table to print.

    Attributes:
        title: The argument as its signature spells it.
        given: The value in compact form.
        ok: Whether every check passed.
    """

    def __init__(self, title: str, given: str, items: list[Check]) -> None:
        """Holds the checks in the order in which a call makes them."""
        self.title = title
        self.given = given
        self._items = items

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return all(check.ok for check in self._items)

    def __getitem__(self, index: Any) -> Any:
        """Returns a check."""
        return self._items[index]

    def __len__(self) -> int:
        """Returns the number of checks that were made."""
        return len(self._items)

    def __iter__(self) -> Iterator[Check]:
        """Yields the checks."""
        return iter(self._items)

    def __repr__(self) -> str:
        """Prints a table; needs rich, which torchmojo depends on."""
        from io import StringIO

        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        # Text, not markup: "[n]" in a signature is no style.
        title = Text(f"{self.title}  <-  {self.given}")
        table = Table(title=title, title_justify="left")
        for heading in ("check", "", "wanted", "found", "what to do"):
            table.add_column(heading, overflow="fold")
        for check in self._items:
            mark = "ok" if check.ok else "NO"
            cells = (check.name, mark, check.wanted, check.found, check.advice)
            table.add_row(*map(Text, cells))
        out = StringIO()
        Console(file=out, width=120).print(table)
        return out.getvalue().rstrip()


def explain(value: Any, argument: BoundArgument) -> Explanation:
    """Explains whether a kernel's argument takes a value, without calling the kernel.

    Args:
        value: Anything that might be passed: a torch tensor, a NumPy array, a DLPack producer.
        argument: An argument of a loaded kernel, as ``kernels.scaled_add.a``.

    Returns:
        Each check with what was wanted, what was found and what to do. Checks between arguments
        (equal axes, overlap) need a call and are not among them.

    Raises:
        ArgumentError: ``argument`` is not an argument of a kernel, or is not a tensor.

    Example:
        >>> import numpy, torchmojo                                        # doctest: +SKIP
        >>> kernels = torchmojo.load("kernels.mojo")                       # doctest: +SKIP
        >>> torchmojo.explain(numpy.zeros((2, 3)), kernels.scaled_add.a)   # doctest: +SKIP
    """
    if not isinstance(argument, BoundArgument):
        raise ArgumentError(
            f"explain: argument: wanted an argument of a kernel, as kernels.f.a, "
            f"given {show(argument)}"
        )
    contract, inner = argument.kernel.contract, argument.argument
    if not inner.is_tensor:
        raise ArgumentError(
            f"explain: argument: wanted a tensor argument, given {spell(contract, inner)}"
        )
    title = f"{contract.name}: {spell(contract, inner)}"
    if value is None:
        wanted = "a tensor or None" if inner.optional else "a tensor"
        items = [Check("given", inner.optional, wanted, "None", "pass a tensor", Code.NONE)]
        return Explanation(title, "None", items)
    if is_torch_tensor(value):
        return Explanation(title, show(value), checks(contract, inner, value))
    try:
        lease = (look if is_capsule(value) else borrow)(value, contract.name)  # uses nothing up
    except TorchmojoError as error:
        text = str(error).removeprefix(f"{contract.name}: ")
        wanted, _, rest = text.partition(", given ")
        found, _, advice = rest.partition("; ")
        items = [
            Check("tensor", False, wanted.removeprefix("wanted "), found, advice, Code.FOREIGN)
        ]
        return Explanation(title, show(value), items)
    try:
        return Explanation(title, show(lease), checks(contract, inner, lease))
    finally:
        lease.release()
