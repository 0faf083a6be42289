"""Roll-outs: a model acts in a grid world, given a desired return, and what it reaches is compared with it.

R_1 = the desired return,  R_{t+1} = R_t - r_t

Actions are drawn by their probability, with random numbers keyed by (seed, episode), or the most probable one is taken. So the
result depends neither on other episodes nor on how many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.config.bounds import MAX_SIZE
from heedful.data.gridworld import Cell, GridWorld, cell_of, name_of
from heedful.data.trajectories import CELL, Trajectory
from heedful.errors import ConfigError
from heedful.evaluation.returns import MeanInterval, mean_interval, rank_correlation
from heedful.evaluation.tables import table
from heedful.nn.model import inference_context
from heedful.tasks.decisions.config import DecisionsConfig
from heedful.tasks.decisions.data import DecisionData, TrajectoryBatch
from heedful.tasks.decisions.model import DecisionModel
from heedful.tasks.system import System

Probabilities = NDArray[np.float64]  # (rows, actions)
CHUNK = 512  # episodes at a time
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)  # of the returns of the training data: the default desired returns


class Policy(NamedTuple):
    """A model that acts."""

    model: DecisionModel
    system: System
    data: DecisionData

    @property
    def config(self) -> DecisionsConfig:
        return self.data.config

    def probabilities(self, histories: TrajectoryBatch) -> Probabilities:
        """Of the actions after histories of equal length, (rows, time) -> (rows, actions). The last action of a history is not
        read."""
        context = self.config.context
        batch = TrajectoryBatch(*(tensor[:, -context:] for tensor in histories)).to(self.system.device)
        with inference_context(self.model):
            return self.normalize(self.model(*batch)[:, -1])

    def normalize(self, logits: Tensor) -> Probabilities:
        """Logits (rows, actions) -> probabilities."""
        if not bool(logits.isfinite().all()):
            raise self.system.nonfinite_error("a step of an episode")
        probabilities: Probabilities = logits.double().softmax(-1).cpu().numpy()
        return probabilities


class CachedHistories:
    """The keys and values of the steps so far of several episodes, so that a step reads only its own tokens."""

    def __init__(self, policy: Policy, rows: int, steps: int) -> None:
        self.policy, device = policy, policy.system.device
        self.action = torch.zeros(rows, 0, policy.model.states.out_features, device=device)  # vector of the last action
        empty = torch.zeros(rows, 0, dtype=torch.int64, device=device)
        with inference_context(policy.model):
            self.state = policy.model.body.start(empty, None, room=steps * policy.config.tokens_per_step)

    def probabilities(self, step: TrajectoryBatch) -> Probabilities:
        """Of the actions of the next step, all (rows, 1) -> (rows, actions)."""
        model = self.policy.model
        with inference_context(model):
            vectors = model.embed(*step.to(self.policy.system.device))[:, :-1]  # return and state
            hidden, self.state, _ = model.body.step(torch.cat((self.action.to(vectors), vectors), dim=1), self.state)
            return self.policy.normalize(model.decide(hidden[:, -1]))

    def append(self, step: TrajectoryBatch) -> None:
        """Add the actions that were taken in this step."""
        with inference_context(self.policy.model):
            self.action = self.policy.model.embed(*step.to(self.policy.system.device))[:, -1:]


def roll_out(
    policy: Policy, world: GridWorld, starts: Sequence[Cell], desired: float | None, *, seed: int = 0, greedy: bool = False
) -> list[Trajectory]:
    """An episode from each start; desired: None for a model without desired returns."""
    if desired is not None and not abs(desired) <= MAX_SIZE:  # NaN is none of both
        raise ConfigError(f"desired: given {desired:g}, expected a number within ±{MAX_SIZE:g}")
    found: list[Trajectory] = []
    for at in range(0, len(starts), CHUNK):
        rows = range(at, min(at + CHUNK, len(starts)))
        draws = np.stack([np.random.Generator(np.random.Philox(key=[seed, row])).random(world.limit) for row in rows])
        found += roll_out_chunk(policy, world, [starts[row] for row in rows], desired or 0.0, None if greedy else draws)
    return found


def roll_out_chunk(
    policy: Policy, world: GridWorld, starts: Sequence[Cell], desired: float, draws: NDArray[np.float64] | None
) -> list[Trajectory]:
    """draws (episodes, steps): random numbers, None: the most probable actions."""
    rows, limit, actions = len(starts), world.limit, policy.data.actions
    episodes = [Trajectory(str(number), [], [], []) for number in range(1, rows + 1)]
    known = policy.data.encode_states([{CELL: name_of(cell)} for cell in world.starts], "the grid world")
    index = {cell: at for at, cell in enumerate(world.starts)}
    numbers = torch.arange(limit).expand(rows, -1)
    history = TrajectoryBatch(
        torch.full((rows, limit), desired), torch.zeros(rows, limit, known.shape[1]), torch.zeros_like(numbers), numbers
    )
    cached = CachedHistories(policy, rows, min(limit, policy.config.context))
    cells, active = list(starts), list(range(rows))  # episodes that are over stay in the batch and are ignored
    for step in range(limit):
        history.states[active, step] = known[[index[cells[row]] for row in active]]
        now = TrajectoryBatch(*(tensor[:, step : step + 1] for tensor in history))
        if step < policy.config.context:
            probabilities = cached.probabilities(now)
        else:  # the window moves on, and with it what the first of its steps attend to
            probabilities = policy.probabilities(TrajectoryBatch(*(tensor[:, : step + 1] for tensor in history)))
        if draws is None:
            chosen = probabilities.argmax(-1)
        else:  # the first action whose cumulative probability exceeds the random number
            chosen = (probabilities.cumsum(-1)[:, :-1] <= draws[:, step : step + 1]).sum(-1)
        still = []
        for row in active:
            action, cell = actions[int(chosen[row])], cells[row]
            after = world.step(cell, action)
            episodes[row].states.append({CELL: name_of(cell)})
            episodes[row].actions.append(action)
            episodes[row].rewards.append(after.reward)
            history.actions[row, step], cells[row] = int(chosen[row]), after.cell
            if step + 1 < limit:
                history.returns[row, step + 1] = history.returns[row, step] - after.reward
            if not after.over:
                still.append(row)
        active = still
        if not active:
            break
        cached.append(now)
    return episodes


class Reached(NamedTuple):
    """The returns of roll-outs for one desired return."""

    desired: float | None
    returns: list[float]  # of each episode
    against: list[float] | None = None  # of another run, from the same starts

    @property
    def interval(self) -> MeanInterval:
        return mean_interval(self.returns)


@dataclass(frozen=True)
class RolloutReport:
    """The result of roll-outs for several desired returns, all from the same starts."""

    rows: list[Reached]
    optimal: float  # mean of the highest possible returns from these starts
    data_mean: float  # return of an episode of the training data
    data_best: float

    @property
    def correlation(self) -> float | None:
        """Spearman's rank correlation of desired returns and mean reached returns; None: fewer than three."""
        desired = [row.desired for row in self.rows if row.desired is not None]
        return rank_correlation(desired, [row.interval.mean for row in self.rows]) if len(desired) > 2 else None

    @property
    def within_intervals(self) -> bool:
        """Whether one value lies in the intervals of all reached returns: then their order may be chance."""
        intervals = [row.interval for row in self.rows]
        return max(one.low for one in intervals) <= min(one.high for one in intervals)

    def text(self) -> str:
        return f"{table(self.table_rows())}\n{self.facts()}"

    def table_rows(self) -> list[tuple[str, ...]]:
        """With a header; a column for another run, if there is one."""
        compares = self.rows[0].against is not None
        lines: list[tuple[str, ...]] = [("desired return", "reached (95% interval)", *(["other run"] if compares else []))]
        for row in self.rows:
            desired = "none" if row.desired is None else f"{row.desired:.4g}"
            other = [] if row.against is None else [mean_interval(row.against).text()]
            lines.append((desired, row.interval.text(), *other))
        return lines

    def facts(self) -> str:
        """What the returns are to be compared with."""
        facts = f"highest possible {self.optimal:.3f}, training data: mean {self.data_mean:.3f}, best {self.data_best:.3f}"
        correlation = self.correlation
        ranks = "" if correlation is None else f"; rank correlation of desired and reached {correlation:.3f}"
        if correlation is not None and self.within_intervals:
            ranks += ", but the reached returns are within each other's intervals: no dependence on the desired return is shown"
        return f"{len(self.rows[0].returns):,} episodes each; {facts}{ranks}"

    def to_dict(self) -> dict[str, Any]:
        rows = [
            {"desired": row.desired, "reached": row.interval.to_dict()}
            | ({} if row.against is None else {"against": mean_interval(row.against).to_dict()})
            for row in self.rows
        ]
        ranks = {"rank_correlation": self.correlation, "within_intervals": self.within_intervals}
        figures = {"optimal": self.optimal, "data_mean": self.data_mean, "data_best": self.data_best}
        return {"episodes": len(self.rows[0].returns), "rollouts": rows, **figures, **ranks}


def returns_of(episodes: Sequence[Trajectory]) -> list[float]:
    return [float(sum(one.rewards)) for one in episodes]


def default_desired(data: DecisionData) -> list[float]:
    """Quantiles of the returns of the training data, without repetition."""
    found = np.quantile(returns_of(data.episodes("train")), QUANTILES)
    return sorted({round(float(value), 4) for value in found})


def start_cells(episodes: Sequence[Trajectory], count: int) -> list[Cell]:
    """The first cells of recorded episodes, repeated if there are fewer."""
    if count < 1:
        raise ConfigError(f"episodes: given {count}, expected at least 1")
    cells = [cell_of(str(one.states[0][CELL])) for one in episodes[:count]]
    return [cells[at % len(cells)] for at in range(count)]
