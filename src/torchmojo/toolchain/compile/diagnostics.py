"""Turns what the compiler printed into what the user needs to see: their file, line and caret.

The compiler sees more files than the user wrote: glue, torchmojo's own Mojo package, copies of
the user's files. Their places mean nothing to the user, so messages are moved to the line of the
user's that led there, and the rest is dropped. Where no line of the user's is involved the
compiler's text is shown whole: it is a fault of ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["HINTS", "OUTSIDE", "explain_failure", "hints"]

OUTSIDE = "the compiler failed outside your file"

_HEAD = re.compile(r"(?P<file>[^\s:][^:]*):(?P<line>\d+):(?P<col>\d+): (?P<kind>\w+): (?P<text>.*)")
_CONTEXT = re.compile(r"(?:Imported|Included) from .*:\d+:$")
_DRIVER = re.compile(r"\S*\bmojo: (?P<kind>error|warning): (?P<text>.*)")
_CALL = "call expansion failed"
_FUNCTION = "function instantiation failed"
_DECLARED = re.compile(r"(?:function|'\w+') declared here")
_MAX_NOTES = 6

# A view's full type has six parameters, of which the user wrote two or three.
_VIEW = re.compile(
    r"TensorView\[(?:mut=\w+, )?(True|False), ([^,\[\]]+), (?:Int\((\d+)\)|(\w+)), "
    r'StringSpan\("([^"]*)"\), [^,\[\]]+, [^,\[\]]+\]'
)
_DTYPE = re.compile(r'"(\w+)": #kgen\.dtype\.constant<(\w+)>')
_NUMBER = re.compile(r'"(\w+)": (-?\d+) : \w+')

HINTS: tuple[tuple[str, str], ...] = (
    (
        r"'fn' (?:is|has been) removed",
        "write `def` instead of `fn`, and `raises` after the arguments if the body may raise",
    ),
    (r"unknown declaration 'let'", "write `var x = ...` instead of `let x = ...`"),
    (r"unknown declaration 'alias'", "write `comptime N = ...` instead of `alias N = ...`"),
    (r"unknown declaration 'value'", "write `@fieldwise_init` instead of `@value`"),
    (
        r"expected '\)' in argument list\n.*\b(?:inout|borrowed|owned)\b",
        "argument conventions are now `mut` (was inout), `var` (owned), nothing (borrowed)",
    ),
    (
        r"'raise' requires a surrounding 'try'|cannot call function that may raise",
        "write `raises` after the argument list: `def f(...) raises:`",
    ),
    (
        r"must be mutable|constraint declared here evaluated to False, expected 'mut'",
        "a tensor that the kernel writes is declared `MutTensor`; `Tensor` can only be read",
    ),
    (
        r"\.mut of the first value is 'False' but the second value is 'True'",
        "a tensor that is passed on to be written is declared `MutTensor`, not `Tensor`",
    ),
    (
        r"'Optional' parameter 'T'.*(?:Tensor)",
        "write `OptionalTensor[dtype, rank]` instead of `Optional[Tensor[dtype, rank]]`",
    ),
    (
        r"'List' parameter 'T'.*(?:Tensor)",
        "write `TensorList[dtype, rank]` instead of `List[Tensor[dtype, rank]]`",
    ),
    (
        r"is not (?:a )?concrete.*\n.*\) *(?:raises *)?-> *(?:Mut)?Tensor\b",
        "a view cannot be returned: it lives as long as the call; "
        "take a `MutTensor` argument and write into it",
    ),
    (
        r"unknown declaration '(?:float|u?int|bfloat)\d+'",
        "element types are written `DType.float32`, or are a parameter: `def f[dtype: DType](...)`",
    ),
    (
        r"[Cc]ould not infer capture convention",
        "list what an inner function uses: `def body(i: Int) {var x, mut total}:`",
    ),
    (
        r"'algorithm' does not contain 'parallelize'|unable to locate module '(?:max|layout)'",
        "`max` and `layout` are packages of their own, not part of mojo-compiler; "
        "`from torchmojo import parallel_for` runs a loop on torch's threads",
    ),
    (
        r"unable to locate module '(?:algorithm|collections|math|memory|os|random|sys|utils)'",
        "modules of the standard library are imported as `from std.math import sqrt`",
    ),
    (r"global variables are not supported", "write `comptime` for a constant at module level"),
    (
        r"vector length must be a power of two",
        "the width in `SIMD[dtype, width]` is 1, 2, 4, 8 ...",
    ),
    (
        r"cannot implicitly convert '[^']*' value to '(?:U?Int\d*|Float\d+|Scalar)\b",
        "numbers are not converted silently: write `Float32(x)`, `Int(i)` or `x.cast[dtype]()`",
    ),
    (r"unknown target CPU", "TORCHMOJO_TARGET_CPU names a CPU that the compiler does not know"),
    (
        r"[Nn]o space left on device",
        "the disk is full: free some space, or set TORCHMOJO_CACHE_DIR to a folder elsewhere",
    ),
    (r"was killed by SIGKILL", "the system may have run out of memory; a build takes about 300 MB"),
)
"""Patterns in a compiler's text, each with one line of advice."""


