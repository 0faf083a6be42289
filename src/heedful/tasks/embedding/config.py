"""[task] of embedding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from heedful.config.base import PositiveNumber, Problem
from heedful.models.family import Architecture, FamilyConfig
from heedful.nn.model import EncoderModel
from heedful.tasks.base import TaskConfig, input_problems
from heedful.tasks.embedding.model import EmbeddingModel, TrainedPooling
from heedful.training.train_state import Direction


class PooledConfig(TaskConfig):
    """Options of tasks whose model encodes a text as one vector."""

    unit: ClassVar[str] = "examples"
    architectures: ClassVar[tuple[Architecture, ...]] = ("encoder",)
    compares_rows = True
    pooling: TrainedPooling | None = None
    """Hidden states as one vector: mean, cls, or attention, a mean with learned weights; default: cls if model.pooler is set,
    else mean."""

    def pooling_of(self, model: FamilyConfig) -> TrainedPooling:
        """The pooling with this model."""
        return self.pooling or ("cls" if getattr(model, "pooler", False) else "mean")

    def problems_with(self, run: Any) -> list[Problem]:
        problems = []
        if getattr(run.model, "pooler", False) and self.pooling_of(run.model) != "cls":
            problems.append(Problem("model.pooler", f"given true, but task.pooling is {self.pooling!r}; expected 'cls'"))
        return [*problems, *input_problems(run.model, self.name)]


class EmbeddingConfig(PooledConfig):
    name: Literal["embedding"]
    """Task."""
    temperature: PositiveNumber = 0.05
    """Similarities are divided by this before the softmax; lower: hard negatives have more weight."""

    @property
    def metrics(self) -> Mapping[str, Direction]:
        return {"loss": "lower", "accuracy": "higher", "recall_10": "higher", "mrr": "higher"}

    def add_head(self, model: EncoderModel, dim: int) -> EmbeddingModel:
        return EmbeddingModel(model, self.pooling_of(model.config))
