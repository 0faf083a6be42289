"""Returns that roll-outs reach against the returns that were desired, of a run of task "decisions".

desired return  reached (95% interval)    other run
1.6             1.560 (1.378 to 1.742)    2.325 (1.857 to 2.793)
6.2             5.721 (5.565 to 5.877)    2.325 (1.857 to 2.793)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heedful.errors import ConfigError
from heedful.evaluation.returns import mean_interval
from heedful.inspection.drawing.charts import Interval, interval_chart
from heedful.inspection.drawing.figure import Figure
from heedful.inspection.page.blocks import Block, Pictures, Table, Words, sentence
from heedful.inspection.result import Result
from heedful.tasks.decisions.predictor import DecisionMaker
from heedful.tasks.decisions.rollout import RolloutReport
from heedful.tasks.predictor import Predictor


@dataclass(frozen=True)
class ReturnsResult(Result):
    """The result of `returns`.

    >>> result = heedful.inspection.returns(heedful.load(decisions_run), [1, 4], episodes=5)
    >>> [row.desired for row in result.rollouts.rows]
    [1.0, 4.0]
    """

    rollouts: RolloutReport

    @property
    def title(self) -> str:
        return "Reached and desired returns"

    def to_dict(self) -> dict[str, Any]:
        return self.rollouts.to_dict()

    def text(self) -> str:
        return self.rollouts.text()

    def blocks(self) -> list[Block]:
        return [
            Pictures([self.figure()]),
            Table(self.rollouts.table_rows(), self.title),
            Words(sentence(self.rollouts.facts())),
        ]

    def figure(self) -> Figure:
        """Reached returns with 95% intervals; lines where both are equal, at the mean of the training data, at the highest
        possible mean, and at the mean of another run."""
        rows = [row for row in self.rollouts.rows if row.desired is not None]
        points = [Interval(float(row.desired or 0.0), *row.interval) for row in rows]
        lines = {"mean of the training data": self.rollouts.data_mean, "highest possible": self.rollouts.optimal}
        others = [Interval(float(row.desired or 0.0), *mean_interval(row.against)) for row in rows if row.against is not None]
        return interval_chart(points, self.title, ("desired return", "reached return"), lines, others)


def returns(
    predictor: Predictor,
    desired: Sequence[float] | None = None,
    episodes: int = 100,
    *,
    against: Predictor | None = None,
    greedy: bool = False,
) -> ReturnsResult:
    """Roll out episodes in the run's grid world for each desired return, all from the same starts.

    desired: default: quantiles of the returns of the training data. against: another run, such as one that clones the behavior
    of the data. greedy: take the most probable action; default: actions are drawn by their probability.

    >>> result = heedful.inspection.returns(heedful.load(decisions_run), [1, 4], episodes=5)
    >>> len(result.rollouts.rows[0].returns)
    5
    """
    maker = DecisionMaker.of(predictor)
    if maker.config.condition == "none":
        raise ConfigError("the run has no desired returns: it was trained with task.condition = 'none'")
    other = None if against is None else DecisionMaker.of(against)
    return ReturnsResult(maker.compare(desired, episodes, greedy=greedy, against=other))
