"""The data of decisions: the steps of all episodes as tensors, and windows of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from heedful.data.gridworld import ACTIONS, name_of
from heedful.data.report import CheckReport
from heedful.data.sources import refuse_streams
from heedful.data.trajectories import (
    CELL,
    State,
    TrajectoriesConfig,
    Trajectory,
    check_split,
    find_source,
    read_episodes,
    splits_with_data,
)
from heedful.errors import DataError, nearest
from heedful.tasks.base import ExampleFile, RunConfig, Tokenizers, format_rows
from heedful.tasks.decisions.config import DecisionsConfig
from heedful.tasks.decisions.model import PADDING
from heedful.tasks.predictor import missing_split_error

POOL = 16  # batches whose windows are sorted by length, so that little is padded


class TrajectoryBatch(NamedTuple):
    """Windows of episodes, padded at the end."""

    returns: Tensor  # (rows, time): return-to-go
    states: Tensor  # (rows, time, features)
    actions: Tensor  # (rows, time): index, or PADDING
    steps: Tensor  # (rows, time): number in the episode, from 0

    def pin(self) -> TrajectoryBatch:
        return TrajectoryBatch(*(tensor.pin_memory() for tensor in self))

    def to(self, device: torch.device) -> TrajectoryBatch:
        return TrajectoryBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


class Window(NamedTuple):
    """Some steps of an episode."""

    first: int  # index of its first step among those of all episodes
    size: int
    step: int  # number of that step in the episode


class EncodedEpisodes(NamedTuple):
    """The steps of all episodes, one after the other."""

    returns: Tensor  # (steps,)
    states: Tensor  # (steps, features)
    actions: Tensor  # (steps,)
    lengths: list[int]  # steps of each episode

    def windows(self, context: int, *, seed: int = 0, epoch: int | None = None) -> list[Window]:
        """Cut every episode into windows of at most `context` steps. Where the first one ends is drawn by (seed, epoch), so
        that windows differ between epochs; without an epoch, all but the last are full."""
        draws = np.zeros(len(self.lengths), np.int64)
        if epoch is not None:
            draws = np.random.Generator(np.random.Philox(key=[seed, 2**41 + epoch])).integers(0, context, len(self.lengths))
        found, first = [], 0
        for length, draw in zip(self.lengths, draws.tolist(), strict=True):
            cuts = [0, *(range(draw or context, length, context) if length > context else ()), length]
            found += [Window(first + at, end - at, at) for at, end in pairwise(cuts)]
            first += length
        return found

    def batch(self, windows: Sequence[Window], multiple: int = 1) -> TrajectoryBatch:
        """multiple: the number of steps is padded to a multiple of this."""
        longest = -(-max(window.size for window in windows) // multiple) * multiple
        firsts, sizes, steps = (torch.tensor(column)[:, None] for column in zip(*windows, strict=True))
        places = torch.arange(longest)[None]  # (1, time)
        at = firsts + torch.minimum(places, sizes - 1)  # padding repeats the last step
        return TrajectoryBatch(
            self.returns[at], self.states[at], self.actions[at].masked_fill(places >= sizes, PADDING), steps + places
        )


class EpisodeSplits(NamedTuple):
    train: EncodedEpisodes
    valid: EncodedEpisodes
    names: Tensor  # (features,): whether a number of the state stands for a name


class DecisionData:
    def __init__(self, run: RunConfig) -> None:
        self.config: DecisionsConfig = run.task
        self.data: TrajectoriesConfig = run.data
        self.found: dict[str, list[Trajectory]] = {}  # by split

    def check(self) -> CheckReport:
        """Read every file once; report the episodes of each split, and refuse unknown actions and states."""
        refuse_streams(self.files())
        splits = list(splits_with_data(self.data))
        report = CheckReport(tuple(check_split(self.data, split, source) for split, source in splits))
        for split, _ in splits:
            self.encode(self.episodes(split), f"the {split} data")
        return report

    def files(self) -> list[Path]:
        found = [source.path for _, source in splits_with_data(self.data) if isinstance(source.path, Path)]
        return list(dict.fromkeys(found))

    def lines(self, side: Literal["source", "target"]) -> Iterator[str]:
        """Episodes have no text; the vocabulary is that of the actions, each twice: words that occur once are left out."""
        yield from (*self.actions, *self.actions) if side == "target" else ()

    @property
    def tags(self) -> list[str]:
        return []

    def episodes(self, split: str) -> list[Trajectory]:
        """The episodes of a split of the run's data."""
        source = find_source(self.data, split)
        if source is None:
            raise missing_split_error(split)
        if split not in self.found:
            self.found[split] = read_episodes(self.data, source).episodes
        return self.found[split]

    @cached_property
    def actions(self) -> tuple[str, ...]:
        if self.config.actions != "auto":
            return self.config.actions
        if self.data.grid_world is not None:
            return ACTIONS
        return tuple(sorted({action for one in self.episodes("train") for action in one.actions}))

    @cached_property
    def features(self) -> tuple[str, ...]:
        """The numbers of a state: those of the training data, or of all cells of a grid world."""
        if self.config.features != "auto":
            return self.config.features
        world = self.data.grid_world
        if world is not None:
            return tuple(feature_of(CELL, name_of(cell)) for cell in world.starts)
        names: dict[str, set[str]] = {}
        for state in (state for one in self.episodes("train") for state in one.states):
            for column, value in state.items():
                names.setdefault(column, set()).update([value] if isinstance(value, str) else [])
        found = ([feature_of(column, one) for one in sorted(values)] or [column] for column, values in names.items())
        return tuple(feature for features in found for feature in features)

    def encode_states(self, states: Sequence[State], place: str) -> Tensor:
        """(steps, features); an unknown name or column is an error."""
        features = {feature: at for at, feature in enumerate(self.features)}
        encoded = np.zeros((len(states), len(features)), np.float32)
        for row, state in enumerate(states):
            for column, value in state.items():
                feature = feature_of(column, value) if isinstance(value, str) else column
                if feature not in features:
                    raise unknown_error(f"state {feature!r}", feature, tuple(features), f"{place}, step {row + 1}")
                encoded[row, features[feature]] = 1.0 if isinstance(value, str) else value
        return torch.from_numpy(encoded)

    def encode_actions(self, actions: Sequence[str], place: str) -> Tensor:
        """(steps,); an unknown action is an error."""
        known = {action: at for at, action in enumerate(self.actions)}
        for number, action in enumerate(actions, start=1):
            if action not in known:
                raise unknown_error(f"action {action!r}", action, tuple(known), f"{place}, step {number}")
        return torch.tensor([known[action] for action in actions], dtype=torch.int64)

    def encode(self, episodes: Sequence[Trajectory], place: str) -> EncodedEpisodes:
        joined: list[tuple[Tensor, Tensor, Tensor]] = []
        for one in episodes:
            where = f"{place}, episode {one.name!r:.40}"
            returns = torch.from_numpy(one.returns.astype(np.float32))
            joined.append((returns, self.encode_states(one.states, where), self.encode_actions(one.actions, where)))
        returns, states, actions = (torch.cat(parts) for parts in zip(*joined, strict=True))
        return EncodedEpisodes(returns, states, actions, [len(one.actions) for one in episodes])

    def prepare(self, tokenizers: Tokenizers, report: CheckReport) -> EpisodeSplits:
        train, valid = (self.encode(self.episodes(split), f"the {split} data") for split in ("train", "valid"))
        named = tuple(f"{column}=" for column in self.data.named_columns)
        return EpisodeSplits(train, valid, torch.tensor([feature.startswith(named) for feature in self.features]))

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        """A usage example and the limits of the model, for its card."""
        episode = self.episodes("train")[0]
        state = episode.states[0]
        shown = repr(next(iter(state.values())) if len(state) == 1 else list(state.values()))
        desired = f", desired={episode.returns[0]:.4g}" if self.config.condition == "return" else ""
        usage = f'decision_maker = heedful.load("{folder}")\nprint(decision_maker.act([{shown}]{desired}).probabilities)'
        limits = f"It attends to the last {self.config.context} steps, and knows the actions {', '.join(self.actions):.200}"
        return usage, f"{limits}. A desired return beyond those of the training data is extrapolation."


def feature_of(column: str, name: str) -> str:
    """The number of a state that is 1 for this name in a categorical column, else 0."""
    return f"{column}={name}"


def unknown_error(what: str, given: str, known: Sequence[str], place: str) -> DataError:
    close = nearest(given, known)
    return DataError(
        f"{place} has the {what:.60}, which the training data does not have; expected one of: {', '.join(known):.200}",
        hint=f"did you mean {close!r}?" if close else None,
    )


def resolve(run: RunConfig) -> dict[str, object]:
    """The actions and the numbers of a state, where they are "auto"."""
    data = DecisionData(run)
    refuse_streams(data.files())
    actions = data.actions
    if len(actions) < 2:
        raise DataError(f"the training data has the action {actions[0]!r} only; expected two or more actions")
    return {"task.actions": actions, "task.features": data.features}


def format_examples(examples: Iterable[Any]) -> ExampleFile:
    """Steps as dictionaries, {"episode": 1, "step": 0, "x": 0.5, "action": "up", "reward": 0}, as a comma-separated table."""
    return format_rows(examples, "a step")
