"""Find a rank that has stopped, or whose machine is lost, while the others wait for it as long as it takes.

    every rank    counts up in the store of the group, several times within the timeout
    and watches   the counts of the others: one that has not changed within the timeout is that of a lost rank

Exchanges in updates and saves have a time limit of their own, which also ends a deadlock. While rank 0 prepares data, or ranks
validate, nothing limits the time, and a connection to a stopped process or a lost machine does not break by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread

from torch import distributed

BEATS = 8  # within the timeout
LEFT = 2**40  # added to the count of a rank that leaves: more than any rank counts


class Heartbeats:
    """Two threads of a rank: one counts and reads, the other watches, since reading blocks if rank 0, which has the store, is
    stopped."""

    def __init__(self, store: distributed.Store, rank: int, size: int, timeout: float, lose: Callable[[int], object]) -> None:
        """store: used by nothing else; timeout: seconds; lose: called in a thread with the rank that is lost."""
        self.store, self.rank, self.timeout, self.lose = store, rank, timeout, lose
        self.changed = {other: time.monotonic() for other in range(size) if other != rank}  # rank -> time of its last change
        self.ended = Event()
        for work in (self.exchange_counts, self.watch):
            Thread(target=work, name="heartbeats", daemon=True).start()

    def exchange_counts(self) -> None:
        counts = dict.fromkeys(self.changed, 0)
        with suppress(RuntimeError):  # rank 0 has ended
            while not self.ended.wait(self.timeout / BEATS):
                self.store.add(key_of(self.rank), 1)
                before, counts = counts, {other: self.store.add(key_of(other), 0) for other in counts}  # adding 0 reads
                now, changed = time.monotonic(), self.changed
                counts = {other: count for other, count in counts.items() if count < LEFT}
                self.changed = {other: changed[other] if counts[other] == before[other] else now for other in counts}

    def watch(self) -> None:
        last = time.monotonic()
        while not self.ended.wait(self.timeout / BEATS):
            now = time.monotonic()
            if now - last > self.timeout / 2:  # this process itself was stopped
                self.changed = dict.fromkeys(self.changed, now)
            last = now
            lost = [rank for rank, changed in self.changed.items() if now - changed > self.timeout]
            if lost:
                self.lose(min(lost))  # without rank 0, no count changes
                return

    def close(self) -> None:
        """Leave: the others no longer watch this rank."""
        self.ended.set()
        with suppress(RuntimeError):
            self.store.add(key_of(self.rank), LEFT)


def key_of(rank: int) -> str:
    return f"heedful/heartbeat/{rank}"
