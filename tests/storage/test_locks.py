"""Locks between processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from heedful.storage.locks import LockHeld, locked


def test_a_second_process_waits_or_fails_with_the_name_of_the_holder(tmp_path: Path) -> None:
    first, second = (locked(tmp_path / "lock", wait=False) for _ in range(2))
    with first, pytest.raises(LockHeld, match="in use by process"), second:
        raise AssertionError("two holders")
    with locked(tmp_path / "lock", wait=True):
        pass


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe"])
def test_a_lock_that_is_not_a_regular_file_is_refused_and_its_target_unchanged(tmp_path: Path, kind: str) -> None:
    outside, path = tmp_path / "outside", tmp_path / "lock"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(outside)
    if kind == "link":
        outside.write_text("precious")
    with pytest.raises(OSError), locked(path, wait=False):
        raise AssertionError("the block must not run")
    assert not outside.exists() if kind != "link" else outside.read_text() == "precious"
