"""Training with several processes on this machine: start them, pass signals on, and restart them after a crash.

    heed train recipe.toml --processes 4 --max-restarts 3

When a process is killed or crashes, the others cannot continue: all are started again, and continue from the last checkpoint
with the same bits. An error that a restart would only repeat (config, data, diverged, …) ends the run with its exit code, and a
request to stop ends it with 75. A process that hangs does not end when the exchanges of the others have timed out
(training.rank_timeout); it is killed. torchrun, for several machines, knows no exit codes and restarts after any of them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from heedful.errors import HeedfulError, RankLost
from heedful.training.signals import REQUESTS

PERIOD = 0.05  # seconds between two checks of the processes
GRACE = 5.0  # seconds for the other processes to end by themselves after one has ended
CRASHES = (HeedfulError.exit_code, RankLost.exit_code)  # exit codes after which a restart may succeed
PR_SET_PDEATHSIG = 1  # of Linux: the signal that a process receives when its parent ends


def is_rank() -> bool:
    """Whether this process is one of several that were started together, by `train_in_processes` or torchrun."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def is_first_rank() -> bool:
    return os.environ.get("RANK", "0") == "0"


def train_in_processes(arguments: Sequence[str], processes: int, max_restarts: int, announce: Callable[[str], None]) -> int:
    """Run `heed` with these arguments in several processes and return the exit code; RankLost after a crash."""
    for restart in range(max_restarts + 1):
        children = start_children(arguments, processes)
        with passing_signals(children):
            rank, code = wait_for_all(children)
        if code is not None and (code == 0 or (code > 0 and code not in CRASHES)):
            return code
        what = f"the process of rank {rank} {describe_end(code)}"
        if restart < max_restarts:
            announce(f"{what}; starting all {processes} again (restart {restart + 1} of {max_restarts})")
    raise RankLost(what, hint="run the same command again to continue; --max-restarts N does so by itself")


def start_children(arguments: Sequence[str], processes: int) -> list[subprocess.Popen[bytes]]:
    """Start one process for each rank; they have a session of their own, so that Ctrl-C reaches them through this process."""
    shared = {
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // processes))),
    }
    return [start_child(arguments, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(processes)]


def start_child(arguments: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "heedful", *arguments],
        env={**os.environ, **environment},
        start_new_session=True,
        preexec_fn=stop_with_parent if sys.platform == "linux" else None,
    )


def stop_with_parent() -> None:
    """Have the kernel send SIGTERM to this process, which then saves and stops, when its parent is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def passing_signals(children: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Send every signal to stop on to the children."""

    def forward(number: int, frame: FrameType | None) -> None:
        for child in children:
            child.send_signal(number)

    before = {number: signal.signal(number, forward) for number in REQUESTS if signal.getsignal(number) != signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for child in children:
            child.kill()


def wait_for_all(children: Sequence[subprocess.Popen[bytes]]) -> tuple[int, int | None]:
    """Wait until all have ended; return the rank and the exit code of the one that caused the end: negative for a signal,
    None if it did not respond within training.rank_timeout.

    Once one has failed, the others have a few seconds to notice it; then they are killed."""
    failed: dict[int, int] = {}  # in the order of their end
    hung: list[int] = []  # ranks that had to be killed
    deadline = float("inf")
    while True:
        codes = [child.poll() for child in children]
        for rank, code in enumerate(codes):
            if code and rank not in failed and time.monotonic() < deadline:
                failed[rank] = code
        if all(code is not None for code in codes):
            break
        if failed and deadline == float("inf"):
            deadline = time.monotonic() + GRACE
        if time.monotonic() >= deadline:
            hung = hung or [rank for rank, code in enumerate(codes) if code is None]
            for child in children:
                child.kill()
        time.sleep(PERIOD)
    causes = [(rank, code) for rank, code in failed.items() if code != RankLost.exit_code]
    if hung and not causes:
        return hung[0], None
    return next(iter(causes or failed.items()), (0, 0))


def describe_end(code: int | None) -> str:
    """How a process ended, from its exit code."""
    if code is None:
        return "did not respond within training.rank_timeout"
    if code < 0:
        name = signal.Signals(-code).name
        return f"was killed by {name}" + (" (kill -9, or the machine's memory was full)" if name == "SIGKILL" else "")
    return "lost its connection to the others" if code == RankLost.exit_code else f"ended with exit code {code}"
