"""[task] of captioning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from heedful.config.base import Probability, Problem, ZeroOrCount, unused
from heedful.evaluation.metrics import METRICS
from heedful.models.family import Architecture
from heedful.tasks.base import TaskConfig
from heedful.training.train_state import Direction

# Search options that read the words of a source, or its length.
NO_EFFECT = ("coverage", "max_extra", "replace_unknown", "dictionary")


class CaptioningConfig(TaskConfig):
    architectures: ClassVar[tuple[Architecture, ...]] = ("image-to-text",)
    name: Literal["captioning"]
    """Task."""
    label_smoothing: Probability = 0.1
    """Probability mass moved from the true token."""
    validation_metrics: tuple[Literal["bleu", "chrf", "ter", "gleu", "exact_match"], ...] = ("exact_match", "bleu", "chrf")
    """Metrics of generated captions."""
    validation_images: ZeroOrCount = 0
    """Validation images to describe; 0: all."""
    samples: ZeroOrCount = 1
    """Captions to show at each validation."""

    @property
    def metrics(self) -> Mapping[str, Direction]:
        directions: dict[str, Direction] = {
            name: "higher" if METRICS[name].higher_is_better else "lower" for name in self.validation_metrics
        }
        return {"loss": "lower", "perplexity": "lower", **directions}

    def problems_with(self, run: Any) -> list[Problem]:
        reason = "the source of task 'captioning' is an image"
        problems = unused(run, {f"search.{name}": reason for name in NO_EFFECT})
        if run.tokenizer.dropout:
            problems.append(Problem("tokenizer.dropout", f"given {run.tokenizer.dropout}, expected 0 for task 'captioning'"))
        if run.data.builtin is not None and run.model.image_shape is not None and run.model.image_shape.channels != 3:
            problems.append(Problem("model.channels", "given 1, but the captions of data.builtin name colors; expected 3"))
        return problems
