"""A recipe and its data in one folder are used from any other folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_tasks import write_tiny_recipe
from workshop import heed

from heedful.config.toml import parse_toml
from heedful.runs.load import read_recipe
from heedful.runs.recipes import all_recipes, own_folder
from heedful.tasks import TASKS


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of recipes with paths relative to it; the working directory is another one."""
    folder, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    for task in TASKS:
        recipe = write_tiny_recipe(task, folder)
        recipe.write_text(recipe.read_text().replace(f"{folder}/", "").replace(str(folder), "."))
    monkeypatch.chdir(elsewhere)
    monkeypatch.delenv("HEED_DATA", raising=False)
    return folder


def test_a_run_is_trained_evaluated_and_resumed_from_any_folder(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, recipe = project.parent / "run", "../project/classification.toml"
    assert heed("train", recipe, "training.steps=2", "--run", run) == 0
    assert parse_toml((run / "config.toml").read_text())["data"]["folder"] == str(project)  # type: ignore[index]
    monkeypatch.chdir("/")
    assert heed("evaluate", run) == 0
    assert heed("train", project / "classification.toml", "training.steps=3", "--run", run) == 0
    capsys.readouterr()
    assert heed("data", "check", project / "translation.toml") == 0
    assert f"{project}/pairs.tsv" in capsys.readouterr().out


def test_what_is_beside_the_recipe_comes_first_and_overrides_are_of_the_working_directory(project: Path) -> None:
    Path("pairs.tsv").write_text("a\tb\n")
    recipe = project / "translation.toml"
    assert read_recipe(recipe).config.data.train[0].tsv == str(project / "pairs.tsv")
    (project / "pairs.tsv").unlink()
    assert read_recipe(recipe).config.data.train[0].tsv == "pairs.tsv"
    (project / "other.tsv").write_text("a\tb\n")
    assert read_recipe(recipe, ["data.train.tsv=other.tsv"]).config.data.train[0].tsv == "other.tsv"


def test_a_missing_file_or_folder_is_reported_with_both_places(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "book.txt").unlink()
    assert heed("train", "../project/language.toml", "--run", "run") == 3
    assert (
        "error: book.txt does not exist; ../project, the folder of the recipe, does not have it either"
        in capsys.readouterr().err
    )
    recipe = project / "classification.toml"
    recipe.write_text(recipe.read_text().replace('folder = "."', 'folder = "nowhere"'))
    assert heed("data", "check", "../project/classification.toml") == 3
    message = capsys.readouterr().err
    assert (
        "there is no folder 'nowhere' in the working directory, in ./data or in $HEED_DATA (not set); ../project, the"
        in message
    )


def test_recipes_of_ours_and_run_folders_have_no_folder_of_their_own(project: Path) -> None:
    assert own_folder(project / "language.toml") == project
    assert all(own_folder(path) is None for path in all_recipes().values())
    assert heed("train", project / "language.toml", "training.steps=1", "--run", "run") == 0
    assert own_folder(Path("run/config.toml")) is None
    (project / "config.toml").write_text((project / "language.toml").read_text())
    assert own_folder(project / "config.toml") == project
