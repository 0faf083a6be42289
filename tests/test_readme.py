"""The code of the README runs, and the public names are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import heedful

ROOT = Path(__file__).parents[1]


def test_the_first_code_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code is not None
    monkeypatch.chdir(tmp_path)
    few = ["training.steps=20", "data.counts={train=500, valid=20, test=20}"]  # seconds instead of minutes
    whole = heedful.train
    monkeypatch.setattr(heedful, "train", lambda recipe, run: whole(recipe, few, run=run))
    exec(compile(code[1], "README.md", "exec"), {})
    translations, shapes = capsys.readouterr().out.strip().splitlines()[-2:]
    assert translations.startswith("[") and "cross_attention.weights" in shapes


def test_public_names_are_sorted_complete_and_importable() -> None:
    assert heedful.__all__ == sorted(heedful.__all__) == sorted(heedful.MODULES)
    assert all(getattr(heedful, name) is not None for name in heedful.__all__)
    with pytest.raises(AttributeError, match="it has: HeedfulError"):
        heedful.trian  # noqa: B018


def test_every_command_in_the_readme_exists() -> None:
    from heedful.cli import app
    from heedful.recipe_files import all_recipes

    verbs = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    verbs |= {group.name for group in app.registered_groups if group.name}
    named = set(re.findall(r"^heed (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert named and named <= verbs
    assert "multi30k-en-de" in all_recipes()


def test_dir_lists_the_public_names() -> None:
    assert dir(heedful) == sorted(heedful.__all__)
