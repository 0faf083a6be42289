"""[task] of the classification of series."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from heedful.config.base import Probability, Problem, refuse
from heedful.models.family import Architecture
from heedful.nn.model import EncoderModel
from heedful.tasks.base import TaskConfig
from heedful.tasks.series_classification.model import NormalizationName, SeriesModel
from heedful.training.train_state import Direction

MIN_LABELS = 2


class SeriesClassificationConfig(TaskConfig):
    unit: ClassVar[str] = "examples"
    architectures: ClassVar[tuple[Architecture, ...]] = ("encoder",)
    name: Literal["series_classification"]
    """Task."""
    labels: tuple[str, ...] | Literal["auto"] = "auto"
    """The labels as in the data; auto: those of the training data, in alphabetical order."""
    variables: tuple[str, ...] | Literal["auto"] = "auto"
    """Columns to read; auto: all columns of numbers."""
    normalization: NormalizationName = "mean"
    """What is subtracted from each series and variable: nothing, its first value, its mean. With the latter two, a shift of the
    whole series, as from another start position, changes nothing."""
    pooling: Literal["mean", "max", "last", "attention"] = "mean"
    """Hidden states of the steps as one vector."""
    head_dropout: Probability = 0.1
    """Dropout before the classifier."""

    def model_post_init(self, context: Any) -> None:
        problems = []
        if self.labels != "auto" and (len(set(self.labels)) != len(self.labels) or len(self.labels) < MIN_LABELS):
            problems.append(Problem("labels", f"given {list(self.labels)!r}, expected two or more that differ"))
        if self.variables != "auto" and (not self.variables or len(set(self.variables)) != len(self.variables)):
            problems.append(Problem("variables", f"given {list(self.variables)!r}, expected one or more that differ"))
        refuse(problems)

    @property
    def known_labels(self) -> tuple[str, ...]:
        """The labels; as many as there are at least, as long as they are not collected."""
        return ("",) * MIN_LABELS if self.labels == "auto" else self.labels

    @property
    def metrics(self) -> Mapping[str, Direction]:
        return {"loss": "lower", "accuracy": "higher", "macro_f1": "higher", "calibration_error": "lower"}

    def add_head(self, model: EncoderModel, dim: int) -> SeriesModel:
        return SeriesModel(model, dim, len(self.known_labels), self)

    def problems_with(self, run: Any) -> list[Problem]:
        given: int = run.model.numeric_inputs
        if self.variables == "auto":
            if given:
                return []
            return [Problem("model.features", "missing; expected the number of variables, an option of family 'encoder'")]
        if given == len(self.variables):
            return []
        shown = f"given {given}" if given else "missing"
        return [Problem("model.features", f"{shown}; expected {len(self.variables)}, the number of task.variables")]
