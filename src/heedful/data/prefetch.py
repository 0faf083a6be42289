"""Compute the next items in a background thread, with a bounded queue and in the same order.

An exception of the iterator is raised in the consumer at the same position. When the consumer stops early (or closes the
generator), the iterator is closed in its own thread, and the thread has ended before `close` returns.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from queue import Empty, Queue
from threading import Event, Thread
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")


class Failure(NamedTuple):
    error: BaseException


class EndOfItems:
    """Marks the end of the queue."""


def prefetch(items: Iterable[Item], depth: int) -> Generator[Item, None, None]:
    """Yield the items, computing up to `depth` of them ahead; 0: without a thread, each on demand."""
    if depth == 0:
        yield from items
        return
    queue: Queue[Item | Failure | EndOfItems] = Queue(depth)
    stopped = Event()
    thread = Thread(target=fill_queue, args=(items, queue, stopped), name="prefetch", daemon=True)
    thread.start()
    try:
        while not isinstance(item := queue.get(), EndOfItems):
            if isinstance(item, Failure):
                raise item.error
            yield item
    finally:
        stopped.set()
        empty_queue(queue)  # so that a blocked `put` returns and the thread reads `stopped`
        thread.join()


def fill_queue(items: Iterable[Item], queue: Queue[Item | Failure | EndOfItems], stopped: Event) -> None:
    last: Failure | EndOfItems = EndOfItems()
    try:
        iterator = iter(items)
        try:
            for item in iterator:
                queue.put(item)
                if stopped.is_set():
                    break
        finally:
            if isinstance(iterator, Generator):
                iterator.close()
    except BaseException as error:
        last = Failure(error)
    if not stopped.is_set():
        queue.put(last)


def empty_queue(queue: Queue[Item]) -> None:
    while True:
        try:
            queue.get_nowait()
        except Empty:
            return
