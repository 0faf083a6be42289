"""torchrun restarts a run after one of its processes was killed, and trains on several machines. Every process imports torch,
so it takes half a minute."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from workshop import write_recipe

from heedful.runs.processes import free_port
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


def test_two_machines_have_the_weights_of_as_many_processes_on_one(tmp_path: Path) -> None:
    """Two agents of torchrun that meet over the loopback interface and share the run folder, each as on its own machine."""
    recipe, weights = write_recipe(tmp_path), {}
    for nodes in (1, 2):
        run = tmp_path / str(nodes)
        meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", str(nodes)]
        size = ["--nnodes", str(nodes), "--nproc-per-node", str(2 // nodes)]
        command = [*TORCHRUN[:3], *size, *meeting, "-m", "--", "heedful", "train", str(recipe), FAST, "--run", str(run)]
        agents = [
            subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True)
            for _ in range(nodes)
        ]
        errors = [agent.communicate(timeout=300)[1] for agent in agents]
        assert [agent.returncode for agent in agents] == [0] * nodes, errors
        assert sum("2 processes (ddp)" in one for one in errors) == 1
        weights[nodes] = checkpoint.load_tensors(run / "checkpoints" / "step-6", "model")
    assert weights[1].keys() == weights[2].keys()
    assert all(torch.equal(weights[1][name], weights[2][name]) for name in weights[1])
