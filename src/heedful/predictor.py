"""A trained model at work: what all tasks' workers have. What each of them does stands in a class of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch

from heedful.config import Run
from heedful.data.sources import find_path
from heedful.data.splits import SPLITS
from heedful.errors import ConfigError, DataError, lookup
from heedful.models import SequenceModel
from heedful.nn.precision import with_precision
from heedful.schema import plain
from heedful.search import SearchConfig
from heedful.search.hypothesis import OPTIONS_OF
from heedful.settings import read_settings
from heedful.settings.given import ARGUMENT, OVERRIDE, refuse_repeats
from heedful.settings.toml import write_value
from heedful.tasks.translate import System

FORKS = [0]  # how many forks lie between this process and one that was started afresh


def count_fork() -> None:
    FORKS[0] += 1


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=count_fork)


class Predictor:
    def __init__(self, run: Run, system: System, checkpoint: Path) -> None:
        self.run, self.checkpoint = run, checkpoint
        self.loaded, self.forks = replace(system, checkpoint=checkpoint), FORKS[0]

    @property
    def system(self) -> System:
        """The model and its tokenizers. torch's threads do not survive a fork: a child that waits for them waits for ever."""
        threads = torch.get_num_threads()
        if self.forks < FORKS[0] and threads > 1 and self.loaded.device.type == "cpu":
            raise ConfigError(
                f"a model that was loaded before os.fork() was used in the child with {threads} torch threads, which the child "
                "does not have and would wait for; expected 1 thread",
                hint='call torch.set_num_threads(1) in the child, or start it with the method "spawn" and load the model there',
            )
        return self.loaded

    @property
    def model(self) -> SequenceModel:
        return self.system.models[0]

    def at(self, precision: str) -> Self:
        """The same with copies of its models that run in fp32, bf16 or int8."""
        models: list[Any] = [with_precision(model, precision, self.system.device) for model in self.system.models]  # type: ignore[type-var]
        return type(self)(self.run, replace(self.system, models=models, engines={}), self.checkpoint)

    def search(self, changes: Sequence[str] = (), *, origin: str = OVERRIDE) -> SearchConfig:
        """The run's search with some options changed ("beam=5"); another method begins with its own defaults.
        An option that only another method has asks for that method."""
        refuse_repeats(changes, origin)
        given = dict(change.split("=", 1) for change in changes if "=" in change)
        own = plain(self.run.search)
        meant = [method for method, names in OPTIONS_OF.items() if any(name in given for name in names)]
        if "method" not in given and len(meant) == 1 and meant[0] != self.run.search.method:
            changes, given = [*changes, f'method="{meant[0]}"'], given | {"method": meant[0]}  # beam=5 asks for a beam
        if given.get("method", self.run.search.method).strip("\"'") != self.run.search.method:
            own = {name: value for name, value in own.items() if name not in OPTIONS_OF.get(self.run.search.method, ())}
        kept = [f"{name}={write_value(value)}" for name, value in own.items() if value is not None]
        return read_settings(SearchConfig, None, [*kept, *changes], origin=origin).config

    def search_by_name(self, options: Mapping[str, Any]) -> SearchConfig:
        """The run's search with the keyword arguments of a Python call: {"beam": 5}."""
        return self.search([f"{name}={as_toml(name, value)}" for name, value in options.items()], origin=ARGUMENT)


def as_toml(name: str, value: object) -> str:
    """The value of a keyword argument, as an override has it."""
    try:
        return write_value(value)
    except (TypeError, ValueError):
        kind = type(value).__name__
        raise ConfigError(f"{ARGUMENT}: {name}: given a value of type {kind}, expected a number or a text") from None


def check_split(data: Any, split: str) -> None:
    """The name must be that of a split, and the folder that the split is read from must exist."""
    lookup(split, dict.fromkeys(SPLITS), "split")
    if data.folder is None or getattr(data, split) is not None or find_path(data.folder).is_dir():
        return
    raise DataError(
        f"the folder of the run's data, {data.folder!r}, does not exist here, in ./data or in $HEED_DATA",
        hint="run the command where the run was trained, or set HEED_DATA",
    )


def no_data(split: str) -> ConfigError:
    return ConfigError(f"the run has no {split} data", hint="--split valid uses the validation data")
