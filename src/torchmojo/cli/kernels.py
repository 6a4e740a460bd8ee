"""Commands on a file of kernels: show, stub, build; and where Mojo finds the package."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchmojo.cli.output import print_json
from torchmojo.errors import LibraryError

if TYPE_CHECKING:
    from torchmojo.contract import Contract
    from torchmojo.toolchain.library import Options

__all__ = ["build", "include", "show", "stub"]

Source = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="A .mojo file, a package with __init__.mojo, or a built folder."
    ),
]
Dtypes = Annotated[
    list[str] | None,
    typer.Option(
        "--dtypes",
        metavar="[KERNEL=]NAMES",
        help="Dtypes to compile for, such as float32,float16; may be repeated.",
    ),
]
Include = Annotated[
    list[Path] | None,
    typer.Option("-I", "--include", metavar="DIR", help="One more folder for the file's imports."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def show(
    file: Source, dtypes: Dtypes = None, include: Include = None, as_json: Json = False
) -> None:
    """Show what a file's kernels take and do.

    Example: torchmojo show kernels.mojo
    """
    contract = _contract(file, _options(dtypes, include))
    if as_json:
        print_json(contract.to_json())
        return
    from torchmojo.spelling import describe

    print("\n\n".join(describe(kernel) for kernel in contract.kernels))
    for name, reason in contract.skipped.items():
        print(f"\n{name} is no kernel: {reason}")


def stub(
    file: Source,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="File to write.")
    ] = None,
    dtypes: Dtypes = None,
    include: Include = None,
) -> None:
    """Print a stub of a file's kernels, for editors.

    Example: torchmojo stub kernels.mojo -o kernels.pyi
    """
    from torchmojo.toolchain.describe.stub import write_stub

    text = write_stub(_contract(file, _options(dtypes, include)))
    if out is None:
        print(text, end="")
    else:
        out.write_text(text, "utf-8")


def build(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A .mojo file, or a package with __init__.mojo.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Folder to write.")],
    target_cpu: Annotated[
        str | None,
        typer.Option(
            metavar="CPU",
            help="CPU to compile for, such as x86-64-v3; by default this machine's, and the "
            "folder then runs on CPUs that have all that this one has.",
        ),
    ] = None,
    fast_math: Annotated[
        bool, typer.Option("--fast-math", help="Fuse a * b + c; results may differ from torch's.")
    ] = False,
    ops: Annotated[
        str | None,
        typer.Option(
            metavar="NAMESPACE",
            help="Add torch operators, also for C++ programs; takes torch, and runs with that "
            "version of it.",
        ),
    ] = None,
    dtypes: Dtypes = None,
    include: Include = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write into a folder that holds other files.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compile kernels into a folder that needs no compiler.

    Example: torchmojo build kernels.mojo -o dist/kernels --target-cpu x86-64-v3
    """
    from torchmojo.toolchain.export.folder import export

    options = _options(dtypes, include, fast_math=fast_math, target_cpu=target_cpu)
    made = export(
        _source(file), out, options, force=force, registry=_registry(ops) if ops else None
    )
    names = [kernel.name for kernel in made.contract.kernels]
    own = ("library.so", "memory.so", "operators.so")
    runtime = [n for n in made.manifest.files if n.endswith(".so") and n not in own]
    if as_json:
        print_json(
            {
                "folder": str(made.folder),
                "kernels": names,
                "target_cpu": made.manifest.target_cpu,
                "runtime": runtime,
            }
        )
        return
    print(f"{made.folder}: {', '.join(names)} for {made.manifest.target_cpu}")
    if runtime:
        print(f"with {', '.join(runtime)}: see NOTICE before you give them to others")
    print(f"use it: kernels = torchmojo.load({str(out)!r})")


def include(as_json: Json = False) -> None:
    """Print the folder that Mojo finds the package torchmojo in.

    Example: mojo build -I "$(torchmojo include)" program.mojo
    """
    from torchmojo.toolchain.library import MOJO_PACKAGE

    if as_json:
        print_json({"include": str(MOJO_PACKAGE)})
    else:
        print(MOJO_PACKAGE)


def _registry(namespace: str) -> Callable[[Contract], bytes]:
    """Returns what writes the operators' registry, which takes an imported torch."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise LibraryError(
            "build: --ops: wanted torch, whose operators they are, given an environment without it"
        ) from None
    from torchmojo.ops.registry import write_registry

    return partial(write_registry, namespace=namespace)


def _source(file: Path) -> Path:
    source = file.absolute()
    if not source.exists():
        raise FileNotFoundError(f"no such file or folder: {file}")
    if source.is_dir() and not (source / "__init__.mojo").is_file():
        raise FileNotFoundError(f"{file}: wanted a .mojo file or a folder with __init__.mojo")
    return source


def _contract(file: Path, options: Options) -> Contract:
    """Compiles a file, or finds it in the cache; only looks at a built folder."""
    from torchmojo.contract import Contract
    from torchmojo.toolchain import library

    if library.is_built(file):
        from torchmojo.toolchain.export.manifest import read

        read(file.absolute())  # refuses another format; no more, as it may be for another machine
        return Contract.from_json(json.loads((file / "contract.json").read_text("utf-8")))
    return library.build(_source(file), options).contract


def _options(
    dtypes: list[str] | None,
    include: list[Path] | None,
    fast_math: bool = False,
    target_cpu: str | None = None,
) -> Options:
    from torchmojo.toolchain.library import Options

    return Options(
        dtypes=_dtypes(dtypes),
        include=tuple(folder.absolute() for folder in include or ()),
        fast_math=fast_math,
        target_cpu=target_cpu,
    )


def _dtypes(words: list[str] | None) -> dict[str, list[str]] | None:
    """Reads ``float32,float16`` and ``kernel=float32`` as ``torchmojo.load`` takes it."""
    if not words:
        return None
    result: dict[str, list[str]] = {}
    for word in words:
        kernel, equals, names = word.rpartition("=")
        listed = [name.strip() for name in names.split(",")]
        if not all(listed) or (equals and not kernel):
            raise typer.BadParameter(
                f"wanted NAMES or KERNEL=NAMES, such as float32,float16, given {word!r}",
                param_hint="--dtypes",
            )
        result.setdefault(kernel or "*", []).extend(listed)
    return result
