"""OpenMP threads sleep while the machine is busy, and spin while it is free."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
import torch

from heedful.runs import core_sharing
from heedful.runs.core_sharing import BUSY, CALM, FREE, TASKS, SleepingTeam, adjust, loaded_libgomp, seconds_waited

needs_libgomp = pytest.mark.skipif(not TASKS.is_dir() or loaded_libgomp() is None, reason="torch computes without libgomp here")


def until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


@needs_libgomp
def test_the_sleeping_team_has_one_thread_more_than_cores_until_it_is_stopped() -> None:
    before, cores = len(list(TASKS.iterdir())), len(os.sched_getaffinity(0))
    team = SleepingTeam()
    team.start()
    team.start()  # without effect: it is running
    assert until(lambda: len(list(TASKS.iterdir())) >= before + cores + 1)
    values = torch.rand(1 << 17)
    assert values.add(1).sub(values).mean() == pytest.approx(1.0)  # computation is not affected
    team.stop()
    assert until(lambda: len(list(TASKS.iterdir())) <= before)


def test_the_team_starts_at_once_and_stops_after_a_number_of_free_periods() -> None:
    class Recorded(SleepingTeam):
        def start(self) -> None:
            self.thread = threading.current_thread()

        def stop(self) -> None:
            self.thread = None

    team, calm = Recorded(), 0
    for share in (0.0, FREE, BUSY):
        calm = adjust(team, share, calm)
        assert team.thread is None
    calm = adjust(team, 2 * BUSY, calm)
    assert team.thread is not None
    for _ in range(CALM - 1):
        calm = adjust(team, 0.0, calm)
        assert team.thread is not None
    calm = adjust(team, (FREE + BUSY) / 2, calm)  # not free: the count starts again
    for _ in range(CALM - 1):
        calm = adjust(team, 0.0, calm)
    assert team.thread is not None
    adjust(team, 0.0, calm)
    assert team.thread is None


SHARING = """
import os, time
from heedful.runs.core_sharing import seconds_waited

os.sched_setaffinity(0, [{core}])
before, end = (seconds_waited(), time.monotonic(), time.process_time()), time.monotonic() + 1.0
while time.monotonic() < end:
    pass
print(seconds_waited() - before[0], time.monotonic() - before[1], time.process_time() - before[2])
"""


@needs_libgomp
def test_threads_that_share_a_core_wait() -> None:
    """Two processes on one core. A thread that always has work computes or waits, so the two add up to the time that passes,
    however busy the machine is."""
    core = next(iter(os.sched_getaffinity(0)))
    endless = f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", endless]) as other:
        result = subprocess.run([sys.executable, "-c", SHARING.format(core=core)], capture_output=True, text=True, check=True)
        assert other.poll() is None
        other.kill()
    waited, passed, computed = (float(value) for value in result.stdout.split())
    assert waited == pytest.approx(passed - computed, abs=0.15 * passed)
    assert waited > 0.2 * passed


@pytest.mark.parametrize("name", core_sharing.WAIT_VARIABLES)
def test_environment_variables_of_the_user_take_precedence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    core_sharing.share_cores.cache_clear()
    assert core_sharing.share_cores() is None
    core_sharing.share_cores.cache_clear()


def test_the_waiting_time_never_decreases() -> None:
    assert seconds_waited() <= seconds_waited()
