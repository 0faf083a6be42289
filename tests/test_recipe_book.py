"""Finding a recipe by name or path."""

from __future__ import annotations

from pathlib import Path

import pytest
from workshop import heed

from heedful.errors import ConfigError
from heedful.recipe_files import all_recipes, find_recipe


def test_a_bare_name_is_the_recipe_and_a_path_the_file_or_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("demo").mkdir()
    Path("demo/config.toml").write_text("seed = 2\n")
    Path("mine").write_text("seed = 3\n")
    Path("small.toml").write_text("seed = 4\n")
    assert find_recipe("demo") == all_recipes()["demo"]
    assert find_recipe("./demo") == find_recipe("demo/") == Path("demo/config.toml")
    assert find_recipe("mine") == Path("mine")
    assert find_recipe("small.toml") == Path("small.toml")
    with pytest.raises(ConfigError, match="given recipe 'other', expected a recipe file or one of:"):
        find_recipe("other")


def test_a_command_reports_that_a_recipe_takes_precedence_over_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert heed("config", "show", "demo") == 0
    assert capsys.readouterr().err == ""
    Path("demo").mkdir()
    Path("demo/config.toml").write_text("seed = 2\n")
    assert heed("config", "show", "demo") == 0
    output = capsys.readouterr()
    assert output.err == "'demo' is taken as the recipe of that name; write ./demo for the one in the working directory\n"
    assert output.out.startswith("seed = 1 ")
