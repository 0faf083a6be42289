"""One process at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from heedful.storage.locks import Held, locked


def test_a_second_holder_is_refused_or_waits_and_is_told_who_holds_it(tmp_path: Path) -> None:
    first, second = (locked(tmp_path / "lock", wait=False) for _ in range(2))
    with first, pytest.raises(Held, match="in use by process"), second:
        raise AssertionError("two holders")
    with locked(tmp_path / "lock", wait=True):
        pass
