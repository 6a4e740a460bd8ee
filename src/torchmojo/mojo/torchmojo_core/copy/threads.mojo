"""Loops on torch's threads, where the caller may know torch's function already."""

from std.memory import Pointer

from torchmojo.parallel import parallel_for

comptime _Context = Pointer[NoneType, MutAnyOrigin]
comptime _RangeFn = def(Int64, Int64, _Context) thin abi("C") -> None
# torch_parallel_for(begin, end, grain, body, context) of torch's stable C ABI, torch 2.10.
comptime _ParallelFor = def(Int64, Int64, Int64, _RangeFn, _Context) thin abi("C") -> Int32


def share_out[F: def(Int, Int) -> None](body: F, n: Int, grain: Int, function: Int):
    """Calls `body(start, end)` on ranges that cover `0 ..< n` once, as `parallel_for` does.

    To look torch's function up takes up to 60 microseconds after work that has emptied the caches
    (measured), as long as it takes to copy a megabyte.

    Parameters:
        F: Type of the body (inferred).

    Args:
        body: Work on one range.
        n: Number of iterations.
        grain: Fewest iterations that are worth a thread of their own.
        function: Address of `torch_parallel_for`; 0 to look it up.
    """
    if function == 0 or n <= grain:
        parallel_for(body, n, grain)
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
    _ = Pointer(to=function).unsafe_bitcast[_ParallelFor]()[](
        0, Int64(n), Int64(max(grain, 1)), callback, context
    )
