"""[task] of skip-thought vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from heedful.nn.model import EncoderModel
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
