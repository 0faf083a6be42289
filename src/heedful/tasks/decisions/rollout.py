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

from heedful.data.gridworld import Cell, GridWorld, cell_of, name_of
from heedful.data.trajectories import CELL, State, Trajectory
from heedful.evaluation.returns import MeanInterval, mean_interval, rank_correlation
from heedful.evaluation.tables import table
from heedful.nn.model import inference_context
from heedful.tasks.decisions.config import DecisionsConfig
from heedful.tasks.decisions.data import DecisionData, TrajectoryBatch
from heedful.tasks.decisions.model import DecisionModel
from heedful.tasks.system import System

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

    def probabilities(self, histories: TrajectoryBatch) -> NDArray[np.float64]:
        """Of the actions after histories of equal length, (rows, time) -> (rows, actions). The last action of a history is not
        read."""
        context = self.config.context
        batch = TrajectoryBatch(*(tensor[:, -context:] for tensor in histories)).to(self.system.device)
        with inference_context(self.model):
            logits = self.model(*batch)[:, -1].float()
        if not bool(logits.isfinite().all()):
            raise self.system.nonfinite_error(f"step {histories.actions.shape[1]} of an episode")
        chosen: NDArray[np.float64] = logits.double().softmax(-1).cpu().numpy()
        return chosen


def roll_out(
    policy: Policy, world: GridWorld, starts: Sequence[Cell], desired: float | None, *, seed: int = 0, greedy: bool = False
) -> list[Trajectory]:
    """An episode from each start; desired: None for a model without desired returns."""
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
    episodes = [Trajectory(str(number), [], [], []) for number in range(1, len(starts) + 1)]
    cells, active, actions = list(starts), list(range(len(starts))), policy.data.actions
    states = policy.data.encode_states([{CELL: name_of(cell)} for cell in world.starts], "the grid world")
    index = {cell: at for at, cell in enumerate(world.starts)}
    shape = len(starts), world.limit
    returns, visited, taken = torch.full(shape, desired), torch.zeros(shape, dtype=torch.int64), torch.zeros(shape).long()
    for step in range(world.limit):
        visited[active, step] = torch.tensor([index[cells[row]] for row in active])
        seen = slice(0, step + 1)
        numbers = torch.arange(step + 1).expand(len(active), -1)
        history = TrajectoryBatch(returns[active, seen], states[visited[active, seen]], taken[active, seen], numbers)
        probabilities = policy.probabilities(history)
        if draws is None:
            chosen = probabilities.argmax(-1)
        else:  # the first action whose cumulative probability exceeds the random number
            chosen = (probabilities.cumsum(-1) <= draws[active, step][:, None] * probabilities.sum(-1, keepdims=True)).sum(-1)
        still = []
        for row, choice in zip(active, chosen.tolist(), strict=True):
            action = actions[min(choice, len(actions) - 1)]
            state: State = {CELL: name_of(cells[row])}
            after = world.step(cells[row], action)
            for part, value in zip(episodes[row][1:], (state, action, after.reward), strict=True):
                part.append(value)  # type: ignore[attr-defined]
            taken[row, step], cells[row] = actions.index(action), after.cell
            if step + 1 < world.limit:
                returns[row, step + 1] = returns[row, step] - after.reward
            if not after.over:
                still.append(row)
        active = still
        if not active:
            break
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

    def text(self) -> str:
        compares = any(row.against is not None for row in self.rows)
        header = ("desired return", "reached (95% interval)", *(["other run"] if compares else []))
        lines = [header]
        for row in self.rows:
            desired = "none" if row.desired is None else f"{row.desired:.4g}"
            other = [] if row.against is None else [mean_interval(row.against).text()]
            lines.append((desired, row.interval.text(), *other))
        facts = f"highest possible {self.optimal:.3f}, training data: mean {self.data_mean:.3f}, best {self.data_best:.3f}"
        correlation = self.correlation
        ranks = "" if correlation is None else f"; rank correlation of desired and reached {correlation:.3f}"
        return f"{table(lines)}\n{len(self.rows[0].returns):,} episodes each; {facts}{ranks}"

    def to_dict(self) -> dict[str, Any]:
        rows = [
            {"desired": row.desired, "reached": row.interval.to_dict()}
            | ({} if row.against is None else {"against": mean_interval(row.against).to_dict()})
            for row in self.rows
        ]
        figures = {"optimal": self.optimal, "data_mean": self.data_mean, "data_best": self.data_best}
        return {"episodes": len(self.rows[0].returns), "rollouts": rows, **figures, "rank_correlation": self.correlation}


def returns_of(episodes: Sequence[Trajectory]) -> list[float]:
    return [float(sum(one.rewards)) for one in episodes]


def default_desired(data: DecisionData) -> list[float]:
    """Quantiles of the returns of the training data, without repetition."""
    found = np.quantile(returns_of(data.episodes("train")), QUANTILES)
    return sorted({round(float(value), 4) for value in found})


def start_cells(episodes: Sequence[Trajectory], count: int) -> list[Cell]:
    """The first cells of recorded episodes, repeated if there are fewer."""
    cells = [cell_of(str(one.states[0][CELL])) for one in episodes[:count]]
    return [cells[at % len(cells)] for at in range(count)]
