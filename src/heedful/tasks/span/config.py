"""[task] of span extraction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from heedful.config.base import Problem, SmallCount
from heedful.models.family import Architecture
from heedful.nn.model import EncoderModel
from heedful.tasks.base import TaskConfig, input_problems
from heedful.tasks.span.model import SpanModel
from heedful.training.train_state import Direction


class SpanConfig(TaskConfig):
    unit: ClassVar[str] = "examples"
    architectures: ClassVar[tuple[Architecture, ...]] = ("encoder",)
    name: Literal["span"]
    """Task."""
    max_answer: SmallCount = 30
    """Maximum tokens of a predicted answer."""

    @property
    def metrics(self) -> Mapping[str, Direction]:
        return {"loss": "lower", "exact_match": "higher", "f1": "higher"}

    def add_head(self, model: EncoderModel, dim: int) -> SpanModel:
        return SpanModel(model, dim)

    def problems_with(self, run: Any) -> list[Problem]:
        problems = []
        if getattr(run.model, "pooler", False):
            problems.append(Problem("model.pooler", "given true, but has no effect on task 'span', which has no pooling"))
        if getattr(run.model, "segments", 0) == 1:
            problems.append(Problem("model.segments", "given 1, expected 0 or 2: a question and a context"))
        return [*problems, *input_problems(run.model, self.name)]
