"""[task] of image classification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from heedful.config.base import Probability
from heedful.models.family import Architecture
from heedful.nn.model import EncoderModel
from heedful.tasks.image_classification.model import ImageModel
from heedful.tasks.labels import CollectedLabelsConfig
from heedful.training.train_state import Direction


class ImageClassificationConfig(CollectedLabelsConfig):
    unit: ClassVar[str] = "examples"
    architectures: ClassVar[tuple[Architecture, ...]] = ("image-encoder",)
    name: Literal["image_classification"]
    """Task."""
    label_smoothing: Probability = 0.0
    """Label smoothing: probability that is moved from the correct label to all labels in equal parts."""
    head_dropout: Probability = 0.0
    """Dropout before the classifier."""

    @property
    def metrics(self) -> Mapping[str, Direction]:
        return {"loss": "lower", "accuracy": "higher", "macro_f1": "higher", "calibration_error": "lower"}

    def add_head(self, model: EncoderModel, dim: int) -> ImageModel:
        return ImageModel(model, dim, len(self.known_labels), dropout=self.head_dropout)