@dataclass
class _Message:
    """One diagnostic: its head line, and the source line, caret and so on below it."""

    file: str
    line: int
    col: int
    kind: str
    text: str
    body: list[str] = field(default_factory=list)

    @property
    def link(self) -> bool:
        """Whether it only tells how the compiler got to the next message."""
        return self.text.startswith((_CALL, _FUNCTION))


def hints(text: str) -> list[str]:
    """Find advice for the common faults in a compiler's text.

    Args:
        text: Messages of the compiler, whole or in part.

    Returns:
        One line for each fault that was recognised.

    Example:
        >>> hints("error: use of unknown declaration 'let'")
        ['write `var x = ...` instead of `let x = ...`']
    """
    return [advice for pattern, advice in HINTS if re.search(pattern, text)]


def explain_failure(stderr: str, user_files: Mapping[Path, str], glue: Path | None = None) -> str:
    r"""Write the text of a CompileError.

    Args:
        stderr: What the compiler printed.
        user_files: Files of the user, as the compiler saw them, each with the name to show.
        glue: The generated file that calls the user's functions.

    Returns:
        The user's errors, each with the source line, caret and notes, then advice. If the user's
        files have none, the compiler's text in full below a line that says so.

    Example:
        >>> print(explain_failure("/tmp/k.mojo:2:5: error: oops\nlet x = 1\n", {
        ...     Path("/tmp/k.mojo"): "kernels.mojo"}))
        kernels.mojo:2:5: error: oops
        let x = 1
    """
    names = _Names(user_files)
    groups = _parse(stderr)
    shown = _Chains(names)
    for group in groups:
        if any(message.link for message in group):
            shown.add(group)
        elif group[0].kind == "error" and names.known(group[0]):
            shown.plain(_show_error(group, names))
    if not shown.texts:
        promoted = (_promote(group, names, glue) for group in groups if group[0].kind == "error")
        for text in filter(None, promoted):
            shown.plain(text)
    found = shown.render()
    advice = hints(found or stderr)
    if not found:
        report = "" if advice else " (please report this)"
        found = f"{OUTSIDE}{report}:\n{names.replace(stderr).strip()}"
    return "\n".join([found, *(f"hint: {line}" for line in advice)])


class _Names:
    """The user's files, by any way in which the compiler may write their paths."""

    def __init__(self, user_files: Mapping[Path, str]) -> None:
        self.names: dict[str, str] = {}
        for path, name in user_files.items():
            self.names |= {str(path.resolve()): name, str(path.absolute()): name, str(path): name}

    def known(self, message: _Message) -> bool:
        """Tell whether a message points into a file of the user's."""
        if message.file not in self.names:
            # Not as we wrote it: perhaps relative, or through a link. Ask the file system once.
            real = str(Path(message.file).resolve())
            if real not in self.names:
                return False
            self.names[message.file] = self.names[real]
        return True

    def replace(self, text: str) -> str:
        """Write the user's names wherever a text has the files' paths."""
        for path in sorted(self.names, key=len, reverse=True):  # /a/b.mojo before b.mojo
            text = re.sub(rf"(?<![\w./-]){re.escape(path)}(?![\w./-])", self.names[path], text)
        return _VIEW.sub(_short_view, text)

    def show(self, at: _Message, kind: str, text: str, body: list[str]) -> str:
        """Write a message at a place of the user's."""
        head = f"{self.names[at.file]}:{at.line}:{at.col}: {kind}: {self.replace(text)}"
        return "\n".join([head, *body])


def _short_view(match: re.Match[str]) -> str:
    """Write a view's type as one writes it in a kernel."""
    writes, dtype, number, name, axes = match.groups()
    parts = [f"DType{dtype}" if dtype.startswith(".") else dtype, number or name]
    parts += [f'"{axes}"'] if axes else []
    return f"{'MutTensor' if writes == 'True' else 'Tensor'}[{', '.join(parts)}]"


