"""Faults inside a save: SIGKILL, a failing disk and signals at operations that change the disk (faults_points.py).

A save in the background has the same operations, in a thread: there they are injected at some of them.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import time
from functools import partial
from typing import Any, NamedTuple

from faults_numbers import in_forward
from faults_points import fail_at, kill_at, record_points, watch_save
from faults_workshop import Case, Finished, Outcome, Sandbox, expect, no_fault, patch, weights

# One older checkpoint is deleted after each save, and `best` is set: a save has all its operations.
TRAIN = ("train", "recipe.toml", "training.keep_last=1", "training.validate_every=5", "--run", "run", "--device", "cpu")
ASYNC = (*TRAIN, "training.async_save=true")
STEPS, SAVED = 15, 10
ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES)


class Prepared(NamedTuple):
    """A run that was stopped before the save of step 15."""

    final: str  # weights of an uninterrupted run
    points: list[str]  # of the save of step 15


def prepare(sandbox: Sandbox, command: tuple[str, ...] = TRAIN) -> Prepared:
    sandbox.recipe(steps=STEPS)
    killed = sandbox.injected(lambda: kill_at(1, save=3), *command)
    assert killed.code == -signal.SIGKILL, killed.err
    shutil.copytree(sandbox.folder / "run", sandbox.folder / "saved", symlinks=True)
    done = sandbox.injected(lambda: record_points(sandbox.folder / "points.txt"), *command)
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


def killed_at_points(command: tuple[str, ...], stride: int, sandbox: Sandbox) -> Outcome:
    final, points = prepare(sandbox, command)
    wrong, chosen = [], list(enumerate(points, start=1))[::stride]
    for point, name in chosen:
        restore(sandbox)
        killed = sandbox.injected(partial(kill_at, point), *command)
        kept = newest_step(sandbox) >= SAVED
        done = sandbox.injected(no_fault, *command)
        left = list((sandbox.folder / "run").rglob(".tmp-*"))
        if killed.code != -signal.SIGKILL or not kept or done.code or left or weights(sandbox.folder / "run") != final:
            wrong.append(f"{name}: {done.message_line}")
    listed = "; ".join(wrong) or "no checkpoint lost, every final weight and optimizer state identical"
    return Outcome(not wrong and len(points) >= 20, f"{len(chosen)} points from {points[0]!r} to {chosen[-1][1]!r}: {listed}")


def failing_at_points(code: int, command: tuple[str, ...], stride: int, sandbox: Sandbox) -> Outcome:
    """Also after the new checkpoint is in place: a link or an older checkpoint that cannot be changed is an error."""
    final, points = prepare(sandbox, command)
    tried, wrong, messages = 0, [], set()
    for point, name in list(enumerate(points, start=1))[::stride]:
        if name.startswith(("remove", "rmdir")):
            continue
        tried += 1
        restore(sandbox)
        done = sandbox.injected(partial(fail_at, point, code), *command)
        outcome = expect(done, 4, message=os.strerror(code), also=newest_step(sandbox) >= SAVED)
        messages.add(done.message_line)
        if not outcome.right:
            wrong.append(f"{name}: {outcome.text}")
    done = sandbox.injected(no_fault, *command)
    same = done.code == 0 and weights(sandbox.folder / "run") == final
    text = "; ".join(wrong) or f"exit 4 at each, for example: {min(messages)}"
    return Outcome(not wrong and same and tried >= 20 // stride, f"{tried} points: {text}")


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


def signal_at_points(number: signal.Signals, command: tuple[str, ...], sandbox: Sandbox) -> Outcome:
    """The save is finished; the last one of a run needs no other exit code than 0."""
    final, points = prepare(sandbox, command)
    longer = (*command, f"training.steps={STEPS + 5}")
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


def delay_flushes(seconds: float) -> None:
    """Every flush of every save takes longer."""

    def fsync(descriptor: Any) -> None:
        time.sleep(seconds)
        own(descriptor)

    own: Any = patch(os, "fsync", fsync)


def overlapping_saves(sandbox: Sandbox) -> Outcome:
    """A save at every update, each of which takes longer than an update: one waits for the other, and the end for the last."""
    sandbox.recipe(steps=STEPS)
    often = (*ASYNC, "training.save_every=1")
    done = sandbox.injected(partial(delay_flushes, 0.05), *often)
    kept = newest_step(sandbox)
    (sandbox.folder / "run").rename(sandbox.folder / "slow")
    whole = sandbox.injected(no_fault, *TRAIN)
    same = weights(sandbox.folder / "slow") == weights(sandbox.folder / "run")
    return expect(done, 0, also=kept == STEPS and whole.code == 0 and same)


def failing_while_saving(sandbox: Sandbox) -> Outcome:
    """Memory is full in the update after the save of step 15, while that is written: it is completed."""
    final, _ = prepare(sandbox, ASYNC)
    restore(sandbox)
    longer = (*ASYNC, f"training.steps={STEPS + 5}")

    def fault() -> None:
        delay_flushes(0.1)
        in_forward(exhaust_memory, 6)

    done = sandbox.injected(fault, *longer)
    kept = newest_step(sandbox)
    again = sandbox.injected(no_fault, *ASYNC)
    same = weights(sandbox.folder / "run") == final
    return expect(done, 6, message="memory is full", also=kept == STEPS and again.code == 0 and same)


def exhaust_memory() -> None:
    raise MemoryError


IDENTICAL = "the last checkpoint is kept, and the same command ends with identical weights"
CASES = [
    Case(1, "SIGKILL at every operation of a save", IDENTICAL, partial(killed_at_points, TRAIN, 1)),
    *(
        Case(4, f"{errno.errorcode[code]} from every operation of a save", "exit 4, one sentence; the last checkpoint is kept",
             partial(failing_at_points, code, TRAIN, 1))
        for code in ERRORS
    ),
    Case(4, "a file of a checkpoint is written in part", "exit 4, and the same command continues", limited_file_size),
    Case(4, "a slow disk", "exit 0, identical weights", slow_disk),
    Case(3, "SIGTERM during a save", "the save is finished; exit 75", partial(signal_at_points, signal.SIGTERM, TRAIN)),
    Case(3, "SIGTERM twice during a save", "exit 75 at once, " + IDENTICAL, second_signal),
    Case(13, "SIGKILL at operations of a save in the background", IDENTICAL, partial(killed_at_points, ASYNC, 3)),
    *(
        Case(13, f"{errno.errorcode[code]} from operations of a save in the background",
             "exit 4 at the next update, one sentence; the last checkpoint is kept", partial(failing_at_points, code, ASYNC, 4))
        for code in (errno.ENOSPC, errno.EIO)
    ),
    Case(13, "SIGTERM during a save in the background", "the save is finished; exit 75",
         partial(signal_at_points, signal.SIGTERM, ASYNC)),
    Case(13, "a save while another is written, and the end of the run", "each is written; exit 0, identical weights",
         overlapping_saves),
    Case(13, "an error while a checkpoint is written", "the checkpoint is completed, and the same command continues from it",
         failing_while_saving),
]  # fmt: skip
