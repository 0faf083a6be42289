"""The base class of `Translator`, `TextGenerator` and `Classifier`: a trained model with its config and tokenizers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch

from heedful.config.base import plain
from heedful.config.given import ARGUMENT, OVERRIDE, refuse_repeats
from heedful.config.read import read_settings
from heedful.config.toml import write_value
from heedful.data.sources import find_path
from heedful.data.splits import SPLITS
from heedful.errors import ConfigError, DataError, lookup
from heedful.models import SequenceModel
from heedful.nn.precision import with_precision
from heedful.runs.config import Run
from heedful.search import SearchConfig
from heedful.search.hypothesis import OPTIONS_OF
from heedful.tasks.translate import System

FORKS = [0]  # number of os.fork() calls between this process and its first ancestor that was not forked


def count_fork() -> None:
    FORKS[0] += 1


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=count_fork)


class Predictor:
    """A trained model, loaded from a checkpoint of a run."""

    def __init__(self, run: Run, system: System, checkpoint: Path) -> None:
        self.run, self.checkpoint = run, checkpoint
        self.loaded, self.forks = replace(system, checkpoint=checkpoint), FORKS[0]

    @property
    def system(self) -> System:
        """The model and its tokenizers. torch's threads do not survive a fork: a child process would wait for them forever."""
        threads = torch.get_num_threads()
        if self.forks < FORKS[0] and threads > 1 and self.loaded.device.type == "cpu":
            raise ConfigError(
                f"a model loaded before os.fork() was used in the child process with {threads} torch threads, which do not "
                "exist there; expected 1 thread",
                hint='call torch.set_num_threads(1) in the child, or start it with the method "spawn" and load the model there',
            )
        return self.loaded

    @property
    def model(self) -> SequenceModel:
        return self.system.models[0]

    def at(self, precision: str) -> Self:
        """A predictor with copies of the models in fp32, bf16 or int8."""
        models: list[Any] = [with_precision(model, precision, self.system.device) for model in self.system.models]  # type: ignore[type-var]
        return type(self)(self.run, replace(self.system, models=models, engines={}), self.checkpoint)

    def search_config(self, changes: Sequence[str] = (), *, origin: str = OVERRIDE) -> SearchConfig:
        """The run's search options with some of them changed ("beam=5"). Another method starts from its own defaults; an option
        that only one method has selects that method."""
        refuse_repeats(changes, origin)
        given = dict(change.split("=", 1) for change in changes if "=" in change)
        own = plain(self.run.search)
        implied = [method for method, names in OPTIONS_OF.items() if any(name in given for name in names)]
        if "method" not in given and len(implied) == 1 and implied[0] != self.run.search.method:
            changes, given = [*changes, f'method="{implied[0]}"'], given | {"method": implied[0]}  # beam=5 implies beam search
        if given.get("method", self.run.search.method).strip("\"'") != self.run.search.method:
            own = {name: value for name, value in own.items() if name not in OPTIONS_OF.get(self.run.search.method, ())}
        kept = [f"{name}={write_value(value)}" for name, value in own.items() if value is not None]
        return read_settings(SearchConfig, None, [*kept, *changes], origin=origin).config

    def search_config_from(self, options: Mapping[str, Any]) -> SearchConfig:
        """The run's search options changed by keyword arguments: {"beam": 5}."""
        return self.search_config([f"{name}={value_as_toml(name, value)}" for name, value in options.items()], origin=ARGUMENT)


def value_as_toml(name: str, value: object) -> str:
    """The value of a keyword argument as TOML, the syntax of overrides."""
    try:
        return write_value(value)
    except (TypeError, ValueError):
        kind = type(value).__name__
        raise ConfigError(f"{ARGUMENT}: {name}: given a value of type {kind}, expected a number or a text") from None


def check_split(data: Any, split: str) -> None:
    """Raise an error unless this is the name of a split and the folder of the data exists."""
    lookup(split, dict.fromkeys(SPLITS), "split")
    if data.folder is None or getattr(data, split) is not None or find_path(data.folder).is_dir():
        return
    raise DataError(
        f"the folder of the run's data, {data.folder!r}, was found neither here nor in ./data nor in $HEED_DATA",
        hint="run the command where the run was trained, or set HEED_DATA",
    )


def missing_split_error(split: str) -> ConfigError:
    return ConfigError(f"the run has no {split} data", hint="use the validation data: --split valid")
