"""The config of a run: the options of each part, and checks between the parts.

[model] [task] [tokenizer] [data] [training] [search], and a seed
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from heedful.data.corpus_text import TextConfig
from heedful.data.labeled import LabeledConfig
from heedful.data.splits import DataConfig
from heedful.models import ModelConfig
from heedful.models.transformer import TransformerConfig
from heedful.config.base import Config, Problem, Seed, Untagged, describe_default, plain, refuse, unused
from heedful.search import SearchConfig
from heedful.config.read import MISSING, Settings, difference, read_settings
from heedful.config.given import OVERRIDE, refuse_repeats
from heedful.config.toml import write_toml
from heedful.tasks import TaskConfig
from heedful.tasks.guided_alignment import guided_alignment_problems
from heedful.tasks.translation import TranslationConfig
from heedful.text.tokenizer import TokenizerConfig
from heedful.training.config import TrainingConfig

MAY_DIFFER = tuple(  # when a run is continued
    f"training.{name}" for name in ("steps", "minutes", "save_every", "validate_every", "trackers")
)

if TYPE_CHECKING:
    Data = Any  # depends on the task
else:
    Data = Annotated[DataConfig | TextConfig | LabeledConfig, Field(discriminator="form"), Untagged("form", "pairs")]


class Run(Config):
    seed: Seed = 1
    """Seed of all random numbers: initial weights, order of the data, dropout."""
    model: ModelConfig = TransformerConfig()
    task: TaskConfig = TranslationConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    data: Data
    training: TrainingConfig = TrainingConfig()
    search: SearchConfig = SearchConfig()

    @property
    def is_stochastic(self) -> bool:
        """Whether two forward passes in training differ: by dropout, by the noise of experts, or by gates."""
        options = plain(self.model)
        dropout = any(value for name, value in options.items() if name.endswith("dropout"))
        return bool(dropout or options.get("experts") or self.training.gates.penalty)

    @model_validator(mode="after")
    def _fits_together(self) -> Run:
        if self.data.form != self.task.form:
            sentence = f"given {self.data.form!r}, but task {self.task.name!r} reads {self.task.form!r}"
            refuse([Problem("data.form", sentence)])
        source, target = self.data.sides
        fits = self.model.problems_with(shared=self.tokenizer.shared, source=source, target=target)
        problems = [describe_default(self.model, problem)._replace(path=f"model.{problem.path}") for problem in fits]
        if self.model.reads and not source:
            sentence = f"given {self.model.family!r}, which needs a source; task {self.task.name!r} has none; expected 'gpt'"
            problems.append(Problem("model.family", sentence))
        if not source and not self.tokenizer.shared:
            problems.append(Problem("tokenizer.shared", f"given false, but task {self.task.name!r} has one side only"))
        if isinstance(self.task, TranslationConfig) and self.task.sequence.method != "none":
            why = f"given true, but task.sequence.method {self.task.sequence.method!r} searches in every update; expected false"
            problems += [
                Problem(f"training.{name}", why) for name in ("compile", "cuda_graphs") if getattr(self.training, name)
            ]
        if isinstance(self.task, TranslationConfig):
            problems += guided_alignment_problems(self.task.guided_alignment, self.data, self.tokenizer.dropout, self.training)
            if self.task.r_drop and not self.is_stochastic:
                problems += unused(self, {"task.r_drop": "every dropout of the model is 0, so that both passes are identical"})
        known = self.task.metrics
        if self.training.metric not in known:
            problems.append(Problem("training.metric", f"given {self.training.metric!r}, expected one of: {', '.join(known)}"))
        refuse(problems)
        return self


def read_run(path: Path | None, overrides: Sequence[str] = (), *, origin: str = OVERRIDE) -> Settings[Run]:
    """Read and check a config file with overrides ("training.steps=200")."""
    refuse_repeats(overrides, origin)
    return read_settings(Run, path, overrides, origin=origin)


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
