"""The newest checkpoint that verifies is used, damaged ones are reported and kept, pruning keeps the last and the best."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
import torch

from heedful.errors import CheckpointError, ConfigError
from heedful.training.checkpoint import save, save_named
from heedful.training.retention import best_folder, newest, point_best, prune, resolve, steps


def make(run: Path, *numbers: int) -> Path:
    for number in numbers:
        save(run / "checkpoints", number, {"model": {"weight": torch.full((3,), float(number))}}, {"step": number})
    return run / "checkpoints"


def flip_a_bit(folder: Path) -> None:
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def names(checkpoints: Path) -> list[str]:
    return sorted(path.name for path in checkpoints.iterdir())


def test_steps_are_ordered_by_number(tmp_path: Path) -> None:
    checkpoints = make(tmp_path, 900, 1000, 20)
    (checkpoints / "step-7.damaged").mkdir()
    (checkpoints / "step-007").mkdir()
    assert [folder.name for folder in steps(checkpoints)] == ["step-20", "step-900", "step-1000"]
    assert steps(tmp_path / "nowhere") == []


def test_the_newest_is_the_highest_step(tmp_path: Path) -> None:
    checkpoints = make(tmp_path, 900, 1000, 20)
    assert newest(checkpoints) == (checkpoints / "step-1000", [])
    assert newest(tmp_path / "nowhere") == (None, [])


def test_a_damaged_checkpoint_is_reported_and_the_previous_one_used(tmp_path: Path) -> None:
    checkpoints = make(tmp_path, 1, 2, 3)
    flip_a_bit(checkpoints / "step-3")
    folder, troubles = newest(checkpoints)
    assert folder == checkpoints / "step-2"
    assert len(troubles) == 1
    assert "step-3: model.safetensors is damaged" in troubles[0]
    assert names(checkpoints) == ["step-1", "step-2", "step-3"]


def test_if_none_verifies_all_are_reported_and_none_deleted(tmp_path: Path) -> None:
    checkpoints = make(tmp_path, 1, 2)
    flip_a_bit(checkpoints / "step-1")
    (checkpoints / "step-2" / "MANIFEST.json").unlink()
    with pytest.raises(CheckpointError, match=r"step-2: MANIFEST\.json is missing.*step-1: model\.safetensors is damaged"):
        newest(checkpoints)
    assert names(checkpoints) == ["step-1", "step-2"]


def test_the_default_is_the_best_else_the_newest(tmp_path: Path) -> None:
    checkpoints = make(tmp_path, 1, 2, 3)
    assert resolve(tmp_path) == resolve(tmp_path, "last") == checkpoints / "step-3"
    point_best(checkpoints, "step-2")
    assert resolve(tmp_path) == resolve(tmp_path, "best") == checkpoints / "step-2"
    assert resolve(tmp_path, "last") == checkpoints / "step-3"
    assert resolve(tmp_path, "step-1") == checkpoints / "step-1"


def test_the_average_can_be_resolved_and_be_the_best(tmp_path: Path) -> None:
    checkpoints = make(tmp_path, 1)
    save_named(checkpoints, "average", {"model": {"weight": torch.zeros(3)}}, {})
    point_best(checkpoints, "average")
    assert resolve(tmp_path, "average") == resolve(tmp_path, "best") == best_folder(checkpoints) == checkpoints / "average"


def test_using_an_older_checkpoint_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoints = make(tmp_path, 1, 2)
    flip_a_bit(checkpoints / "step-2")
    with caplog.at_level(logging.WARNING):
        assert resolve(tmp_path, "last") == checkpoints / "step-1"
    assert "step-2: model.safetensors is damaged" in caplog.text


def test_the_error_for_a_missing_checkpoint_lists_the_available_ones(tmp_path: Path) -> None:
    make(tmp_path / "translation", 100, 200)
    run = tmp_path / "translation"
    expected = {
        "step-300": (CheckpointError, f"{run} has no checkpoint 'step-300'; available: step-100, step-200"),
        "best": (CheckpointError, "has no checkpoint 'best'"),
        "average": (CheckpointError, "create it with heed average"),
        "bset": (ConfigError, "unknown checkpoint 'bset'; expected one of: best, last, average, step-N (available: "),
        "../x": (ConfigError, "unknown checkpoint '../x'"),
    }
    for which, (kind, text) in expected.items():
        with pytest.raises(kind, match=re.escape(text)):
            resolve(run, which)
    with pytest.raises(CheckpointError, match=f"did you mean {run}"):
        resolve(tmp_path / "translatoin")
    (tmp_path / "empty" / "checkpoints").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"empty has no checkpoint yet"):
        resolve(tmp_path / "empty")


def test_the_link_is_relative_and_can_be_changed(tmp_path: Path) -> None:
    checkpoints = make(tmp_path / "run", 1, 2)
    point_best(checkpoints, "step-1")
    point_best(checkpoints, "step-2")
    assert str((checkpoints / "best").readlink()) == "step-2"
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    assert resolve(moved, "best") == moved / "checkpoints" / "step-2"
    assert names(moved / "checkpoints") == ["best", "step-1", "step-2"]


def test_a_missing_best_counts_as_none(tmp_path: Path) -> None:
    checkpoints = make(tmp_path, 1)
    (checkpoints / "best").symlink_to("step-9")
    assert best_folder(checkpoints) is None
    assert resolve(tmp_path) == checkpoints / "step-1"


def test_pruning_keeps_the_last_and_the_best(tmp_path: Path) -> None:
    checkpoints = make(tmp_path, 1, 2, 3, 4, 5, 6)
    point_best(checkpoints, "step-1")
    removed = prune(checkpoints, keep_last=2, best_steps=[3, 99])
    assert sorted(folder.name for folder in removed) == ["step-2", "step-4"]
    assert names(checkpoints) == ["best", "step-1", "step-3", "step-5", "step-6"]
    assert prune(checkpoints, keep_last=2, best_steps=[3]) == []
    assert prune(tmp_path / "nowhere", keep_last=1) == []


def test_pruning_counts_only_complete_checkpoints_and_never_deletes_damaged_ones(tmp_path: Path) -> None:
    checkpoints = make(tmp_path, 1, 2, 3, 4, 5, 6)
    flip_a_bit(checkpoints / "step-6")  # newer than the newest that verifies
    (checkpoints / "step-4" / "state.json").unlink()  # among the last
    flip_a_bit(checkpoints / "step-1")  # about to be deleted
    assert [folder.name for folder in prune(checkpoints, keep_last=3)] == ["step-2"]
    assert names(checkpoints) == ["step-1", "step-3", "step-4", "step-5", "step-6"]


def test_nothing_is_deleted_if_none_verifies(tmp_path: Path) -> None:
    checkpoints = make(tmp_path, 1, 2, 3)
    for folder in steps(checkpoints):
        flip_a_bit(folder)
    with pytest.raises(CheckpointError, match="can be used"):
        prune(checkpoints, keep_last=1)
    assert names(checkpoints) == ["step-1", "step-2", "step-3"]
