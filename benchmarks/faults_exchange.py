"""Faults of one of several processes inside an exchange, in a slow save and in a validation, and another number of processes.

The weights of an undisturbed run with the same number of processes are bit-identical. With another number, sums of gradients
round differently: losses and weights are compared as docs/guides/distributed.md promises them.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from faults_numbers import AT, all_finite, in_loss, in_validation, skipped_updates
from faults_points import watch_save
from faults_ranks import (
    ASYNC,
    HUNG,
    KILLED,
    NAMED,
    PARTS,
    RESTART,
    SAME,
    WHOLE,
    Act,
    final,
    in_update,
    kill,
    on_rank,
    replaced,
    stop,
    train,
)
from faults_workshop import Case, Outcome, Sandbox, expect, last_step, patch, weights

# Adam scales up differences of rounding, and ReLU's derivative jumps: without them, weights can be compared.
SMOOTH = (
    "training.optimizer={name='sgd', momentum=0.9}",
    'training.schedule={name="constant", learning_rate=0.1, warmup=1}',
    "model.dropout=0",
    "model.activation=gelu",
)
RELATIVE = 1e-5  # of losses
LIMIT = 90  # seconds of a command whose rank is stopped


def in_exchange(act: Act, step: int = 7) -> None:
    """In the exchange of gradients of an update: this rank has begun to send, and the others wait for what follows."""
    from torch import distributed

    from heedful.training.loop import Trainer

    current = 0

    def update(trainer: Any, streamed: Any) -> Any:
        nonlocal current
        current = trainer.train_state.step + 1
        return own_update(trainer, streamed)

    def exchange(received: Any, sent: Any, **options: Any) -> Any:
        if current == step and not Path("happened").exists():  # a restarted process must not send twice
            own(received, sent, **options | {"async_op": True})
            act()
        return own(received, sent, **options)

    own_update, own = patch(Trainer, "update", update), patch(distributed, "all_to_all_single", exchange)


def slow_save(rank: int, seconds: float, options: Sequence[str], sandbox: Sandbox) -> Outcome:
    """Every operation of a save takes longer on one rank."""

    def delay(number: int) -> None:
        if number == rank:
            watch_save(2, lambda point, name: time.sleep(seconds))

    done = train(sandbox, "run", (*options, *RESTART), delay)
    once = "starting all" not in done.err
    return expect(done, 0, also=once and weights(sandbox.folder / "run") == final(sandbox, options))


def losses(run: Path) -> list[float]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record["loss"] for record in records if record["kind"] == "train"]


def largest_difference(run: Path, other: Path) -> float:
    """Between the last weights of two runs, relative to 1e-5 + 1e-4 of the weight."""
    from safetensors.torch import load_file

    one, two = (load_file(path / "checkpoints" / f"step-{last_step(path)}" / "model.safetensors") for path in (run, other))
    assert one.keys() == two.keys()
    return max(float(((one[name] - two[name]).abs() / (1e-5 + 1e-4 * two[name].abs())).max()) for name in one)


def alone(sandbox: Sandbox, before: Any = bool) -> Path:
    """A run of one process."""
    done = train(sandbox, "alone", (*SMOOTH, "--processes", "1"), before)
    assert done.code == 0, done.err
    return sandbox.folder / "alone"


def another_number(before: int, after: int, sandbox: Sandbox) -> Outcome:
    """SIGTERM at step 7; then with whole weights, and with a part of them in each process."""
    expected, problems, seen = losses(alone(sandbox)), [], []
    interrupt = on_rank(before - 1, in_update, lambda: os.kill(os.getpid(), signal.SIGTERM))
    for options in (WHOLE, PARTS):
        run = options[0].rpartition("=")[2]
        (sandbox.folder / "happened").unlink(missing_ok=True)
        stopped = train(sandbox, run, (*options, *SMOOTH, "--processes", str(before)), interrupt)
        done = train(sandbox, run, (*options, *SMOOTH, "--processes", str(after)))
        outcome = expect(done, 0, message=f"processes was {before} and is now {after}", also=stopped.code == 75)
        found = losses(sandbox.folder / run)
        if not outcome.right or len(found) != len(expected):
            problems.append(f"{run}: {stopped.code}, {outcome.text}, {len(found)} losses")
            continue
        relative = max(abs(one - other) / other for one, other in zip(found, expected, strict=True))
        apart = largest_difference(sandbox.folder / run, sandbox.folder / "alone")
        seen.append(f"{run}: {len(found)} losses within {relative:.0e}")
        if relative > RELATIVE or apart > 1:
            problems.append(f"{run}: losses differ by {relative:.0e}, weights by {apart:.2f} tolerances")
    return Outcome(not problems and len(seen) == 2, "; ".join(problems or seen))


def one_bad_loss(options: Sequence[str], sandbox: Sandbox) -> Outcome:
    """The share of rank 1 in one update has a loss that is NaN: as if one process skipped the update."""

    def poison(rank: int) -> None:
        if rank == 1:
            make_nan()

    done = train(sandbox, "run", (*options, *SMOOTH), poison)
    skipped = skipped_updates(sandbox) == 1 and all_finite(sandbox)
    whole = sandbox.injected(make_nan, "train", "recipe.toml", *SMOOTH, "--run", "alone", "--device", "cpu")
    close = whole.code == 0 and largest_difference(sandbox.folder / "run", sandbox.folder / "alone") <= 1
    return expect(done, 0, also=skipped and close)


def make_nan() -> None:
    in_loss(lambda call, total: total * float("nan") if call == AT else total)


def stopped_in_validation(rank: int, sandbox: Sandbox) -> Outcome:
    """SIGSTOP: the others notice it within about training.rank_timeout."""
    options = (*WHOLE, "training.validate_every=5")
    done = train(sandbox, "run", (*options, *RESTART), on_rank(rank, in_validation, stop), limit=LIMIT)
    whole = train(sandbox, "whole", options)
    same = whole.code == 0 and weights(sandbox.folder / "run") == weights(sandbox.folder / "whole")
    report = next((line for line in done.err.splitlines() if line.startswith("the process of rank")), "no message")
    return Outcome(expect(done, 0, message=f"rank {rank}", also=same).right, f"exit {done.code}; {report}")


def ends_in_validation(sandbox: Sandbox) -> Outcome:
    """Without --max-restarts; the same command continues."""
    options = (*WHOLE, "training.validate_every=5")
    done = train(sandbox, "run", options, on_rank(1, in_validation, stop), limit=LIMIT)
    again, whole = train(sandbox, "run", options), train(sandbox, "whole", options)
    same = again.code == whole.code == 0 and weights(sandbox.folder / "run") == weights(sandbox.folder / "whole")
    return expect(done, 7, message="rank 1", also=same)


CLOSE = f"losses within {RELATIVE:.0e} of those of one process, weights within 1e-5 + 1e-4 of each"
BAD_LOSS = "the update is skipped on all; exit 0, the weights of one process that skips it"
WAITS = "nothing is restarted; exit 0, identical weights"
CASES = [
    Case(10, "a process is killed inside an exchange", SAME, partial(replaced, 1, in_exchange, kill, KILLED, WHOLE)),
    Case(10, "rank 0 is killed inside an exchange", SAME, partial(replaced, 0, in_exchange, kill, KILLED, WHOLE)),
    Case(10, "a process is killed inside an exchange, sharded", SAME,
         partial(replaced, 1, in_exchange, kill, KILLED, PARTS)),
    Case(10, "rank 1 hangs inside an exchange", NAMED, partial(replaced, 1, in_exchange, stop, HUNG, WHOLE)),
    Case(10, "rank 0 saves slowly", WAITS, partial(slow_save, 0, 0.1, WHOLE)),
    Case(10, "rank 1 saves its part slowly", WAITS, partial(slow_save, 1, 0.4, PARTS)),
    Case(10, "rank 1 saves its part slowly in the background", WAITS, partial(slow_save, 1, 0.4, ASYNC)),
    Case(10, "two processes instead of four after a stop", CLOSE, partial(another_number, 4, 2)),
    Case(10, "three processes instead of two after a stop", CLOSE, partial(another_number, 2, 3)),
    Case(8, "the loss of one rank is NaN in one update", BAD_LOSS, partial(one_bad_loss, WHOLE)),
    Case(8, "the loss of one rank is NaN in one update, sharded", BAD_LOSS, partial(one_bad_loss, PARTS[:1])),
    Case(10, "rank 1 hangs in a validation", NAMED, partial(stopped_in_validation, 1)),
    Case(10, "rank 0 hangs in a validation", NAMED, partial(stopped_in_validation, 0)),
    Case(10, "rank 1 hangs in a validation, no restarts", "exit 7, and the same command continues to identical weights",
         ends_in_validation),
]  # fmt: skip
