"""heed new: what it writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from workshop import heed

from heedful.runs.config import read_run
from heedful.tasks import TASKS, find_task


def test_the_files_and_the_commands_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "a b" / "c"
    folder.mkdir(parents=True)
    assert heed("new", "classification", folder, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["files"] == ["recipe.toml", "examples.csv"] == [name for name in shown["files"] if (folder / name).is_file()]
    assert shown["commands"][0] == f"heed train '{folder}/recipe.toml' --run runs/c"


@pytest.mark.parametrize("task", TASKS)
def test_a_recipe_has_a_time_limit_and_comments(task: str, tmp_path: Path) -> None:
    assert heed("new", task, tmp_path / "new") == 0
    recipe = tmp_path / "new/recipe.toml"
    config = read_run(recipe).config
    assert (config.task.name, config.training.minutes) == (task, 3)
    assert recipe.read_text().startswith("# ")
    starter = find_task(task).starter
    assert starter.files or starter.binary_files()


def test_a_long_example_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new"
    assert heed("new", "forecasting", folder, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["commands"][1] == f"heed predict runs/new {folder}/input.jsonl" and "input.jsonl" in shown["files"]
    assert (folder / "input.jsonl").read_text() == f"{find_task('forecasting').starter.input}\n"


def test_a_folder_with_content_an_existing_file_and_an_unknown_task_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("text")
    assert heed("new", "classification", tmp_path) == 2
    assert f"error: {tmp_path} is not empty; expected a new or an empty folder\n" in capsys.readouterr().err
    assert heed("new", "classification", tmp_path / "mine") == 2
    assert f"error: {tmp_path}/mine is a file; expected a new folder\n" in capsys.readouterr().err
    assert heed("new", "clasification", tmp_path / "new") == 2
    assert "unknown task 'clasification'" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
