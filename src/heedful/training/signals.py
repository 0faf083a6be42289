"""Requests to stop: SIGTERM, SIGINT (Ctrl-C), SIGHUP (a closed terminal), SIGUSR1 and SIGUSR2 (a cluster's warnings).

During preparation there is nothing to save: the first request raises Interrupted. During training it lets the update
finish and the run be saved. A second request ends the process at once.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from heedful.errors import Interrupted

REQUESTS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
Result = TypeVar("Result")


class Stop:
    """Whether the process was asked to stop."""

    def __init__(self) -> None:
        self.requested = False
        self.deferred = False

    def defer(self) -> None:
        """From now on a request is only noted; whoever trains looks at `asked` between two updates."""
        self.deferred = True
        if self.requested:  # a request whose exception was lost, raised where Python ignores exceptions
            raise Interrupted("before the first update; there was nothing to save", hint="run the same command again")

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            os._exit(Interrupted.exit_code)
        self.requested = True
        if not self.deferred:
            raise Interrupted(
                f"{signal.Signals(number).name} before the first update; there was nothing to save",
                hint="run the same command again",
            )


@contextmanager
def stop_requests() -> Iterator[Stop]:
    """Handle requests to stop; SIGHUP stays ignored where it is (nohup)."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield stop
        return
    chosen = [number for number in REQUESTS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, stop.handle) for number in chosen}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interruptible(work: Callable[[], Result]) -> Result:
    """work(), in a thread of its own. Python handles signals in the main thread between two of its own instructions: in the
    midst of a long native call it would not, so the main thread waits here, and on a request leaves the thread behind."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    done: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        try:
            done.append((work(), None))
        except BaseException as error:
            done.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
    result, error = done[0]
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]
