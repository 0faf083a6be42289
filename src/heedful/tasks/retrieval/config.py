"""[task] of retrieval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from heedful.config.base import PositiveNumber, Problem, ZeroOrCount
from heedful.evaluation.ranking import RANKINGS
from heedful.nn.model import EncoderModel
from heedful.tasks.embedding.config import PooledConfig
from heedful.tasks.retrieval.command import Match
from heedful.tasks.retrieval.model import DualEncoder
from heedful.training.train_state import Direction


class RetrievalConfig(PooledConfig):
    name: Literal["retrieval"]
    """Task."""
    temperature: PositiveNumber = 0.05
    """Similarities are divided by this before the softmax; lower: hard negatives have more weight."""
    shared: bool = True
    """One encoder for questions and answers; false: two, with the same initial weights."""
    match: Match = "both"
    """What a question is compared with: stored questions, stored answers, or both, where the higher similarity counts."""
    candidates: ZeroOrCount = 100
    """Evaluation: the number of replies among which the right one is ranked, drawn with a fixed seed; 0: all of the split."""

    @property
    def metrics(self) -> Mapping[str, Direction]:
        return {"loss": "lower", **dict.fromkeys(RANKINGS, "higher")}

    def add_head(self, model: EncoderModel, dim: int) -> DualEncoder:
        return DualEncoder(model, self.pooling_of(model.config), shared=self.shared)

    def problems_with(self, run: Any) -> list[Problem]:
        problems = super().problems_with(run)
        if run.training.init and not self.shared:
            problems.append(Problem("task.shared", "given false, but training.init has one encoder; expected true"))
        if not run.tokenizer.shared:
            problems.append(
                Problem("tokenizer.shared", "given false, but questions and answers have one vocabulary; expected true")
            )
        return problems
