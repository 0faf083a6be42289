"""Chunks of the lines available so far."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from heedful.data.input_lines import read_available
from heedful.errors import DataError


@pytest.mark.parametrize("error", [DataError("line 3 is bad"), OSError(5, "Input/output error")])
def test_an_error_is_raised_after_the_lines_before_it(error: Exception) -> None:
    def lines() -> Iterator[str]:
        yield "a"
        yield "b"
        raise error

    chunks = read_available(lines(), most=5)
    assert next(chunks) == ["a", "b"]
    with pytest.raises(type(error)):
        next(chunks)


def test_reading_ahead_is_bounded() -> None:
    produced = 0
    full = threading.Event()

    def lines() -> Iterator[str]:
        nonlocal produced
        for produced in range(1000):
            if produced == 6:
                full.set()
            yield str(produced)

    chunks = read_available(lines(), most=3)
    assert next(chunks) == ["0", "1", "2"]
    assert full.wait(5)
    assert not any(threading.Event().wait(0.01) for _ in range(3)) and produced <= 10
