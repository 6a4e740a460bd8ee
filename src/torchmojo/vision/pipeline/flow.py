"""Threads that work ahead of their consumer: in order, bounded, and gone when it stops."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["ordered"]

Item = TypeVar("Item")
Result = TypeVar("Result")

PATIENCE = 1.0
"""Seconds that a stopped stream waits for a source that does not give its next item."""


def ordered(
    items: Iterable[Item], work: Callable[[Item], Result], workers: int, ahead: int
) -> Generator[Result, None, None]:
    """Works on items in threads and gives the results in the items' order.

    One thread reads the items, so that a camera that makes its reader wait holds up nobody else.
    Closing the generator, or an exception at its consumer such as KeyboardInterrupt, ends the
    threads.

    Args:
        items: What to work on; read from one thread, never two at the same time.
        work: Called with an item, in one of the threads.
        workers: Threads that work; 0 works in the consumer's thread, on demand.
        ahead: How many items are read, at most, whose results were not asked for yet.

    Raises:
        Exception: What ``items`` or ``work`` raised, after the results before it.

    Example:
        >>> from torchmojo.vision.pipeline.flow import ordered
        >>> list(ordered([3, 1, 2], lambda x: x * x, workers=2, ahead=2))
        [9, 1, 4]
    """
    if not workers:
        yield from map(work, items)
        return
    coming: queue.SimpleQueue[Future[Result] | BaseException | None] = queue.SimpleQueue()
    slots = threading.Semaphore(ahead)
    stop = threading.Event()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="torchmojo-decode")

    def feed() -> None:
        try:
            iterator = iter(items)
            while True:
                slots.acquire()
                if stop.is_set():
                    return
                try:
                    item = next(iterator)
                except StopIteration:
                    break
                coming.put(pool.submit(work, item))
            coming.put(None)
        except BaseException as error:  # it is the consumer's to see
            coming.put(error)

    # A daemon: a source that never gives its next item must not keep the process alive.
    feeder = threading.Thread(target=feed, name="torchmojo-feed", daemon=True)
    feeder.start()
    try:
        while (entry := coming.get()) is not None:
            if isinstance(entry, BaseException):
                raise entry
            result = entry.result()
            slots.release()
            yield result
    finally:
        stop.set()
        slots.release()
        pool.shutdown(wait=True, cancel_futures=True)
        feeder.join(PATIENCE)
