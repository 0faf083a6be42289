"""The benchmark of masked language modeling compares the same work: the labels of the peer are our predictions."""

from __future__ import annotations

import json
from pathlib import Path

import masked_speed
import pytest
import torch

pytestmark = pytest.mark.benchmark


def test_the_peer_predicts_the_same_tokens_from_the_same_input(tmp_path: Path) -> None:
    size = masked_speed.SIZES["toy"]
    trainer = masked_speed.make_trainer(masked_speed.make_run(size, 4, 32, compiles=False), size, tmp_path)
    task = trainer.task
    ((tokens, labels), *_) = masked_speed.peer_batches(task.stream(0, 0), pad=0)
    own = next(task.stream(0, 0)).batch
    assert torch.equal(tokens, own.tokens) and int((labels != masked_speed.IGNORED).sum()) == task.count(own) == 4 * 5
    assert torch.equal(labels.gather(1, own.places), own.targets)


def test_speeds_and_ratios_to_the_best_peer_are_stored(tmp_path: Path) -> None:
    small = ["--size", "toy", "--rows", "2", "--tokens", "8", "--blocks", "1", "--updates", "1", "--output"]
    masked_speed.main([*small, str(tmp_path / "speed.json")])
    result = json.loads((tmp_path / "speed.json").read_text())
    speeds = result["tokens_per_second"]
    assert result["best_peer"] == max((name for name in speeds if name.startswith("hf")), key=speeds.__getitem__)
    assert result["ratio"].keys() == {"heedful"} and result["ratio"]["heedful"] > 0
