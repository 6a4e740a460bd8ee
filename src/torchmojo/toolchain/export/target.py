"""What a library asks of a CPU, and whether this machine's CPU has it."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torchmojo.errors import CompileError

if TYPE_CHECKING:
    from torchmojo.toolchain.compile.compiler import Compiler

__all__ = ["Target", "code_flags", "cpu_flags", "missing", "resolve"]

# Extensions whose instructions a compiler puts into ordinary code. The others that LLVM lists for a
# CPU belong to the system (pku, invpcid, xsaves) or have to be asked for by name (rdrnd, clzero).
# avx10 stands for extensions that are listed beside it.
_MATTERS = re.compile(
    r"(sse|ssse|avx(?!10)|amx|fma|xop|tbm|f16c|bmi|popcnt|lzcnt|movbe|cmov|cx16|adx|sahf|aes|vaes"
    r"|pclmul|vpclmul|gfni|sha|egpr|ndd|neon|fp-armv8|fullfp16|fp16fml|lse|dotprod|rdm|crc|rcpc|jsconv"
    r"|complxnum|sve|sme|i8mm|bf16|sm4)"
)
# Where Linux has another name in /proc/cpuinfo, beyond dots and underscores.
_LINUX = {
    **{"bmi": "bmi1", "crc32": "sse4_2", "lzcnt": "abm", "pclmul": "pclmulqdq"},
    **{"sahf": "lahf_lm", "sha": "sha_ni", "sse3": "pni", "egpr": "apx", "ndd": "apx"},
    **{"neon": "asimd", "fp-armv8": "fp", "fullfp16": "asimdhp", "fp16fml": "asimdfhm"},
    **{"lse": "atomics", "dotprod": "asimddp", "rdm": "asimdrdm", "crc": "crc32"},
    **{"rcpc": "lrcpc", "rcpc-immo": "ilrcpc", "jsconv": "jscvt", "complxnum": "fcma"},
}


class Target(NamedTuple):
    """A CPU to compile for.

    Attributes:
        cpu: Its name in LLVM, such as ``x86-64-v3``; never ``native``.
        features: Extensions that code for it may use, by LLVM's names.
    """

    cpu: str
    features: tuple[str, ...]


def resolve(compiler: Compiler, name: str) -> Target:
    """Asks the compiler what code for a CPU may use.

    Args:
        compiler: Any.
        name: A CPU's name, or ``native``.

    Raises:
        CompileError: The compiler knows no such CPU.
    """
    from torchmojo.toolchain.compile.compiler import run

    words = ["build", "--print-effective-target"]
    if name != "native":
        words += ["--target-cpu", name]
    with tempfile.TemporaryDirectory(prefix="torchmojo-") as folder:
        done = run(compiler, words, Path(folder))
    cpu = re.search(r"--target-cpu (\S+)", done.stdout)
    features = re.search(r"--target-features (\S*)", done.stdout)
    if done.returncode or cpu is None:
        raise CompileError(
            f"build: target CPU: wanted a name that LLVM knows, such as x86-64-v3, given {name!r}"
        )
    signed = features[1].split(",") if features else []
    listed = tuple(word[1:] for word in signed if word.startswith("+"))
    # An old kernel does not list all that a new CPU has: this machine is fit for itself.
    unlisted = missing(listed) if name == "native" else ()
    return Target(cpu[1], tuple(word for word in listed if word not in unlisted))


def missing(features: Iterable[str], flags: frozenset[str] | None = None) -> tuple[str, ...]:
    """Returns the extensions that code may use and this CPU lacks.

    Args:
        features: By LLVM's names.
        flags: What the CPU has, by Linux's names; by default this machine's.

    Returns:
        Their names, empty where all are there or where this system does not tell.
    """
    have = cpu_flags() if flags is None else flags
    if not have:
        return ()
    plain = {_plain(flag) for flag in have}
    return tuple(
        name
        for name in features
        if _MATTERS.match(name)
        and name not in plain
        and _plain(_LINUX.get(name, name)) not in plain
    )


def _plain(name: str) -> str:
    """Writes ``avx512_vbmi2``, ``sse4.1`` and ``amx-tile`` in the one way that both sides share."""
    return re.sub(r"[._-]", "", name)


def cpu_flags() -> frozenset[str]:
    """Returns what Linux says that this CPU has; empty on other systems."""
    wanted = "Features" if os.uname().machine == "aarch64" else "flags"
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            for line in file:  # stops at the first CPU: a server lists hundreds
                name, _, value = line.partition(":")
                if name.strip() == wanted:
                    return frozenset(value.split())
    except OSError:
        pass
    return frozenset()


def code_flags() -> tuple[str, ...]:
    """Returns what code that was compiled for this very machine may use, by Linux's names."""
    named = frozenset(_LINUX.values())
    return tuple(
        sorted(
            flag
            for flag in cpu_flags()
            if flag in named or (_MATTERS.match(flag) and flag != "smep")  # smep guards the system
        )
    )
