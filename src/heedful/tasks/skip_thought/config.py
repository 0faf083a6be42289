"""[task] of skip-thought vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from heedful.config.base import Problem
from heedful.nn.model import EncoderModel
from heedful.tasks.base import whole_text_problems
from heedful.tasks.embedding.config import PooledConfig
from heedful.tasks.skip_thought.model import SkipThoughtModel
from heedful.training.train_state import Direction


class SkipThoughtConfig(PooledConfig):
    unit: ClassVar[str] = "tokens"
    name: Literal["skip_thought"]
    """Task."""

    @property
    def metrics(self) -> Mapping[str, Direction]:
        return {"loss": "lower", "perplexity": "lower"}

    def add_head(self, model: EncoderModel, dim: int) -> SkipThoughtModel:
        return SkipThoughtModel(model, self.pooling_of(model.config), dim)

    def problems_with(self, run: Any) -> list[Problem]:
        return [*super().problems_with(run), *whole_text_problems(run.data.max_store_megabytes, self.name)]
