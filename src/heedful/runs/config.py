"""The config of a run: the options of each part, and checks between the parts.

[model] [task] [tokenizer] [data] [training] [search], and a seed
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args

from pydantic import Field, model_validator

from heedful.config.base import Config, Problem, Seed, Untagged, describe_default, plain, refuse
from heedful.config.given import OVERRIDE, refuse_repeats
from heedful.config.read import MISSING, Settings, difference, read_settings
from heedful.config.toml import write_toml
from heedful.models import FAMILIES, ModelConfig, config_of
from heedful.models.family import Architecture, FamilyConfig
from heedful.models.transformer import TransformerConfig
from heedful.search import SearchConfig
from heedful.tasks import TASKS, find_task
from heedful.tasks.base import TaskConfig
from heedful.tasks.translation.config import TranslationConfig
from heedful.text.tokenizer import TokenizerConfig
from heedful.training.config import TrainingConfig

MAY_DIFFER = tuple(  # when a run is continued
    f"training.{name}"
    for name in (
        *("steps", "minutes", "save_every", "validate_every", "trackers"),
        *("distributed", "sharded_save", "async_save", "rank_timeout"),
    )
)

if TYPE_CHECKING:
    Data = Any  # depends on the task
    AnyTask = TaskConfig
else:
    DEFINITIONS = [find_task(name) for name in TASKS]
    FORMS = [form for definition in DEFINITIONS for form in (definition.data_config, *definition.other_data)]
    DATA = tuple(dict.fromkeys(FORMS))  # tasks may share a form
    Data = Annotated[Union[DATA], Field(discriminator="form"), Untagged("form", "pairs")]  # noqa: UP007
    CONFIGS = tuple(definition.config for definition in DEFINITIONS)
    AnyTask = Annotated[Union[CONFIGS], Field(discriminator="name"), Untagged("name", "translation")]  # noqa: UP007


class Run(Config):
    seed: Seed = 1
    """Seed of all random numbers: initial weights, order of the data, dropout."""
    model: ModelConfig = TransformerConfig()
    task: AnyTask = TranslationConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    data: Data
    training: TrainingConfig = TrainingConfig()
    search: SearchConfig = SearchConfig()

    @model_validator(mode="after")
    def _fits_together(self) -> Run:
        definition = find_task(self.task.name)
        expected = (definition.data_config, *definition.other_data)
        if not isinstance(self.data, expected):
            forms = " or ".join(repr(get_args(form.model_fields["form"].annotation)[0]) for form in expected)
            refuse([Problem("data.form", f"given {self.data.form!r}, but task {self.task.name!r} reads {forms}")])
        source, target = self.data.sides
        fits = self.model.problems_with(shared=self.tokenizer.shared, source=source, target=target)
        problems = [describe_default(self.model, problem)._replace(path=f"model.{problem.path}") for problem in fits]
        problems += architecture_problems(self.model, self.task)
        if not source and not self.tokenizer.shared:
            problems.append(Problem("tokenizer.shared", f"given false, but task {self.task.name!r} has one side only"))
        problems += self.task.problems_with(self)
        known = self.task.metrics
        if self.training.metric not in known:
            problems.append(Problem("training.metric", f"given {self.training.metric!r}, expected one of: {', '.join(known)}"))
        refuse(problems)
        return self


DESCRIBED: dict[Architecture, str] = {
    "encoder-decoder": "an encoder-decoder",
    "decoder": "a decoder",
    "encoder": "an encoder",
    "image-encoder": "an encoder of images",
    "image-to-text": "a decoder of texts from images",
}


def architecture_problems(model: FamilyConfig, task: TaskConfig) -> list[Problem]:
    """The problem of a model that the task cannot train."""
    if model.architecture in task.architectures:
        return []
    families = {name: config_of(family).architecture for name, family in FAMILIES.items()}
    fitting = ", ".join(name for name, architecture in families.items() if architecture in task.architectures)
    return [
        Problem(
            "model.family",
            f"given {model.family!r}, {DESCRIBED[model.architecture]}; task {task.name!r} expects one of: {fitting}",
        )
    ]


def read_run(
    path: Path | None, overrides: Sequence[str] = (), *, origin: str = OVERRIDE, beside: Path | None = None
) -> Settings[Run]:
    """Read and check a config file with overrides ("training.steps=200"); beside: the folder that its relative
    paths are resolved against first."""
    refuse_repeats(overrides, origin)
    return read_settings(Run, path, overrides, origin=origin, beside=beside)


def run_as_toml(run: Run) -> str:
    return write_toml(plain(run))


def describe_value(value: object) -> str:
    return "nothing" if value is MISSING else repr(value)


def differences(stored: Run, given: Run) -> list[str]:
    """The differences that keep a run from being continued with another config, one sentence each."""
    before, now = plain(stored), plain(given)
    return [
        f"{path}: given {describe_value(new)}, but the run has {describe_value(old)}"
        for path, old, new in difference(before, now)
        if path not in MAY_DIFFER
    ]
