"""Signals that stop a run: SIGTERM, SIGINT (Ctrl-C), SIGHUP (closed terminal), SIGUSR1 and SIGUSR2 (sent by clusters).

During preparation there is nothing to save: the first signal raises Interrupted. During training the current update is
finished and a checkpoint saved. A second signal ends the process at once.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from heedful.errors import Interrupted

REQUESTS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
TOGETHER = 1.0  # seconds: torchrun repeats a signal that its processes have already received from the terminal
Result = TypeVar("Result")


class Stop:
    """Whether a signal to stop was received."""

    def __init__(self) -> None:
        self.requested = False
        self.deferred = False
        self.received = 0.0  # when the first signal was received

    def defer(self) -> None:
        """From now on a signal only sets `requested`, which training checks between updates."""
        self.deferred = True
        if self.requested:  # the exception was raised where Python ignores exceptions
            raise Interrupted("before the first update; nothing to save", hint="run the same command again")

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            if "RANK" in os.environ and time.monotonic() - self.received < TOGETHER:
                return
            os._exit(Interrupted.exit_code)
        self.requested, self.received = True, time.monotonic()
        if not self.deferred:
            raise Interrupted(
                f"{signal.Signals(number).name} before the first update; nothing to save",
                hint="run the same command again",
            )


@contextmanager
def stop_requests() -> Iterator[Stop]:
    """Handle signals to stop inside the block; SIGHUP stays ignored if it is (nohup)."""
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
    """Run work() in a thread. Python handles signals in the main thread between bytecode instructions, not during a long
    native call; so the main thread waits here, and abandons the other thread when a signal arrives."""
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
