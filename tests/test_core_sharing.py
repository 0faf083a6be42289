"""Threads of OpenMP sleep while the machine is busy, and spin while it is free."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
import torch

from heedful import core_sharing
from heedful.core_sharing import BUSY, CALM, FREE, TASKS, IdleTeam, decide, loaded_libgomp, waited

needs_libgomp = pytest.mark.skipif(not TASKS.is_dir() or loaded_libgomp() is None, reason="torch computes without libgomp here")


def until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


@needs_libgomp
def test_the_idle_team_is_one_thread_more_than_cores_until_it_is_stopped() -> None:
    before, cores = len(list(TASKS.iterdir())), len(os.sched_getaffinity(0))
    team = IdleTeam()
    team.start()
    team.start()  # it has started already
    assert until(lambda: len(list(TASKS.iterdir())) >= before + cores + 1)
    values = torch.rand(1 << 17)
    assert values.add(1).sub(values).mean() == pytest.approx(1.0)  # what computes is not disturbed
    team.stop()
    assert until(lambda: len(list(TASKS.iterdir())) <= before)


def test_the_team_starts_at_once_and_stops_after_a_calm_while() -> None:
    class Noted(IdleTeam):
        def start(self) -> None:
            self.thread = threading.current_thread()

        def stop(self) -> None:
            self.thread = None

    team, calm = Noted(), 0
    for share in (0.0, FREE, BUSY):
        calm = decide(team, share, calm)
        assert team.thread is None
    calm = decide(team, 2 * BUSY, calm)
    assert team.thread is not None
    for _ in range(CALM - 1):
        calm = decide(team, 0.0, calm)
        assert team.thread is not None
    calm = decide(team, (FREE + BUSY) / 2, calm)  # not free: counting begins anew
    for _ in range(CALM - 1):
        calm = decide(team, 0.0, calm)
    assert team.thread is not None
    decide(team, 0.0, calm)
    assert team.thread is None


@needs_libgomp
def test_threads_that_share_a_core_have_waited() -> None:
    """Two processes on one core: each waits about half of the time."""
    core = next(iter(os.sched_getaffinity(0)))
    code = f"import os, time; os.sched_setaffinity(0, [{core}]); end = time.monotonic() + 1\nwhile time.monotonic() < end: pass"
    measuring = "\nfrom heedful.core_sharing import waited; print(waited())"
    other = subprocess.Popen([sys.executable, "-c", code.replace("+ 1", "+ 3")])
    answer = subprocess.run([sys.executable, "-c", code + measuring], capture_output=True, text=True, check=True)
    assert other.wait() == 0
    assert float(answer.stdout) > BUSY


@pytest.mark.parametrize("name", core_sharing.OWN_CHOICE)
def test_what_the_user_chose_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    core_sharing.share_cores.cache_clear()
    assert core_sharing.share_cores() is None
    core_sharing.share_cores.cache_clear()


def test_waiting_for_a_core_only_grows() -> None:
    assert waited() <= waited()
