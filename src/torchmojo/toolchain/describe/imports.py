"""How glue imports the user's modules."""

from __future__ import annotations

from torchmojo.contract import Contract

__all__ = ["alias", "imports_of"]


def imports_of(contract: Contract, module: str) -> str:
    """Returns the import statements of the user's modules.

    Args:
        contract: The kernels.
        module: Name under which Mojo imports the user's file or package.
    """
    modules = {kernel.module for kernel in contract.kernels}
    return "\n".join(
        # Backticks: a file may be called `2nd-try.mojo`, or `def.mojo`.
        f"import {'.'.join(f'`{part}`' for part in (module, *filter(None, inner.split('.'))))} "
        f"as {alias(inner)}"
        for inner in sorted(modules)
    )


def alias(module: str) -> str:
    """Returns what the glue calls one of the user's modules.

    Args:
        module: Dotted, below the user's file or package; empty for the file itself.
    """
    return "user" if not module else "user_" + module.replace(".", "__")
