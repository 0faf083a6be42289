from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.prefetch import prefetch


def threads() -> int:
    return sum(thread.name == "prefetch" for thread in threading.enumerate())


@settings(deadline=None)
@given(items=st.lists(st.integers() | st.none()), depth=st.integers(0, 5))
def test_the_order_is_unchanged(items: list[int | None], depth: int) -> None:
    assert list(prefetch(items, depth)) == items
    assert threads() == 0


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_an_exception_is_raised_at_its_position(depth: int) -> None:
    def numbers() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("the third")

    received = []
    with pytest.raises(ValueError, match="the third"):
        for number in prefetch(numbers(), depth):
            received.append(number)
    assert received == [1, 2]
    assert threads() == 0


class Unwilling:
    def __iter__(self) -> Iterator[int]:
        raise ValueError("not iterable today")


def test_a_failing_iter_is_an_error_and_does_not_hang() -> None:
    with pytest.raises(ValueError, match="not iterable today"):
        list(prefetch(Unwilling(), 2))


@pytest.mark.parametrize("depth", [1, 4])
def test_stopping_early_closes_the_iterator_and_ends_the_thread(depth: int) -> None:
    closed: list[str] = []

    def numbers() -> Iterator[int]:
        try:
            number = 0
            while True:
                yield number
                number += 1
        finally:
            closed.append(threading.current_thread().name)

    ahead = prefetch(numbers(), depth)
    assert [next(ahead), next(ahead)] == [0, 1]
    assert threads() == 1
    ahead.close()
    assert threads() == 0
    assert closed == ["prefetch"]


def test_it_computes_ahead_up_to_its_depth() -> None:
    computed: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(20):
            computed.append(number)
            yield number

    ahead = prefetch(numbers(), 3)
    assert next(ahead) == 0
    for _ in range(200):
        if len(computed) == 5:
            break
        time.sleep(0.01)
    time.sleep(0.05)
    assert len(computed) == 5  # one received, three in the queue, one waiting for room
    ahead.close()


def test_nothing_is_computed_before_the_first_next() -> None:
    ahead = prefetch([1], 2)
    assert threads() == 0
    assert list(ahead) == [1]


def test_failing_and_closing_at_any_time_never_hangs() -> None:
    """Small queues and short items, so that the threads interleave at every point."""

    def numbers(count: int) -> Iterator[int]:
        yield from range(count)
        raise ValueError("the end")

    def use() -> None:
        for number in range(300):
            ahead = prefetch(numbers(number % 5), 1 + number % 2)
            with suppress(ValueError):
                for item in ahead:
                    if item == number % 3:
                        break
            ahead.close()

    user = threading.Thread(target=use, daemon=True)
    user.start()
    user.join(20)
    assert not user.is_alive()
    assert threads() == 0
