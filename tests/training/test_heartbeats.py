"""Ranks that stop counting are found; those that count or have left are not."""

from __future__ import annotations

import time
from threading import Event

from torch import distributed

from heedful.training.heartbeats import LEFT, Heartbeats, key_of

SHORT, LONG = 0.2, 0.8  # seconds without a count after which a rank is lost


def test_a_rank_that_does_not_count_is_lost() -> None:
    lost: list[int] = []
    called = Event()

    def lose(rank: int) -> None:
        lost.append(rank)
        called.set()

    began = time.monotonic()
    Heartbeats(distributed.HashStore(), 0, 3, SHORT, lose)
    assert called.wait(30) and time.monotonic() - began > SHORT
    assert lost == [1]


def test_ranks_that_count_and_one_that_has_left_are_not_lost() -> None:
    store, lost = distributed.HashStore(), list[int]()
    store.add(key_of(2), LEFT)
    ranks = [Heartbeats(store, rank, 3, LONG, lost.append) for rank in (0, 1)]
    time.sleep(1.25 * LONG)
    assert ranks[0].changed.keys() == {1} and ranks[1].changed.keys() == {0}
    ranks[1].close()
    time.sleep(1.25 * LONG)
    assert not ranks[0].changed and not lost
    ranks[0].close()
