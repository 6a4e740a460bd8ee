"""The commands ``torchmojo cache ...``: looking after the compiled kernels."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from torchmojo.cli.output import console, print_json, size

if TYPE_CHECKING:
    from torchmojo.toolchain.cache import Cache

__all__ = ["cache"]

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

cache = typer.Typer(
    name="cache",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look after the compiled kernels.",
)


@cache.command("list")
def list_(as_json: Json = False) -> None:
    """List the compiled files, the one not used for longest first.

    Example: torchmojo cache list
    """
    store = _store()
    entries = store.list()
    if as_json:
        print_json(
            [
                {
                    "key": entry.key,
                    "name": entry.name,
                    "bytes": entry.bytes,
                    "created": entry.created,
                    "used": entry.used,
                    "path": str(entry.path),
                }
                for entry in entries
            ]
        )
        return
    if not entries:
        print(f"{store.root}: empty")
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("name", "size", "compiled", "last used", "key"):
        table.add_column(title, no_wrap=True, justify="right" if title == "size" else "left")
    for entry in entries:
        days = (time.strftime("%Y-%m-%d", time.localtime(t)) for t in (entry.created, entry.used))
        table.add_row(entry.name, size(entry.bytes), *days, entry.key[:12])
    console().print(table)


@cache.command("size")
def size_(as_json: Json = False) -> None:
    """Tell how much there is, and where.

    Example: torchmojo cache size
    """
    store = _store()
    entries = store.list()
    total = sum(entry.bytes for entry in entries)
    if as_json:
        print_json(
            {
                "folder": str(store.root),
                "entries": len(entries),
                "bytes": total,
                "limit": store.limit,
            }
        )
        return
    limit = "" if store.limit is None else f" of {size(store.limit)}"
    print(f"{store.root}: {_count(len(entries))}, {size(total)}{limit}")


@cache.command()
def clear(as_json: Json = False) -> None:
    """Remove all; loaded kernels stay loaded, and the next load compiles again.

    Example: torchmojo cache clear
    """
    store = _store()
    _freed(store, store.clear(), as_json)


@cache.command()
def trim(
    to: Annotated[str, typer.Argument(metavar="SIZE", help="Such as 500MB, 2GiB or 1000000.")],
    as_json: Json = False,
) -> None:
    """Remove what was not used for longest, until the rest fits.

    What is younger than a minute stays. Example: torchmojo cache trim 500MB
    """
    from torchmojo.toolchain.settings import read_settings

    try:
        limit = read_settings({"TORCHMOJO_CACHE_SIZE": to}).cache_size
    except ValueError:
        raise typer.BadParameter(
            f"wanted a size such as 500MB, 2GiB or 1000000, given {to!r}", param_hint="SIZE"
        ) from None
    store = _store()
    _freed(store, store.trim(limit), as_json)


def _store() -> Cache:
    from torchmojo.toolchain.cache import open_cache

    return open_cache()


def _freed(store: Cache, freed: int, as_json: bool) -> None:
    left = store.size()
    if as_json:
        print_json({"folder": str(store.root), "freed": freed, "bytes": left})
    else:
        print(f"{store.root}: freed {size(freed)}, {size(left)} left")


def _count(number: int) -> str:
    return "1 library" if number == 1 else f"{number} libraries"
