"""Locks between processes, by flock(2): the system releases a lock when its process ends, even if it is killed."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

_held: set[TextIO] = set()


class LockHeld(OSError):
    """Another process holds the lock; `holder` describes it."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"in use by {holder}")
        self.holder = holder


@contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold the lock file while the block runs. Without `wait`, raise LockHeld if another process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # a link could point to any file, and a pipe cannot be locked
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"{path.name} is not a regular file")
    with os.fdopen(descriptor, "r+", encoding="utf-8") as file:
        _held.add(file)
        try:
            _acquire(file, wait)
            yield
        finally:
            _held.discard(file)


def _acquire(file: TextIO, wait: bool) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError as error:
        file.seek(0)
        raise LockHeld(file.read().strip() or "another process") from error
    file.truncate(0)
    file.write(f"process {os.getpid()} on {platform.node()}\n")
    file.flush()


def _release_in_child() -> None:
    """Close inherited lock files: otherwise a forked worker would keep the lock after its parent was killed."""
    for file in _held:
        file.close()
    _held.clear()


os.register_at_fork(after_in_child=_release_in_child)
