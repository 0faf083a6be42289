"""torchrun restarts a run after one of its processes was killed. Nine processes import torch, so it takes half a minute."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from workshop import write_recipe

from heedful.training import checkpoint

pytestmark = pytest.mark.benchmark

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", "--max-restarts", "1"]
FAST = 'training.schedule={name="constant", learning_rate=1e-3, warmup=1}'
KILLED = """
import os, signal, sys
from heedful.__main__ import main
from heedful.training.loop import Trainer

update = Trainer.update

def patched(trainer, streamed):
    if trainer.train_state.step == 4 and (os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]) == ("2", "0"):
        os.kill(os.getpid(), signal.SIGKILL)
    return update(trainer, streamed)

Trainer.update = patched
main()
"""


def test_weights_have_the_same_bits_after_a_kill(tmp_path: Path) -> None:
    recipe, program = write_recipe(tmp_path), tmp_path / "killed.py"
    program.write_text(KILLED)
    weights = []
    for name, command in (("disturbed", ["--", program]), ("undisturbed", ["-m", "--", "heedful"])):
        run = tmp_path / name
        done = subprocess.run(
            [*TORCHRUN, *command, "train", recipe, FAST, "--run", run],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        assert ("continuing from step 4" in done.stderr) == (name == "disturbed")
        weights.append(checkpoint.load_tensors(run / "checkpoints" / "step-6", "model"))
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
