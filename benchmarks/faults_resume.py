"""Resuming: 200 kills at random moments, kills at every position of the data, changed options, every task."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import kill
from faults_files import flip
from faults_numbers import in_forward, in_validation, out_of_memory
from faults_saving import newest_step
from faults_workshop import ROOT, STEPS, Case, Outcome, Running, Sandbox, expect, last_step, no_fault, patch, weights

sys.path.append(str(ROOT / "tests"))  # tiny data of every task

KILLS = 200
LENGTH = 60  # updates of a run that is killed; each is saved
REPORT = "training.report_every=1"
EARLY = 0.25  # of the kills: at any moment from the start on; the others after the first new checkpoint of the process
LATER = 0.15  # seconds after it, at most: some updates and saves


def random_kills(sandbox: Sandbox) -> Outcome:
    """Each run is killed and restarted until it is finished, and then compared with one that was not; after every kill all
    checkpoints are verified. Every update is reported: a reported loss is the mean since the last report or restart."""
    recipe = kill.write_recipe(sandbox.folder, steps=LENGTH, save_every=1, validate_every=5)
    done = sandbox.injected(no_fault, *train(recipe, "whole"), REPORT)
    assert done.code == 0, done.err
    first = done.seconds / 2  # estimate of the time to the first new checkpoint
    expected = kill.fingerprint(sandbox.folder / "whole", LENGTH)
    draw, kills, inside, runs, wrong = random.Random(0), 0, 0, 0, list[str]()
    while kills < KILLS:
        runs += 1
        shutil.rmtree(sandbox.folder / "run", ignore_errors=True)
        before = 0
        while True:
            process = sandbox.fork(no_fault, *train(recipe, "run"), REPORT)
            if kills < KILLS and draw.random() < EARLY:
                ended = wait(process, draw.uniform(0, first))
            elif kills < KILLS:
                process.wait_for(lambda before=before: last_step(sandbox.folder / "run") > before)  # type: ignore[misc]
                first = time.monotonic() - process.started
                ended = wait(process, draw.uniform(0, LATER))
            if kills == KILLS or ended:
                done = sandbox.finish(process)
                if done.code:
                    wrong.append(done.message_line)
                break
            process.send(signal.SIGKILL)
            if sandbox.finish(process).code == -signal.SIGKILL:
                kills += 1
                inside += any((sandbox.folder / "run").rglob(".tmp-*"))
            step, damaged = check_all(sandbox.folder / "run")
            if step < before or damaged:
                wrong.append(f"kill {kills}: step {before} became {step}, damaged: {damaged}")
            before = step
        if kill.fingerprint(sandbox.folder / "run", LENGTH) != expected:
            wrong.append(f"run {runs} ended with other weights, optimizer state, average or metrics")
    text = "; ".join(wrong) or "0 checkpoints lost, 0 damaged; weights, optimizer, average and metrics of every run identical"
    return Outcome(not wrong and kills == KILLS, f"{kills} kills in {runs} runs, {inside} of them during a write: {text}")


def train(recipe: Path, run: str) -> tuple[str | Path, ...]:
    return ("train", recipe, "--run", run, "--device", "cpu")


def wait(process: Running, seconds: float) -> bool:
    """Whether the process ends within this time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.alive():
        time.sleep(0.002)
    return not process.alive()


def check_all(run: Path) -> tuple[int, list[str]]:
    """The newest step, and the names of checkpoints that do not verify; a restart has nothing to repair."""
    from heedful.training import checkpoint

    if not (run / "run.json").exists():
        return 0, []
    folders = [path for path in (run / "checkpoints").glob("step-*") if path.is_dir()]
    damaged = [path.name for path in folders if not checkpoint.verifies(path)]
    return last_step(run), damaged


def killed_at_every_step(overrides: tuple[str, ...], calls: range, sandbox: Sandbox) -> Outcome:
    """SIGKILL before the n-th forward pass, in the middle and at the edges of epochs."""
    recipe = sandbox.recipe(steps=16)
    options = (*overrides, "training.save_every=2")
    whole = sandbox.injected(no_fault, *train(recipe, "whole"), *options)
    final, wrong = weights(sandbox.folder / "whole"), []
    for call in calls:
        shutil.rmtree(sandbox.folder / "run", ignore_errors=True)
        killed = sandbox.injected(partial(in_forward, die, call), *train(recipe, "run"), *options)
        done = sandbox.injected(no_fault, *train(recipe, "run"), *options)
        if killed.code != -signal.SIGKILL or done.code or weights(sandbox.folder / "run") != final:
            wrong.append(f"forward pass {call}: {done.message_line}")
    text = "; ".join(wrong) or "identical weights after each"
    return Outcome(not wrong and whole.code == 0, f"{len(calls)} kills: {text}")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def changed_option(override: str, sandbox: Sandbox) -> Outcome:
    run = sandbox.trained_run_copy()
    before = weights(run)
    done = sandbox.injected(no_fault, "train", "run", override, f"training.steps={STEPS + 5}", "--device", "cpu")
    return expect(done, 2, message="is a run with another config", also=weights(run) == before)


