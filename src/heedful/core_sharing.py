"""How OpenMP's threads wait for each other: they spin while the machine is free and sleep while it is busy.

At the end of every parallel loop a thread waits for the others. Spinning is the fastest way as long as every thread has a
core. With more processes than cores, threads spin while the one that they wait for has no core, and everything becomes
several times slower. libgomp, with which torch computes, spins 300,000 times, but only 100 times while it manages more
threads than there are cores. It counts the threads of its own process alone. So while the threads of this process wait for
a core, one more team of threads is kept that does nothing: libgomp then counts more threads than cores.

Results do not depend on it: the number of threads that compute stays the same.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from threading import Event, Thread
from time import sleep

from heedful.storage.reading import read_bytes

PERIOD = 0.2  # seconds between two measurements
BUSY, FREE = 0.10, 0.04  # seconds that threads waited for a core, per second
CALM = 10  # free periods in a row before threads spin again
OWN_CHOICE = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")  # variables by which users choose how threads wait
TASKS = Path("/proc/self/task")


@cache
def share_cores() -> Thread | None:
    """Watch the machine for the rest of the process; None where users chose otherwise, or where there is no libgomp."""
    if any(name in os.environ for name in OWN_CHOICE) or not TASKS.is_dir() or loaded_libgomp() is None:
        return None
    watching = Thread(target=watch, name="share-cores", daemon=True)
    watching.start()
    return watching


def watch() -> None:
    idle_team, calm, before = IdleTeam(), 0, waited()
    while True:
        sleep(PERIOD)
        now = waited()
        calm = decide(idle_team, (now - before) / PERIOD, calm)
        before = now


def decide(idle_team: IdleTeam, share: float, calm: int) -> int:
    """Start or stop the idle team by the seconds waited per second; how many periods in a row were free so far."""
    calm = calm + 1 if share < FREE else 0
    if share > BUSY:
        idle_team.start()
    elif calm >= CALM:
        idle_team.stop()
    return calm


def waited() -> float:
    """Seconds that the threads of this process were ready to run, but had no core."""
    total = 0
    for path in TASKS.glob("*/schedstat"):
        try:
            total += int(read_bytes(path).split()[1])
        except (OSError, IndexError, ValueError):  # the thread has ended
            continue
    return total / 1e9


class IdleTeam:
    """One more thread than there are cores, asleep; libgomp counts them until the thread that began them ends."""

    def __init__(self) -> None:
        self.ended = Event()
        self.thread: Thread | None = None

    def start(self) -> None:
        if self.thread is None:
            self.ended.clear()
            self.thread = Thread(target=self.hold, name="idle-team", daemon=True)
            self.thread.start()

    def stop(self) -> None:
        if self.thread is not None:
            self.ended.set()
            self.thread.join()
            self.thread = None

    def hold(self) -> None:
        libgomp = loaded_libgomp()
        assert libgomp is not None, "watched only where there is a libgomp"
        # A parallel region as the compiler would begin it; its body is a function of C that does nothing and needs nothing.
        libgomp.GOMP_parallel(ctypes.CDLL(None).getpid, None, len(os.sched_getaffinity(0)) + 1, 0)
        self.ended.wait()


def loaded_libgomp() -> ctypes.CDLL | None:
    """The libgomp that torch has loaded, wherever it came from."""
    lines = read_bytes(Path("/proc/self/maps")).splitlines()
    path = next((line.split()[-1] for line in lines if b"libgomp" in line), None)
    return None if path is None else ctypes.CDLL(os.fsdecode(path))
