"""A run as one checked config: what each part is told, and what must fit between the parts.

[model] [task] [tokenizer] [data] [training] [search], and a seed
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import NonNegativeInt, model_validator

from heedful.data.splits import DataConfig
from heedful.models import ModelConfig
from heedful.schema import Config, Problem, plain, refuse
from heedful.search import SearchConfig
from heedful.settings import Settings, difference, read_settings
from heedful.settings.toml import write_toml
from heedful.tasks import TaskConfig
from heedful.text.tokenizer import TokenizerConfig
from heedful.training.config import TrainingConfig

MAY_DIFFER = ("training.steps", "training.save_every", "training.validate_every")  # when a run is continued


class Run(Config):
    seed: NonNegativeInt = 1
    model: ModelConfig = ModelConfig()
    task: TaskConfig = TaskConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    data: DataConfig
    training: TrainingConfig = TrainingConfig()
    search: SearchConfig = SearchConfig()

    @model_validator(mode="after")
    def _fits_together(self) -> Run:
        problems = []
        if self.model.tie == "all" and not self.tokenizer.shared:
            problems.append(
                Problem(
                    "model.tie",
                    "given 'all', but the vocabularies are separate; expected 'output' or 'none' with tokenizer.shared = false",
                )
            )
        known = ("loss", "perplexity", *self.task.validation_metrics)
        if self.training.metric not in known:
            problems.append(Problem("training.metric", f"given {self.training.metric!r}, expected one of: {', '.join(known)}"))
        if self.model.position == "learned" and self.model.max_positions <= self.data.max_length:
            problems.append(
                Problem(
                    "model.max_positions",
                    f"given {self.model.max_positions}, expected more than data.max_length, which is {self.data.max_length}",
                )
            )
        refuse(problems)
        return self


def read_run(path: Path | None, overrides: Sequence[str] = ()) -> Settings[Run]:
    return read_settings(Run, path, overrides)


def as_toml(run: Run) -> str:
    return write_toml(plain(run))


def changes(stored: Run, given: Run) -> list[str]:
    """What keeps a run from being continued under another config, a sentence each."""
    before, now = plain(stored), plain(given)
    return [
        f"{path}: the run has {old!r}, now given {new!r}"
        for path, old, new in difference(before, now)
        if path not in MAY_DIFFER
    ]
