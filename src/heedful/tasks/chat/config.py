"""[task] of chat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from heedful.config.base import Probability, Problem, ZeroOrCount, unused
from heedful.models.family import Architecture
from heedful.tasks.base import TaskConfig, vector_problems
from heedful.training.train_state import Direction

ReplyMetric = Literal["bleu", "chrf", "distinct_1", "distinct_2"]


class ChatConfig(TaskConfig):
    architectures: ClassVar[tuple[Architecture, ...]] = ("encoder-decoder", "decoder")
    name: Literal["chat"]
    """Task."""
    label_smoothing: Probability = 0.1
    """Probability mass moved from the true token."""
    validation_metrics: tuple[ReplyMetric, ...] = ("bleu", "distinct_2")
    """Metrics of generated replies."""
    validation_examples: ZeroOrCount = 0
    """Examples whose perplexity is computed in a validation, evenly spaced in the validation data; 0: all."""
    validation_replies: ZeroOrCount = 200
    """Replies to generate in a validation; 0: all."""
    samples: ZeroOrCount = 1
    """Replies to show at each validation."""

    @property
    def metrics(self) -> Mapping[str, Direction]:
        chosen: dict[str, Direction] = dict.fromkeys(self.validation_metrics, "higher")
        return {"loss": "lower", "perplexity": "lower", **chosen}

    def problems_with(self, run: Any) -> list[Problem]:
        no_effect = unused(run, {"data.batch": "batches of task 'chat' are limited by data.batch_tokens"})
        return [*no_effect, *vector_problems(run.model, self.name)]
