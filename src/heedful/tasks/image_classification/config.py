"""[task] of image classification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from heedful.config.base import Probability, Problem, refuse
from heedful.models.family import Architecture
from heedful.nn.model import EncoderModel
from heedful.tasks.base import TaskConfig
from heedful.tasks.image_classification.model import ImageModel
from heedful.training.train_state import Direction

MIN_LABELS = 2


class ImageClassificationConfig(TaskConfig):
    unit: ClassVar[str] = "examples"
    architectures: ClassVar[tuple[Architecture, ...]] = ("image-encoder",)
    name: Literal["image_classification"]
    """Task."""
    labels: tuple[str, ...] | Literal["auto"] = "auto"
    """The labels as in the data; auto: those of the training data, in alphabetical order."""
    label_smoothing: Probability = 0.0
    """Label smoothing: probability that is moved from the correct label to all labels in equal parts."""
    head_dropout: Probability = 0.0
    """Dropout before the classifier."""

    def model_post_init(self, context: Any) -> None:
        if self.labels != "auto" and (len(set(self.labels)) != len(self.labels) or len(self.labels) < MIN_LABELS):
            refuse([Problem("labels", f"given {list(self.labels)!r}, expected two or more that differ")])

    @property
    def known_labels(self) -> tuple[str, ...]:
        """The labels; as many as there are at least, as long as they are not collected."""
        return ("",) * MIN_LABELS if self.labels == "auto" else self.labels

    @property
    def metrics(self) -> Mapping[str, Direction]:
        return {"loss": "lower", "accuracy": "higher", "macro_f1": "higher", "calibration_error": "lower"}

    def add_head(self, model: EncoderModel, dim: int) -> ImageModel:
        return ImageModel(model, dim, len(self.known_labels), dropout=self.head_dropout)
