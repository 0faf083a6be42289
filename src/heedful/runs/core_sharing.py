"""How OpenMP threads wait for each other: they spin while the machine is free and sleep while it is busy.

At the end of every parallel loop a thread waits for the others. Spinning is fastest as long as every thread has a core. With
more processes than cores, threads spin while the thread they wait for has no core, and everything becomes several times
slower. libgomp, which torch uses, spins 300,000 times, but only 100 times while it manages more threads than there are
cores. It counts only the threads of its own process. So while the threads of this process wait for a core, an additional
team of sleeping threads is kept: libgomp then counts more threads than cores.

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

PERIOD = 0.1  # seconds between two measurements
BUSY, FREE = 0.60, 0.04  # seconds per second that threads waited for a core: above BUSY they sleep, below FREE they spin
CALM = 20  # free periods in a row before threads spin again
WAIT_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")  # environment variables that set how threads wait
TASKS = Path("/proc/self/task")


@cache
def share_cores() -> Thread | None:
    """Start the thread that adapts how OpenMP waits; None if the user has set how, or without libgomp."""
    if any(name in os.environ for name in WAIT_VARIABLES) or not TASKS.is_dir() or loaded_libgomp() is None:
        return None
    thread = Thread(target=watch, name="share-cores", daemon=True)
    thread.start()
    return thread


def watch() -> None:
    """Measure the waiting time of the threads and start or stop the sleeping team, forever."""
    team, calm, before = SleepingTeam(), 0, seconds_waited()
    while True:
        sleep(PERIOD)
        now = seconds_waited()
        calm = adjust(team, (now - before) / PERIOD, calm)
        before = now


def adjust(team: SleepingTeam, share: float, calm: int) -> int:
    """Start or stop the sleeping team; share: seconds waited per second. Return the number of free periods in a row."""
    calm = calm + 1 if share < FREE else 0
    if share > BUSY:
        team.start()
    elif calm >= CALM:
        team.stop()
    return calm


def seconds_waited() -> float:
    """Seconds that the threads of this process were ready to run, but had no core."""
    total = 0
    for path in TASKS.glob("*/schedstat"):
        try:
            total += int(read_bytes(path).split()[1])
        except (OSError, IndexError, ValueError):  # the thread has ended
            continue
    return total / 1e9


class SleepingTeam:
    """Sleeping threads, one more than there are cores; libgomp counts them until the thread that started them ends."""

    def __init__(self) -> None:
        self.ended = Event()
        self.thread: Thread | None = None

    def start(self) -> None:
        if self.thread is None:
            self.ended.clear()
            self.thread = Thread(target=self.hold, name="sleeping-team", daemon=True)
            self.thread.start()

    def stop(self) -> None:
        if self.thread is not None:
            self.ended.set()
            self.thread.join()
            self.thread = None

    def hold(self) -> None:
        """Start an OpenMP team in this thread and keep it until `stop`."""
        libgomp = loaded_libgomp()
        assert libgomp is not None, "started only where libgomp is loaded"
        # A parallel region as a compiler would start it; its body, getpid, has no effect and needs no arguments.
        libgomp.GOMP_parallel(ctypes.CDLL(None).getpid, None, len(os.sched_getaffinity(0)) + 1, 0)
        self.ended.wait()


def loaded_libgomp() -> ctypes.CDLL | None:
    """The libgomp that torch has loaded; None if there is none."""
    lines = read_bytes(Path("/proc/self/maps")).splitlines()
    path = next((line.split()[-1] for line in lines if b"libgomp" in line), None)
    return None if path is None else ctypes.CDLL(os.fsdecode(path))
