"""Faults of one of several processes: it dies, hangs, is slow, or cannot write, in an update and in a save.

The processes are forked, as all commands are (`Sandbox.fork`), with the launcher of `heed train --processes` as their parent. A
fault happens once: the processes that replace those that ended do not repeat it.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from faults_files import flip
from faults_points import record_points, watch_save
from faults_saving import newest_step
from faults_workshop import LIMIT, Case, Finished, Outcome, Sandbox, expect, patch, weights

STEPS, RANKS, TIMEOUT = 15, 2, 6
TRAIN = ("train", "recipe.toml", "training.keep_last=2", f"training.rank_timeout={TIMEOUT}", "--processes", str(RANKS))
WHOLE = ("training.distributed=ddp",)
PARTS = ("training.distributed=fsdp", "training.sharded_save=true")
ASYNC = (*PARTS, "training.async_save=true")
RESTART = ("--max-restarts", "1")

Act = Callable[[], object]
Fault = Callable[[Act], object]  # makes this process call the function at one moment


def train(
    sandbox: Sandbox, run: str, options: Sequence[str], before: Callable[[int], object] = bool, limit: float = LIMIT
) -> Finished:
    """before: called with the rank in each process."""
    sandbox.recipe(steps=STEPS)
    command = (*TRAIN, *options, "--run", run, "--device", "cpu")
    return sandbox.injected(lambda: fork_ranks(before), *command, limit=limit)


def fork_ranks(before: Callable[[int], object]) -> None:
    """Have the launcher fork its processes, which need no seconds to import torch."""
    from ranked import command, start_rank

    from heedful.runs import processes

    def start_child(arguments: Sequence[str], environment: Mapping[str, str]) -> Any:
        rank = int(environment["RANK"])

        def run() -> None:
            before(rank)
            command(*arguments)()

        return start_rank(rank, run, environment)

    patch(processes, "start_child", start_child)


def on_rank(number: int, fault: Fault, act: Act) -> Callable[[int], object]:
    """Call act() on one rank, once."""

    def once() -> None:
        marker = Path("happened")
        if not marker.exists():
            marker.touch()
            act()

    return lambda rank: fault(once) if rank == number else None


def in_update(act: Act, step: int = 7) -> None:
    """Before an update: the others wait in its exchange."""
    from heedful.training.loop import Trainer

    def update(trainer: Any, streamed: Any) -> Any:
        if trainer.train_state.step + 1 == step:
            act()
        return own(trainer, streamed)

    own = patch(Trainer, "update", update)


def in_save(point: int, act: Act) -> None:
    """Before an operation that changes the disk, in the second save."""

    def check(number: int, name: str) -> None:
        if number == point:
            act()

    watch_save(2, check)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def final(sandbox: Sandbox, options: Sequence[str]) -> str:
    """Weights and optimizer state of a run without a fault, which saves whole weights."""
    done = train(sandbox, "whole", options[:1])
    assert done.code == 0, done.err
    return weights(sandbox.folder / "whole")


def replaced(rank: int, fault: Fault, act: Act, message: str, options: Sequence[str], sandbox: Sandbox) -> Outcome:
    """The launcher reports what happened, ends all processes and starts them again."""
    done = train(sandbox, "run", (*options, *RESTART), on_rank(rank, fault, act))
    same = weights(sandbox.folder / "run") == final(sandbox, options)
    report = next((line for line in done.err.splitlines() if line.startswith("the process of rank")), "no message")
    return Outcome(expect(done, 0, message=f"rank {rank} {message}", also=same).right, f"exit {done.code}; {report}")


def killed_in_save(rank: int, options: Sequence[str], sandbox: Sandbox) -> Outcome:
    """At every third operation of this rank in a save."""
    expected = final(sandbox, options)
    names = lambda number: record_points(Path("points.txt"), 2) if number == rank else None  # noqa: E731
    assert train(sandbox, "run", options, names).code == 0
    points = (sandbox.folder / "points.txt").read_text().splitlines()
    wrong, chosen = [], range(1, len(points) + 1, 3)
    for point in chosen:
        shutil.rmtree(sandbox.folder / "run")
        (sandbox.folder / "happened").unlink(missing_ok=True)
        done = train(sandbox, "run", (*options, *RESTART), on_rank(rank, partial(in_save, point), kill))
        left = list((sandbox.folder / "run").rglob(".tmp-*"))
        outcome = expect(done, 0, message=f"rank {rank} was killed by SIGKILL", also=not left)
        if not outcome.right or weights(sandbox.folder / "run") != expected:
            wrong.append(f"{points[point - 1]}: {outcome.text}")
    text = "; ".join(wrong) or "identical weights and optimizer state after each"
    return Outcome(not wrong and len(points) > 5, f"{len(chosen)} of {len(points)} operations: {text}")


def slow_rank(sandbox: Sandbox) -> Outcome:
    """A second in every update: the others wait for it, and nothing is restarted."""

    def delay(rank: int) -> None:
        if rank == 1:
            for step in range(5, 9):
                in_update(lambda: time.sleep(1), step)

    done = train(sandbox, "run", WHOLE, delay)
    return expect(done, 0, also=weights(sandbox.folder / "run") == final(sandbox, WHOLE))


def failing_disk(rank: int, code: int, options: Sequence[str], sandbox: Sandbox) -> Outcome:
    """From the middle of its part on, every write of one process fails."""

    def fail() -> None:
        def refuse(number: int, name: str) -> None:
            if number >= 3 and not name.startswith(("remove", "rmdir")):
                raise OSError(code, os.strerror(code), name)

        watch_save(2, refuse)

    done = train(sandbox, "run", options, lambda number: fail() if number == rank else None)
    kept, left = newest_step(sandbox), list((sandbox.folder / "run").rglob(".tmp-*"))
    again = train(sandbox, "run", options)
    same = weights(sandbox.folder / "run") == final(sandbox, options)
    also = kept == 5 and not left and again.code == 0 and same and done.err.count("error:") == 1
    return expect(done, 4, message=os.strerror(code), also=also)


def damaged_part(sandbox: Sandbox) -> Outcome:
    """Each file in turn, of a run that was stopped after two saves."""
    expected, wrong, seen = final(sandbox, PARTS), [], ""
    stopped = train(sandbox, "run", PARTS, lambda rank: in_update(kill, 12) if rank == 0 else None)
    run, good = sandbox.folder / "run", sandbox.folder / "good"
    assert stopped.code == 7, stopped.err
    shutil.copytree(run, good, symlinks=True)
    files = sorted(path.relative_to(run) for path in (run / "checkpoints" / "step-10").rglob("*") if path.is_file())
    for file in files:
        shutil.rmtree(run)
        shutil.copytree(good, run, symlinks=True)
        flip(run / file)
        done = train(sandbox, "run", PARTS)
        seen = next((line for line in done.err.splitlines() if line.startswith("checkpoint ")), done.message_line)
        if done.code or file.name not in seen or "continuing from step 5" not in done.err or weights(run) != expected:
            wrong.append(f"{file}: {done.message_line}")
    return Outcome(not wrong and len(files) == 2 * RANKS + 2, "; ".join(wrong) or f"{len(files)} files, for example: {seen}")


SAME = "all are restarted, and end with the weights of an undisturbed run"
NAMED = f"named after training.rank_timeout, killed; {SAME}"
HUNG, KILLED = "did not respond within training.rank_timeout", "was killed by SIGKILL"
CASES = [
    Case(10, "a process is killed in an update", SAME, partial(replaced, 1, in_update, kill, KILLED, WHOLE)),
    Case(10, "a process is killed in an update, sharded", SAME, partial(replaced, 0, in_update, kill, KILLED, PARTS)),
    Case(10, "a process is killed while rank 0 saves", SAME, partial(killed_in_save, 0, WHOLE)),
    Case(10, "rank 0 is killed while all save their parts", SAME, partial(killed_in_save, 0, PARTS)),
    Case(10, "rank 1 is killed while all save their parts", SAME, partial(killed_in_save, 1, PARTS)),
    Case(10, "rank 1 is killed while all save their parts in the background", SAME, partial(killed_in_save, 1, ASYNC)),
    *(
        Case(10, f"rank {rank} hangs in an update{how}", NAMED, partial(replaced, rank, in_update, stop, HUNG, options))
        for rank, options, how in ((1, WHOLE, ""), (0, PARTS, ", sharded"))
    ),
    Case(10, "rank 0 hangs in a save", NAMED, partial(replaced, 0, partial(in_save, 9), stop, HUNG, WHOLE)),
    Case(10, "rank 1 hangs while all save their parts", NAMED, partial(replaced, 1, partial(in_save, 3), stop, HUNG, PARTS)),
    Case(10, "rank 1 hangs while all save in the background", NAMED,
         partial(replaced, 1, partial(in_save, 3), stop, HUNG, ASYNC)),
    Case(10, "a slow process", "the others wait; exit 0, identical weights", slow_rank),
    *(
        Case(10, f"{errno.errorcode[code]} while rank {rank} saves its part{how}",
             "exit 4, one sentence; the last checkpoint is kept", partial(failing_disk, rank, code, options))
        for rank, code, options, how in (
            (1, errno.ENOSPC, PARTS, ""), (0, errno.EIO, PARTS, ""), (1, errno.ENOSPC, ASYNC, " in the background"),
        )
    ),
    Case(5, "one bit of each file of a sharded checkpoint flipped",
         "reported by name, the checkpoint before it is used, identical final weights", damaged_part),
]  # fmt: skip