def changed_torch(sandbox: Sandbox) -> Outcome:
    def pretend() -> None:
        from heedful.training import environment

        own: Any = patch(environment, "installed_version", lambda package: "99.0" if package == "torch" else own(package))

    sandbox.trained_run_copy()
    done = sandbox.injected(pretend, "train", "run", f"training.steps={STEPS + 5}", "--device", "cpu")
    notice = next((line for line in done.err.splitlines() if line.startswith("torch was ")), "no notice")
    return Outcome(expect(done, 0, message="results may differ").right, f"exit {done.code}; {notice}")


def every_task(damages: bool, sandbox: Sandbox) -> Outcome:
    """SIGKILL in the middle of a save, or a flipped bit in the newest checkpoint; then the same command again."""
    from faults_points import kill_at
    from tiny_tasks import write_tiny_recipe

    from heedful.tasks import TASKS

    wrong = []
    for task in TASKS:
        recipe = write_tiny_recipe(task, sandbox.folder)
        whole = sandbox.injected(no_fault, *train(recipe, f"{task}-whole"))
        killed = sandbox.injected(partial(kill_at, 9, 3), *train(recipe, "run"))
        if damages:
            flip(sandbox.folder / "run" / "checkpoints" / f"step-{newest_step(sandbox)}" / "model.safetensors")
        done = sandbox.injected(no_fault, *train(recipe, "run"))
        same = done.code == 0 and weights(sandbox.folder / "run") == weights(sandbox.folder / f"{task}-whole")
        reported = not damages or "model.safetensors is damaged" in done.err
        if whole.code or killed.code != -signal.SIGKILL or not same or not reported:
            wrong.append(f"{task}: {done.message_line}")
        shutil.rmtree(sandbox.folder / "run")
    return Outcome(not wrong, f"{len(TASKS)} tasks: {'; '.join(wrong) or 'identical weights and optimizer state'}")


def memory_of_every_task(sandbox: Sandbox) -> Outcome:
    """Memory is full in the first validation, then in a prediction."""
    from tiny_tasks import write_tiny_recipe

    from heedful.tasks import TASKS

    def fail_in_modules() -> None:
        from torch import nn

        patch(nn.Module, "__call__", lambda *arguments, **options: out_of_memory())

    wrong = []
    for task in TASKS:
        recipe = write_tiny_recipe(task, sandbox.folder)
        command = (*train(recipe, task), "training.steps=2")
        stopped = sandbox.injected(partial(in_validation, out_of_memory), *command)
        done = sandbox.injected(no_fault, *command)
        predicted = sandbox.injected(fail_in_modules, "predict", task, "inputs.txt", "--device", "cpu")
        codes = (stopped.code, done.code, predicted.code)
        clear = all("memory is full" in one.err and "Traceback" not in one.err for one in (stopped, predicted))
        if codes != (6, 0, 6) or not clear:
            wrong.append(f"{task}: exit {codes}, {predicted.message_line}")
    return Outcome(not wrong, f"{len(TASKS)} tasks: {'; '.join(wrong) or 'exit 6 with advice'}")


SAME = "the same command ends with the weights of an uninterrupted run"
REFUSED = "exit 2 with the difference, the run is unchanged"
CASES = [
    Case(2, f"SIGKILL at {KILLS} random moments", "no checkpoint lost or damaged, every final weight identical", random_kills),
    Case(2, "SIGKILL during a save, every task", SAME, partial(every_task, False)),
    Case(5, "SIGKILL, then one bit of the newest checkpoint flipped, every task", SAME, partial(every_task, True)),
    Case(9, "out of memory in a validation and a prediction, every task", "exit 6 with advice, and the same command trains",
         memory_of_every_task),
    Case(12, "SIGKILL at every position of two epochs", SAME, partial(killed_at_every_step, (), range(1, 14))),
    Case(12, "SIGKILL between the batches of an accumulated update", SAME,
         partial(killed_at_every_step, ("training.accumulate=3",), range(5, 40, 7))),
    Case(12, "another batch size", REFUSED, partial(changed_option, "data.batch_tokens=64")),
    Case(12, "another learning rate", REFUSED, partial(changed_option, "training.schedule.learning_rate=0.5")),
    Case(12, "another version of torch", "exit 0 with a notice", changed_torch),
]  # fmt: skip
