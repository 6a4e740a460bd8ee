"""What the tests of the bridge share: the test kernels, a child process, and odd producers."""

import ctypes as C
import gc
import mmap
import os
import platform
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import torchmojo
from torchmojo.errors import CompilerNotFoundError

KERNELS = Path(__file__).parent / "kernels"


def load(name: str, **options):
    """Load one file of kernels; what it needs is compiled once for all sessions."""
    try:
        return torchmojo.load(KERNELS / f"{name}.mojo", **options)
    except CompilerNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def refusing(request):
    """Refuse what a copy could mend, in every thread; the tests of copies say `copying`."""
    if "copying" in request.keywords:
        yield
        return
    everywhere = torchmojo.fallback("error")
    yield
    everywhere.undo()


@pytest.fixture(scope="session")
def load_kernels():
    """Give `load_kernels(name, **options)`: load a file of `kernels/` in another way."""
    return load


@pytest.fixture(scope="session")
def kinds():
    """Give kernels that take and return every kind of number, text, list and tensor."""
    return load("kinds")


@pytest.fixture(scope="session")
def views():
    """Give kernels that look at shapes, strides, layouts and lists."""
    return load("views")


@pytest.fixture(scope="session")
def threads():
    """Give kernels that run for a while, on one thread or several."""
    return load("threads")


@pytest.fixture(scope="session")
def run_child() -> Callable[..., str]:
    """Give `run_child(code)`: run Python in a new process, return what it printed.

    The code sees `torch`, `np`, `torchmojo` and `KERNELS` unless `bare=True`. The child must end
    with status 0; if it does not, the test fails with what it wrote.
    """
    return run_in_child


def run_in_child(code: str, *, bare: bool = False, timeout: float = 120, **env: str) -> str:
    head = f"from pathlib import Path\nKERNELS = Path({str(KERNELS)!r})\n"
    if not bare:
        head += "import numpy as np\nimport torch\nimport torchmojo\n"
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", head + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **env},
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"child ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


@pytest.fixture
def refused() -> Callable[..., str]:
    """Give `refused(error, call, *args)`: assert that it raises that very class; the text."""

    def refused(error: type[Exception], call: Callable, *args, **keywords) -> str:
        with pytest.raises(error) as caught:
            call(*args, **keywords)
        assert type(caught.value) is error
        return str(caught.value)

    return refused


@pytest.fixture
def counts() -> Callable[..., tuple[int, ...]]:
    """Give `counts(*things)`: their reference counts after a collection."""

    def counts(*things) -> tuple[int, ...]:
        gc.collect()
        return tuple(sys.getrefcount(thing) for thing in things)

    return counts


# --- a DLPack producer of any shape -------------------------------------------------------------
# Its deleter is a few bytes of machine code that count calls: no Python and no GIL, so that double
# deletes and leaks both show. The capsule's destructor is NumPy's own: it calls the deleter of a
# capsule that nobody consumed.


class _Tensor(C.Structure):
    _fields_ = (
        ("data", C.c_void_p),
        ("device_type", C.c_int32),
        ("device_id", C.c_int32),
        ("ndim", C.c_int32),
        ("code", C.c_uint8),
        ("bits", C.c_uint8),
        ("lanes", C.c_uint16),
        ("shape", C.POINTER(C.c_int64)),
        ("strides", C.POINTER(C.c_int64)),
        ("byte_offset", C.c_uint64),
    )


class _Plain(C.Structure):
    _fields_ = (("tensor", _Tensor), ("context", C.c_void_p), ("deleter", C.c_void_p))


class _Versioned(C.Structure):
    _fields_ = (
        ("major", C.c_uint32),
        ("minor", C.c_uint32),
        ("context", C.c_void_p),
        ("deleter", C.c_void_p),
        ("flags", C.c_uint64),
        ("tensor", _Tensor),
    )


