"""What ``torchmojo.load`` returns: a file's kernels as attributes of one object."""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchmojo.bridge import fork as _fork  # noqa: F401 - registers what a child must know
from torchmojo.bridge.aten import open_door
from torchmojo.bridge.kernel import make_kernel, set_slow_call
from torchmojo.toolchain.compile.sources import stamps
from torchmojo.toolchain.library import Built, Options, build, is_built, open_folder

__all__ = ["Library", "inline", "load"]


class Library:
    """The kernels of one Mojo file or package.

    ``library.name`` is a kernel; ``library["name"]`` is it too, also where the library has a method
    of that name; ``for kernel in library`` walks over them; ``print(library)`` shows signatures.
    """

    def __init__(self, source: Path, options: Options | None) -> None:
        """Compiles or opens the library; use ``torchmojo.load``."""
        self._path = source
        self._options = options
        self._kernels: dict[str, Any] = {}
        self._open()

    @property
    def path(self) -> Path:
        """The source, or the folder of a built library."""
        return self._path

    def _open(self) -> None:
        _require_gil()
        open_door()
        built = (
            open_folder(self._path) if self._options is None else build(self._path, self._options)
        )
        # PyDLL: kernels are called with the GIL held and release it themselves.
        handle = ctypes.PyDLL(str(built.library), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        kernels = {
            contract.name: make_kernel(contract, _address(handle, contract.symbol), handle)
            for contract in built.contract.kernels
        }
        for kernel in kernels.values():
            kernel.__module__ = built.contract.name
            kernel._library = self
        self._built: Built = built
        self._publish(kernels)

    def _publish(self, kernels: dict[str, Any]) -> None:
        """Makes kernels plain attributes of the instance.

        A ``__getattr__`` on the class, even unused, would add more to a call than all its checks.
        """
        # New ones first, then those that are gone: another thread never misses a kernel that stays.
        gone = self._kernels.keys() - kernels.keys()
        self._kernels = kernels
        self.__dict__.update({n: k for n, k in kernels.items() if not hasattr(Library, n)})
        for name in gone:
            self.__dict__.pop(name, None)

    def __getitem__(self, name: str) -> Any:
        """Returns a kernel by its name."""
        if name not in self._kernels:
            raise KeyError(self._no_kernel(name))
        return self._kernels[name]

    def _no_kernel(self, name: str) -> str:
        why = self._built.contract.skipped.get(name)
        if why:
            return f"{self._path.name}: {name!r} is no kernel: {why}"
        return f"{self._path.name}: no kernel {name!r}; it has {', '.join(self._kernels)}"

    def __dir__(self) -> list[str]:
        """Lists kernels and methods."""
        return [*super().__dir__(), *self._kernels]

    def __iter__(self) -> Iterator[Any]:
        """Yields the kernels in the order of the source."""
        return iter(self._kernels.values())

    def __len__(self) -> int:
        """Returns how many kernels there are."""
        return len(self._kernels)

    def __repr__(self) -> str:
        """Shows every kernel's signature."""
        heads = [str(kernel.__doc__).split("\n", 1)[0] for kernel in self]
        skipped = self._built.contract.skipped
        heads += [f"({name} is no kernel: {why})" for name, why in skipped.items()]
        return "\n".join([f"<torchmojo library {self._path}>", *(f"  {head}" for head in heads)])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as the call that loads it again, so that spawned workers can."""
        return (type(self), (self._path, self._options))

    def reload(self) -> Library:
        """Compiles the source again if it changed; the attributes are the new kernels.

        Kernels taken from the library before stay what they were. If the new source does not
        compile, the library keeps the old kernels and the error is raised.

        Returns:
            The library itself.
        """
        self._open()
        return self


class _Watched(Library):
    """A library that looks at its files before each use of a kernel."""

    def _publish(self, kernels: dict[str, Any]) -> None:
        self._kernels = kernels

    def _look(self) -> None:
        """Loads what changed since the last look."""
        if stamps(self._built.sources) != self._built.stamps:
            self._open()

    def __getitem__(self, name: str) -> Any:
        self._look()
        return super().__getitem__(name)

    def __iter__(self) -> Iterator[Any]:
        self._look()
        return super().__iter__()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            self._look()
            if name in self._kernels:
                return self._kernels[name]
        raise AttributeError(self._no_kernel(name))


def _require_gil() -> None:
    """Refuses builds of Python whose objects glue cannot read."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise RuntimeError(
            "load: wanted a Python with the GIL, given a free-threaded one; its objects are laid "
            "out in another way, which torchmojo does not support yet"
        )


def _mend(*call: Any) -> Any:
    """Handles a refused call; what it needs is imported when the first call is refused."""
    from torchmojo.bridge.refuse.refusal import mend

    return mend(*call)


set_slow_call(_mend)


def _address(handle: ctypes.PyDLL, symbol: str) -> int:
    return ctypes.cast(getattr(handle, symbol), ctypes.c_void_p).value or 0


