"""The commands, and how an error of theirs looks.

Each command imports what it needs when it runs, so that ``torchmojo --help`` is quick and nothing
but ``demo``, ``detect``, ``classify`` and ``doctor`` imports torch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from torchmojo.cli import kernels, project
from torchmojo.cli.cache import cache
from torchmojo.cli.coldstart import coldstart
from torchmojo.cli.doctor import doctor
from torchmojo.cli.vision import classify, detect
from torchmojo.cli.weights import weights
from torchmojo.errors import TorchmojoError

__all__ = ["app", "main"]


class _Group(TyperGroup):
    """A group whose commands fail with one clean message and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # whoever reads our output has gone; typer knows what to do
        except (TorchmojoError, OSError, ImportError) as error:
            _fail(error)
        except ValueError as error:
            if not str(error).startswith("environment variable "):
                raise
            _fail(error)


def _fail(error: Exception) -> NoReturn:
    """Prints an error and ends the command."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    print(f"error: {text}", file=sys.stderr)
    raise typer.Exit(1)


def _version(wanted: bool) -> None:
    if wanted:
        from torchmojo import __version__

        print(f"torchmojo {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="torchmojo",
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: it needs no rich, and starts in half the time
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Call plain Mojo functions on PyTorch tensors, with no copy.",
)


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Holds the options of ``torchmojo`` itself."""


app.command("demo")(project.demo)
app.command("new")(project.new)
app.command("show")(kernels.show)
app.command("stub")(kernels.stub)
app.command("build")(kernels.build)
app.command("include")(kernels.include)
app.command("weights")(weights)
app.command("detect")(detect)
app.command("classify")(classify)
app.command("doctor")(doctor)
app.command("coldstart")(coldstart)
app.add_typer(cache, name="cache")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the tool.

    Args:
        arguments: The words after ``torchmojo``; by default those of this process.

    Returns:
        The exit status: 0, 1 for a failure, 2 for a command that is written wrongly.
    """
    try:
        app(args=None if arguments is None else list(arguments), prog_name="torchmojo")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
