"""[task] of tagging."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from heedful.config.base import Probability, Problem
from heedful.evaluation.spans import follows, is_bio
from heedful.models.family import Architecture
from heedful.nn.crf import Allowed, Crf
from heedful.nn.model import EncoderModel
from heedful.tasks.labels import CollectedLabelsConfig
from heedful.tasks.tagging.model import TaggingModel
from heedful.training.train_state import Direction


class TaggingConfig(CollectedLabelsConfig):
    architectures: ClassVar[tuple[Architecture, ...]] = ("encoder",)
    name: Literal["tagging"]
    """Task."""
    crf: bool = False
    """A conditional random field over the labels of a sentence: transitions between labels are learned, and labels in BIO
    notation (O, B-…, I-…) are always valid."""
    head_dropout: Probability = 0.1
    """Dropout before the output layer."""

    @property
    def has_spans(self) -> bool:
        """Whether the labels are spans in BIO notation, as far as this is known."""
        return self.labels == "auto" or is_bio(self.labels)

    @property
    def metrics(self) -> Mapping[str, Direction]:
        figures: dict[str, Direction] = {"loss": "lower", "accuracy": "higher"}
        return figures | ({"span_f1": "higher"} if self.has_spans else {})

    def add_head(self, model: EncoderModel, dim: int) -> TaggingModel:
        labels = self.known_labels
        allowed = None
        if is_bio(labels):
            pairs = [[follows(before, label) for label in labels] for before in labels]
            allowed = Allowed([follows(None, label) for label in labels], pairs)
        return TaggingModel(model, dim, len(labels), self.head_dropout, Crf(len(labels), allowed) if self.crf else None)

    def problems_with(self, run: Any) -> list[Problem]:
        features, numeric = run.model.numeric_inputs, run.data.numeric
        if numeric and not features:
            expected = "expected the number of numeric columns, for data.numeric = true, an option of family 'encoder'"
            return [Problem("model.features", f"missing; {expected}")]
        if features and not numeric:
            return [Problem("model.features", f"given {features}, but data.numeric is false, so that the inputs are words")]
        return []
