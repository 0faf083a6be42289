"""[task] of decisions: the sequence of a step, and how many steps the model attends to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from heedful.config.base import Problem, Size, refuse
from heedful.models.family import Architecture
from heedful.nn.model import SequenceModel
from heedful.tasks.base import TaskConfig
from heedful.tasks.decisions.model import DecisionModel
from heedful.training.train_state import Direction


class DecisionsConfig(TaskConfig):
    unit: ClassVar[str] = "actions"
    architectures: ClassVar[tuple[Architecture, ...]] = ("decoder",)
    name: Literal["decisions"]
    """Task."""
    condition: Literal["return", "none"] = "return"
    """What actions are conditioned on besides the history: the desired return, or nothing (behavior cloning)."""
    context: Size = 30
    """Steps that the model attends to; longer episodes are cut into windows."""
    max_steps: Size = 128
    """Steps of an episode with an embedding of their own; later ones share the last."""
    actions: tuple[str, ...] | Literal["auto"] = "auto"
    """Actions to choose from; auto: those of the training data."""
    features: tuple[str, ...] | Literal["auto"] = "auto"
    """Numbers that a state consists of: a column, or column=name for each value of a categorical one; auto: those of the
    training data."""

    def model_post_init(self, context: Any) -> None:
        given = {"actions": self.actions, "features": self.features}
        wrong = {name: values for name, values in given.items() if values != "auto" and len(set(values)) != len(values)}
        problems = [Problem(name, f"given {list(values)!r}, expected values that differ") for name, values in wrong.items()]
        if self.actions != "auto" and len(self.actions) < 2:
            problems.append(Problem("actions", f"given {list(self.actions)!r}, expected two or more"))
        refuse(problems)

    @property
    def tokens_per_step(self) -> int:
        return 3 if self.condition == "return" else 2

    @property
    def known_actions(self) -> tuple[str, ...]:
        """The actions; two as long as they are not read from the data."""
        return ("0", "1") if self.actions == "auto" else self.actions

    @property
    def known_features(self) -> tuple[str, ...]:
        """The numbers of a state; one as long as they are not read from the data."""
        return ("",) if self.features == "auto" else self.features

    @property
    def metrics(self) -> Mapping[str, Direction]:
        return {"loss": "lower", "accuracy": "higher"}

    def add_head(self, model: SequenceModel, dim: int) -> DecisionModel:
        return DecisionModel(model, dim, self)

    def problems_with(self, run: Any) -> list[Problem]:
        problems = []
        if not run.model.numeric_inputs:
            problems.append(Problem("model.inputs", "given 'tokens'; expected 'vectors', since the task embeds its inputs"))
        needed = self.context * self.tokens_per_step
        if getattr(run.model, "position", "none") == "learned" and run.model.max_positions < needed:
            given = f"given {run.model.max_positions}, expected at least {needed}: task.context x {self.tokens_per_step} tokens"
            problems.append(Problem("model.max_positions", given))
        return problems
