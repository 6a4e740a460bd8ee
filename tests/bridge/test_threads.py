"""Kernels beside other threads: the GIL, parallel loops, the end of the process, fork."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from torchmojo import KernelError

from .conftest import load

PATIENCE = 60_000  # milliseconds after which a kernel that waits for others gives up


@pytest.fixture(scope="module")
def threads():
    return load("threads")


@pytest.fixture(scope="module")
def running():
    return load("running")


@pytest.fixture(params=[1, 2])
def pool(request):
    """Set the size of torch's thread pool."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def wait_for(condition):
    """Wait until something is so; other threads run meanwhile."""
    end = time.monotonic() + PATIENCE / 1000
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


# --- several Python threads ---------------------------------------------------------------------


def test_four_threads_on_one_kernel(kinds):
    shared = torch.arange(100.0)

    def work(number):
        for i in range(300):
            out = torch.zeros(100)
            kinds.add(out, shared, torch.full((100,), float(i)), alpha=float(number))
            assert torch.equal(out, shared + number * i)
            assert kinds.echo_string(f"{number} {i}") == f"{number} {i}"
            assert kinds.add(out.numpy(), shared, out.numpy()) is None
        return number

    with ThreadPoolExecutor(4) as executor:
        assert list(executor.map(work, range(4))) == [0, 1, 2, 3]


def test_each_thread_gets_its_own_error(threads):
    def work(number):
        for i in range(200):
            with pytest.raises(KernelError) as caught:
                threads.raise_text(f"{number}-{i}")
            assert str(caught.value) == f"raise_text: {number}-{i}"

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(work, range(4)))


def test_kernels_run_at_the_same_time(running):
    """Each of four calls waits in the kernel until all four are there."""
    counter = torch.zeros(1, dtype=torch.int64)
    with ThreadPoolExecutor(4) as executor:
        calls = [executor.submit(running.meet, counter, 4, PATIENCE) for _ in range(4)]
        assert [call.result() for call in calls] == [True] * 4
    assert counter.item() == 4 and counter._version == 4


def test_the_gil_is_released(running):
    """Python runs on while a kernel waits for it."""
    counter = np.zeros(1, dtype=np.int64)
    with ThreadPoolExecutor(1) as executor:
        call = executor.submit(running.meet, counter, 2, PATIENCE)
        wait_for(lambda: counter[0] == 1)
        assert not call.done()
        counter[0] += 1
        assert call.result() is True


def test_arguments_are_held_while_the_kernel_runs(running):
    """Nobody else holds these tensors and this bytearray any more when they are written."""
    counter = np.zeros(1, dtype=np.int64)
    data = bytearray(5)
    kept = torch.zeros(1000)
    xs = [torch.zeros(1000), kept, np.zeros(1000, dtype=np.float32)]
    with ThreadPoolExecutor(1) as executor:
        call = executor.submit(running.hold, data, xs, counter, 2, PATIENCE)
        wait_for(lambda: counter[0] == 1)
        xs.clear()
        with pytest.raises(BufferError):
            data.append(0)  # exported to the kernel
        torch.full((1000,), 5.0)  # would land in memory that had been freed
        counter[0] += 1
        assert call.result() is True
    data.append(0)
    assert data == b"\7\7\7\7\7\0" and kept.tolist() == [7.0] * 1000


def test_a_tensor_resized_meanwhile_keeps_its_old_shape_in_the_kernel(running):
    counter = np.zeros(1, dtype=np.int64)
    x = torch.zeros(8)
    with ThreadPoolExecutor(1) as executor:
        call = executor.submit(running.hold, bytearray(1), [x], counter, 2, PATIENCE)
        wait_for(lambda: counter[0] == 1)
        x.resize_(3)  # keeps the storage
        counter[0] += 1
        assert call.result() is True
    assert x.resize_(8).tolist() == [7.0] * 8


def test_reload_beside_calls(kinds):
    """Kernels that are called while their library loads anew stay what they are."""
    kernels = load("kinds")
    stop = threading.Event()

    def work():
        x = torch.zeros(10)
        while not stop.is_set():
            kernels.add(x, x, torch.ones(10))
        return x

    with ThreadPoolExecutor(2) as executor:
        calls = [executor.submit(work) for _ in range(2)]
        for _ in range(20):
            kernels.reload()
        stop.set()
        for call in calls:
            assert call.result().unique().numel() == 1


# --- parallel loops -----------------------------------------------------------------------------

GRAIN = 64
SIZES = [0, 1, 2, GRAIN - 1, GRAIN, GRAIN + 1, 2 * GRAIN, 2 * GRAIN + 1, 1009, 99_991, 1_000_000]


@pytest.mark.parametrize("n", SIZES)
def test_every_index_once(threads, pool, n):
    dst = torch.zeros(n, dtype=torch.int64)
    threads.fill_parallel(dst, GRAIN)
    assert torch.equal(dst, torch.arange(n))


@pytest.mark.parametrize("grain", [-5, 0, 1, 2**40])
def test_any_grain(threads, pool, grain):
    for n in (0, 1, 2, 3, 1009):
        dst = torch.zeros(n, dtype=torch.int64)
        threads.fill_parallel(dst, grain)
        assert torch.equal(dst, torch.arange(n))


@pytest.mark.parametrize("n", SIZES)
def test_ranges_follow_each_other(threads, pool, n):
    starts = torch.zeros(n + 1, dtype=torch.int64)
    threads.ranges(starts, n, GRAIN)
    begins = starts.nonzero().flatten()
    lengths = starts[begins]
    assert torch.equal(begins, torch.cumsum(lengths, 0) - lengths) and lengths.sum() == n
    assert len(begins) <= pool
    if n > GRAIN:
        assert len(begins) == pool  # no thread is left out of a long loop


