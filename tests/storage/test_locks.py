"""Locks between processes."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path
from threading import Event, Thread

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


def exit_code_of_child(seconds: float) -> int | None:
    """Fork a process that exits at once; None if it does not end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the fork of a process with threads is what is tested
        child = os.fork()
    if child == 0:
        os._exit(0)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.0005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


def test_a_process_forked_while_another_thread_locks_or_unlocks_a_file_ends(tmp_path: Path) -> None:
    done, count = Event(), [0]

    def lock_and_unlock() -> None:
        while not done.is_set():
            with locked(tmp_path / "lock", wait=False):
                count[0] += 1

    thread = Thread(target=lock_and_unlock)
    thread.start()
    codes: list[int | None] = [0]
    while len(codes) < 50 and codes[-1] == 0:
        codes.append(exit_code_of_child(5.0))
    done.set()
    thread.join()
    assert count[0] > 10
    assert codes == [0] * 50


def test_a_forked_process_does_not_keep_a_lock_and_its_end_does_not_release_one(tmp_path: Path) -> None:
    (read, write), path = os.pipe(), tmp_path / "lock"
    try:
        with locked(path, wait=False):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                os.close(write)
                os.read(read, 1)  # until the other end is closed
                os._exit(0)
            with pytest.raises(LockHeld), locked(path, wait=False):
                raise AssertionError("two holders")
        with locked(path, wait=False):  # although the child runs
            os.close(write)
            write = -1
            assert os.waitpid(child, 0)[1] == 0
            with pytest.raises(LockHeld), locked(path, wait=False):
                raise AssertionError("two holders")
    finally:
        os.close(read)
        if write >= 0:
            os.close(write)
