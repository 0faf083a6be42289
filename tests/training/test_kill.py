"""kill -9 at any instant of saving, pruning and truncating leaves a good checkpoint, old or new, and no part of one.

A killed process leaves the files as they are at that instant. So every scenario runs once under a tracer that copies the run
folder before each line that follows a change on the disk; each copy is then opened as a restart would open it. A second test
kills real processes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
import torch
from workshop import start

from heedful.training.checkpoint import load, save, verifies, verify
from heedful.training.metrics_log import append_metrics, read_metrics, truncate_metrics
from heedful.training.retention import newest, point_best, prune, resolve, steps
from heedful.training.run_folder import lock

TRACED = (str(Path("heedful", "training")), str(Path("heedful", "storage")), shutil.__file__)


def write(run: Path, step: int, value: float) -> None:
    save(run / "checkpoints", step, {"model": {"weight": torch.full((4,), value)}}, {"value": value})


def newest_value(run: Path) -> float | None:
    """The value in the newest checkpoint, which tensors and state agree on."""
    folder, _ = newest(run / "checkpoints")
    if folder is None:
        return None
    tensors, state = load(folder)
    assert torch.equal(tensors["model"]["weight"], torch.full((4,), state["value"]))
    return float(state["value"])


class Scenario(NamedTuple):
    prepare: Callable[[Path], None]
    act: Callable[[Path], None]
    old: float | None  # value of the newest checkpoint before and after
    new: float | None
    check: Callable[[Path], None]  # checks another property of every state
    states: int  # minimum number of states of the disk


def nothing(run: Path) -> None:
    pass


def prepare_one(run: Path) -> None:
    write(run, 1, 1.0)


def prepare_two(run: Path) -> None:
    write(run, 1, 1.0)
    write(run, 2, 2.0)
    point_best(run / "checkpoints", "step-2")


def prepare_damaged(run: Path) -> None:
    prepare_two(run)
    (run / "checkpoints" / "step-2" / "state.json").write_text("damaged")


def prepare_four(run: Path) -> None:
    for step in range(1, 5):
        write(run, step, float(step))
    point_best(run / "checkpoints", "step-2")


def prepare_metrics(run: Path) -> None:
    for step in (1, 2, 3):
        append_metrics(run / "metrics.jsonl", {"step": step})


def choose_and_prune(run: Path) -> None:
    point_best(run / "checkpoints", "step-3")
    prune(run / "checkpoints", keep_last=1, best_steps=[3])


def best_is_good(run: Path) -> None:
    verify(resolve(run, "best"))


def damage_is_kept(run: Path) -> None:
    assert [path for path in (run / "checkpoints").glob("step-2*/state.json") if path.read_text() == "damaged"]


def all_complete(run: Path) -> None:
    best_is_good(run)
    assert all(verifies(folder) for folder in steps(run / "checkpoints"))


def metrics_are_complete(run: Path) -> None:
    assert [record["step"] for record in read_metrics(run / "metrics.jsonl")] in ([1, 2, 3], [1, 2])


SCENARIOS = {
    "first": Scenario(nothing, lambda run: write(run, 1, 1.5), None, 1.5, nothing, 6),
    "next": Scenario(prepare_one, lambda run: write(run, 2, 2.5), 1.0, 2.5, nothing, 6),
    "same step again": Scenario(prepare_two, lambda run: write(run, 2, 2.5), 2.0, 2.5, best_is_good, 12),
    "over a damaged one": Scenario(prepare_damaged, lambda run: write(run, 2, 2.5), 1.0, 2.5, damage_is_kept, 7),
    "best and pruning": Scenario(prepare_four, choose_and_prune, 4.0, 4.0, all_complete, 12),
    "cutting metrics": Scenario(
        prepare_metrics, lambda run: truncate_metrics(run / "metrics.jsonl", 2), None, None, metrics_are_complete, 4
    ),
}


def states_during(run: Path, act: Callable[[Path], None], copies: Path) -> list[Path]:
    """Copy the run folder in every state of the disk while `act` runs."""
    copied: list[Path] = []
    last: list[tuple[str, int, int, int]] | None = None

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal last
        if not any(part in frame.f_code.co_filename for part in TRACED):
            return None
        if event == "line":
            seen = [(str(path), path.lstat()) for path in sorted(run.rglob("*"))]
            now = [(path, stat.st_ino, stat.st_size, stat.st_mtime_ns) for path, stat in seen]
            if now != last:
                last = now
                copied.append(Path(shutil.copytree(run, copies / str(len(copied)), symlinks=True)))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act(run)
    finally:
        sys.settrace(before)
    return [*copied, run]


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_state_that_a_kill_can_leave_is_good(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = SCENARIOS[name]
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # a killed process loses nothing that the kernel has received
    run = tmp_path / "run"
    run.mkdir()
    scenario.prepare(run)
    values = []
    for left in states_during(run, scenario.act, tmp_path):
        values.append(newest_value(left))
        scenario.check(left)
        with lock(left):  # a restart removes temporary files and loses no checkpoint
            names = [path.name for path in (left / "checkpoints").glob("*")]
            assert not [name for name in names if name.startswith(".tmp-") or name.endswith(".replaced")]
            assert newest_value(left) == values[-1]
            scenario.check(left)
            scenario.act(left)  # the same command again
            assert newest_value(left) == scenario.new
            scenario.check(left)
    turn = values.index(scenario.new)
    assert values == [scenario.old] * turn + [scenario.new] * (len(values) - turn)
    assert len(values) >= scenario.states


def save_forever(run: Path) -> None:
    """Write a dot before every step."""
    checkpoints = run / "checkpoints"
    with lock(run):
        folder, _ = newest(checkpoints)
        step = load(folder)[1]["step"] if folder else 0
        while True:
            os.write(1, b".")
            for _ in range(2):  # every step is saved twice: the second time it is replaced
                save(checkpoints, step + 1, {"model": {"weight": torch.full((2000,), float(step + 1))}}, {"step": step + 1})
            step += 1
            if step % 3 == 0:
                point_best(checkpoints, f"step-{step}")
            prune(checkpoints, keep_last=2)


def test_kills_at_random_moments_lose_no_checkpoint(tmp_path: Path) -> None:
    checkpoints, chance, last = tmp_path / "checkpoints", random.Random(5), 0
    save(checkpoints, 1, {"model": {"weight": torch.ones(2000)}}, {"step": 1})
    point_best(checkpoints, "step-1")
    for number in range(24):
        with start(lambda: save_forever(tmp_path), stdout=subprocess.PIPE, bufsize=0) as process:
            assert process.stdout is not None and process.stdout.read(1)  # it has started
            if number % 4 == 0:
                assert process.stdout.read(1)  # it has finished a step
            time.sleep(chance.uniform(0, 0.04))
            process.kill()
        assert process.returncode == -signal.SIGKILL, "the child ended by itself"
        folder, troubles = newest(checkpoints)
        assert folder is not None
        tensors, state = load(folder)
        assert not troubles and state["step"] >= last and f"step-{state['step']}" == folder.name.removesuffix(".replaced")
        assert torch.equal(tensors["model"]["weight"], torch.full((2000,), float(state["step"])))
        verify(resolve(tmp_path, "best"))
        last = state["step"]
    assert last >= 5  # there was progress between the kills
