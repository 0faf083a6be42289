"""[task] of classification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from heedful.config.base import NonNegativeNumber, Probability, Problem, refuse
from heedful.models.family import Architecture
from heedful.nn.model import SequenceModel
from heedful.tasks.base import TaskConfig
from heedful.tasks.classification.model import ClassificationModel
from heedful.training.train_state import Direction


class ClassificationConfig(TaskConfig):
    unit: ClassVar[str] = "examples"
    architectures: ClassVar[tuple[Architecture, ...]] = ("decoder",)
    name: Literal["classification"]
    """Task."""
    layout: Literal["classification", "entailment", "similarity", "choice"] = "classification"
    """How texts become sequences."""
    labels: tuple[str, ...]
    """The labels as in the data; for "choice", the label of the first answer, the second, …."""
    auxiliary: NonNegativeNumber = 0.5
    """Weight of the language modeling loss; 0: none."""
    head_dropout: Probability = 0.1
    """Dropout before the classifier."""

    def model_post_init(self, context: Any) -> None:
        if len(set(self.labels)) != len(self.labels) or len(self.labels) < 2:
            refuse([Problem("labels", f"given {list(self.labels)!r}, expected two or more that differ")])

    @property
    def metrics(self) -> Mapping[str, Direction]:
        return {"loss": "lower", "accuracy": "higher"}

    def add_head(self, model: SequenceModel, dim: int) -> ClassificationModel:
        return ClassificationModel(model, dim, 1 if self.layout == "choice" else len(self.labels), self.head_dropout)
