"""Training with several processes: each is forked from this one, with the environment that torchrun would give it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from workshop import start_heed, write_recipe

from heedful.runs.processes import free_port
from heedful.training import checkpoint

ENDED = 120  # seconds until a hanging test is ended
FAST = 'training.schedule={name="constant", learning_rate=1e-3, warmup=1}'


def start_ranks(count: int, *arguments: str | Path, **options: Any) -> list[subprocess.Popen[Any]]:
    """Start `heed` once for each rank."""
    shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    shared["MASTER_PORT"] = str(free_port())
    environments = [os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
    return [start_heed(*arguments, env=environment, **options) for environment in environments]


def train(count: int, *arguments: str | Path) -> list[int]:
    """Train with several ranks and return their exit codes."""
    return [process.wait(ENDED) for process in start_ranks(count, "train", *arguments)]


def losses_of(run: Path) -> list[float]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record["loss"] for record in records if record["kind"] == "train"]


def weights_of(run: Path, step: int) -> Mapping[str, torch.Tensor]:
    return checkpoint.load_tensors(run / "checkpoints" / f"step-{step}", "model")


def test_losses_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    recipe, losses = write_recipe(tmp_path), {}
    every = [f"training.{name}=50" for name in ("steps", "save_every", "validate_every")]
    for count in (1, 2, 4):
        run = tmp_path / str(count)
        assert train(count, recipe, *every, FAST, "model.dropout=0", "training.clip=0.5", "--run", run) == [0] * count
        losses[count] = losses_of(run)
    assert len(losses[1]) == 50 and losses[1][-1] < 0.8 * losses[1][0]
    assert losses[2] == pytest.approx(losses[1], rel=1e-5)
    assert losses[4] == pytest.approx(losses[1], rel=1e-5)
