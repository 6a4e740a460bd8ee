"""Gives code to the system's loader as a file that nobody can change between check and use."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["sealed"]


@contextlib.contextmanager
def sealed(library: bytes, calls: bytes | None) -> Iterator[str]:
    """Lends a path of a library, good as long as the ``with`` runs.

    On Linux the bytes lie in memory under a seal; elsewhere in a folder of this user's alone.

    Args:
        library: A shared library.
        calls: What torch looks for beside it, under the same name and ``.json``; or None.

    Example:
        >>> with sealed(b"code", None) as path:
        ...     open(path, "rb").read()
        b'code'
    """
    with contextlib.ExitStack() as stack:
        # A name of its own for each: the loader takes one that it has seen for the same library.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="torchmojo-")))
        place = folder / "model.so"
        memory = _in_memory(library, stack) if sys.platform == "linux" else None
        if memory is None:
            place.write_bytes(library)
        else:
            place.symlink_to(memory)
        if calls is not None:
            place.with_suffix(".json").write_bytes(calls)
        yield str(place)


def _in_memory(data: bytes, stack: contextlib.ExitStack) -> str | None:
    """Returns the path of a sealed file in memory; None where the system has none."""
    import fcntl

    try:
        descriptor = os.memfd_create("torchmojo-model", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError:
        return None
    stack.callback(os.close, descriptor)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return f"/proc/self/fd/{descriptor}"
