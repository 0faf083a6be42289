"""A run folder whose files are invalid although their checksums are right: exit code 4, the same sentence in every command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from workshop import heed

from heedful.storage.reading import sha256_of
from heedful.training import facts
from heedful.training.facts import RESTORE

COMMANDS: dict[str, Callable[[Path, Path], list[str | Path]]] = {
    "translate": lambda run, recipe: ["translate", run, "/dev/null"],
    "train the run": lambda run, recipe: ["train", run],
    "train the run with an override": lambda run, recipe: ["train", run, "training.steps=9"],
    "train the recipe": lambda run, recipe: ["train", recipe, "--run", run],
}


def change_tokenizer(run: Path) -> None:
    """Give a piece an id far outside the vocabulary."""
    content = json.loads((run / "tokenizer.json").read_text())
    content["model"]["vocab"]["w1"] = 99999999
    (run / "tokenizer.json").write_text(json.dumps(content))
    seal(run)


def remove_a_key(run: Path) -> None:
    (run / "tokenizer.json").write_text('{"version": "1.0"}')
    seal(run)


def seal(run: Path) -> None:
    """Record the files as they are now."""
    known = facts.read_facts(run)
    known["files"] |= {name: sha256_of(run / name) for name in known["files"]}
    facts.write_facts(run, known | {"fingerprint": facts._fingerprint(known)})


# name -> damage, message
DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a config that is not TOML": (
        lambda run: facts.replace_config(run, "x = " + "[" * 3000),
        "run folder {run} is damaged: {run}/config.toml:1:37: not valid TOML: nested deeper than 32 levels",
    ),
    "a config with an unknown key": (
        lambda run: facts.replace_config(run, (run / "config.toml").read_text() + "[odd]\n"),
        "run folder {run} is damaged: {run}/config.toml:{line}: odd: unknown key",
    ),
    "a tokenizer with a wrong id": (
        change_tokenizer,
        "run folder {run} is damaged: '{run}/tokenizer.json' is not a tokenizer of heedful: the ids of its vocabulary are not "
        "0, 1, 2, …, one for each piece",
    ),
    "a tokenizer without a model": (
        remove_a_key,
        "run folder {run} is damaged: '{run}/tokenizer.json' is not a tokenizer of heedful: its key 'model' is missing",
    ),
    "no config": (
        lambda run: (run / "config.toml").unlink(),
        "run folder {run} is damaged: config.toml is missing",
    ),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("damage", DAMAGE)
def test_every_command_has_the_same_message(
    damage: str, command: str, tiny_runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(tiny_runs["translation"], tmp_path / "run", symlinks=True)
    break_it, message = DAMAGE[damage]
    break_it(run)
    lines = (run / "config.toml").read_text().splitlines() if (run / "config.toml").exists() else []
    assert heed(*COMMANDS[command](run, tiny_runs["translation"].parent / "translation.toml")) == 4
    shown = capsys.readouterr().err
    assert shown.startswith(f"error: {message.format(run=run, line=len(lines))}")
    assert shown.endswith(f"\n\nhint: {RESTORE}\n")


def test_a_wrong_override_of_an_intact_run_is_an_error_of_the_command(
    tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert heed("train", tiny_runs["translation"], "training.steps=0") == 2
    assert capsys.readouterr().err.startswith("error: command line: training.steps: given 0")
