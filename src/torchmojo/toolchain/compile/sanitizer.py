"""Sanitizers: the run-time library that each needs, and how a Python is started under it.

Neither comes with the Mojo compiler. That of LLVM is preferred, since the compiler is built on it;
GCC's understands the same code.

``python -m torchmojo.toolchain.compile.sanitizer address`` prints the environment as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from torchmojo.errors import LibraryError
from torchmojo.toolchain.settings import Sanitize, read_settings

__all__ = ["INSTALL", "PARTS", "Part", "chosen", "environment", "find_runtime", "main"]

_SYMBOLS = {"address": "__asan_init", "thread": "__tsan_init"}
INSTALL: dict[Sanitize, str] = {
    "address": "on Debian: apt-get install libclang-rt-19-dev, or libasan8",
    "thread": "on Debian: apt-get install libclang-rt-19-dev",
}
"""Where to get the run-time library of each from."""

# The compiler's code calls it: the thread sanitizer of GCC 12 is too old.
_KNOWS = {"address": b"__asan_version_mismatch_check_v8", "thread": b"__tsan_memset"}
_NEW = b"__sanitizer_annotate_double_ended_contiguous_container"  # since LLVM 16
# Newest version first; the places of Debian, then those of Fedora and Arch.
_PLACES = {
    "address": (
        "usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.asan-{machine}.so",
        "usr/lib*/clang/*/lib/linux/libclang_rt.asan-{machine}.so",
        "usr/lib*/clang/*/lib/*/libclang_rt.asan.so",
        "usr/lib/{machine}-linux-gnu/libasan.so.[68]",
        "usr/lib*/libasan.so.[68]",
    ),
    "thread": (
        "usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.tsan-{machine}.so",
        "usr/lib*/clang/*/lib/linux/libclang_rt.tsan-{machine}.so",
        "usr/lib*/clang/*/lib/*/libclang_rt.tsan.so",
        "usr/lib/{machine}-linux-gnu/libtsan.so.2",
        "usr/lib*/libtsan.so.2",
    ),
}

# Mojo's own `alloc` is a tcmalloc, which no sanitizer sees into. The run-time library can be told
# to use malloc, and is, when the library is loaded.
_ADDRESS = """
from std.ffi import external_call

@export("torchmojo_sanitized_start")
def start() abi("C"):
    external_call["KGEN_CompilerRT_SetAsanAllocators", NoneType]()
"""

# That tcmalloc does not start beside the thread sanitizer, which leaves it none of the addresses
# that it asks for (1.2.0). With the four functions of the run-time library that kernels use, they
# do not need it; `print` prints nothing then.
# And the loops of torch are OpenMP's, which the sanitizer does not see into either: what happens
# before a loop, in it and after it would be races. `parallel_for` looks torch's loop up by dlsym.
_THREAD = """
from std.ffi import external_call
from std.memory import Pointer

comptime _Any = Pointer[NoneType, MutAnyOrigin]
comptime _Words = Pointer[Int, MutAnyOrigin]
comptime _Name = type_of("".as_c_string_span())
comptime _Body = def(Int64, Int64, Int) thin abi("C") -> None
comptime _Work = def(Int64, Int64, _Words) thin abi("C") -> None
comptime _Loop = def(Int64, Int64, Int64, _Work, _Words) thin abi("C") -> Int32

