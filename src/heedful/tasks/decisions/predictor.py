"""A trained decision maker: heedful.load("runs/decisions-toy-gridworld").act(["a1"], desired=9).action -> "down"."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast, overload

import numpy as np
import torch
from torch import Tensor

from heedful.data.gridworld import GridWorld
from heedful.data.input_lines import checked_chunks, chunk_lines, refuse_too_long
from heedful.data.json_text import parse_json
from heedful.data.row_files import RowTable
from heedful.data.samples import Sample
from heedful.data.trajectories import (
    BrokenRow,
    State,
    Trajectory,
    TrajectorySource,
    find_source,
    parse_number,
    parse_state,
    read_episodes,
)
from heedful.errors import ConfigError, DataError, lookup
from heedful.evaluation.returns import mean_interval
from heedful.nn.model import inference_context
from heedful.search import SearchConfig
from heedful.tasks.decisions import forced
from heedful.tasks.decisions.command import EvaluateOptions
from heedful.tasks.decisions.config import DecisionsConfig
from heedful.tasks.decisions.data import DecisionData, EncodedEpisodes, TrajectoryBatch
from heedful.tasks.decisions.model import PADDING, DecisionModel, action_losses
from heedful.tasks.decisions.report import DecisionReport
from heedful.tasks.decisions.rollout import (
    Policy,
    Reached,
    RolloutReport,
    default_desired,
    returns_of,
    roll_out,
    start_cells,
)
from heedful.tasks.encoded_example import Decoded, EncodedExample
from heedful.tasks.forced import ForcedBatch
from heedful.tasks.predictor import ExampleInput, Loader, Predictor, Searcher, ValidationResult, check_split, refuse_empty
from heedful.tasks.system import System

Input = str | Mapping[str, Any]  # a history, as JSON or as a dictionary
KEYS = ("desired", "states", "actions", "rewards")
WINDOWS = 256  # windows that are evaluated at a time


class History(NamedTuple):
    """What is known before a decision."""

    states: list[State]  # up to now
    actions: list[str]  # before now
    returns: list[float]  # that remain to be reached, of each step; 0 where nothing is desired


class Decision(NamedTuple):
    """The probability of each action."""

    action: str  # the most probable
    probabilities: dict[str, float]

    @property
    def text(self) -> str:
        return self.action

    def rows(self) -> list[str]:
        return [f"{self.action}\t{self.probabilities[self.action]:.4f}"]

    def to_dict(self) -> dict[str, Any]:
        return {"action": self.action, "probabilities": self.probabilities}


class DecisionMaker(Predictor):
    """A trained model of decisions.

    >>> decision_maker = heedful.DecisionMaker.load(decisions_run)
    >>> decision = decision_maker.act(["a1", "a2"], ["down"], [-0.2], desired=9)
    >>> sorted(decision.probabilities)
    ['down', 'left', 'right', 'up']
    """

    phases: ClassVar[tuple[str, ...]] = ("training step", "prediction")
    reads_text: ClassVar[bool] = False

    @property
    def positions(self) -> int:
        longest: int = self.run.task.context * self.run.task.tokens_per_step
        return longest

    @property
    def decider(self) -> DecisionModel:
        """The model with its head."""
        return cast(DecisionModel, self.model)

    @property
    def config(self) -> DecisionsConfig:
        config: DecisionsConfig = self.run.task
        return config

    @cached_property
    def trajectories(self) -> DecisionData:
        return DecisionData(self.run)

    @property
    def policy(self) -> Policy:
        return Policy(self.decider, self.system, self.trajectories)

    @property
    def input_names(self) -> Sequence[str]:
        return ["history"]

    def act(
        self,
        states: Sequence[Any],
        actions: Sequence[str] = (),
        rewards: Sequence[float] = (),
        *,
        desired: float | None = None,
    ) -> Decision:
        """The next action. states: all up to now, each a value, a list of values, or a dictionary of columns; actions, rewards:
        of the steps before; desired: the return to reach from the first step on."""
        given = {"states": states, "actions": actions, "rewards": rewards}
        (decision,) = self.predictions([given if desired is None else {**given, "desired": desired}])
        return decision

    def rollout(
        self, desired: float | None = None, episodes: int = 1, *, split: str = "test", seed: int = 0, greedy: bool = False
    ) -> list[Trajectory]:
        """Episodes in the run's grid world, from the first states of a split; desired: the return to reach, needed unless
        task.condition is "none"; seed: of the actions, which are drawn by their probability, unless greedy."""
        world = self.world
        self.check_desired(desired, "the roll-out")
        check_split(self.run.data, split)
        starts = start_cells(self.trajectories.episodes(split), episodes)
        return roll_out(self.policy, world, starts, desired, seed=seed, greedy=greedy)

    @property
    def world(self) -> GridWorld:
        world: GridWorld | None = self.run.data.grid_world
        if world is None:
            raise ConfigError("the run's data has no grid world, so that nothing can be rolled out", hint="set data.world")
        return world

    def check_desired(self, desired: float | None, place: str) -> None:
        if self.config.condition == "return" and desired is None:
            raise DataError(f"{place} has no desired return; expected a number, as the run is conditioned on it")
        if self.config.condition == "none" and desired is not None:
            raise DataError(f"{place} has a desired return, which has no effect: the run was trained with condition 'none'")

    @overload
    def predict(self, inputs: Input, **options: Any) -> str: ...
    @overload
    def predict(self, inputs: Sequence[Input], **options: Any) -> list[str]: ...
    def predict(self, inputs: Input | Sequence[Input], **options: Any) -> str | list[str]:
        """The action after one history, or after each of several; a history is JSON or a dictionary."""
        found: str | list[str] = self.apply(inputs, lambda prediction: prediction.text, **options)
        return found

    def predictions(self, texts: Iterable[Input], **options: Any) -> Iterator[Decision]:
        """Yield the decision after each history."""
        if options:
            raise ConfigError(f"given {next(iter(options))!r}, but decisions have no options")
        return self.decide_chunks(chunk_lines(texts))

    def predict_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        config: SearchConfig,
        options: Any,
        unknown: dict[str, int],
        first: int = 1,
    ) -> Iterator[Decision]:
        return self.decide_chunks(chunks, first)

    def decide_chunks(self, chunks: Iterable[Sequence[Input]], first: int = 1) -> Iterator[Decision]:
        policy = self.policy
        for _, histories in checked_chunks(chunks, partial(self.read_input, policy.data), first):
            for history in histories:
                row = policy.probabilities(self.encode_history(policy.data, history))[0]
                probabilities = dict(zip(policy.data.actions, row.tolist(), strict=True))
                yield Decision(policy.data.actions[int(row.argmax())], probabilities)

    def read_input(self, data: DecisionData, given: Input, number: int) -> History:
        """The history of an input; DataError if it is none."""
        place = f"history {number}"
        if isinstance(given, str):
            refuse_too_long(given, place)
            self.refuse_path(given, place)
            given = parse_json(given, place, hint='write one object per line: {"desired": 9, "states": ["a1"]}')
        if not isinstance(given, Mapping) or not set(given) <= set(KEYS) or "states" not in given:
            raise DataError(
                f"{place} is {given!r:.60}; expected an object with states, and optionally actions, rewards, desired"
            )
        states, actions, rewards = (list_of(given, name, place) for name in KEYS[1:])
        if not states or not len(states) - 1 == len(actions) == len(rewards):
            raise DataError(
                f"{place} has {len(states)} states, {len(actions)} actions and {len(rewards)} rewards; expected one state more "
                "than actions, and as many rewards as actions"
            )
        desired = given.get("desired")
        self.check_desired(desired, place)
        try:
            total = 0.0 if desired is None else parse_number(desired, "'desired'")
            numbers = [parse_number(reward, f"reward {at}") for at, reward in enumerate(rewards, start=1)]
            parsed = [parse_state(self.state_cells(state), self.run.data.named_columns) for state in states]
        except BrokenRow as problem:
            raise DataError(f"{place}: {problem}") from None
        returns = total - np.cumsum([0.0, *numbers])
        history = History(
            parsed, [str(action) for action in actions], returns.tolist() if desired is not None else [0.0] * len(states)
        )
        self.encode_history(data, history, place)
        return history

    def state_cells(self, state: Any) -> dict[str, Any]:
        """The values of a state by column; given a value, a list of values, or a dictionary."""
        columns: tuple[str, ...] = self.run.data.state_columns
        if isinstance(state, Mapping):
            cells = dict(state)
        elif isinstance(state, list | tuple | np.ndarray) and len(columns) > 1:
            cells = dict(zip(columns, state, strict=False)) if len(state) == len(columns) else {}
        else:
            cells = {columns[0]: list(state) if isinstance(state, tuple | np.ndarray) else state} if len(columns) == 1 else {}
        if set(cells) != set(columns):
            raise BrokenRow(f"the state is {state!r:.60}; expected a value for each of: {', '.join(columns)}")
        return cells

    def encode_history(self, data: DecisionData, history: History, place: str = "the history") -> TrajectoryBatch:
        """A row; the action that is predicted is padding."""
        states = data.encode_states(history.states, place)
        if any(len(state) != len(history.states[0]) for state in history.states) or not states.shape[1]:
            raise DataError(f"{place} has states of different length; expected the same values in each")
        actions = torch.cat((data.encode_actions(history.actions, place), torch.tensor([PADDING])))
        returns = torch.tensor(history.returns, dtype=torch.float32)
        return TrajectoryBatch(*(part[None] for part in (returns, states, actions, torch.arange(len(actions)))))

    def split_episodes(self, split: str) -> EncodedEpisodes:
        check_split(self.run.data, split)
        data = self.trajectories
        return data.encode(data.episodes(split), f"the {split} data")

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Loss and accuracy of the actions, on a split of the run's data."""
        with inference_context(self.decider):
            return figures_of(self.decider, self.system, self.split_episodes(split), self.config)

    def compare(
        self,
        desired: Sequence[float] | None = None,
        episodes: int = 100,
        *,
        split: str = "test",
        seed: int = 0,
        greedy: bool = False,
        against: DecisionMaker | None = None,
    ) -> RolloutReport:
        """Roll out episodes for each desired return, all from the same starts; desired: default: quantiles of the returns of
        the training data; against: another run, which has the same desired returns if it is conditioned on them."""
        data, world = self.trajectories, self.world
        check_split(self.run.data, split)
        starts = start_cells(data.episodes(split), episodes)
        recorded = returns_of(data.episodes("train"))

        def returns(maker: DecisionMaker, one: float | None) -> list[float]:
            wanted = one if maker.config.condition == "return" else None
            return returns_of(roll_out(maker.policy, world, starts, wanted, seed=seed, greedy=greedy))

        asked: list[float | None] = [None]
        if self.config.condition == "return":
            asked = [float(one) for one in desired] if desired is not None else list(default_desired(data))
        elif desired is not None:
            raise ConfigError("desired returns have no effect: the run was trained with task.condition = 'none'")
        if not asked:
            raise ConfigError("desired: given no return, expected one or more")
        if against is not None and against.world != world:
            raise ConfigError("the other run has another grid world; expected the same data.world")
        if against is not None and against.config.condition == "return" and self.config.condition == "none":
            raise ConfigError("the other run needs a desired return, which this one has not", hint="exchange the two runs")
        cloned = returns(against, None) if against is not None and against.config.condition == "none" else None
        rows = [
            Reached(one, returns(self, one), cloned if cloned or against is None else returns(against, one)) for one in asked
        ]
        optimal = world.optimal_returns()
        return RolloutReport(
            rows, float(np.mean([optimal[cell] for cell in starts])), float(np.mean(recorded)), float(max(recorded))
        )

    def report(self, split: str | None, options: EvaluateOptions, *, load: Loader, search: Searcher) -> DecisionReport:
        name = split or "test"
        figures = self.evaluate(name)
        counts = torch.bincount(self.split_episodes("train").actions)
        tested = self.split_episodes(name).actions
        frequent = float((tested == int(counts.argmax())).float().mean())
        rollouts = None
        if self.run.data.grid_world is not None:
            other = None if options.against is None else DecisionMaker.of(load(options.against))
            rollouts = self.compare(options.desired, options.episodes, split=name, greedy=options.greedy, against=other)
        elif options != EvaluateOptions(baselines=options.baselines):
            raise ConfigError(
                "--episodes, --desired, --against and --greedy have no effect: the run's data has no grid world to roll out in"
            )
        recorded = mean_interval(returns_of(self.trajectories.episodes(name))) if options.baselines else None
        return DecisionReport(name, len(tested), figures, frequent, rollouts, recorded)

    def validate(self) -> ValidationResult:
        return ValidationResult(self.evaluate("valid"), None, None, {})

    def training_losses(self, count: int) -> Iterator[Callable[[], Tensor]]:
        """Of the first `count` windows of the training data."""
        episodes = self.split_episodes("train")
        windows = episodes.windows(self.config.context)[:count]
        for at in range(0, len(windows), self.run.data.batch):
            batch = episodes.batch(windows[at : at + self.run.data.batch]).to(self.system.device)
            yield partial(window_losses, self.decider, batch)

    def encode_example(self, text: str, target: str | None = None, config: SearchConfig | None = None) -> EncodedExample:
        """A history, as JSON, with the actions of all its steps; target: the last one, default: the most probable. Its tokens
        are named R1 s1 a1 R2 …."""
        refuse_empty(text)
        if config is not None:
            raise ConfigError("search options have no effect on a decision, which decodes no text", hint="remove them")
        data = self.trajectories
        history = self.read_input(data, text, 1)
        if len(history.states) > self.config.context:
            raise ConfigError(f"given {len(history.states)} steps, expected at most task.context = {self.config.context}")
        action = self.predict(text) if target is None else target
        lookup(action, dict.fromkeys(data.actions), "action")
        return forced.encode_history(self.decider, self.encode_history(data, history), text, data.actions, history, action)

    def decode_example(
        self, example: EncodedExample, prefix: Sequence[int] = (), config: SearchConfig | None = None
    ) -> Decoded:
        """The most probable action of each step."""
        if prefix:
            raise ConfigError(
                "a decision decodes no text, so no token can be forced", hint="compare the actions' probabilities"
            )
        with inference_context(self.decider):
            logs = example.logits(self.decider, example.forward(self.decider).hidden)[0].float().log_softmax(-1)
        best = logs.argmax(-1).tolist()
        total = float(logs.amax(-1).sum())
        return Decoded(" ".join(example.outputs.spell(best)), best, total, total)

    def replace_input(self, example: EncodedExample, text: str) -> EncodedExample:
        other = self.encode_example(text, example.outputs.pieces[-1])
        if len(other.outputs.pieces) != len(example.outputs.pieces):
            given, expected = len(other.outputs.pieces), len(example.outputs.pieces)
            raise ConfigError(f"given a history of {given} steps, expected {expected}, as in the other one")
        return other

    def sample_texts(self, split: str) -> Iterator[Sample]:
        source = find_source(self.run.data, split)
        return iter(()) if source is None else self.samples_of(source)

    def example_inputs(self, split: str) -> Iterator[ExampleInput]:
        """The episodes of a split before their last action."""
        return (ExampleInput(one.target or "", one.label) for one in self.sample_texts(split))

    def read_samples(self, path: Path) -> Iterator[Sample]:
        """Episodes in the format of the run's data."""
        return self.samples_of(TrajectorySource(path, RowTable(file=str(path))))

    def samples_of(self, source: TrajectorySource) -> Iterator[Sample]:
        for one in read_episodes(self.run.data, source).episodes:
            yield Sample(None, self.history_text(one), label=one.actions[-1])

    def history_text(self, episode: Trajectory) -> str:
        """The last steps of an episode before its last action, as JSON."""
        seen = slice(max(len(episode.actions) - self.config.context, 0), None)
        states = [next(iter(one.values())) if len(one) == 1 else self.state_value(one) for one in episode.states[seen]]
        given: dict[str, Any] = {"states": states, "actions": episode.actions[seen][:-1], "rewards": episode.rewards[seen][:-1]}
        if self.config.condition == "return":
            given = {"desired": round(float(episode.returns[seen][0]), 6), **given}
        return json.dumps(given, ensure_ascii=False)

    def state_value(self, state: State) -> Any:
        """A state of several values as in the data: a dictionary, or the list of its only column."""
        return list(state.values()) if set(state) != set(self.run.data.state_columns) else state

    def forced_batches(self, samples: Iterable[Sample]) -> Iterator[ForcedBatch]:
        """Missing last actions are predicted."""
        examples = [self.encode_example(sample.target or "", sample.label) for sample in samples]
        return forced.batches(self.decider, examples)


