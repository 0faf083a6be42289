"""The help of every command."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from workshop import every_command, heed


def commands() -> list[tuple[str, ...]]:
    """All commands and subcommands, each as its words on the command line."""
    return [path for path, _ in every_command()]


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_flags_have_no_metavar_and_no_python_type_is_shown(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert heed(*command, "--help") == 0
    shown = capsys.readouterr().out
    assert "--help" in shown
    assert not [part for part in ("bool>", "list[", "<Path>", " range>") if part in shown]


def test_options_of_a_task_are_listed_under_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("predict", "--help") == 0
    _, language = capsys.readouterr().out.split("Options for runs of task 'language'")
    assert "--length" in language and "--prefixes" not in language
    assert heed("generate", "--help") == 0
    assert "Options for runs" not in capsys.readouterr().out


def test_the_help_of_prune_names_its_default_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("prune", "--help") == 0
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "Default: last for a run with gates, otherwise best." in words


def test_the_package_description_mentions_serving_only_if_there_is_a_command_for_it() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert ("serve" in project["description"]) == (("serve",) in commands())


def test_arguments_are_shown_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("translate", "--help") == 0
    shown = capsys.readouterr().out
    assert "{RUN} [FILES]..." in shown
    rows = [line.strip("│ *").split() for line in shown.splitlines()]
    assert ["RUN", "A", "run"] in [row[:3] for row in rows]
    assert ["FILES", "…", "Text"] in [row[:3] for row in rows]
    assert heed("translate") == 2
    assert "Missing argument 'RUN'" in capsys.readouterr().err
