"""No message sends a control character of a path to the terminal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from workshop import heed

NAME = "R\x1b[31m\x9b\u202e"
SHOWN = "R\\u001b[31m\\u009b\\u202e"


@pytest.fixture
def run(tiny_runs: dict[str, Path], tmp_path: Path) -> Path:
    return shutil.copytree(tiny_runs["translation"], tmp_path / NAME, symlinks=True)


@pytest.mark.parametrize("options", [[], ["--json"], ["training.steps=3"], ["model.dim=8"]], ids=str)
def test_train_escapes_the_name_of_the_run_folder(options: list[str], run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heed("train", run, *options)
    shown = capsys.readouterr().err
    assert SHOWN in shown
    assert not any(character in shown for character in "\x1b\x9b\u202e")


def test_json_holds_the_name_itself(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("train", run, "--json") == 0
    assert json.loads(capsys.readouterr().out)["run"] == str(run)


def test_other_commands_escape_it_as_well(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("average", run, "--last", "1") == 0
    assert heed("translate", run / "missing") == 4
    assert heed("config", "show", run / "missing.toml") == 2
    shown = capsys.readouterr().err
    assert shown.count(SHOWN) == 2  # the last one is quoted by repr
    assert not any(character in shown for character in "\x1b\x9b\u202e")