def list_of(given: Mapping[str, Any], name: str, place: str) -> list[Any]:
    value = given.get(name, [])
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence | np.ndarray):
        raise DataError(f"{place}: {name} is {value!r:.60}; expected a list")
    return list(value)


def figures_of(model: DecisionModel, system: System, episodes: EncodedEpisodes, config: DecisionsConfig) -> dict[str, float]:
    """The metrics of the task: loss and accuracy of all actions."""
    windows = episodes.windows(config.context)

    def score(at: int) -> tuple[float, int, int]:
        batch = episodes.batch(windows[at : at + WINDOWS]).to(system.device)
        logits = model(*batch).float()
        if not bool(logits.isfinite().all()):
            raise system.nonfinite_error(f"window {at + 1}")
        real = batch.actions != PADDING
        right = int(((logits.argmax(-1) == batch.actions) & real).sum())
        return float(action_losses(logits, batch.actions).double().sum()), right, int(real.sum())

    scored = system.ranks.map(score, range(0, len(windows), WINDOWS))
    total, right, count = (sum(column) for column in zip(*scored, strict=True))
    return {"loss": total / count, "accuracy": right / count}


def window_losses(model: DecisionModel, batch: TrajectoryBatch) -> Tensor:
    """-log p of the actions of each window, (rows,)."""
    return action_losses(model(*batch), batch.actions).sum(1)
