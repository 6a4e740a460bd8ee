"""Other ways to call native code on torch tensors, built for the benchmarks.

Every way does `dst = a + alpha * b` on float32. One that cannot be had here (no C compiler, package
not installed) is None, and says why on the page of results.
"""

import ctypes
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sysconfig
import time
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("peers.c")
FLAGS = ("-O2", "-march=native", "-ffp-contract=off", "-shared", "-fPIC")

# Its own checks, as its documentation writes them: rank, dtype, device, sizes and strides.
TVM_FFI = """
#include <tvm/ffi/container/tensor.h>
namespace ffi = tvm::ffi;

static void check(const ffi::TensorView& x, int64_t n) {
  DLDataType float32{kDLFloat, 32, 1};
  TVM_FFI_ICHECK(x.ndim() == 1) << "wanted one axis";
  TVM_FFI_ICHECK(x.dtype() == float32) << "wanted float32";
  TVM_FFI_ICHECK(x.device().device_type == kDLCPU) << "wanted the CPU";
  TVM_FFI_ICHECK(x.size(0) == n) << "wanted equal sizes";
  TVM_FFI_ICHECK(n < 2 || x.stride(0) == 1) << "wanted contiguous memory";
}

void scaled_add(ffi::TensorView dst, ffi::TensorView a, ffi::TensorView b, double alpha) {
  int64_t n = dst.size(0);
  check(dst, n), check(a, n), check(b, n);
  float factor = static_cast<float>(alpha);
  float* out = static_cast<float*>(dst.data_ptr());
  const float* x = static_cast<const float*>(a.data_ptr());
  const float* y = static_cast<const float*>(b.data_ptr());
  for (int64_t i = 0; i < n; i++) out[i] = x[i] + factor * y[i];
}
"""

# For max 26.7.0. A number could only be passed as a tensor or compiled in: alpha is 0.5.
MAX = """
from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext


@register("scaled_add")
struct ScaledAdd:
    @staticmethod
    def execute[
        target: StaticString
    ](
        dst: OutputTensor[dtype=DType.float32, rank=1, ...],
        a: InputTensor[dtype=DType.float32, rank=1, ...],
        b: InputTensor[dtype=DType.float32, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        for i in range(dst.dim_size(0)):
            dst[i] = a[i] + Float32(0.5) * b[i]
"""


class Missing(Exception):
    """A peer that cannot be measured here; the text is the reason."""


def build_c(folder):
    """Compile peers.c; give the extension module and the same file as a ctypes library."""
    compiler = shutil.which(os.environ.get("CC", "gcc"))
    header = Path(sysconfig.get_paths()["include"], "Python.h")
    if compiler is None:
        raise Missing("no C compiler")
    if not header.is_file():
        raise Missing(f"no {header}")
    path = Path(folder, "bench_peers.so")
    words = [compiler, *FLAGS, f"-I{header.parent}", str(SOURCE), "-o", str(path)]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"peers.c does not compile: {done.stderr.strip().splitlines()[-1]}")
    loader = importlib.machinery.ExtensionFileLoader("bench_peers", str(path))
    spec = importlib.util.spec_from_file_location("bench_peers", path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module, path


def raw_c(module):
    """Give the extension's function; it reads tensors through DLPack's exchange table."""
    table = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if table is None:
        raise Missing(f"torch {torch.__version__} has no DLPack exchange table")
    module.open_exchange(table)
    return module.scaled_add


def plain_ctypes(path):
    """Give the C function for raw addresses."""
    function = ctypes.CDLL(str(path)).scaled_add
    function.restype = None
    function.argtypes = (*(ctypes.c_void_p,) * 3, ctypes.c_int64, ctypes.c_double)
    return function


def tvm_ffi(folder):
    """Give the function of apache-tvm-ffi, and the seconds that building it took."""
    try:
        import tvm_ffi.cpp as tvm
    except ImportError:
        raise Missing("apache-tvm-ffi is not installed (./dev setup does it)") from None
    start = time.perf_counter()
    try:
        module = tvm.load_inline(
            "bench_tvm_ffi",
            cpp_sources=TVM_FFI,
            functions="scaled_add",
            extra_cflags=["-O2", "-march=native", "-ffp-contract=off"],
            build_directory=str(Path(folder, "tvm_ffi")),
        )
    except (RuntimeError, OSError) as error:  # no C++ compiler, no ninja
        raise Missing(f"tvm-ffi cannot build: {str(error).strip().splitlines()[0]}") from None
    return module.scaled_add, time.perf_counter() - start


def custom_op_library(folder):
    """Give the op of MAX's CustomOpLibrary: `op(dst, a, b)` with alpha compiled in."""
    try:
        from max.experimental.torch import CustomOpLibrary
    except ImportError:
        raise Missing("the package max is not installed: pip install max") from None
    package = Path(folder, "max_op")
    package.mkdir()
    package.joinpath("__init__.mojo").write_text(MAX, encoding="utf-8")
    return CustomOpLibrary(package).scaled_add
