"""heed inspect alignment, cost, experts, heads, positions, pruning: every option is honored, and mistakes are one message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from workshop import heed, write_recipe

from heedful.cli import app

COMMANDS = {
    "alignment": ("translation",),
    "cost": ("translation",),  # other tasks: inspection/test_every_model_analysis.py
    "experts": ("experts",),
    "heads": ("translation", "language", "classification"),
    "positions": ("translation",),
    "pruning": ("translation",),
}
# What an option is tried with; {folder} and {other} are paths.
VALUES = {
    "source": ("{folder}/sources.txt", "--target", "{folder}/targets.txt"),
    "target": ("{folder}/targets.txt", "--source", "{folder}/sources.txt"),
    "gold": ("{folder}/gold.txt", "--source", "{folder}/sources.txt", "--target", "{folder}/targets.txt"),
    "choose_on": ("{folder}/sources.txt", "{folder}/targets.txt", "{folder}/gold.txt"),
    "reverse": ("{other}", "--symmetrize", "union"),
    "symmetrize": ("union", "--reverse", "{other}"),
    "bootstrap": (
        *("0", "--source", "{folder}/sources.txt", "--target", "{folder}/targets.txt"),
        *("--gold", "{folder}/gold.txt"),
    ),
    "rows": ("4",),
    "tokens": ("4",),
    "data": ("{folder}/{task}.tsv",),
    "conllu": ("{folder}/trees.conllu",),
    "sentences": ("3",),
    "keep": ("4",),
    "kind": ("cross",),
}
RESULTS: dict[tuple[str, ...], Any] = {}  # of commands without the option
NOT_TRIED = {"checkpoint", "device", "picture", "html", "json", "help"}  # the same for all, tested in test_every_analysis.py


class Case(NamedTuple):
    command: str
    option: str
    task: str

    def __str__(self) -> str:
        return f"{self.command} {self.option} {self.task}"


def cases() -> Iterator[Case]:
    commands: Any = typer.main.get_command(app)
    for command, tasks in COMMANDS.items():
        params = commands.commands["inspect"].commands[command].params
        for option in (one.name for one in params if one.param_type_name == "option" and one.name not in NOT_TRIED):
            yield from (Case(command, option, task) for task in tasks)


@pytest.fixture(scope="module")
def folder(tiny_runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("inspect")
    (made / "sources.txt").write_text("w1 w2\nw3 w4 w5\n")
    (made / "targets.txt").write_text("w2 w1\nw5 w4 w3\n")
    (made / "gold.txt").write_text("0-1 1-0\n0-2 1-1 2-0\n")
    (made / "translation.tsv").write_text("w1 w2\tw2 w1\t0-1 1-0\n")
    (made / "language.tsv").write_text("a cat sees a dog\n")
    (made / "classification.tsv").write_text("yes\ta cat sees\nno\tthe dog\n")
    (made / "trees.conllu").write_text("1\tw1\t_\t_\t_\t_\t2\tnsubj\t_\t_\n2\tw2\t_\t_\t_\t_\t0\troot\t_\t_\n\n")
    assert heed("train", write_recipe(made), "model.experts=4", "training.steps=2", "--run", made / "experts") == 0
    return made


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_an_option_is_honored(case: Case, folder: Path, tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    runs = tiny_runs | {"experts": folder / "experts"}
    paths = {"folder": folder, "other": tiny_runs["translation"].parent / "other", "task": case.task}

    def output(*options: str) -> Any:
        capsys.readouterr()
        assert heed("inspect", case.command, runs[case.task], *(one.format(**paths) for one in options), "--json") == 0
        result = json.loads(capsys.readouterr().out)
        result.pop("machine", None)
        return result

    flag, (value, *others) = f"--{case.option.replace('_', '-')}", VALUES[case.option]
    required = others if case.option == "bootstrap" else []  # the others have no effect, or are not valid, without it
    plain = (case.command, case.task, *required)
    if plain not in RESULTS:
        RESULTS[plain] = output(*required)
    assert output(flag, value, *others) != RESULTS[plain]


@pytest.mark.parametrize(("terminal", "json", "shown"), [(True, False, True), (True, True, False), (False, False, False)])
def test_a_progress_bar_is_shown_on_a_terminal_without_json(
    tiny_runs: dict[str, Path],
    terminal: bool,
    json: bool,
    shown: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    assert heed("inspect", "heads", tiny_runs["translation"], "--sentences", "5", *["--json"] * json) == 0
    output = capsys.readouterr()
    assert ("heads, 5 sentences" in output.err and "100%" in output.err) == shown and "heads, 5 sentences" not in output.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("heads", "--data", "a.tsv", "--conllu", "b.conllu"), "expected one of them"),
        (("heads", "--data", "no-such.tsv"), "no-such.tsv"),
        (("pruning", "--keep", "99"), "expected numbers of heads from 0 to 12"),
        (("pruning", "--kind", "crss"), "did you mean 'cross'?"),
        (("experts",), "this model has no experts"),
        (("cost", "--rows", "0"), "--rows"),
        (("positions", "--picture", "x.gif"), "expected"),
    ],
    ids=str,
)
def test_a_mistake_is_one_message(
    arguments: tuple[str, ...], message: str, tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    command, *options = arguments
    assert heed("inspect", command, tiny_runs["translation"], *options) in (2, 3)
    told = capsys.readouterr().err
    assert message in told and "Traceback" not in told


@pytest.mark.parametrize("dim", [9, 20])
def test_the_cost_of_a_model_of_any_size_is_computed(tmp_path: Path, dim: int, capsys: pytest.CaptureFixture[str]) -> None:
    family = f'model={{family="sutskever", dim={dim}, layers=1}}'
    assert heed("train", write_recipe(tmp_path), family, "training.steps=2", "--run", tmp_path / "run") == 0
    capsys.readouterr()
    assert heed("inspect", "cost", tmp_path / "run", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    whole = next(iter(found["phases"].values()))[-1]  # of a training step
    assert whole["parameters"] == found["parameters"] and whole["kept"] == found["memory"]["activations"]