@export("KGEN_CompilerRT_AlignedAlloc")
def alloc(alignment: Int, size: Int) abi("C") -> _Any:
    var step = max(alignment, 64)
    return external_call["aligned_alloc", _Any](step, (max(size, 1) + step - 1) // step * step)

@export("KGEN_CompilerRT_AlignedFree")
def free(address: _Any) abi("C"):
    external_call["free", NoneType](address)

@export("KGEN_CompilerRT_GetStackTrace")
def trace(place: Int, depth: Int) abi("C") -> Int:
    return 0

@export("KGEN_CompilerRT_fprintf")
def print_nothing() abi("C") -> Int32:
    return 0

def work(start: Int64, end: Int64, job: _Words) abi("C"):
    external_call["__tsan_acquire", NoneType](job)
    job.unsafe_bitcast[_Body]()[](start, end, job[unsafe_offset=1])
    external_call["__tsan_release", NoneType](job.unsafe_offset(3))

def loop(start: Int64, end: Int64, grain: Int64, body: Int, context: Int) abi("C") -> Int32:
    var torch = external_call["dlopen", Int]("libtorch_cpu.so".as_c_string_span(), Int32(5))
    var real = external_call["__real_dlsym", Int](torch, "torch_parallel_for".as_c_string_span())
    _ = external_call["dlclose", Int32](torch)
    var words: Array[Int, 4] = [body, context, 0, 0]
    var job = words.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
    external_call["__tsan_release", NoneType](job)
    var status = Pointer(to=real).unsafe_bitcast[_Loop]()[](start, end, grain, work, job)
    external_call["__tsan_acquire", NoneType](job.unsafe_offset(3))
    _ = words^
    return status

@export("__wrap_dlsym")
def look_up(library: Int, name: _Name) abi("C") -> Int:
    var found = external_call["__real_dlsym", Int](library, name)
    var wanted = "torch_parallel_for"
    if found == 0 or external_call["strcmp", Int32](name, wanted.as_c_string_span()) != 0:
        return found
    var ours: def(Int64, Int64, Int64, Int, Int) thin abi("C") -> Int32 = loop
    return Pointer(to=ours).unsafe_bitcast[Int]()[]
"""


class Part(NamedTuple):
    """One more part of each library that is built with a sanitizer.

    What the sanitizer's code calls stays undefined in the library: the sanitizer's run-time library
    is in the process before everything else.
    """

    source: str
    link: tuple[str, ...]
    with_runtime: bool


PARTS: dict[Sanitize, Part] = {
    "address": Part(_ADDRESS, ("-init", "torchmojo_sanitized_start"), True),
    "thread": Part(_THREAD, ("--wrap=dlsym",), False),
}


def chosen() -> Sanitize:
    """Read which sanitizer kernels are built with, and check that it can work in this process.

    Returns:
        The setting; ``"none"`` for none.

    Raises:
        LibraryError: The sanitizer's run-time library is not in the process; the text says how to
            start one that has it.
    """
    kind = read_settings().sanitize
    if kind != "none" and not hasattr(ctypes.CDLL(None), _SYMBOLS[kind]):
        raise LibraryError(
            f"TORCHMOJO_SANITIZE={kind}: wanted a process with the run-time library of the {kind} "
            f"sanitizer, given one without; {_advice(kind)}"
        )
    return kind


def find_runtime(kind: Sanitize, root: Path = Path("/")) -> Path | None:
    """Find the run-time library of a sanitizer.

    Args:
        kind: ``"address"`` or ``"thread"``.
        root: Where to look.

    Returns:
        The file, or None where there is none or this is not Linux.
    """
    if sys.platform != "linux":
        return None
    for place in _PLACES[kind]:
        found = root.glob(place.format(machine=platform.machine()))
        if fit := [path for path in found if _KNOWS[kind] in path.read_bytes()]:
            return max(fit, key=_version)
    return None


def _version(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path))]


def environment(
    kind: Sanitize,
    runtime: Path,
    *,
    symbolizer: Path | None = None,
    given: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Give the variables with which a Python is started under a sanitizer.

    Args:
        kind: ``"address"`` or ``"thread"``.
        runtime: Its run-time library.
        symbolizer: Program that turns addresses into lines; the one of the compiler's package.
        given: Variables whose values are kept or added to; those of this process by default.

    Returns:
        The variables to set.
    """
    given = os.environ if given is None else given
    preload = [str(runtime)]
    if kind == "address":
        name = "ASAN_OPTIONS"
        # Python and torch leave what they need to the end of the process to the system. NumPy
        # raises MemoryError for an array that is too large.
        options = ["detect_leaks=0", "allocator_may_return_null=1"]
        if _NEW not in runtime.read_bytes():
            # Older ones take the empty list of Mojo, which has no memory, for an error.
            options.append("detect_container_overflow=0")
        if runtime.name.startswith("libasan."):
            # GCC's must find the C++ library at once, which Python does not bring, or the first
            # error that torch throws ends the process.
            preload.append("libstdc++.so.6")
    else:
        name = "TSAN_OPTIONS"
        options = [f"suppressions={Path(__file__).with_name('thread.supp')}"]
    if symbolizer is not None:
        options.append(f"external_symbolizer_path={symbolizer}")
    return {
        "TORCHMOJO_SANITIZE": kind,
        # Before everything else in the process: it replaces malloc.
        "LD_PRELOAD": " ".join([*preload, *given.get("LD_PRELOAD", "").split()]),
        # Python's own allocator hides overruns of small objects, and uses of freed ones.
        "PYTHONMALLOC": "malloc",
        # The user's own options win: the last one counts.
        name: ":".join([*options, *filter(None, [given.get(name)])]),
    }


def _advice(kind: Sanitize) -> str:
    """Say how to start a process under a sanitizer, or where to get it from."""
    runtime = find_runtime(kind)
    if runtime is None:
        return f"no such library was found; {INSTALL[kind]}"
    variables = environment(kind, runtime, given={})
    del variables["TORCHMOJO_SANITIZE"]
    words = shlex.join(f"{name}={value}" for name, value in variables.items())
    return f"start Python as: env {words} python ..."


def main(arguments: list[str]) -> int:
    """Print the environment for a sanitizer as JSON, or say what is missing.

    Args:
        arguments: The sanitizer's name.

    Returns:
        The exit status.
    """
    from torchmojo.toolchain.compile.compiler import find_compiler

    kind: Sanitize = "thread" if arguments == ["thread"] else "address"
    runtime = find_runtime(kind)
    if runtime is None:
        print(
            f"wanted the run-time library of the {kind} sanitizer, found none; {INSTALL[kind]}",
            file=sys.stderr,
        )
        return 1
    symbolizer = find_compiler().path.with_name("llvm-symbolizer")
    found = environment(kind, runtime, symbolizer=symbolizer if symbolizer.is_file() else None)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
