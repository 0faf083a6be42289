"""The result of `heed evaluate`: how well recorded actions are predicted, and what roll-outs reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heedful.evaluation.returns import MeanInterval
from heedful.evaluation.tables import table
from heedful.tasks.decisions.rollout import RolloutReport


@dataclass(frozen=True)
class DecisionReport:
    split: str
    steps: int
    figures: dict[str, float]
    most_frequent: float  # accuracy of the most frequent action of the training data
    rollouts: RolloutReport | None  # None: the dynamics are not known
    recorded: MeanInterval | None = None  # return of the recorded episodes; None: not asked for
    warnings: Sequence[str] = ()

    def text(self) -> str:
        rows = [("figure", self.split), ("steps", f"{self.steps:,}")]
        rows += [(name, f"{value:.4g}") for name, value in self.figures.items()]
        rows.append(("accuracy of the most frequent action", f"{self.most_frequent:.4g}"))
        if self.recorded is not None:
            rows.append(("return of the recorded episodes (95% interval)", self.recorded.text()))
        shown = table(rows)
        return shown if self.rollouts is None else f"{shown}\n\n{self.rollouts.text()}"

    def to_dict(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"split": self.split, "steps": self.steps, "figures": self.figures}
        shown["baselines"] = {"most frequent action": {"accuracy": self.most_frequent}}
        if self.recorded is not None:
            shown["baselines"]["recorded episodes"] = {"return": self.recorded.to_dict()}
        return shown if self.rollouts is None else shown | self.rollouts.to_dict()
