"""The help of every verb, as a user reads it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from workshop import heed

from heedful.cli import app


def verbs(command: Any = None, way: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every verb there is, by the words that lead to it."""
    command = command or typer.main.get_command(app)
    below = getattr(command, "commands", {})
    return [way, *(found for name, verb in below.items() for found in verbs(verb, (*way, name)))]


@pytest.mark.parametrize("verb", verbs(), ids=" ".join)
def test_flags_stand_alone_and_no_type_of_python_is_shown(verb: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert heed(*verb, "--help") == 0
    shown = capsys.readouterr().out
    assert "--help" in shown
    assert not [part for part in ("bool>", "list[", "<Path>", " range>") if part in shown]


def test_prune_says_which_checkpoint_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("prune", "--help") == 0
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "unless said, the last of a run with gates, else the best." in words


def test_the_package_promises_to_serve_only_if_a_verb_does() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert ("serve" in project["description"]) == (("serve",) in verbs())


def test_arguments_are_shown_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("translate", "--help") == 0
    shown = capsys.readouterr().out
    assert "{RUN} [FILES]..." in shown
    rows = [line.strip("│ *").split() for line in shown.splitlines()]
    assert ["RUN", "A", "run"] in [row[:3] for row in rows]
    assert ["FILES", "…", "Text"] in [row[:3] for row in rows]
    assert heed("translate") == 2
    assert "Missing argument 'RUN'" in capsys.readouterr().err
