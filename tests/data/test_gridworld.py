"""The grid world: its dynamics against the drawn map, the optimum against shortest paths, and the episodes of its data."""

from __future__ import annotations

import numpy as np
import pytest

from heedful.data.gridworld import ACTIONS, SIZE, STEP_COST, cell_of, draw_episodes, make_world, name_of
from heedful.data.trajectories import Trajectory

SEEDS = (0, 1, 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_step_is_what_the_map_shows(seed: int) -> None:
    world = make_world(seed)
    marks = [line[3:].split() for line in world.text().splitlines()[1:]]
    tried = 0
    for cell in world.starts:
        assert marks[cell[0]][cell[1]] == "." and cell_of(name_of(cell)) == cell
        for action in ACTIONS:
            row, column = {
                "up": (cell[0] - 1, cell[1]),
                "down": (cell[0] + 1, cell[1]),
                "left": (cell[0], cell[1] - 1),
                "right": (cell[0], cell[1] + 1),
            }[action]
            mark = marks[row][column] if 0 <= row < SIZE and 0 <= column < SIZE else "#"
            after, reward, over = world.step(cell, action)
            assert after == (cell if mark == "#" else (row, column))
            assert over == mark.isdecimal() and reward == pytest.approx((float(mark) if over else 0.0) - STEP_COST)
            tried += 1
    assert tried == 4 * len(world.starts) > 100


@pytest.mark.parametrize("seed", SEEDS)
def test_the_highest_return_is_that_of_the_best_shortest_path(seed: int) -> None:
    """By brute force: walks of every length as sets of cells, which end at goals."""
    world = make_world(seed)
    for cell, value in world.optimal_returns().items():
        found, reached = [-STEP_COST * world.limit], {cell}
        for steps in range(1, world.limit + 1):
            moves = [world.step(one, action) for one in reached for action in ACTIONS]
            found += [world.goals[move.cell] - STEP_COST * steps for move in moves if move.over]
            reached = {move.cell for move in moves if not move.over}
        assert value == pytest.approx(max(found))


def test_an_episode_follows_the_dynamics_and_is_a_function_of_seed_split_and_number() -> None:
    world, episodes = make_world(0), draw_episodes(0, "train", 60)
    assert episodes[:7] == draw_episodes(0, "train", 7)
    assert episodes[:7] != draw_episodes(0, "valid", 7) and episodes[:7] != draw_episodes(1, "train", 7)
    for cells, actions, rewards in episodes:
        for at, (cell, action, reward) in enumerate(zip(cells, actions, rewards, strict=True)):
            step = world.step(cell, action)
            assert step.reward == reward and step.over <= (at == len(cells) - 1)
            assert step.over or at == len(cells) - 1 or step.cell == cells[at + 1]
        assert len(cells) == world.limit or world.step(cells[-1], actions[-1]).over
    returns = [sum(episode.rewards) for episode in episodes]
    assert min(returns) == pytest.approx(-STEP_COST * world.limit) and max(returns) > 8


def test_the_return_to_go_is_the_sum_of_all_rewards_from_a_step_on() -> None:
    rewards = np.random.default_rng(0).normal(size=9).tolist()
    found = Trajectory("1", [{}] * 9, ["up"] * 9, rewards).returns
    assert found.tolist() == pytest.approx([sum(rewards[at:]) for at in range(9)])
