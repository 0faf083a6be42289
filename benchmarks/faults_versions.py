"""Run folders of earlier versions (tests/old_runs) in whole commands: read, continued after a kill, served, and damaged."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from faults_files import flip
from faults_points import kill_at
from faults_server import end, server
from faults_workshop import ROOT, Case, Outcome, Sandbox, expect, last_step, no_fault, weights

OLD_RUNS = ROOT / "tests" / "old_runs"
DEVICE = ("--device", "cpu")
VERSION = "0.2.0"
TEXT, TRANSLATION = "I am trendy", "no no no no no no no no no"  # as the version itself printed it
CONTINUE = ("training.steps=8", *DEVICE)


def copied(sandbox: Sandbox, name: str = "run") -> Path:
    return Path(shutil.copytree(OLD_RUNS / VERSION, sandbox.folder / name, symlinks=True))


def translate(sandbox: Sandbox) -> Outcome:
    copied(sandbox)
    sandbox.write("source.txt", f"{TEXT}\n")
    done = sandbox.injected(no_fault, "translate", "run", "source.txt", *DEVICE)
    return expect(done, 0, also=done.out == f"{TRANSLATION}\n")


def read(command: Sequence[str], message: str, sandbox: Sandbox) -> Outcome:
    copied(sandbox)
    return expect(sandbox.injected(no_fault, *command, *DEVICE), 0, message=message)


def continued(sandbox: Sandbox) -> Outcome:
    """SIGKILL in the middle of the second save of this version; then the same command."""
    run = copied(sandbox)
    copied(sandbox, "whole")
    killed = sandbox.injected(partial(kill_at, 9, 2), "train", "run", *CONTINUE)
    done = sandbox.injected(no_fault, "train", "run", *CONTINUE)
    whole = sandbox.injected(no_fault, "train", "whole", *CONTINUE)
    same = whole.code == 0 and weights(run) == weights(sandbox.folder / "whole") and last_step(run) == 8
    return expect(done, 0, also=killed.code == -signal.SIGKILL and same)


def served(sandbox: Sandbox) -> Outcome:
    copied(sandbox)
    with server(sandbox, runs=["run"]) as one:
        status, _, body = one.ask({"inputs": TEXT})
        done = end(sandbox, one.running)
    return Outcome(expect(done, 0, also=status == 200 and TRANSLATION in body).right, f"{status}, exit {done.code}")


def damaged(command: Sequence[str], sandbox: Sandbox) -> Outcome:
    run = copied(sandbox)
    sandbox.write("source.txt", f"{TEXT}\n")
    flip(run / "checkpoints" / "step-2" / "model.safetensors")
    return expect(sandbox.injected(no_fault, *command), 4, message="model.safetensors is damaged")


SAME = f"exit 0; what version {VERSION} printed"
CASES = [
    Case(18, f"translate, a run folder of version {VERSION}", SAME, translate),
    Case(18, f"evaluate, a run folder of version {VERSION}", "exit 0", partial(read, ("evaluate", "run"), "bleu")),
    Case(18, f"serve, a run folder of version {VERSION}", SAME, served),
    Case(18, f"train, SIGKILL in a save, a run folder of version {VERSION}",
         "the same command ends with the weights of an uninterrupted run", continued),
    Case(18, f"translate, one bit flipped, a run folder of version {VERSION}", "exit 4, one sentence",
         partial(damaged, ("translate", "run", "source.txt", *DEVICE))),
    Case(18, f"train, one bit flipped, a run folder of version {VERSION}", "exit 4, one sentence",
         partial(damaged, ("train", "run", *CONTINUE))),
]  # fmt: skip
