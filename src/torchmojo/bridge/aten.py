"""Opens the fast door for torch tensors: libtorch's C functions and where an ``at::Tensor`` lies.

Nothing is assumed about torch's memory layout without a proof on live tensors in this process: the
offset of the ``at::Tensor`` is found through ``Tensor._cdata``, and every function is tried against
what Python says of the same tensor. If a proof fails the door stays shut, one warning says so, and
torch tensors pass through DLPack in Python, slower and with the same checks.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchmojo.bridge import doors
from torchmojo.errors import TorchmojoWarning

__all__ = ["AtenDoor", "open_door", "symbols"]

# In the order of the table, from Slot.GET_DIM on. The first are torch's stable C ABI; the others
# are C++ functions that take one reference and return a bool, called through their mangled names.
_FUNCTIONS = (
    "aoti_torch_get_dim",
    "aoti_torch_get_sizes",
    "aoti_torch_get_strides",
    "aoti_torch_get_dtype",
    "aoti_torch_get_device_type",
    "aoti_torch_get_layout",
    "torch_get_const_data_ptr",
    "torch_get_mutable_data_ptr",
    "aoti_torch_get_storage_size",
    "aoti_torch_get_storage_offset",
    "_ZN2at6native6is_negERKNS_6TensorE",
    "_ZN2at6native12is_inferenceERKNS_6TensorE",
    "_ZNK3c1010TensorImpl13requires_gradEv",
    "_ZN3c108GradMode10is_enabledEv",
    "_ZN3c1013InferenceMode10is_enabledEv",
    "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE",
    "_ZN2at6native7is_conjERKNS_6TensorE",
)
_LIBRARIES = ("torch_cpu", "c10")


class AtenDoor:
    """What was found of torch in this process.

    Attributes:
        open: Whether the fast door is open.
        reason: Why not, if it is not.
        offset: Offset of the ``at::Tensor`` in a tensor object, in bytes.
        version: Version of torch.
    """

    def __init__(self) -> None:
        """Starts with a closed door."""
        self.open = False
        self.reason = "torch is not imported"
        self.offset = 0
        self.version = ""


_door = AtenDoor()


def symbols(names: Sequence[str] = _FUNCTIONS) -> dict[str, int]:
    """Returns the address of every C function that the door needs, 0 where it is missing.

    torch must be imported. Its libraries are found by their path, so nothing of theirs becomes
    visible to other libraries.

    Args:
        names: The functions.
    """
    torch = sys.modules["torch"]
    folder = Path(torch.__file__ or "").parent / "lib"
    suffix = "dylib" if sys.platform == "darwin" else "so"
    libraries = [ctypes.CDLL(str(folder / f"lib{name}.{suffix}")) for name in _LIBRARIES]
    found = dict.fromkeys(names, 0)
    for name in names:
        for library in libraries:
            function = getattr(library, name, None)
            if function is not None:
                found[name] = ctypes.cast(function, ctypes.c_void_p).value or 0
                break
    return found


def open_door() -> AtenDoor:
    """Opens the door if torch is imported; later calls cost a comparison.

    Returns:
        The state of the door.
    """
    if _door.open or _door.version or "torch" not in sys.modules:
        return _door
    torch = sys.modules["torch"]
    if getattr(torch.__spec__, "_initializing", False):  # another thread is importing it
        return _door
    _door.version = str(torch.__version__)
    failures: list[Exception] = []

    def prove() -> None:
        try:
            _prove(torch, symbols())
        except Exception as error:
            failures.append(error)

    # In a thread of its own, because what the caller has switched on belongs to threads: inference
    # mode, fake tensors, a default device, function transforms, modes of other tools.
    thread = threading.Thread(target=prove, name="torchmojo-door")
    thread.start()
    thread.join()
    for error in failures:
        _door.reason = str(error)
        warnings.warn(
            f"torchmojo: torch {_door.version} differs from what the fast door knows ({error}); "
            "tensors pass through DLPack, which takes about 0.1 ms a call",
            TorchmojoWarning,
            stacklevel=2,
        )
    return _door


class _Unproven(Exception):
    """A fact about torch that did not hold."""


def _prove(torch: Any, found: dict[str, int]) -> None:
    missing = [name for name, address in found.items() if not address]
    if missing:
        raise _Unproven(f"missing: {', '.join(missing)}")
    base = torch.arange(24, dtype=torch.int16, device="cpu")
    plain = base[3:21].view(3, 6)[:, ::2]
    leaf = torch.nn.Parameter(torch.zeros(2))
    with torch.inference_mode():
        frozen = torch.zeros(2)
    lazy = torch._neg_view(torch.ones(2))
    conjugate = torch.ones(2, dtype=torch.complex64).conj()
    tensors = (plain, leaf, frozen, lazy, conjugate)
    offset = _find_offset(tensors)

    def ask(name: str, tensor: Any) -> int:
        out = ctypes.c_int64(0)
        prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
        code = prototype(found[name])(id(tensor) + offset, ctypes.addressof(out))
        if code != 0:
            raise _Unproven(f"{name} answers {code}")
        return out.value

    def says(name: str, address: int) -> bool:
        return bool(ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(found[name])(address))

    def same(name: str, got: object, wanted: object) -> None:
        if got != wanted:
            raise _Unproven(f"{name}: wanted {wanted}, given {got}")

    def array(name: str) -> tuple[int, ...]:
        return tuple((ctypes.c_int64 * 2).from_address(ask(name, plain)))

    same("dim", ask("aoti_torch_get_dim", plain), plain.dim())
    same("sizes", array("aoti_torch_get_sizes"), tuple(plain.shape))
    same("strides", array("aoti_torch_get_strides"), plain.stride())
    same("dtype", ask("aoti_torch_get_dtype", plain), 2)
    same("device", ask("aoti_torch_get_device_type", plain), 0)
    same("layout", ask("aoti_torch_get_layout", plain), 0)
    same("const data", ask("torch_get_const_data_ptr", plain), plain.data_ptr())
    same("mutable data", ask("torch_get_mutable_data_ptr", plain), plain.data_ptr())
    same("storage", ask("aoti_torch_get_storage_size", plain), base.numel() * 2)
    same("offset", ask("aoti_torch_get_storage_offset", plain), plain.storage_offset())
    for tensor in tensors:
        handle = id(tensor) + offset
        same("is_conj", says(_FUNCTIONS[16], handle), tensor.is_conj())
        same("is_neg", says(_FUNCTIONS[10], handle), tensor.is_neg())
        same("is_inference", says(_FUNCTIONS[11], handle), tensor.is_inference())
        same("requires_grad", says(_FUNCTIONS[12], tensor._cdata), tensor.requires_grad)
    nobody = ctypes.CFUNCTYPE(ctypes.c_bool)
    same("grad mode", bool(nobody(found[_FUNCTIONS[13]])()), torch.is_grad_enabled())
    with torch.set_grad_enabled(not torch.is_grad_enabled()):
        same("grad mode", bool(nobody(found[_FUNCTIONS[13]])()), torch.is_grad_enabled())
    same("mode", bool(nobody(found[_FUNCTIONS[14]])()), torch.is_inference_mode_enabled())
    before = plain._version
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(found[_FUNCTIONS[15]])(id(plain) + offset)
    same("version", plain._version, before + 1)

    doors.set_word(doors.TENSOR_OFFSET, offset)
    for i, name in enumerate(_FUNCTIONS):
        doors.set_word(doors.FUNCTIONS + i, found[name])
    # The types come last: from here on other threads use the door.
    doors.add_tensor_type(torch.Tensor)
    doors.add_tensor_type(torch.nn.Parameter)
    _door.offset, _door.open, _door.reason = offset, True, ""


def _find_offset(tensors: tuple[Any, ...]) -> int:
    """Returns where the pointer that ``_cdata`` tells lies in every one of the objects."""
    size = type(tensors[0]).__basicsize__
    for offset in range(16, size, 8):
        words = [ctypes.c_uint64.from_address(id(t) + offset).value for t in tensors]
        if words == [t._cdata & (2**64 - 1) for t in tensors]:
            return offset
    raise _Unproven("no at::Tensor in a torch.Tensor object")
