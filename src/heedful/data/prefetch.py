"""Prepare what comes next while the present is being worked on: one thread, a queue of limited depth, the same order.

An exception of the iterator comes out at the consumer, in its place. When the consumer stops early (or closes the
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


class Finished:
    """Comes after the last item."""


def prefetch(items: Iterable[Item], depth: int) -> Generator[Item, None, None]:
    """The items, up to `depth` of them ready ahead of time; 0 makes each when it is asked for, without a thread."""
    if depth == 0:
        yield from items
        return
    queue: Queue[Item | Failure | Finished] = Queue(depth)
    stopped = Event()
    thread = Thread(target=fill, args=(items, queue, stopped), name="prefetch", daemon=True)
    thread.start()
    try:
        while not isinstance(item := queue.get(), Finished):
            if isinstance(item, Failure):
                raise item.error
            yield item
    finally:
        stopped.set()
        drain(queue)  # whoever waits for room gets it, then sees that it should stop
        thread.join()


def fill(items: Iterable[Item], queue: Queue[Item | Failure | Finished], stopped: Event) -> None:
    last: Failure | Finished = Finished()
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


def drain(queue: Queue[Item]) -> None:
    while True:
        try:
            queue.get_nowait()
        except Empty:
            return
