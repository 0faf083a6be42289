"""Every numeric option has a finite range, and a value beyond it is an error message, not a crash."""

from __future__ import annotations

import math
import pkgutil
from importlib import import_module
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
from configs import every_config, numbers, numeric_options
from workshop import heed

import heedful
from heedful.cli import app
from heedful.config import kinds
from heedful.config.base import Config
from heedful.errors import ConfigError
from heedful.models import MODELS
from heedful.runs.config import Run, read_run
from heedful.training.config import Threads

EXTREME = [
    *("-1", "0", str(2**31), str(2**64), f"1{'0' * 400}", "1" * 5000, f"0x{'f' * 5000}", "nan", "inf", "1e308"),
]
DATA = {
    "translation": ["data.builtin=true"],
    "language": ["data.form=text", "data.file=x", "task.name=language", "model.family=gpt", "tokenizer.kind=characters"],
    "classification": [
        *("data.form=labeled", "data.folder=x", "task.name=classification", "task.labels=[a,b]", "model.family=gpt")
    ],
}


def all_configs() -> list[type[Config]]:
    for module in pkgutil.walk_packages(heedful.__path__, "heedful."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    return [part for part in every_config() if part.__module__.startswith("heedful.")]


def test_every_numeric_option_has_a_finite_range_and_excludes_nan() -> None:
    checked = 0
    for part in all_configs():
        assert part.model_config.get("allow_inf_nan") is False
        for name, kind in kinds.fields(part).items():
            for _, rules in numbers(kind):
                checked += 1
                low = [bound for sign in ("gt", "ge") if (bound := kinds.rule(rules, sign)) is not None]
                high = [bound for sign in ("lt", "le") if (bound := kinds.rule(rules, sign)) is not None]
                assert low and high, f"{part.__name__}.{name} has no finite range"
                assert all(map(math.isfinite, (*low, *high)))
    assert checked > 150


def is_accepted(overrides: list[str]) -> bool:
    """Whether a config is valid; any other exception than ConfigError fails the test."""
    try:
        read_run(None, overrides)
    except ConfigError as error:
        assert "Traceback" not in str(error)
        return False
    return True


@pytest.mark.parametrize("family", MODELS)
def test_extreme_numbers_in_a_model_are_accepted_or_an_error(family: str) -> None:
    base = [*DATA["translation"], f"model.family={family}"]
    assert is_accepted(base)
    table = next(each for each in kinds.branches(Run.model_fields["model"].annotation) if family in tags(each))
    options = list(numeric_options(table))
    assert options
    for path in options:
        refused = [value for value in EXTREME if not is_accepted([*base, f"model.{'.'.join(path)}={value}"])]
        assert {str(2**64), "nan", "inf", "1e308", "1" * 5000} <= set(refused)


def tags(table: Any) -> list[Any]:
    return kinds.choices(kinds.fields(table)["family"])


@pytest.mark.parametrize("task", DATA)
def test_other_extreme_numbers_are_accepted_or_an_error(task: str) -> None:
    """The options of its data and of the task; with the first task also those that all tasks have."""
    config = read_run(None, DATA[task]).config
    options = [(name, *path) for name in ("data", "task") for path in numeric_options(type(getattr(config, name)))]
    assert options
    if task == "translation":
        options += [path for path in numeric_options(Run) if path[0] not in ("model", "data", "task")]
        assert {("seed",), ("training", "schedule", "learning_rate")} <= set(options)
    for path in options:
        refused = [value for value in EXTREME if not is_accepted([*DATA[task], f"{'.'.join(path)}={value}"])]
        assert {str(2**64), "nan", "inf", "1e308", "1" * 5000} <= set(refused)


def test_the_number_of_threads_is_limited() -> None:
    assert kinds.rule(get_args(Threads)[1].metadata, "le") <= 1024


def numeric_parameters(group: Any = app, words: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], str, Any]]:
    """(words of the command, option, its typer declaration) of every numeric option of a command."""
    parameters = []
    for command in group.registered_commands:
        command_words = (*words, command.name or command.callback.__name__)
        for name, kind in get_type_hints(command.callback, include_extras=True).items():
            if get_origin(kind) is Annotated and kinds.unwrap(kind)[0] in (int, float):
                parameters.append((command_words, f"--{name.replace('_', '-')}", get_args(kind)[1]))
    for inner in group.registered_groups:
        parameters += numeric_parameters(inner.typer_instance, (*words, inner.name))
    return parameters


def test_every_numeric_option_of_a_command_has_a_finite_range(capsys: pytest.CaptureFixture[str]) -> None:
    parameters = numeric_parameters()
    assert len(parameters) > 15
    for words, option, info in parameters:
        assert info.min is not None and info.max is not None, f"{' '.join(words)} {option}"
        for value in ("nan", "1" * 5000) if info.min == 0 else ("nan",):
            assert heed(*words, "x", f"{option}={value}") == 2
            assert "Traceback" not in capsys.readouterr().err
