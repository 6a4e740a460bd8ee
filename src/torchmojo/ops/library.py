"""Puts native kernels into torch's dispatcher, through its stable C ABI, and takes them out."""

from __future__ import annotations

import ctypes

from torchmojo.errors import LibraryError
from torchmojo.ops.native import libtorch

__all__ = ["Registration"]

_ABI_2_10 = 0x020A000000000000


class Registration:
    """A native kernel in the dispatcher, as long as this object lives.

    Attributes:
        key: The dispatch key.
    """

    def __init__(self, namespace: str, name: str, key: str, function: int) -> None:
        """Registers it.

        Args:
            namespace: The operator's.
            name: The operator's, with its overload.
            key: Such as ``CPU`` or ``AutogradCPU``.
            function: Address of a boxed kernel.

        Raises:
            LibraryError: torch refuses.
        """
        self.key = key
        self._torch = libtorch("torch_cpu")
        self._handle: ctypes.c_void_p | None = ctypes.c_void_p()
        place = b"torchmojo"
        code = self._torch.aoti_torch_library_init_impl(
            namespace.encode(), key.encode(), place, 1, ctypes.byref(self._handle)
        )
        if code == 0:
            code = self._torch.torch_library_impl(
                self._handle, name.encode(), ctypes.c_void_p(function), ctypes.c_uint64(_ABI_2_10)
            )
        if code != 0:
            raise LibraryError(f"op: {namespace}::{name}: torch refuses a kernel for {key}")

    def close(self) -> None:
        """Takes the kernel out."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._torch.aoti_torch_delete_library_object(handle)