def _parse(stderr: str) -> list[list[_Message]]:
    """Split the compiler's text into groups: an error or warning, and the notes that follow."""
    groups: list[list[_Message]] = []
    current: _Message | None = None
    for line in stderr.splitlines():
        if head := _HEAD.fullmatch(line):
            file, row, col, kind, text = head.groups()
            current = _Message(file, int(row), int(col), kind, text)
            if current.kind == "note" and groups:
                groups[-1].append(current)
            else:
                groups.append([current])
        elif _CONTEXT.fullmatch(line) or _DRIVER.fullmatch(line):
            current = None
        elif current is not None:
            current.body.append(line)
    return groups


def _show_error(group: list[_Message], names: _Names) -> str:
    """Show an error in the user's file; of notes elsewhere, only what they say."""
    parts, elsewhere = [], 0
    for message in group:
        if names.known(message):
            parts.append(names.show(message, message.kind, message.text, message.body))
        elif not _DECLARED.fullmatch(message.text) and elsewhere < _MAX_NOTES:
            parts.append(f"note: {names.replace(message.text)}")
            elsewhere += 1
    return "\n".join(parts)


def _promote(group: list[_Message], names: _Names, glue: Path | None) -> str | None:
    """Show an error of the glue's at the user's function that one of its notes points to."""
    at = next((message for message in group if names.known(message)), None)
    if at is None:
        return None
    from_glue = glue is not None and Path(group[0].file).name == glue.name
    text = f"torchmojo cannot call this: {group[0].text}" if from_glue else group[0].text
    notes = [m.text for m in group[1:] if not _DECLARED.fullmatch(m.text)][:_MAX_NOTES]
    lines = [names.show(at, "error", text, at.body), *(f"note: {names.replace(n)}" for n in notes)]
    return "\n".join(lines)


class _Chains:
    """Texts in order, in which the same error of many instantiations is one text.

    A generic kernel is compiled once a dtype. An error inside comes as a chain: "function
    instantiation failed" in the glue, a call, a function, ... and the reason at the end. The user
    wants the reason first, then the calls that led to it, then for which dtypes.
    """

    def __init__(self, names: _Names) -> None:
        self.names = names
        # Keyed by all but the parameters, which are gathered: one text for each key.
        self.texts: dict[str, list[str]] = {}

    def plain(self, text: str) -> None:
        """Add a text that is no chain."""
        self.texts.setdefault(text, [])

    def add(self, group: list[_Message]) -> None:
        """Add what a chain says about the user's files, if it says something."""
        calls: list[_Message] = []
        entry, parameters, before = None, "", ""
        for message in group:
            known = self.names.known(message)
            if message.text.startswith(_CALL):
                before = _parameters(message.text)
                if known:
                    calls.append(message)
            elif message.text.startswith(_FUNCTION):
                if known and entry is None:
                    entry, parameters = message, before
            elif known or calls or entry:
                text = self._show(message, known, calls, entry)
                seen = self.texts.setdefault(text, [])
                if parameters and parameters not in seen:
                    seen.append(parameters)

    def _show(
        self, reason: _Message, known: bool, calls: list[_Message], entry: _Message | None
    ) -> str:
        """Show the reason where the user's code ends, and below it how the compiler got there."""
        rest = list(reversed(calls))
        place = reason if known else rest.pop(0) if rest else entry
        assert place is not None, "add() has seen to it"
        parts = [self.names.show(place, "error", reason.text, place.body)]
        parts += [self.names.show(call, "note", "called from here", call.body) for call in rest]
        if entry is not None and entry is not place:
            parts.append(self.names.show(entry, "note", "in this kernel", entry.body))
        return "\n".join(parts)

    def render(self) -> str:
        """Write all texts."""
        lines = []
        for text, parameters in self.texts.items():
            lines.append(text)
            if parameters:
                more = "; ..." if len(parameters) > _MAX_NOTES else ""
                lines.append(f"note: compiled with {'; '.join(parameters[:_MAX_NOTES])}{more}")
        return "\n".join(lines)


def _parameters(text: str) -> str:
    """Read the parameters in a chain's message: ``dtype = int32``."""
    pairs = _DTYPE.findall(text) + _NUMBER.findall(text)
    return ", ".join(f"{name} = {_dtype(value)}" for name, value in dict(pairs).items())


def _dtype(text: str) -> str:
    """Write ``si32`` and ``f32`` of the compiler as ``int32`` and ``float32``."""
    match = re.fullmatch(r"(si|ui|f|bf)(\d+)", text)
    if match is None:
        return text
    return {"si": "int", "ui": "uint", "f": "float", "bf": "bfloat"}[match[1]] + match[2]
