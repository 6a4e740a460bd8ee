"""The project that ``torchmojo new`` makes, from the files in ``torchmojo/templates``."""

from __future__ import annotations

import keyword
import re
import shutil
import sys
from pathlib import Path

from torchmojo._version import __version__

__all__ = ["create", "suggest"]

_TEMPLATES = Path(__file__).parent.parent / "templates" / "project"
_TAKEN = frozenset({"torchmojo", "torch", "tests"}) | sys.stdlib_module_names


def suggest(name: str) -> str:
    """Returns a better name for a package, or an empty text where the name is good.

    Args:
        name: What the user asked for.

    Returns:
        An identifier that is neither a keyword nor the name of a module that the project needs.

    Example:
        >>> suggest("fast-math"), suggest("torch"), suggest("kernels")
        ('fast_math', 'torch_kernels', '')
    """
    plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "kernels"
    if plain[0].isdigit():
        plain = f"kernels_{plain}"
    if keyword.iskeyword(plain) or plain in _TAKEN:
        plain = f"{plain}_kernels"
    return "" if plain == name else plain


def create(name: str, folder: Path) -> list[Path]:
    """Makes the project ``folder/name``.

    Args:
        name: Name of its package, an identifier.
        folder: Folder to make it in; made if need be.

    Returns:
        The files that were written.

    Raises:
        FileExistsError: There is something of that name, which stays as it is.
    """
    project = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    try:
        project.mkdir()
    except FileExistsError:
        raise FileExistsError(f"{project} exists already; choose another name or --dir") from None
    try:
        return [
            _write(source, project, name)
            for source in sorted(_TEMPLATES.rglob("*"))
            if source.is_file()
        ]
    except BaseException:
        shutil.rmtree(project, ignore_errors=True)
        raise


def _write(source: Path, project: Path, name: str) -> Path:
    """Writes one file; ``@NAME@`` in its path and text stands for the name."""
    relative = str(source.relative_to(_TEMPLATES)).removesuffix(".in").replace("@NAME@", name)
    target = project / relative
    target.parent.mkdir(parents=True, exist_ok=True)
    text = source.read_text("utf-8").replace("@NAME@", name).replace("@VERSION@", __version__)
    target.write_text(text, "utf-8")
    return target
