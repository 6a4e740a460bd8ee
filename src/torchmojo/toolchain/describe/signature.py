"""Turns the compiler's own account of a file (``mojo doc``, JSON) into a contract.

Types arrive in one spelling, with aliases resolved: ``Tensor[dtype, 2, "h w"]`` is printed as
``TensorView[False, dtype, Int(2), StringSpan("h w"), Layout.ANY]``. Only that print is read here;
the Mojo source never is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchmojo.contract import Argument, Contract, KernelContract, Parameter
from torchmojo.dtypes import DEFAULT, MOJO
from torchmojo.errors import SignatureError
from torchmojo.toolchain.describe.constraint import Constraint, UnknownConstraintError
from torchmojo.toolchain.describe.default import read_default, split

__all__ = ["MAX_INSTANCES", "SCALARS", "Choices", "read_contract"]

SCALARS = (
    "Bool",
    *("Int", "Int8", "Int16", "Int32", "Int64"),
    *("UInt", "UInt8", "UInt16", "UInt32", "UInt64"),
    *("Float32", "Float64"),
)
"""Mojo types of numbers that Python can give and take."""

MAX_INSTANCES = 256
"""Most combinations of dtypes and ranks that one kernel is compiled for."""

_RANKS = tuple(str(rank) for rank in range(6))
_VIEW = re.compile(r"^TensorView\[(?P<inside>.*)\]$")
_WRAPPED = re.compile(r"^(?P<wrapper>OptionalView|ListView)\[(?P<inside>.*)\]$")
_LAYOUTS = {
    "Layout.ANY": "any",
    "Layout.ROW_MAJOR": "row_major",
    "Layout.CHANNELS_LAST": "channels_last",
}


@dataclass(frozen=True, slots=True)
class Choices:
    """What a user chose at ``load``.

    Attributes:
        dtypes: Dtype names for every dtype parameter, or by kernel name, or ``kernel.parameter``.
    """

    dtypes: Mapping[str, Sequence[str]] | Sequence[str] | None = None

    def of(self, kernel: str, parameter: str) -> Sequence[str] | None:
        """Returns the dtypes chosen for a parameter, None where nothing was said.

        Args:
            kernel: Name of the kernel.
            parameter: Name of its dtype parameter.
        """
        if self.dtypes is None or not isinstance(self.dtypes, Mapping):
            return self.dtypes
        for key in (f"{kernel}.{parameter}", kernel, "*"):
            if key in self.dtypes:
                return self.dtypes[key]
        return None

    def check(self, kernels: Iterable[KernelContract]) -> None:
        """Refuses names that are neither a kernel nor one of its dtype parameters.

        Args:
            kernels: All kernels.

        Raises:
            SignatureError: A name in a mapping is unknown, so that what it says would be lost.
        """
        if not isinstance(self.dtypes, Mapping):
            return
        known = ["*"]
        for kernel in kernels:
            known += [kernel.name]
            known += [f"{kernel.name}.{p.name}" for p in kernel.parameters if p.kind == "dtype"]
        for name in self.dtypes:
            if name not in known:
                raise SignatureError(
                    f"load: dtypes: wanted names among {', '.join(known)}, given {name!r}"
                )


class _Unsupported(Exception):
    """A part of a signature that cannot be called from Python; the text says which and why."""


def read_contract(
    document: Mapping[str, Any],
    name: str,
    choices: Choices,
    wheres: Mapping[tuple[str, str], str] | None = None,
) -> Contract:
    """Reads all kernels of a file or package.

    A public function with a tensor among its arguments is a kernel; so is one that takes and
    returns only numbers and text. Names with a leading underscore are private.

    Args:
        document: What ``mojo doc`` wrote.
        name: Name of the user's file or package.
        choices: Dtypes chosen at ``load``.
        wheres: The source's ``where`` clauses by module and function, see ``constraint.clauses``.

    Returns:
        The contract, kernels in the order of the source.

    Raises:
        SignatureError: A function with a tensor argument has something that cannot be called; the
            text names the argument and the reason. Also when there is no kernel at all.
    """
    kernels: dict[str, KernelContract] = {}
    skipped: dict[str, str] = {}
    for module, function in _functions(document["decl"], ""):
        title = function["name"]
        if title.startswith("_") or title == "main":
            continue
        overloads = function["overloads"]
        has_tensor = any(_has_tensor(overload) for overload in overloads)
        try:
            if len(overloads) != 1:
                raise _Unsupported(f"{len(overloads)} overloads; a kernel has one signature")
            if title in kernels:
                raise _Unsupported(
                    f"the name stands in two modules ({_called(kernels[title].module)}, "
                    f"{_called(module)})"
                )
            where = (wheres or {}).get((module, title), "")
            if not where and " where " in re.sub(r'"[^"]*"', "", overloads[0]["signature"]):
                raise _Unsupported("its `where` clause was not found in the source")
            kernels[title] = _read_kernel(title, module, overloads[0], choices, where, len(kernels))
        except _Unsupported as error:
            if has_tensor:
                raise SignatureError(
                    f"load: {title}: {error}. Change the signature, or start the name with an "
                    "underscore if it is a helper that Python does not call"
                ) from None
            skipped[title] = str(error)
    if not kernels:
        reasons = "".join(f"\n  {key}: {why}" for key, why in skipped.items())
        raise SignatureError(
            f"load: {name}: no kernel found: wanted a public function that takes a Tensor or "
            f"MutTensor{reasons}"
        )
    choices.check(kernels.values())
    summary = _text(document["decl"])
    return Contract(name, tuple(kernels.values()), summary, skipped)


def _called(module: str) -> str:
    return module or "__init__"


def _functions(decl: Mapping[str, Any], module: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for function in decl.get("functions", ()):
        yield module, function
    for part in ("modules", "packages"):
        for child in decl.get(part, ()):
            title = child["name"]
            if title.startswith("_") and title != "__init__":
                continue
            inner = module if title == "__init__" else f"{module}.{title}".lstrip(".")
            yield from _functions(child, inner)


def _has_tensor(overload: Mapping[str, Any]) -> bool:
    return any(re.search(r"\b(Tensor|Optional|List)View\[", a["type"]) for a in overload["args"])


def _text(decl: Mapping[str, Any]) -> str:
    parts = (decl.get("summary", ""), decl.get("description", ""))
    return "\n\n".join(part.strip() for part in parts if part and part.strip())


def _read_kernel(
    name: str,
    module: str,
    overload: Mapping[str, Any],
    choices: Choices,
    where: str,
    number: int,
) -> KernelContract:
    if overload.get("async"):
        raise _Unsupported("async functions cannot be called")
    known = {p["name"]: p for p in overload["parameters"]}
    chosen = [p["name"] for p in overload["parameters"] if p["type"] == "DType" or _is_rank(p)]
    clause = Constraint(where, tuple(chosen))
    parameters = tuple(
        parameter
        for p in overload["parameters"]
        if (parameter := _read_parameter(name, p, clause, choices)) is not None
    )
    arguments = tuple(_read_argument(a, set(known)) for a in overload["args"])
    used = {a.dtype for a in arguments} | {str(a.rank) for a in arguments}
    for parameter in parameters:
        if parameter.name not in used:
            raise _Unsupported(f"parameter {parameter.name}: no tensor argument says what it is")
    instances = math.prod(len(p.choices) for p in parameters)
    if instances > MAX_INSTANCES:
        counts = " x ".join(str(len(p.choices)) for p in parameters)
        raise _Unsupported(
            f"{counts} = {instances} combinations of {', '.join(p.name for p in parameters)}, "
            f"more than {MAX_INSTANCES}; narrow them with a `where` clause or load(dtypes=...)"
        )
    return KernelContract(
        name=name,
        module=module,
        symbol=f"torchmojo_kernel_{number}",
        parameters=parameters,
        arguments=arguments,
        returns=_read_result(overload.get("returns"), parameters),
        raises=bool(overload["raises"]),
        where=where,
        doc=_text(overload),
        signature=overload["signature"],
    )


def _is_rank(parameter: Mapping[str, Any]) -> bool:
    return parameter["type"] == "Int" and "default" not in parameter


def _read_parameter(
    kernel: str, parameter: Mapping[str, Any], clause: Constraint, choices: Choices
) -> Parameter | None:
    name, kind = parameter["name"], parameter["type"]
    if kind == "DType":
        wanted = choices.of(kernel, name)
        if wanted is not None and (isinstance(wanted, str) or not wanted):
            raise _Unsupported(
                f"parameter {name}: load(dtypes=...) gives {wanted!r}; wanted a list of names"
            )
        for dtype in wanted or ():
            if dtype not in MOJO:
                raise _Unsupported(
                    f"parameter {name}: load(dtypes=...) names {dtype!r}; "
                    f"wanted one of {', '.join(MOJO)}"
                )
        # A float8 dtype that the clause names is meant; the default set leaves it out.
        pool = tuple(dict.fromkeys(wanted)) if wanted else DEFAULT
        if wanted is None:
            pool += tuple(d for d in MOJO if d not in pool and re.search(rf"\b{d}\b", clause.text))
        try:
            allowed = tuple(choice for choice in pool if clause.allows({name: choice}))
        except UnknownConstraintError as error:
            if wanted is None:
                raise _Unsupported(
                    f"parameter {name}: `where {error}` is not understood; wanted conditions on "
                    "dtypes and ranks (dtype.is_floating_point(), dtype == DType.float32, "
                    "rank > 1, and, or, not), or load(dtypes=...)"
                ) from None
            allowed = tuple(wanted)
        if not allowed:
            raise _Unsupported(f"parameter {name}: `where {clause.text}` leaves no dtype")
        assumed = wanted is None and not re.search(r"\bbool\b", clause.text)
        return Parameter(name, "dtype", allowed, assumed)
    if _is_rank(parameter):
        try:
            ranks = tuple(choice for choice in _RANKS if clause.allows({name: choice}))
        except UnknownConstraintError:
            ranks = _RANKS
        if not ranks:
            raise _Unsupported(f"parameter {name}: `where {clause.text}` leaves no rank up to 5")
        return Parameter(name, "rank", ranks)
    if "default" in parameter:
        return None
    raise _Unsupported(
        f"parameter {name}: {kind} has no value at run time; wanted a DType, an Int that is a "
        "tensor's rank, or a default"
    )


def _read_argument(arg: Mapping[str, Any], parameters: set[str]) -> Argument:
    name, text = arg["name"], arg["type"]
    by_name = arg["passingKind"] == "kw"
    if arg["passingKind"] not in ("pos_or_kw", "pos", "kw") or name.startswith("*"):
        raise _Unsupported(f"argument {name}: variadic arguments cannot be called")
    if arg["convention"] not in ("imm", "read", "var", ""):
        raise _Unsupported(
            f"argument {name}: convention {arg['convention']!r}; wanted none (write a MutTensor "
            "where the kernel writes)"
        )
    doc = (arg.get("description") or "").strip()
    base = _tensor(name, text, parameters)
    if base is not None:
        if "default" in arg and not base.optional:
            raise _Unsupported(f"argument {name}: a tensor has no default")
        return _with(base, doc=doc, required="default" not in arg, by_name=by_name)
    optional = False
    inner = text
    if inner.startswith("Optional[") and inner.endswith("]"):
        optional, inner = True, inner[len("Optional[") : -1]
    kind: Any = "scalar"
    if inner.startswith("List[") and inner.endswith("]"):
        kind, inner = "list", inner[len("List[") : -1]
    if inner in ("String", "StringSpan[ImmStaticOrigin]") and kind == "scalar":
        kind, inner = "string", "String" if inner == "String" else "StaticString"
    elif inner not in SCALARS:
        raise _Unsupported(
            f"argument {name}: {text} cannot come from Python; wanted a Tensor, a MutTensor, "
            f"{', '.join(SCALARS)}, String, StaticString, or an Optional or List of these"
        )
    given = "default" in arg
    try:
        default = read_default(inner, arg["default"]) if given else None
    except ValueError:
        raise _Unsupported(
            f"argument {name}: default {arg['default']} is not a plain number or text"
        ) from None
    return Argument(
        name=name,
        kind=kind,
        type=inner,
        optional=optional,
        required=not given,
        default=default,
        doc=doc,
        by_name=by_name,
    )


def _with(argument: Argument, **changes: Any) -> Argument:
    from dataclasses import replace

    return replace(argument, **changes)


def _tensor(name: str, text: str, parameters: set[str]) -> Argument | None:
    wrapped = _WRAPPED.match(text)
    match = wrapped or _VIEW.match(text)
    if match is None:
        return None
    writes, dtype, rank, axes, layout = split(match["inside"])[:5]
    if dtype.startswith((".", "DType.")):
        dtype = dtype.rsplit(".", 1)[1]
        if dtype not in MOJO:
            raise _Unsupported(f"argument {name}: dtype {dtype} cannot come from Python")
    elif dtype not in parameters:
        raise _Unsupported(f"argument {name}: dtype {dtype} is not a parameter of the kernel")
    number = re.fullmatch(r"Int\((\d+)\)", rank)
    if number is None and rank not in parameters:
        raise _Unsupported(f"argument {name}: rank {rank} is not a parameter of the kernel")
    label = re.fullmatch(r'StringSpan\("(.*)"\)', axes)
    if label is None:
        raise _Unsupported(f"argument {name}: axes {axes} are not a plain text")
    parts = tuple(label[1].split())
    if parts and number is None:
        raise _Unsupported(f"argument {name}: axes of a tensor whose rank varies have no names")
    if parts and len(parts) != int(number[1]):  # type: ignore[index]
        raise _Unsupported(
            f'argument {name}: axes "{label[1]}" name {len(parts)} axes, rank is {number[1]}'  # type: ignore[index]
        )
    for part in parts:
        if not (part.isdecimal() or part.isidentifier()):
            raise _Unsupported(f"argument {name}: axis {part!r}: wanted a name, a size or _")
    if "complex" in parts[:-1]:
        raise _Unsupported(f"argument {name}: the axis `complex` must be the last one")
    if layout not in _LAYOUTS:
        raise _Unsupported(f"argument {name}: layout {layout}: wanted one of {', '.join(_LAYOUTS)}")
    return Argument(
        name=name,
        kind="tensors" if wrapped and wrapped["wrapper"] == "ListView" else "tensor",
        writes=writes == "True",
        dtype=dtype,
        rank=int(number[1]) if number else rank,
        axes=parts,
        layout=_LAYOUTS[layout],  # type: ignore[arg-type]
        optional=bool(wrapped and wrapped["wrapper"] == "OptionalView"),
    )


def _read_result(result: Mapping[str, Any] | None, parameters: tuple[Parameter, ...]) -> str:
    if not result or result["type"] in ("None", "NoneType"):
        return ""
    text: str = result["type"]
    scalar = re.fullmatch(r"Scalar\[(\w+)\]", text)
    if text in (*SCALARS, "String") or (scalar and scalar[1] in {p.name for p in parameters}):
        return text
    if re.fullmatch(r"OwnedTensor\[(\.?\w+), (Int\(\d+\)|\w+)\]", text):
        return text
    raise _Unsupported(
        f"result {text} cannot go to Python; wanted nothing, {', '.join(SCALARS)}, String, "
        "Scalar of a dtype parameter or OwnedTensor"
    )
