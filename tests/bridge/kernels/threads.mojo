"""Kernels of the tests: long ones, and ones on several threads. They need no torch."""

from std.time import perf_counter_ns

from torchmojo import MutTensor, MutTensorList, Tensor, num_threads, parallel_for


def spin(milliseconds: Int) -> Int:
    """Keeps one core busy for a while."""
    var start = perf_counter_ns()
    var rounds = 0
    while perf_counter_ns() - start < milliseconds * 1_000_000:
        rounds += 1
    return rounds


def spin_tensor(x: MutTensor[DType.float32, 1], milliseconds: Int):
    """Writes until the time is over."""
    var start = perf_counter_ns()
    while perf_counter_ns() - start < milliseconds * 1_000_000:
        for i in range(x.dim(0)):
            x[i] += 1


def spin_bytes(x: MutTensor[DType.uint8, 1], milliseconds: Int):
    var start = perf_counter_ns()
    while perf_counter_ns() - start < milliseconds * 1_000_000:
        for i in range(x.dim(0)):
            x[i] = 7


def spin_list(xs: MutTensorList[DType.float32, 1], milliseconds: Int):
    var start = perf_counter_ns()
    while perf_counter_ns() - start < milliseconds * 1_000_000:
        for k in range(len(xs)):
            for i in range(xs[k].dim(0)):
                xs[k][i] = 7


def fill_parallel(dst: MutTensor[DType.int64, 1], grain: Int):
    """Adds its index to each element."""

    def body(start: Int, end: Int) {dst}:
        for i in range(start, end):
            dst[i] += Int64(i)

    parallel_for(body, dst.dim(0), grain)


def ranges(starts: MutTensor[DType.int64, 1], n: Int, grain: Int):
    """Writes at each range's start its length."""

    def body(start: Int, end: Int) {starts}:
        starts[start] += Int64(end - start)

    parallel_for(body, n, grain)


def nested(dst: MutTensor[DType.int64, 1]):
    """A parallel loop inside a parallel loop."""

    def outer(start: Int, end: Int) {dst}:
        def inner(low: Int, high: Int) {dst}:
            for i in range(low, high):
                dst[i] += 1

        for _ in range(start, end):
            parallel_for(inner, 0, 1)
        parallel_for(inner, 0)
        for i in range(start, end):
            dst[i] += 1

    parallel_for(outer, dst.dim(0), 4)


def threads() -> Int:
    return num_threads()


def add_one(dst: MutTensor[DType.float32, 1], src: Tensor[DType.float32, 1]):
    for i in range(min(dst.dim(0), src.dim(0))):
        dst[i] = src[i] + 1


def raise_text(text: String) raises:
    raise Error(text)
