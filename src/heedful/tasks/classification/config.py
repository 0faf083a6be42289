"""[task] of classification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from heedful.config.base import NonNegativeNumber, PositiveNumber, Probability, Problem, refuse, unused
from heedful.models.family import Architecture, FamilyConfig
from heedful.nn.pooling import POOLINGS
from heedful.tasks.base import TaskConfig, vector_problems
from heedful.tasks.classification.model import READERS, ClassificationModel
from heedful.training.train_state import Direction

PoolingName = Literal["mean", "max", "cls", "last", "attention"]
SINGLE: dict[str, Direction] = {"loss": "lower", "accuracy": "higher", "macro_f1": "higher", "calibration_error": "lower"}
MULTI: dict[str, Direction] = {"loss": "lower", "exact_match": "higher", "micro_f1": "higher", "macro_f1": "higher"}


class ClassificationConfig(TaskConfig):
    unit: ClassVar[str] = "examples"
    architectures: ClassVar[tuple[Architecture, ...]] = ("decoder", "encoder")
    name: Literal["classification"]
    """Task."""
    layout: Literal["classification", "entailment", "similarity", "choice"] = "classification"
    """How texts become sequences: one text, a pair, a pair in both orders, a context with each of its possible answers."""
    labels: tuple[str, ...]
    """The labels as in the data; for "choice", the label of the first answer, the second, …."""
    multi_label: bool = False
    """Any number of labels for each text, instead of one."""
    class_weights: Literal["balanced"] | tuple[PositiveNumber, ...] | None = None
    """Weight of each label in the loss; balanced: inverse to its frequency; default: 1. With multi_label, the weight of the
    examples that have the label."""
    label_smoothing: Probability = 0.0
    """Label smoothing: probability that is moved from the correct label to all labels in equal parts; with multi_label, from
    the correct choice to both, yes and no."""
    pooling: PoolingName | None = None
    """Hidden states of an encoder as one vector; default: cls if model.pooler is set, else mean."""
    auxiliary: NonNegativeNumber = 0.5
    """Decoder: weight of the language modeling loss; 0: none."""
    head_dropout: Probability = 0.1
    """Dropout before the classifier."""

    def model_post_init(self, context: Any) -> None:
        problems = []
        if len(set(self.labels)) != len(self.labels) or len(self.labels) < 2:
            problems.append(Problem("labels", f"given {list(self.labels)!r}, expected two or more that differ"))
        if isinstance(self.class_weights, tuple) and len(self.class_weights) != len(self.labels):
            given = f"given {len(self.class_weights)} weights, expected one for each of {len(self.labels)} labels"
            problems.append(Problem("class_weights", given))
        if self.layout == "choice" and self.multi_label:
            problems.append(Problem("multi_label", "given true, but layout 'choice' has one correct answer"))
        refuse(problems)

    @property
    def metrics(self) -> Mapping[str, Direction]:
        return MULTI if self.multi_label else SINGLE

    def pooling_of(self, model: FamilyConfig) -> PoolingName:
        """The pooling with this model."""
        if model.architecture == "decoder":
            return "last"
        if model.sentence_grid is not None:
            return "cls"  # its only state is that of the document
        return self.pooling or ("cls" if getattr(model, "pooler", False) else "mean")

    def add_head(self, model: Any, dim: int) -> ClassificationModel:
        family: FamilyConfig = model.config
        pooling = self.pooling_of(family)
        return ClassificationModel(
            model,
            dim,
            1 if self.layout == "choice" else len(self.labels),
            dropout=self.head_dropout,
            read=READERS[family.architecture],
            pool=None if pooling == "cls" else POOLINGS[pooling](dim),
        )

    def problems_with(self, run: Any) -> list[Problem]:
        problems, pooling = vector_problems(run.model, self.name), self.pooling_of(run.model)
        if run.model.architecture == "decoder" and self.pooling not in (None, "last"):
            given = f"given {self.pooling!r}, but only the last token of a decoder attends to all others; expected 'last'"
            problems.append(Problem("task.pooling", given))
        if run.model.architecture == "encoder":
            problems += unused(run, {"task.auxiliary": "an encoder is no language model"})
        if run.model.sentence_grid is not None:
            problems += unused(run, {"task.pooling": f"family {run.model.family!r} has its own"})
            if self.layout != "classification":
                given = f"given {self.layout!r}, but family {run.model.family!r} reads one text; expected 'classification'"
                problems.append(Problem("task.layout", given))
        if not self.multi_label:
            problems += unused(run, {"data.label_separator": "task.multi_label is false"})
        if getattr(run.model, "pooler", False) and pooling != "cls":
            problems.append(Problem("model.pooler", f"given true, but task.pooling is {pooling!r}; expected 'cls'"))
        return problems
