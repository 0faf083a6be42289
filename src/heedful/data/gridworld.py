"""A generated grid world with exact dynamics: walls, goals of different value, and a cost for each step.

    world = make_world(seed=0)
    world.step(cell, action)             (next cell, reward, whether the episode is over)
    world.optimal_returns()              the highest return from each cell: value iteration, which is exact here
    draw_episodes(0, "train", 100)       episodes of the behavior policy

A cell is named like a square of a chess board: b3 is the second column, third row. An action against a wall or the border does
not move the agent. Entering a goal gives its value and ends the episode; so does the last of `limit` steps.

The behavior policy is of mixed quality: in each episode it has a goal and a share of random actions, both drawn at random, and
otherwise takes a shortest path to that goal. So the returns of its episodes cover everything from wandering to the optimum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np

SIZE = 8  # rows and columns
WALLS = 14  # cells
VALUES = (1.0, 3.0, 6.0, 10.0)  # of the goals
STEP_COST = 0.2
LIMIT = 30  # steps of an episode
NOISE = (0.0, 0.25, 0.5, 1.0)  # shares of random actions of the behavior policy
NEAREST_GOALS = 4  # smallest distance of two goals, in rows and columns together
STREAMS = {"train": 0, "valid": 1, "test": 2}
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
ACTIONS = tuple(MOVES)

Cell = tuple[int, int]  # row, column
Distances = dict[Cell, int]  # steps from each cell


class Step(NamedTuple):
    cell: Cell  # after the action
    reward: float
    over: bool  # a goal was entered


class Episode(NamedTuple):
    cells: list[Cell]  # before each action
    actions: list[str]
    rewards: list[float]


class GridWorld(NamedTuple):
    free: frozenset[Cell]  # cells without a wall, goals included
    goals: Mapping[Cell, float]  # value of each
    limit: int = LIMIT

    @property
    def starts(self) -> list[Cell]:
        """The cells where an episode can start."""
        return sorted(self.free - self.goals.keys())

    def step(self, cell: Cell, action: str) -> Step:
        """The exact dynamics; the limit of steps is up to the caller."""
        down, right = MOVES[action]
        reached = cell[0] + down, cell[1] + right
        after = reached if reached in self.free else cell
        return Step(after, self.goals.get(after, 0.0) - STEP_COST, after in self.goals)

    def optimal_returns(self) -> dict[Cell, float]:
        """The highest return from each start: V_k(s) = max_a r + V_{k-1}(s'), k = steps that are left."""
        values = dict.fromkeys(self.starts, 0.0)
        for _ in range(self.limit):
            values = {
                cell: max(one.reward + (0.0 if one.over else values[one.cell]) for one in (self.step(cell, a) for a in ACTIONS))
                for cell in values
            }
        return values

    def distances(self, goal: Cell) -> Distances:
        """Steps from each cell to a goal, without entering another one: a search from the goal backward."""
        found, waiting = {goal: 0}, deque([goal])
        while waiting:
            row, column = waiting.popleft()
            for down, right in MOVES.values():
                cell = row + down, column + right
                if cell in self.free and cell not in found and cell not in self.goals:
                    found[cell] = found[row, column] + 1
                    waiting.append(cell)
        return found

    def to_dict(self) -> dict[str, Any]:
        walls = [name_of((row, column)) for row in range(SIZE) for column in range(SIZE) if (row, column) not in self.free]
        return {"size": SIZE, "walls": walls, "goals": {name_of(cell): value for cell, value in self.goals.items()}}

    def text(self) -> str:
        """The grid, one line per row: # is a wall, a number the value of a goal."""
        cells = ((row, column) for row in range(SIZE) for column in range(SIZE))
        marks = [f"{self.goals[cell]:g}" if cell in self.goals else "." if cell in self.free else "#" for cell in cells]
        rows = [" ".join(f"{mark:>2}" for mark in marks[at : at + SIZE]) for at in range(0, len(marks), SIZE)]
        header = "    " + " ".join(f"{letter:>2}" for letter in ascii_lowercase[:SIZE])
        return "\n".join([header, *(f"{number:>3} {row}" for number, row in enumerate(rows, start=1))])


def name_of(cell: Cell) -> str:
    return f"{ascii_lowercase[cell[1]]}{cell[0] + 1}"


def cell_of(name: str) -> Cell:
    """The inverse of `name_of`."""
    return int(name[1:]) - 1, ascii_lowercase.index(name[0])


@cache
def make_world(seed: int) -> GridWorld:
    """Walls and goals drawn at random, until every goal can be reached from every start without entering another goal."""
    generator = np.random.Generator(np.random.Philox(key=[seed, 2**32]))
    cells = [(row, column) for row in range(SIZE) for column in range(SIZE)]
    while True:
        order = [cells[at] for at in generator.permutation(len(cells))]
        free, goals = order[WALLS:], order[WALLS : WALLS + len(VALUES)]
        apart = all(
            abs(one[0] - other[0]) + abs(one[1] - other[1]) >= NEAREST_GOALS
            for at, one in enumerate(goals)
            for other in goals[:at]
        )
        world = GridWorld(frozenset(free), dict(zip(goals, VALUES, strict=True)))
        if apart and all(len(world.distances(goal)) == len(world.starts) + 1 for goal in goals):
            return world


def draw_episode(world: GridWorld, toward: Sequence[Distances], generator: np.random.Generator) -> Episode:
    """An episode of the behavior policy, from a random start; toward: the distances to each goal."""
    starts = world.starts
    cell, distances = starts[int(generator.integers(len(starts)))], toward[int(generator.integers(len(toward)))]
    noise = NOISE[int(generator.integers(len(NOISE)))]
    episode = Episode([], [], [])
    for _ in range(world.limit):
        action = ACTIONS[int(generator.integers(len(ACTIONS)))]
        if generator.random() >= noise:
            closer = [one for one in ACTIONS if distances.get(world.step(cell, one).cell, np.inf) < distances[cell]]
            action = closer[int(generator.integers(len(closer)))]
        step = world.step(cell, action)
        episode.cells.append(cell)
        episode.actions.append(action)
        episode.rewards.append(step.reward)
        if step.over:
            break
        cell = step.cell
    return episode


def draw_episodes(seed: int, split: str, count: int) -> list[Episode]:
    """The first `count` episodes of a split; episode n is a pure function of (seed, split, n)."""
    world = make_world(seed)
    toward = [world.distances(goal) for goal in world.goals]
    keys = ([seed, STREAMS[split] * 2**40 + number] for number in range(count))
    return [draw_episode(world, toward, np.random.Generator(np.random.Philox(key=key))) for key in keys]
