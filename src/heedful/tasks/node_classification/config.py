"""[task] of node classification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from heedful.config.base import Probability, Problem, refuse
from heedful.models.family import Architecture
from heedful.nn.model import EncoderModel
from heedful.tasks.base import TaskConfig
from heedful.tasks.node_classification.model import NodeModel
from heedful.training.train_state import Direction

MIN_LABELS = 2


class NodeClassificationConfig(TaskConfig):
    unit: ClassVar[str] = "examples"
    architectures: ClassVar[tuple[Architecture, ...]] = ("encoder",)
    name: Literal["node_classification"]
    """Task."""
    labels: tuple[str, ...] | Literal["auto"] = "auto"
    """The labels as in the data; auto: those of the training nodes, in alphabetical order."""
    features: tuple[str, ...] | Literal["auto"] = "auto"
    """Columns of the nodes that are features, with model.features; auto: all but those that [data] names."""
    attend: Literal["neighbors", "self", "all"] = "neighbors"
    """Nodes that a node attends to: itself and its neighbors, itself alone, so that edges have no effect, or all."""
    head_dropout: Probability = 0.1
    """Dropout before the output layer."""

    def model_post_init(self, context: Any) -> None:
        problems = []
        if self.labels != "auto" and (len(set(self.labels)) != len(self.labels) or len(self.labels) < MIN_LABELS):
            problems.append(Problem("labels", f"given {list(self.labels)!r}, expected two or more that differ"))
        if self.features != "auto" and len(set(self.features)) != len(self.features):
            problems.append(Problem("features", f"given {list(self.features)!r}, expected columns that differ"))
        refuse(problems)

    @property
    def known_labels(self) -> tuple[str, ...]:
        """The labels; as many as there are at least, as long as they are not collected."""
        return ("",) * MIN_LABELS if self.labels == "auto" else self.labels

    @property
    def metrics(self) -> Mapping[str, Direction]:
        return {"loss": "lower", "accuracy": "higher", "macro_f1": "higher", "calibration_error": "lower"}

    def add_head(self, model: EncoderModel, dim: int) -> NodeModel:
        return NodeModel(model, dim, len(self.known_labels), self.head_dropout)

    def problems_with(self, run: Any) -> list[Problem]:
        model, problems = run.model, []
        if model.sentence_grid is not None:
            return [Problem("model.family", f"given {model.family!r}, expected one of: bert, encoder")]
        position = getattr(model, "position", "none")
        if position != "none":
            problems.append(Problem("model.position", f"given {position!r}, but nodes have no order; expected 'none'"))
        if model.reads_spelling:
            problems.append(Problem("model.characters", "nodes have no spelling; expected 0"))
        for name, structure in model.structures.items():
            if structure.kind != "full":
                given = f"given {structure.kind!r}, but nodes have no positions; expected 'full'"
                problems.append(Problem(f"model.{name}.kind", given))
        other = getattr(model, "mixes_otherwise", None)
        if other is not None:
            given = f"given {other!r}, which depends on the order of the nodes; expected 'self-attention' only"
            problems.append(Problem("model.layers", given))
        if self.features not in ("auto", ()) and len(self.features) != model.numeric_inputs:
            given = f"given {model.numeric_inputs}, expected {len(self.features)}, the number of task.features"
            problems.append(Problem("model.features", given))
        if not model.numeric_inputs and run.tokenizer.kind != "spaces":
            given = f"given {run.tokenizer.kind!r}; without model.features each node is one token, expected 'spaces'"
            problems.append(Problem("tokenizer.kind", given))
        if model.numeric_inputs and run.data.token is not None:
            problems.append(Problem("data.token", "would have no effect: the inputs are features, model.features"))
        return problems