_new_capsule = C.PYFUNCTYPE(C.py_object, C.c_void_p, C.c_char_p, C.c_void_p)(
    ("PyCapsule_New", C.pythonapi)
)
_destructor = C.PYFUNCTYPE(C.c_void_p, C.py_object)(("PyCapsule_GetDestructor", C.pythonapi))
_NAMES = {False: b"dltensor", True: b"dltensor_versioned"}
_DESTRUCTORS = {
    False: _destructor(np.zeros(1).__dlpack__()),
    True: _destructor(np.zeros(1).__dlpack__(max_version=(1, 0))),
}
# `lock inc dword [rdi + context]; ret`, and the same for AArch64.
_CODE = {
    ("x86_64", _Plain): "f0ff4730c3",
    ("x86_64", _Versioned): "f0ff4708c3",
    ("aarch64", _Plain): "0130 40b9 2104 0011 0130 00b9 c003 5fd6",
    ("aarch64", _Versioned): "0108 40b9 2104 0011 0108 00b9 c003 5fd6",
}
_page: list[mmap.mmap] = []
_alive: list[object] = []  # a capsule may outlive its producer


def _deleter(kind: type[C.Structure]) -> int:
    machine = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    if not _page:
        _page.append(mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC))
    at = 0 if kind is _Plain else 64
    code = bytes.fromhex(_CODE[machine, kind])
    _page[0][at : at + len(code)] = code
    return C.addressof(C.c_char.from_buffer(_page[0])) + at


class Producer:
    """An object with `__dlpack__`; every field of the C structure can be set.

    `strides=None` is a NULL pointer; `deletes()` counts the calls of the deleter of each capsule.
    """

    keywords = True

    def __init__(
        self,
        values,
        shape,
        strides=(),
        *,
        byte_offset=0,
        dtype=(2, 32, 1),
        device=(1, 0),
        null_data=False,
        null_shape=False,
        version=None,
        flags=0,
        name=None,
    ):
        self.buffer = bytearray(np.array(values, dtype=np.float32).tobytes())
        self.shape, self.byte_offset, self.dtype = tuple(shape), byte_offset, dtype
        self.device, self.null_data, self.null_shape = device, null_data, null_shape
        self.version, self.flags, self.name, self.made = version, flags, name, []
        if strides == ():
            steps = [1] * len(self.shape)
            for i in range(len(self.shape) - 2, -1, -1):
                steps[i] = steps[i + 1] * self.shape[i + 1]
            strides = tuple(steps)
        self.strides = strides

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None):
        return self.capsule()

    def capsule(self):
        kind = _Versioned if self.version else _Plain
        managed = kind()
        tensor, count = managed.tensor, len(self.shape)
        address = C.addressof(C.c_char.from_buffer(self.buffer))
        tensor.data = None if self.null_data else address
        tensor.device_type, tensor.device_id = self.device
        tensor.ndim, tensor.byte_offset = count, self.byte_offset
        tensor.code, tensor.bits, tensor.lanes = self.dtype
        sizes = (C.c_int64 * max(count, 1))(*self.shape)
        steps = (C.c_int64 * max(count, 1))(*(self.strides or ()))
        if not self.null_shape:
            tensor.shape = C.cast(sizes, C.POINTER(C.c_int64))
        if self.strides is not None:
            tensor.strides = C.cast(steps, C.POINTER(C.c_int64))
        managed.deleter = _deleter(kind)
        managed.context = 0
        if self.version:
            managed.major, managed.minor = self.version
            managed.flags = self.flags
        self.made.append((managed, sizes, steps, self.buffer))
        _alive.append(self.made[-1])
        name = self.name or _NAMES[bool(self.version)]
        return _new_capsule(C.addressof(managed), name, _DESTRUCTORS[bool(self.version)])

    def deletes(self) -> list[int]:
        return [made[0].context or 0 for made in self.made]


class OldProducer(Producer):
    """A producer from before DLPack 1.0: `__dlpack__` takes no keywords."""

    def __dlpack__(self):
        return self.capsule()


@pytest.fixture(scope="session")
def producer() -> type[Producer]:
    return Producer


@pytest.fixture(scope="session")
def old_producer() -> type[OldProducer]:
    return OldProducer


@pytest.fixture
def zombie() -> torch.Tensor:
    """Give a tensor whose shape says 10 elements and whose storage holds 3."""
    tensor = torch.from_numpy(np.arange(3, dtype=np.float32))
    with pytest.raises(RuntimeError, match="not resizable"):
        tensor.resize_(10)
    assert tensor.numel() == 10 and tensor.untyped_storage().nbytes() == 12
    return tensor