def _named(dtypes: Any) -> Any:
    """Takes ``torch.float32`` for ``"float32"``; anything else is left to be refused by name."""
    if isinstance(dtypes, Mapping):
        return {key: _named(value) for key, value in dtypes.items()}
    if isinstance(dtypes, (list, tuple)):
        return [d if isinstance(d, str) else str(d).removeprefix("torch.") for d in dtypes]
    return dtypes


def load(
    path: str | os.PathLike[str],
    *,
    dtypes: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
    fast_math: bool = False,
    bounds: bool = False,
    include: Sequence[str | os.PathLike[str]] = (),
    target_cpu: str | None = None,
    watch: bool = False,
) -> Library:
    """Loads the kernels of a Mojo file, compiling it the first time its content is seen.

    Loading runs code of the file's author, as importing a Python module does.

    Args:
        path: A ``.mojo`` file, a package folder with ``__init__.mojo``, or a folder that
            ``torchmojo build`` wrote. Relative to the current folder.
        dtypes: Dtypes to compile for, where the signature leaves them open: a list of names for
            every kernel, or lists by ``"kernel"``, ``"kernel.parameter"`` or ``"*"``.
        fast_math: Lets the compiler fuse ``a * b + c`` into one rounding. Off, results equal
            torch's; on, they can differ in the last bit and kernels can be faster. Either way,
            CPUs with AVX512-BF16 turn bfloat16 results below 1.2e-38 into 0.
        bounds: Checks every index in kernels; one outside raises ``BoundsError``. Slower.
        include: More folders in which the file's imports are looked up.
        target_cpu: Such as ``"x86-64-v3"``; by default this machine's own.
        watch: Looks at the files before each use of a kernel and loads what changed.

    Returns:
        A library whose attributes are the kernels.

    Raises:
        FileNotFoundError: There is nothing at ``path``.
        CompilerNotFoundError: There is no Mojo compiler; its version is a part of the cache key, so
            that cached libraries need it too. Ship a built folder where there is none.
        CompileError: The source does not compile; the text shows the user's file, line and caret.
        SignatureError: A kernel has an argument that cannot come from Python.
        LibraryError: A built folder is damaged, or made for another CPU.
        ValueError: Options are given for a built folder, which cannot follow them any more.

    Example:
        >>> import torch, torchmojo                                   # doctest: +SKIP
        >>> kernels = torchmojo.load("kernels.mojo")                  # doctest: +SKIP
        >>> kernels.scaled_add(out, a, b, 0.5)                        # doctest: +SKIP
    """
    source = Path(path).absolute()
    options = Options(
        dtypes=_named(dtypes),
        fast_math=bool(fast_math),
        bounds=bool(bounds),
        include=tuple(Path(folder).absolute() for folder in include),
        target_cpu=target_cpu,
    )
    if source.is_dir() and is_built(source):
        if options != Options() or watch:
            raise ValueError(
                f"load: wanted no options for a folder that is built already, given some for "
                f"{source}; give them to `torchmojo build`"
            )
        return Library(source, None)
    if source.is_dir() and not (source / "__init__.mojo").is_file():
        raise FileNotFoundError(
            f"load: path: wanted a .mojo file, a folder with __init__.mojo or a folder written by "
            f"`torchmojo build`, given the folder {source}"
        )
    if not source.exists():
        raise FileNotFoundError(f"load: path: wanted a .mojo file or a folder, given {source}")
    return (_Watched if watch else Library)(source, options)


def inline(
    source: str,
    *,
    dtypes: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
    fast_math: bool = False,
    bounds: bool = False,
    include: Sequence[str | os.PathLike[str]] = (),
) -> Library:
    """Loads kernels from a text, for notebooks and tests.

    Args:
        source: A Mojo file's content.
        dtypes: As for ``load``.
        fast_math: As for ``load``.
        bounds: As for ``load``.
        include: As for ``load``.

    Returns:
        A library whose attributes are the kernels; the same text is compiled once.

    Raises:
        CompileError: The text does not compile; messages call the file ``<inline>``.
        SignatureError: A kernel has an argument that cannot come from Python.

    Example:
        >>> import numpy, torchmojo
        >>> kernels = torchmojo.inline('''
        ... from torchmojo import MutTensor
        ... def fill(dst: MutTensor[DType.float32, 1], value: Float32):
        ...     for i in range(dst.dim(0)):
        ...         dst[i] = value
        ... ''')
        >>> x = numpy.zeros(3, dtype=numpy.float32)
        >>> kernels.fill(x, 2.5)
        >>> x.tolist()
        [2.5, 2.5, 2.5]
    """
    from torchmojo.toolchain.cache import open_cache

    text = source.encode()
    name = f"inline_{hashlib.sha256(text).hexdigest()[:16]}"
    folder = open_cache().root / "inline" / name
    file = folder / f"{name}.mojo"
    if not file.is_file() or file.read_bytes() != text:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{os.getpid()}.mojo"
        temporary.write_bytes(text)
        temporary.replace(file)
    options = Options(
        dtypes=_named(dtypes),
        fast_math=bool(fast_math),
        bounds=bool(bounds),
        include=tuple(Path(place).absolute() for place in include),
        shown="<inline>",
    )
    return Library(file, options)
