"""What a kernel's signature promises: the only thing that toolchain and bridge both know.

A contract is plain data. It is read from the Mojo signature once, stored beside the compiled
library as JSON, and drives the glue, the checks, the messages and the stub file.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["Argument", "Contract", "KernelContract", "Parameter"]

Kind = Literal["tensor", "scalar", "string", "list", "tensors"]
Default = bool | int | float | str | tuple[bool | int | float | str | None, ...] | None
Layout = Literal["any", "row_major", "channels_last"]

FORMAT = 2
"""Version of the JSON; a library built with another one is built again."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A compile-time parameter that is chosen at run time from the arguments.

    Attributes:
        name: Its name in the Mojo source.
        kind: ``dtype`` or ``rank``.
        choices: Dtype names, or ranks as text, for which the kernel is compiled.
        assumed: Whether nobody named these dtypes: they are the default set.
    """

    name: str
    kind: Literal["dtype", "rank"]
    choices: tuple[str, ...]
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a kernel.

    Attributes:
        name: Its name.
        kind: ``tensor``, ``scalar`` (number or bool), ``string``, ``list`` (of numbers),
            ``tensors`` (a list of tensors).
        type: The Mojo type of a scalar, or of a list's element, such as ``Float64``.
        writes: Whether the kernel writes it.
        dtype: Name of a dtype parameter, or of a dtype.
        rank: Name of a rank parameter, or the number of axes.
        axes: One entry an axis: a name, a fixed size, or ``_``; empty where nothing is said.
        layout: Strides that the kernel asks for.
        optional: Whether ``None`` is taken.
        required: Whether it has no default.
        default: The default as a Python value.
        doc: Its line in the docstring.
        by_name: Whether Mojo takes it by name only (it stands behind a ``*``).
    """

    name: str
    kind: Kind
    type: str = ""
    writes: bool = False
    dtype: str = ""
    rank: str | int = 0
    axes: tuple[str, ...] = ()
    layout: Layout = "any"
    optional: bool = False
    required: bool = True
    default: Default = None
    doc: str = ""
    by_name: bool = False

    @property
    def takes_complex(self) -> bool:
        """Whether complex tensors are taken, their parts on a last axis named ``complex``."""
        return bool(self.axes) and self.axes[-1] == "complex"

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor or a list of tensors."""
        return self.kind in ("tensor", "tensors")


@dataclass(frozen=True, slots=True)
class KernelContract:
    """One kernel.

    Attributes:
        name: Name in Python and in Mojo.
        module: Dotted Mojo module below the user's file or package; empty for the file itself.
        symbol: Name of the exported C function.
        parameters: Compile-time parameters in order.
        arguments: Arguments in order.
        returns: Mojo type of the scalar result; empty for nothing.
        raises: Whether the kernel may raise.
        where: Its ``where`` clause as the compiler prints it, which glue must repeat as evidence.
        doc: Docstring without the sections on arguments.
        signature: The signature as the compiler prints it.
    """

    name: str
    module: str
    symbol: str
    parameters: tuple[Parameter, ...]
    arguments: tuple[Argument, ...]
    returns: str
    raises: bool
    where: str = ""
    doc: str = ""
    signature: str = ""

    @property
    def required(self) -> int:
        """How many arguments have no default."""
        return sum(argument.required for argument in self.arguments)

    @property
    def makes_tensor(self) -> bool:
        """Whether it returns a tensor of its own."""
        return self.returns.startswith("OwnedTensor[")

    def parameter(self, name: str) -> Parameter | None:
        """Returns the compile-time parameter of that name, if there is one.

        Args:
            name: A dtype or rank as an argument names it.
        """
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        return None

    def dtypes(self, argument: Argument) -> tuple[str, ...]:
        """Returns the dtypes that a tensor argument takes.

        Args:
            argument: One of this kernel's.
        """
        parameter = self.parameter(argument.dtype)
        return parameter.choices if parameter else (argument.dtype,)


@dataclass(frozen=True, slots=True)
class Contract:
    """All kernels of one library.

    Attributes:
        name: Name of the user's file or package.
        kernels: The kernels in the order of the source.
        doc: Docstring of the file.
        skipped: Functions that are no kernels, each with the reason.
    """

    name: str
    kernels: tuple[KernelContract, ...]
    doc: str = ""
    skipped: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns plain data for ``json.dump``."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Contract:
        """Reads what ``to_json`` returned.

        Args:
            data: Plain data.

        Raises:
            ValueError: The data has another format.
        """
        if data.get("format") != FORMAT:
            raise ValueError(f"contract: wanted format {FORMAT}, given {data.get('format')!r}")
        kernels = tuple(
            KernelContract(
                **{
                    **kernel,
                    "parameters": tuple(
                        Parameter(**{**p, "choices": tuple(p["choices"])})
                        for p in kernel["parameters"]
                    ),
                    "arguments": tuple(
                        Argument(
                            **{
                                **a,
                                "axes": tuple(a["axes"]),
                                "default": _default(a["default"]),
                            }
                        )
                        for a in kernel["arguments"]
                    ),
                }
            )
            for kernel in data["kernels"]
        )
        return cls(data["name"], kernels, data["doc"], dict(data["skipped"]))


def _default(value: Any) -> Default:
    """Undoes what JSON does to a tuple."""
    return tuple(value) if isinstance(value, list) else value
