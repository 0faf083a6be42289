"""Being asked to stop: the first SIGTERM or SIGINT lets the step finish and the run be saved, a second one leaves at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

LEAVE = 75  # EX_TEMPFAIL: run the same command again to continue


class Stop:
    """Whether somebody asked."""

    asked = False

    def hear(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            os._exit(LEAVE)
        self.asked = True


@contextmanager
def stop_requests() -> Iterator[Stop]:
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may listen to signals
        yield stop
        return
    before = {number: signal.signal(number, stop.hear) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