@pytest.mark.parametrize("n", [-1, -(2**62)])
def test_fewer_than_none(threads, n):
    starts = torch.zeros(1, dtype=torch.int64)
    threads.ranges(starts, n, GRAIN)
    assert starts.item() == 0


@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (1, 1000), (1000, 1), (7, 9), (129, 257)])
def test_a_loop_in_a_loop(running, pool, shape):
    dst = torch.zeros(shape, dtype=torch.int64)
    for grain in (1, 100):
        dst.zero_()
        running.grid(dst, grain)
        assert torch.equal(dst.flatten(), torch.arange(dst.numel()))


def test_loops_of_several_threads(threads, running, pool):
    def work(number):
        for _ in range(20):
            dst = torch.zeros(5003 + number, dtype=torch.int64)
            threads.fill_parallel(dst, 1)
            assert torch.equal(dst, torch.arange(len(dst)))
            grid = torch.zeros(11, 13, dtype=torch.int64)
            running.grid(grid, 1)
            assert torch.equal(grid.flatten(), torch.arange(143))

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(work, range(4)))


def test_number_of_threads(threads, pool):
    assert threads.threads() == pool == torch.get_num_threads()


def test_without_torch_there_is_one_thread(run_child):
    code = """
    import sys
    import numpy as np
    import torchmojo
    threads = torchmojo.load(KERNELS / "threads.mojo")
    running = torchmojo.load(KERNELS / "running.mojo")
    for n in (0, 1, 64, 65, 1009, 1_000_000):
        dst = np.zeros(n, dtype=np.int64)
        threads.fill_parallel(dst, 64)
        assert (dst == np.arange(n)).all()
    starts = np.zeros(10**6, dtype=np.int64)
    threads.ranges(starts, 10**6, 1)
    grid = np.zeros((7, 9), dtype=np.int64)
    running.grid(grid, 1)
    assert (grid.ravel() == np.arange(63)).all()
    print(threads.threads(), starts.nonzero()[0].tolist(), starts[0], "torch" in sys.modules)
    import torch
    torch.set_num_threads(2)
    starts[:] = 0
    threads.ranges(starts, 10**6, 1)
    print(threads.threads(), len(starts.nonzero()[0]), starts.sum())
    """
    assert run_child(code, bare=True) == "1 [0] 1000000 False\n2 2 1000000\n"


# --- the end of the process ---------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["spin(60_000)", "spin_tensor(torch.zeros(4), 60_000)"])
def test_exit_while_a_daemon_thread_is_in_a_kernel(run_child, kernel):
    code = f"""
    import threading, time
    threads = torchmojo.load(KERNELS / "threads.mojo")
    thread = threading.Thread(target=lambda: threads.{kernel}, daemon=True)
    thread.start()
    time.sleep(0.05)
    print("end")
    """
    assert run_child(code, timeout=50) == "end\n"


def test_kernel_that_returns_to_an_interpreter_that_ends(run_child):
    """The thread finds no interpreter to go back to; the process ends in peace."""
    code = """
    import threading, time
    threads = torchmojo.load(KERNELS / "threads.mojo")

    class Late:
        # Called while the interpreter takes its modules apart, with daemon threads shut out.
        def __del__(self, sleep=time.sleep):
            sleep(0.6)

    late = Late()
    x = torch.zeros(4)
    for call in (
        lambda: threads.spin(200),
        lambda: threads.spin_tensor(x, 200),
        lambda: threads.spin_bytes(bytearray(8), 200),
        lambda: threads.spin_list([x, x.clone()], 200),
    ):
        threading.Thread(target=call, daemon=True).start()
    time.sleep(0.05)
    print("end")
    """
    assert run_child(code) == "end\n"


def test_kernels_live_as_long_as_anything_refers_to_them(run_child):
    """Called by an object that the interpreter takes apart at the very end."""
    code = """
    threads = torchmojo.load(KERNELS / "threads.mojo")

    class Last:
        def __del__(self, call=threads.add_one, x=torch.zeros(3), write=print):
            call(x, torch.ones(3))
            write(x.tolist())

    import builtins
    builtins.last = Last()
    """
    assert run_child(code) == "[2.0, 2.0, 2.0]\n"


# --- fork ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallel", [False, True])
def test_fork_after_use(run_child, parallel):
    """A child calls kernels without a parallel loop; torch's own pool is not there after a fork."""
    code = f"""
    import os, signal, warnings
    warnings.simplefilter("ignore", DeprecationWarning)  # of Python: threads and fork
    torch.set_num_threads(2)
    threads = torchmojo.load(KERNELS / "threads.mojo")
    if {parallel}:
        threads.fill_parallel(torch.zeros(100_000, dtype=torch.int64), 1)
    x = torch.arange(3.0)
    threads.add_one(x, x)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        threads.add_one(x, x)
        try:
            threads.raise_text("in the child")
        except torchmojo.KernelError as error:
            ok = str(error) == "raise_text: in the child"
        y = bytearray(2)
        threads.spin_bytes(y, 1)
        y.append(0)
        again = torchmojo.load(KERNELS / "threads.mojo")
        again.add_one(x, x)
        os._exit(0 if ok and x.tolist() == [3, 4, 5] and y == b"\\7\\7\\0" else 1)
    _, status = os.waitpid(child, 0)
    threads.add_one(x, x)
    print(status, x.tolist())
    """
    assert run_child(code) == "0 [2.0, 3.0, 4.0]\n"
