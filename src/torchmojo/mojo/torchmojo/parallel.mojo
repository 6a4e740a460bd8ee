"""Loops on torch's own thread pool, so that no second pool competes with it."""

from std.ffi import external_call
from std.memory import Pointer

from torchmojo._torch import torch_symbol

comptime GRAIN = 32768
"""Iterations that are worth a thread of their own, as `at::internal::GRAIN_SIZE`."""

comptime _Context = Pointer[NoneType, MutAnyOrigin]
comptime _RangeFn = def(Int64, Int64, _Context) thin abi("C") -> None
# torch_parallel_for(begin, end, grain, body, context) of torch's stable C ABI, torch 2.10.
comptime _ParallelFor = def(Int64, Int64, Int64, _RangeFn, _Context) thin abi("C") -> Int32

comptime _GetNumThreads = def(Pointer[UInt32, MutAnyOrigin]) thin abi("C") -> Int32


def parallel_for[F: def(Int, Int) -> None](body: F, n: Int, grain: Int = GRAIN):
    """Calls `body(start, end)` on ranges that cover `0 ..< n` once, on torch's threads.

    Respects `torch.set_num_threads`. Runs on the calling thread where `n <= grain`, where torch is
    not loaded, in a forked child, and inside another parallel loop. Ranges may run at the same time and in any order,
    so `body` must not write what another range reads or writes.

    Parameters:
        F: Type of the body (inferred).

    Args:
        body: Work on one range; a closure with its captures listed.
        n: Number of iterations; none for 0 or less.
        grain: Fewest iterations that are worth a thread of their own.
    """
    if n <= 0:
        return
    if n <= grain or _is_forked():
        body(0, n)
        return
    var address = torch_symbol("torch_parallel_for")
    if address == 0:
        body(0, n)
        return

    def run(start: Int64, end: Int64, context: _Context) abi("C") {}:
        context.unsafe_bitcast[F]()[](Int(start), Int(end))

    var callback: _RangeFn = run
    var context = (
        Pointer(to=body)
        .unsafe_bitcast[NoneType]()
        .unsafe_mut_cast[True]()
        .unsafe_origin_cast[MutAnyOrigin]()
    )
    _ = Pointer(to=address).unsafe_bitcast[_ParallelFor]()[](
        0, Int64(n), Int64(max(grain, 1)), callback, context
    )


@no_inline
def _is_forked() -> Bool:
    """Tells whether this process was forked from one that had torchmojo.

    The threads of torch's pool do not exist in such a child, and a loop would wait for them for
    ever. Python sets the variable after a fork (`bridge/fork.py`); a program that such a child
    starts inherits it, but has another process number.

    Returns:
        True where a loop has to stay on its own thread.
    """
    var text = external_call["getenv", Int]("TORCHMOJO_FORKED".as_c_string_span())
    if text == 0:
        return False
    return external_call["atoi", Int32](text) == external_call["getpid", Int32]()


def num_threads() -> Int:
    """Tells how many threads a parallel loop may use.

    Returns:
        Torch's setting, or 1 without torch and in a forked child.
    """
    if _is_forked():
        return 1
    var address = torch_symbol("torch_get_num_threads")
    if address == 0:
        return 1
    var count = UInt32(1)
    _ = Pointer(to=address).unsafe_bitcast[_GetNumThreads]()[](
        Pointer(to=count).unsafe_origin_cast[MutAnyOrigin]()
    )
    return Int(count)
