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

HOLDER = 1000  # bytes of a lock file that describe its holder
_held: set[int] = set()  # file descriptors: unlike file objects, they have no lock that a forked process could find taken


class LockHeld(OSError):
    """Another process holds the lock; `holder` describes it."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"in use by {holder}")
        self.holder = holder


@contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold the lock file while the block runs. Without `wait`, raise LockHeld if another process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    process = os.getpid()
    _held.add(descriptor)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # a link could point to any file, and a pipe cannot be locked
            raise OSError(errno.EINVAL, f"{path.name} is not a regular file")
        _acquire(descriptor, wait)
        try:
            yield
        finally:
            if os.getpid() == process:
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # also for a process that was forked just now
    finally:
        if os.getpid() == process:  # a forked process has closed it
            _held.discard(descriptor)
            os.close(descriptor)


def _acquire(descriptor: int, wait: bool) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError as error:
        holder = os.pread(descriptor, HOLDER, 0).decode("utf-8", "replace").strip()
        raise LockHeld(holder or "another process") from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)


def _release_in_child() -> None:
    """Close inherited lock files: otherwise a forked worker would keep the lock after its parent was killed."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_release_in_child)
