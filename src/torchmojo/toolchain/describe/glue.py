"""Writes the Mojo glue of a library: one exported ``vectorcallfunc`` a kernel.

The glue is straight-line code that a reader can follow: put arguments in order, read and check each
tensor, compare what the signature ties together, ask autograd, then release the GIL and call the
user's function for the dtypes and ranks at hand. All checks come before the first touch of memory.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

from torchmojo.contract import Argument, Contract, KernelContract, Parameter
from torchmojo.dtypes import BY_NAME
from torchmojo.toolchain.describe.constraint import Constraint, UnknownConstraintError
from torchmojo.toolchain.describe.imports import alias, imports_of
from torchmojo.toolchain.describe.values import mojo_type, read_list, read_scalar

__all__ = ["KernelWriter", "write_glue"]

_LAYOUT_CODES = {"any": 0, "row_major": 1, "channels_last": 2}
_LAYOUT_NAMES = {"any": "ANY", "row_major": "ROW_MAJOR", "channels_last": "CHANNELS_LAST"}

_NUMBERS = {"Bool": "Scalar[DType.bool]", "Int": "Int64", "UInt": "UInt64"}

_HEAD = """\
# Written by torchmojo from the signatures in {name}; do not edit.
from torchmojo._glue import *
from torchmojo.layout import Layout
from torchmojo.trap import CHECK_BOUNDS
{imports}
"""


def write_glue(contract: Contract, module: str) -> str:
    """Returns the Mojo source of the glue.

    Args:
        contract: The kernels.
        module: Name under which Mojo imports the user's file or package.

    Returns:
        A file for ``mojo build --emit shared-lib`` that exports every kernel's ``symbol``.
    """
    parts = [_HEAD.format(name=contract.name, imports=imports_of(contract, module))]
    for kernel in contract.kernels:
        parts.append("\n".join(KernelWriter(kernel).lines()))
    return "\n\n".join(parts) + "\n"


def _may_be_missing(user: tuple[int, Argument]) -> bool:
    return user[1].optional or user[1].kind == "tensors"


class KernelWriter:
    """Writes the two functions of one kernel."""

    def __init__(self, kernel: KernelContract) -> None:
        self.kernel = kernel
        self.arguments = kernel.arguments
        self.tensors = [(i, a) for i, a in enumerate(self.arguments) if a.is_tensor]
        self.dtypes = [p for p in kernel.parameters if p.kind == "dtype"]
        self.ranks = [p for p in kernel.parameters if p.kind == "rank"]
        self.where = Constraint(kernel.where, tuple(p.name for p in kernel.parameters))

    def lines(self) -> Iterator[str]:
        """Yields the lines of both functions."""
        yield from self.runner()
        yield ""
        yield ""
        yield from self._entry()

    # -- the call of the user's function, once for each combination of dtypes and ranks

    def runner(self) -> Iterator[str]:
        """Yields the function that calls the user's."""
        kernel = self.kernel
        parameters = [
            f"{p.name}: {'DType' if p.kind == 'dtype' else 'Int'}" for p in kernel.parameters
        ]
        inside = f"[{', '.join(parameters)}]" if parameters else ""
        takes = ["_frame: Frame", "mut _gil: Int"]
        if kernel.returns:
            takes.append("mut text: String" if kernel.returns == "String" else "mut result: Result")
        passes = []
        for i, argument in enumerate(self.arguments):
            takes.append(f"{self._taken(i, argument)}")
            name = f"{argument.name}=" if argument.by_name else ""
            passes.append(f"{name}{'v' if argument.is_tensor else 'x'}{i}")
        raises = " raises" if kernel.raises else ""
        yield "@always_inline"
        where = f" where {kernel.where}" if kernel.where else ""
        yield f"def _run_{kernel.symbol}{inside}({', '.join(takes)}){raises}{where}:"
        # Views hold copies of sizes and strides, made before another thread can change a tensor.
        for i, argument in self.tensors:
            yield f"    var v{i} = {self._view(i, argument)}"
        yield "    _gil = _frame.release_gil()"
        named = ", ".join(f"{p.name}={p.name}" for p in kernel.parameters)
        call = f"{alias(kernel.module)}.{kernel.name}"
        call += f"[{named}]" if named else ""
        call += f"({', '.join(passes)})"
        if not kernel.returns:
            yield f"    {call}"
        elif kernel.returns == "String":
            yield f"    text = {call}"
        elif kernel.makes_tensor:
            yield f"    result.own({call}.into_dlpack())"
        else:
            yield f"    result.set({_NUMBERS.get(kernel.returns, '')}({call}))"

    def _taken(self, i: int, argument: Argument) -> str:
        if argument.kind == "tensor":
            return f"var r{i}: Record, t{i}: Int"
        if argument.kind == "tensors":
            return f"{'mut ' if argument.writes else ''}r{i}: Records, t{i}: Int"
        return f"x{i}: {mojo_type(argument)}"

    def _view(self, i: int, argument: Argument) -> str:
        origin = f"origin_of(r{i})" if argument.writes else f"ImmOrigin(origin_of(r{i}))"
        dtype = (
            argument.dtype if self.kernel.parameter(argument.dtype) else f"DType.{argument.dtype}"
        )
        axes = json.dumps(" ".join(argument.axes))
        layout = f"Layout.{_LAYOUT_NAMES[argument.layout]}"
        prefix = "optional_" if argument.optional else "list_" if argument.kind == "tensors" else ""
        method = f"{prefix}{'writer' if argument.writes else 'reader'}"
        return f"r{i}.{method}[{dtype}, {argument.rank}, {axes}, {layout}, {origin}](t{i})"

    # -- the exported function

    def _entry(self) -> Iterator[str]:
        kernel = self.kernel
        yield f'@export("{kernel.symbol}")'
        yield (
            f"def _{kernel.symbol}(this: Object, args: Objects, nargsf: UInt, keywords: Object)"
            ' abi("C") -> Object:'
        )
        for line in self.body():
            yield f"    {line}" if line else line

    def body(self) -> Iterator[str]:
        """Yields the body of the exported function, which works on a frame of any kind."""
        count = len(self.arguments)
        yield "var frame = Frame(this, args, nargsf, keywords)"
        yield f"var slots = Slots[{max(count, 1)}]()"
        required = [i for i, argument in enumerate(self.arguments) if argument.required]
        leading = next((k for k, i in enumerate(required) if k != i), len(required))
        yield f"if not frame.bind[{count}, {leading}](slots):"
        yield "    return frame.refuse(Code.COUNT)"
        for i in required[leading:]:  # behind a `*` an argument without a default may follow
            yield f"if not slots[{i}]:"
            yield "    return frame.refuse(Code.COUNT)"
        yield "var code = Code.OK"
        for i, argument in self.tensors:
            if argument.kind == "tensors":
                yield f"var r{i} = Records()"
                yield f"code = frame.hold(slots[{i}], r{i})"
                yield from self._refuse(i)
        # Outputs first: opening one may copy a lazily cloned storage, and an input that is a view
        # of the same storage must be looked at after that.
        for i, argument in sorted(enumerate(self.arguments), key=lambda each: not each[1].writes):
            if argument.kind == "tensor":
                yield from self._read_tensor(i, argument)
            elif argument.kind == "tensors":
                yield from self._read_list_of_tensors(i, argument)
            elif argument.kind == "list":
                yield from read_list(i, argument)
            else:
                yield from read_scalar(i, argument)
        yield from self._compare()
        yield from self._claim()
        yield from self._run()

    def _refuse(self, i: int) -> Iterator[str]:
        yield "if code != Code.OK:"
        yield f"    return frame.refuse(code, {i})"

    def _rank(self, argument: Argument) -> int:
        return argument.rank if isinstance(argument.rank, int) else -1

    def _read_tensor(self, i: int, argument: Argument) -> Iterator[str]:
        yield f"var r{i} = Record()"
        call = (
            f"code = frame.tensor(slots[{i}], r{i}, {argument.writes}, {self._rank(argument)}, "
            f"{_LAYOUT_CODES[argument.layout]}, {argument.takes_complex})"
        )
        if argument.optional:
            yield f"if not frame.is_none(slots[{i}]):"
            yield f"    {call}"
        else:
            yield call
        yield from self._refuse(i)

    def _read_list_of_tensors(self, i: int, argument: Argument) -> Iterator[str]:
        layout = _LAYOUT_CODES[argument.layout]
        facts = f"{argument.writes}, {self._rank(argument)}, {layout}, {argument.takes_complex}"
        yield f"code = frame.tensors(r{i}, {facts})"
        yield "if code != Code.OK:"
        yield f"    return frame.refuse(code, {i}, r{i}.failed)"

    def _compare(self) -> Iterator[str]:
        """Compares what the signature ties together: dtypes, ranks, axes."""
        for parameter in self.kernel.parameters:
            variable = self._variable(parameter)
            users = self._users(parameter)
            field, code = ("dtype", "DTYPE") if parameter.kind == "dtype" else ("ndim", "RANK")
            yield f"var {variable} = -1"
            for i, argument in users:
                yield from self._meet(i, argument, variable, field, f"SAME_{code}")
            known = " or ".join(self._test(parameter, choice) for choice in parameter.choices)
            yield f"if {variable} >= 0 and not ({known}):"
            yield f"    return frame.refuse(Code.{code}, {users[0][0]})"
        for i, argument in self.tensors:
            if self.kernel.parameter(argument.dtype) is None:
                yield f"var f{i} = {BY_NAME[argument.dtype].code}"
                yield from self._meet(i, argument, f"f{i}", "dtype", "DTYPE")
        yield from self._compare_choices()
        names: dict[str, int] = {}
        for i, argument in self.tensors:
            for axis, name in enumerate(argument.axes):
                if name == "_":
                    continue
                if name not in names:
                    names[name] = len(names)
                    size = "2" if name == "complex" else name if name.isdecimal() else "-1"
                    yield f"var a{names[name]} = {size}"
                yield from self._meet_axis(i, argument, f"a{names[name]}", axis)

    def _compare_choices(self) -> Iterator[str]:
        """Chooses for arguments that were not given; refuses what the ``where`` clause forbids."""
        parameters = self.kernel.parameters
        names = [p.name for p in parameters]
        product = itertools.product(*(p.choices for p in parameters))
        choices = [dict(zip(names, choice, strict=True)) for choice in product]
        allowed = [choice for choice in choices if self._allows(choice)]
        joint = len(allowed) < len(choices)
        # A parameter is open where each tensor that has it may be left out, or is an empty list.
        left_out = [p for p in parameters if all(map(_may_be_missing, self._users(p)))]
        if left_out:
            yield f"if {' or '.join(f'{self._variable(p)} < 0' for p in left_out)}:"
            for number, choice in enumerate(allowed if joint else allowed[:1]):
                known = [
                    f"({self._test(p, choice[p.name])} or {self._variable(p)} < 0)"
                    for p in (parameters if joint else ())
                ]
                yield f"    {'elif' if number else 'if'} {' and '.join(known) or 'True'}:"
                for p in left_out:
                    variable, value = self._variable(p), self._number(p, choice[p.name])
                    yield f"        {variable} = {value} if {variable} < 0 else {variable}"
        if joint:
            known_all = " or ".join(
                f"({' and '.join(self._test(p, choice[p.name]) for p in parameters)})"
                for choice in allowed
            )
            last = max(i for p in parameters for i, _ in self._users(p))
            yield f"if not ({known_all}):"
            yield f"    return frame.refuse(Code.DTYPE, {last})"

    def _users(self, parameter: Parameter) -> list[tuple[int, Argument]]:
        return [(i, a) for i, a in self.tensors if parameter.name in (a.dtype, a.rank)]

    def _variable(self, parameter: Parameter) -> str:
        if parameter.kind == "dtype":
            return f"d{self.dtypes.index(parameter)}"
        return f"n{self.ranks.index(parameter)}"

    @staticmethod
    def _number(parameter: Parameter, choice: str) -> str:
        return str(BY_NAME[choice].code) if parameter.kind == "dtype" else choice

    def _meet(
        self, i: int, argument: Argument, variable: str, field: str, code: str
    ) -> Iterator[str]:
        if argument.kind == "tensors":
            yield f"for k in range(r{i}.count()):"
            yield f"    if not meet({variable}, r{i}.at(k).{field}):"
            yield f"        return frame.refuse(Code.{code}, {i}, k)"
        else:
            given = f"r{i}.given() and " if argument.optional else ""
            yield f"if {given}not meet({variable}, r{i}.{field}):"
            yield f"    return frame.refuse(Code.{code}, {i})"

    def _meet_axis(self, i: int, argument: Argument, variable: str, axis: int) -> Iterator[str]:
        if argument.kind == "tensors":
            yield f"for k in range(r{i}.count()):"
            yield f"    if not meet({variable}, r{i}.at(k).size({axis})):"
            yield f"        return frame.refuse(Code.AXIS, {i}, {axis} + 256 * k)"
        else:
            given = f"r{i}.given() and " if argument.optional else ""
            yield f"if {given}not meet({variable}, r{i}.size({axis})):"
            yield f"    return frame.refuse(Code.AXIS, {i}, {axis})"

    def _claim(self) -> Iterator[str]:
        """Asks whether each output may be written; then raises the version counters."""
        writes = [(i, a) for i, a in self.tensors if a.writes]
        for i, argument in writes:
            yield f"code = frame.claim(r{i})"
            if argument.kind == "tensors":
                yield "if code == Code.PARTIAL_OVERLAP:"
                yield f"    return frame.refuse(code, {i}, {i})"
                yield "if code != Code.OK:"
                yield f"    return frame.refuse(code, {i}, r{i}.failed)"
            else:
                yield from self._refuse(i)
        for i, _ in writes:
            for j, _ in self.tensors:
                if i != j and not (j < i and self.arguments[j].writes):
                    yield f"if overlaps_in_part(r{i}, r{j}):"
                    yield f"    return frame.refuse(Code.PARTIAL_OVERLAP, {i}, {j})"
        for i, _ in writes:
            yield f"frame.raise_version(r{i})"

    def _run(self) -> Iterator[str]:
        kernel = self.kernel
        count = len(self.arguments)
        if self.tensors:
            yield f"var traps = new_traps({count})"
        if kernel.returns not in ("", "String"):
            yield "var result = Result()"
        if kernel.raises or kernel.returns == "String":
            yield "var text = String()"
        if kernel.raises:
            yield "var failed = False"
        yield "var gil = 0"
        if kernel.raises:
            yield "try:"
            for line in self._dispatch(0, {}):
                yield f"    {line}"
            yield "except error:"
            yield "    text = String(error)"
            yield "    failed = True"
        else:
            yield from self._dispatch(0, {})
        yield "frame.take_gil(gil)"
        yield "frame.close()"
        if self.tensors:
            yield "comptime if CHECK_BOUNDS:"
            yield f"    var outside = sprung(traps, {count})"
            yield "    var story = describe(traps, outside) if outside >= 0 else String()"
            yield "    free_traps(traps)"
            yield "    if outside >= 0:"
            yield "        result.drop()" if kernel.makes_tensor else "        pass"
            yield "        return frame.raised(Code.BOUNDS, outside, story)"
        if kernel.raises:
            yield "if failed:"
            yield "    return frame.raised(Code.RAISED, 0, text)"
        if not kernel.returns:
            yield "return frame.none()"
        elif kernel.returns == "String":
            yield "return frame.text(text)"
        elif kernel.makes_tensor:
            yield "return frame.adopt(result.managed)"
        else:
            yield "return result.object()"

    def _dispatch(self, depth: int, bound: dict[str, str]) -> Iterator[str]:
        if depth == len(self.kernel.parameters):
            yield self._leaf(bound)
            return
        parameter = self.kernel.parameters[depth]
        word = "if"
        for choice in parameter.choices:
            inner = {**bound, parameter.name: choice}
            if self._allows(inner):
                yield f"{word} {self._test(parameter, choice)}:"
                word = "elif"
                for line in self._dispatch(depth + 1, inner):
                    yield f"    {line}"

    def _allows(self, bound: dict[str, str]) -> bool:
        try:
            return self.where.allows(bound)
        except UnknownConstraintError:  # the user named the dtypes and answers for them
            return True

    def _test(self, parameter: Parameter, choice: str) -> str:
        return f"{self._variable(parameter)} == {self._number(parameter, choice)}"

    def _leaf(self, bound: dict[str, str]) -> str:
        passes = ["frame", "gil"]
        if self.kernel.returns:
            passes.append("text" if self.kernel.returns == "String" else "result")
        for i, argument in enumerate(self.arguments):
            if argument.is_tensor:
                passes.append(f"r{i}, trap(traps, {i})")
            else:
                passes.append(f"x{i}")
        inside = ", ".join(
            f"DType.{bound[p.name]}" if p.kind == "dtype" else bound[p.name]
            for p in self.kernel.parameters
        )
        inside = f"[{inside}]" if inside else ""
        return f"_run_{self.kernel.symbol}{inside}({', '.join(passes)})"
