"""Run folders of earlier versions, from 0.2.0 on, are read: tests/old_runs has one of each that changed the format."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from workshop import heed

import heedful

OLD_RUNS = Path(__file__).parents[1] / "old_runs"
PREDICTIONS = {"0.2.0": {"I am trendy": "no no no no no no no no no"}}  # as the version itself printed them


@pytest.mark.parametrize("version", PREDICTIONS)
def test_a_run_of_an_earlier_version_predicts_the_same_and_continues(version: str, tmp_path: Path) -> None:
    run = Path(shutil.copytree(OLD_RUNS / version, tmp_path / "run", symlinks=True))
    translator = heedful.Translator.load(run, device="cpu")
    assert {text: translator.predict(text) for text in PREDICTIONS[version]} == PREDICTIONS[version]
    assert heed("train", run, "training.steps=4", "--device", "cpu") == 0
    assert (run / "checkpoints" / "step-4").is_dir()


def test_every_stored_run_is_tested() -> None:
    assert sorted(path.name for path in OLD_RUNS.iterdir()) == sorted(PREDICTIONS)
