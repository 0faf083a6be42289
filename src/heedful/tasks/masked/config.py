"""[task] of masked language modeling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from heedful.config.base import Problem, refuse
from heedful.models.family import Architecture
from heedful.nn.model import EncoderModel
from heedful.tasks.base import TaskConfig, whole_text_problems
from heedful.tasks.masked.model import MaskedModel
from heedful.training.train_state import Direction

Share = Annotated[float, Field(ge=0.0, le=1.0)]
MIN_PAIR = 5  # tokens of a sequence with two texts: [CLS] a [SEP] b [SEP]


class MaskedConfig(TaskConfig):
    unit: ClassVar[str] = "predictions"
    architectures: ClassVar[tuple[Architecture, ...]] = ("encoder",)
    name: Literal["masked"]
    """Task."""
    rate: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.15
    """Fraction of the tokens of a sequence that are chosen and predicted, at least one token."""
    masked: Share = 0.8
    """Fraction of the chosen tokens that are replaced by the mask token."""
    random: Share = 0.1
    """Fraction of the chosen tokens that are replaced by a random token; the rest stay as they are."""
    static: bool = False
    """Choose tokens once, instead of anew in every epoch."""
    next_sentence: bool = False
    """Also predict whether the second of two texts continues the first, as in BERT; needs model.segments = 2."""

    @model_validator(mode="after")
    def _shares_fit(self) -> MaskedConfig:
        if self.masked + self.random > 1:
            expected = f"expected at most {1 - self.masked:g}, since masked is {self.masked:g} and the sum is at most 1"
            refuse([Problem("random", f"given {self.random:g}, {expected}")])
        return self

    @property
    def metrics(self) -> Mapping[str, Direction]:
        figures: dict[str, Direction] = {"loss": "lower", "perplexity": "lower", "accuracy": "higher"}
        return figures | {"next_sentence_accuracy": "higher"} if self.next_sentence else figures

    def add_head(self, model: EncoderModel, dim: int) -> MaskedModel:
        return MaskedModel(model, dim, self.rate, next_sentence=self.next_sentence)

    def problems_with(self, run: Any) -> list[Problem]:
        problems, model = whole_text_problems(run.data.max_store_megabytes, self.name), run.model
        segments: int = getattr(model, "segments", 0)
        if self.next_sentence and segments < 2:
            given = f"given {segments}" if hasattr(model, "segments") else f"family {model.family!r} has none"
            problems.append(Problem("model.segments", f"{given}, expected 2 with task.next_sentence, for the texts of a pair"))
        if not self.next_sentence and getattr(model, "pooler", False):
            sentence = "given true, but has no effect because task.next_sentence is false; remove it"
            problems.append(Problem("model.pooler", sentence, has_no_effect=True))
        if getattr(model, "characters", 0):
            sentence = f"given {model.characters}, expected 0: the spelling of a masked word would give it away"
            problems.append(Problem("model.characters", sentence))
        if self.next_sentence and run.data.is_mixed:
            sentence = "cannot be combined with a weight in data.train, or with data.temperature; remove one of them"
            problems.append(Problem("task.next_sentence", sentence))
        least = MIN_PAIR if self.next_sentence else 2
        if run.data.block < least:
            problems.append(Problem("data.block", f"given {run.data.block}, expected at least {least}"))
        return problems
