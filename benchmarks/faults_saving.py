"""Faults inside a save: SIGKILL, a failing disk and signals at every operation that changes the disk (faults_points.py)."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import time
from functools import partial
from typing import NamedTuple

from faults_points import fail_at, kill_at, record_points, watch_save
from faults_workshop import Case, Finished, Outcome, Sandbox, expect, no_fault, weights

# One older checkpoint is deleted after each save, and `best` is set: a save has all its operations.
TRAIN = ("train", "recipe.toml", "training.keep_last=1", "training.validate_every=5", "--run", "run", "--device", "cpu")
STEPS, SAVED = 15, 10
ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES)


class Prepared(NamedTuple):
    """A run that was stopped before the save of step 15."""

    final: str  # weights of an uninterrupted run
    points: list[str]  # of the save of step 15


def prepare(sandbox: Sandbox) -> Prepared:
    sandbox.recipe(steps=STEPS)
    killed = sandbox.injected(lambda: kill_at(1, save=3), *TRAIN)
    assert killed.code == -signal.SIGKILL, killed.err
    shutil.copytree(sandbox.folder / "run", sandbox.folder / "saved", symlinks=True)
    done = sandbox.injected(lambda: record_points(sandbox.folder / "points.txt"), *TRAIN)
    assert done.code == 0, done.err
    return Prepared(weights(sandbox.folder / "run"), (sandbox.folder / "points.txt").read_text().splitlines())


def restore(sandbox: Sandbox) -> None:
    """The run before the save of step 15."""
    shutil.rmtree(sandbox.folder / "run")
    shutil.copytree(sandbox.folder / "saved", sandbox.folder / "run", symlinks=True)


def newest_step(sandbox: Sandbox) -> int:
    """The step of the newest checkpoint that verifies and has finite weights."""
    from heedful.training import retention

    folder, _ = retention.newest(sandbox.folder / "run" / "checkpoints")
    return 0 if folder is None else retention.number(folder)


def killed_at_every_point(sandbox: Sandbox) -> Outcome:
    final, points = prepare(sandbox)
    wrong = []
    for point, name in enumerate(points, start=1):
        restore(sandbox)
        killed = sandbox.injected(partial(kill_at, point), *TRAIN)
        kept = newest_step(sandbox) >= SAVED
        done = sandbox.injected(no_fault, *TRAIN)
        left = list((sandbox.folder / "run").rglob(".tmp-*"))
        if killed.code != -signal.SIGKILL or not kept or done.code or left or weights(sandbox.folder / "run") != final:
            wrong.append(f"{name}: {done.message_line}")
    listed = "; ".join(wrong) or "no checkpoint lost, every final weight and optimizer state identical"
    return Outcome(not wrong and len(points) >= 20, f"{len(points)} points from {points[0]!r} to {points[-1]!r}: {listed}")


def failing_at_every_point(code: int, sandbox: Sandbox) -> Outcome:
    """Also after the new checkpoint is in place: a link or an older checkpoint that cannot be changed is an error."""
    final, points = prepare(sandbox)
    tried, wrong, messages = 0, [], set()
    for point, name in enumerate(points, start=1):
        if name.startswith(("remove", "rmdir")):
            continue
        tried += 1
        restore(sandbox)
        done = sandbox.injected(partial(fail_at, point, code), *TRAIN)
        outcome = expect(done, 4, message=os.strerror(code), also=newest_step(sandbox) >= SAVED)
        messages.add(done.message_line)
        if not outcome.right:
            wrong.append(f"{name}: {outcome.text}")
    done = sandbox.injected(no_fault, *TRAIN)
    same = done.code == 0 and weights(sandbox.folder / "run") == final
    text = "; ".join(wrong) or f"exit 4 at each, for example: {min(messages)}"
    return Outcome(not wrong and same and tried >= 20, f"{tried} points: {text}")


def limited_file_size(sandbox: Sandbox) -> Outcome:
    """The kernel writes a part of the file and then refuses the rest."""
    final, _ = prepare(sandbox)
    restore(sandbox)
    size = (sandbox.folder / "run" / "checkpoints" / f"step-{SAVED}" / "model.safetensors").stat().st_size
    done = sandbox.injected(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2)), *TRAIN)
    kept = newest_step(sandbox) == SAVED
    again = sandbox.injected(no_fault, *TRAIN)
    return expect(done, 4, message="File too large", also=kept and again.code == 0 and weights(sandbox.folder / "run") == final)


def slow_disk(sandbox: Sandbox) -> Outcome:
    """Every flush takes a tenth of a second."""
    final, _ = prepare(sandbox)
    restore(sandbox)

    def delay(number: int, name: str) -> None:
        if name.startswith("fsync"):
            time.sleep(0.1)

    done = sandbox.injected(lambda: watch_save(1, delay), *TRAIN)
    return expect(done, 0, also=weights(sandbox.folder / "run") == final)


def signal_at_every_point(number: signal.Signals, sandbox: Sandbox) -> Outcome:
    """The save is finished; the last one of a run needs no other exit code than 0."""
    final, points = prepare(sandbox)
    longer = (*TRAIN, f"training.steps={STEPS + 5}")
    restore(sandbox)
    whole = sandbox.injected(no_fault, *longer)
    final = weights(sandbox.folder / "run")
    wrong, codes = [], set[int]()
    for point in range(1, len(points) + 1, 5):
        restore(sandbox)
        done = send_at(sandbox, point, (number,), longer)
        codes.add(done.code)
        again = sandbox.injected(no_fault, *longer)
        if done.code not in (0, 75) or again.code or weights(sandbox.folder / "run") != final:
            wrong.append(f"{points[point - 1]}: {done.message_line}")
    text = "; ".join(wrong) or f"exit {' or '.join(map(str, sorted(codes)))}, final weights identical"
    return Outcome(not wrong and whole.code == 0, f"{len(range(1, len(points) + 1, 5))} points: {text}")


def second_signal(sandbox: Sandbox) -> Outcome:
    """Two signals in the middle of a file: the process ends at once, as if killed."""
    final, points = prepare(sandbox)
    middle = next(number for number, name in enumerate(points, start=1) if name.startswith("middle of") and "model" in name)
    restore(sandbox)
    done = send_at(sandbox, middle, (signal.SIGTERM, signal.SIGTERM), TRAIN)
    kept = newest_step(sandbox) == SAVED
    again = sandbox.injected(no_fault, *TRAIN)
    return expect(done, 75, also=kept and again.code == 0 and weights(sandbox.folder / "run") == final)


def send_at(sandbox: Sandbox, point: int, signals: tuple[signal.Signals, ...], command: tuple[str, ...]) -> Finished:
    """Run the command; it receives the signals at this point of its first save."""

    def send(at: int, name: str) -> None:
        for number in signals if at == point else ():
            os.kill(os.getpid(), number)

    return sandbox.injected(lambda: watch_save(1, send), *command)


IDENTICAL = "the last checkpoint is kept, and the same command ends with identical weights"
CASES = [
    Case(1, "SIGKILL at every operation of a save", IDENTICAL, killed_at_every_point),
    *(
        Case(4, f"{errno.errorcode[code]} from every operation of a save", "exit 4, one sentence; the last checkpoint is kept",
             partial(failing_at_every_point, code))
        for code in ERRORS
    ),
    Case(4, "a file of a checkpoint is written in part", "exit 4, and the same command continues", limited_file_size),
    Case(4, "a slow disk", "exit 0, identical weights", slow_disk),
    Case(3, "SIGTERM during a save", "the save is finished; exit 75", partial(signal_at_every_point, signal.SIGTERM)),
    Case(3, "SIGTERM twice during a save", "exit 75 at once, " + IDENTICAL, second_signal),
]  # fmt: skip
