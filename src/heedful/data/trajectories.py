"""Trajectories, a row for each step of an episode: [data] with form = "trajectories".

    train = { file = "log.csv" }         .csv, .tsv or .jsonl, plain or .gz, with the columns episode, step, action and reward,
    states = ["temperature", "room"]     and columns of the state before the action: numbers,
    categorical = ["room"]               or names, such as the id of a state
    split = [0.8, 0.1, 0.1]              only train is given; an episode is in one part

    builtin = "gridworld"                episodes of a generated grid world (`gridworld.py`), as many as `counts` says
    world = 0                            of files: the episodes are of this grid world, with the state "cell"

In JSONL, the state may be one list of numbers. With a world, decisions can be rolled out; without one, there are no dynamics.
The rows of an episode stand together, in the order of its steps, whose numbers increase by one. A row without an action, with a
reward that is no number, or out of order makes its episode unusable; more than `max_unusable` of all episodes are an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from heedful.config.base import Config, Count, Problem, Seed, Size, ZeroOrSmallCount, refuse, unused
from heedful.data.fractions import PARTS, Fractions, SplitPart, fraction_problems, makes_part
from heedful.data.gridworld import GridWorld, draw_episodes, make_world, name_of
from heedful.data.hash_split import part_of
from heedful.data.report import CorpusCheck, allowing
from heedful.data.row_files import RowTable
from heedful.data.rows import READERS, shorten_json
from heedful.data.sources import ColumnName, find_path
from heedful.data.splits import Counts
from heedful.data.toys import ToySplit
from heedful.data.unusable import LineProblem, Share, UnusableLines
from heedful.errors import DataError

MAX_VALUE = 1e30  # the largest number of single precision is 3.4e38
CELL = "cell"  # the column of the state of the grid world
OPTIONS = "data.episode, data.step, data.action, data.reward and data.states"  # that name the columns, for hints


class TrajectoriesConfig(Config):
    form: Literal["trajectories"]
    """Form of the data: episodes of states, actions and rewards."""
    builtin: Literal["gridworld"] | None = None
    """Generate the episodes of a behavior policy in a grid world."""
    counts: Counts | None = None
    """Number of episodes of each split that are generated."""
    world: Seed | None = None
    """Seed of the grid world that the episodes are of, and roll-outs take place in; default: 0 with builtin, else none."""
    train: RowTable | None = None
    """Training file."""
    valid: RowTable | None = None
    """Validation file."""
    test: RowTable | None = None
    """Test file."""
    split: Fractions | None = None
    """Split `train` into train, valid and test by episode: three fractions. Default: no split."""
    episode: ColumnName = "episode"
    """Column of the id of the episode."""
    step: ColumnName = "step"
    """Column of the number of the step."""
    action: ColumnName = "action"
    """Column of the action, any text."""
    reward: ColumnName = "reward"
    """Column of the reward for the action, a number."""
    states: Annotated[tuple[ColumnName, ...], Field(min_length=1)] = ("state",)
    """Columns of the state before the action: numbers, unless `categorical` lists them."""
    categorical: tuple[ColumnName, ...] = ()
    """Columns of the state whose values are names, each with an embedding of its own."""
    max_unusable: Share = 0.0
    """Maximum fraction of episodes with unusable rows, which are left out; more are an error."""
    batch: Count = 64
    """Episodes, or windows of long ones, per batch."""
    pad_to_multiple_of: Size | Literal["auto"] = "auto"
    """Pad numbers of steps to a multiple of this, so that few shapes occur; auto: 16 with CUDA graphs, else 1."""
    prefetch: ZeroOrSmallCount = 4
    """Batches prepared ahead in the background; 0: none."""

    @model_validator(mode="after")
    def _fits_together(self) -> TrajectoriesConfig:
        problems = []
        columns = [self.episode, self.step, self.action, self.reward, *self.states]
        for at, name in enumerate(columns):
            if name in columns[:at]:
                problems.append(Problem("states", f"two columns are named {name!r}; expected a different column for each"))
        problems += [
            Problem("categorical", f"given {name!r}, which is not in states: {', '.join(map(str, self.states))}")
            for name in self.categorical
            if name not in self.states
        ]
        if self.builtin is not None:
            if self.train is not None:
                problems.append(Problem("builtin", "given with data.train, expected one of them; remove one from the recipe"))
            names = ("valid", "test", "split", "episode", "step", "action", "reward", "states", "categorical")
            problems += unused(self, dict.fromkeys(names, "data.builtin is set"))
        else:
            missing = [name for name in ("train", "valid") if getattr(self, name) is None and not self.makes(name)]
            problems += [Problem(name, "missing; expected a table with a file, or data.builtin") for name in missing]
            problems += unused(self, {"counts": "data.builtin is not set"})
            if self.world is not None and (self.states, self.categorical) != ((CELL,), (CELL,)):
                problems.append(Problem("world", f"given without states = [{CELL!r}] and categorical = [{CELL!r}]"))
        if self.split is not None:
            problems += [Problem("split", sentence) for sentence in fraction_problems(self.split)]
            made = [name for name in ("valid", "test") if self.makes(name)]
            problems += unused(self, {name: f"data.split makes a {name} part of data.train" for name in made})
        refuse(problems)
        return self

    def makes(self, split: str) -> bool:
        """Whether `data.split` makes this part, and others."""
        return self.train is not None and makes_part(self.split, split)

    @property
    def grid_world(self) -> GridWorld | None:
        """The world for roll-outs; None: the dynamics are not known."""
        seed = 0 if self.world is None and self.builtin else self.world
        return None if seed is None else make_world(seed)

    @property
    def state_columns(self) -> tuple[str, ...]:
        return (CELL,) if self.builtin else tuple(map(str, self.states))

    @property
    def named_columns(self) -> tuple[str, ...]:
        """The state columns whose values are names."""
        return (CELL,) if self.builtin else tuple(map(str, self.categorical))

    @property
    def length_multiple(self) -> int:
        """`pad_to_multiple_of` as a number: 1 as long as "auto" is not resolved."""
        return 1 if self.pad_to_multiple_of == "auto" else self.pad_to_multiple_of

    @property
    def max_length(self) -> int:
        """The input of a model is a window of steps, whose size is an option of the task."""
        return 1

    @property
    def sides(self) -> tuple[int, int]:
        return 0, self.max_length


State = dict[str, float | str]  # by column: a number, or a name


class Trajectory(NamedTuple):
    """One episode."""

    name: str
    states: list[State]  # before each action
    actions: list[str]
    rewards: list[float]

    @property
    def returns(self) -> NDArray[np.float64]:
        """The return-to-go of each step: the sum of its reward and of all later ones."""
        return np.cumsum(np.array(self.rewards, np.float64)[::-1])[::-1].copy()


class TrajectorySource(NamedTuple):
    """The data of a split: a file, or a part of one, or generated episodes."""

    path: Path | ToySplit
    table: RowTable | None = None
    part: str | None = None  # of data.split; None: all of it

    @property
    def reports(self) -> bool:
        """Whether the unusable episodes of the whole file are reported with it: once, with its training part."""
        return self.part in (None, "train")


class ScannedEpisodes(NamedTuple):
    episodes: list[Trajectory]
    total: int  # of the file, with unusable ones
    unusable: UnusableLines
    left_out: int  # episodes with unusable rows


def find_source(data: TrajectoriesConfig, split: str) -> TrajectorySource | None:
    """The data of a split; None if there is no test set."""
    if data.builtin is not None:
        return TrajectorySource(ToySplit(data.builtin, split, getattr(data.counts or Counts(), split)))
    part = split if data.makes(split) else None
    table: RowTable | None = data.train if part else getattr(data, split)
    return None if table is None else TrajectorySource(find_path(table.file), table, part)


def read_episodes(data: TrajectoriesConfig, source: TrajectorySource) -> ScannedEpisodes:
    """The usable episodes of a split; DataError where more are unusable than `data.max_unusable` allows."""
    if source.table is None or isinstance(source.path, ToySplit):
        assert isinstance(source.path, ToySplit), "a source without a table is generated"
        episodes = [
            Trajectory(str(number), [{CELL: name_of(cell)} for cell in one.cells], one.actions, one.rewards)
            for number, one in enumerate(draw_episodes(data.world or 0, source.path.split, source.path.size), start=1)
        ]
        return ScannedEpisodes(episodes, len(episodes), UnusableLines(str), 0)
    scan = scan_file(data, source.path, source.table)
    if scan.left_out > data.max_unusable * scan.total:
        place, text = next(iter(scan.unusable.examples.values()))[0]
        given = f"; {scan.left_out:,} of {scan.total:,} episodes have such rows" if scan.left_out > 1 else ""
        most = f", expected at most the fraction data.max_unusable = {data.max_unusable:g}"
        allowed = most if given and data.max_unusable else ""
        hint = f"correct the row, or set data.max_unusable = {allowing(scan.left_out / scan.total)} to leave such episodes out"
        raise DataError(f"{place}: {text}{given}{allowed}", hint=hint)
    if not scan.episodes:
        raise DataError(f"{source.path} has no usable episode; expected at least one")
    if source.part is None or data.split is None:
        return scan
    part = SplitPart(source.part, data.split)
    chosen = [one for one in scan.episodes if part_of(one.name, part.fractions) == part.name]
    if not chosen:
        raise DataError(
            part.empty(str(source.path), "episode") + scan.unusable.note(), hint="use a larger fraction, or more episodes"
        )
    return scan._replace(episodes=chosen)


class BrokenRow(Exception):
    """A row that cannot be used."""


def scan_file(data: TrajectoriesConfig, path: Path, table: RowTable) -> ScannedEpisodes:
    """Read a file; an episode with a broken row is left out."""
    unusable = UnusableLines(lambda problem: f"{path} line {problem.line}")
    episodes: dict[str, Trajectory] = {}
    broken: set[str] = set()
    current: str | None = None
    last, size = 0, 0  # number of the last step; values of a state
    columns = [data.episode, data.step, data.action, data.reward, *data.states]
    for line, values in READERS[table.kind](path, columns, OPTIONS):
        if isinstance(values, LineProblem):
            unusable.add(values)
            broken.add(current or "")  # the row belongs to the episode around it
            continue
        name = str(values[0]).strip() if values[0] is not None else ""
        try:
            if not name:
                name = current or ""
                raise BrokenRow(f"column {data.episode!r} is empty; expected the id of an episode")
            if name != current and name in episodes:
                raise BrokenRow(f"episode {name!r} continues after another one; expected its rows together")
            number = parse_step(values[1], data.step)
            if name == current and number != last + 1:
                raise BrokenRow(f"step {number} follows step {last} of episode {name!r}; expected {last + 1}")
            current, last = name, number
            episode = episodes.setdefault(name, Trajectory(name, [], [], []))
            action, reward, state = parse_row(data, values)
            size = size or len(state)
            if len(state) != size:
                raise BrokenRow(f"the state has {len(state)} values; expected {size}, as in the first row")
        except BrokenRow as problem:
            unusable.add(LineProblem("row", line, "source", str(problem)))
            broken.add(name)
            if name:
                current = name
                episodes.setdefault(name, Trajectory(name, [], [], []))
            continue
        episode.states.append(state)
        episode.actions.append(action)
        episode.rewards.append(reward)
    usable = [one for one in episodes.values() if one.name not in broken]
    return ScannedEpisodes(usable, len(episodes.keys() | broken), unusable, len(broken))


def parse_row(data: TrajectoriesConfig, values: list[Any]) -> tuple[str, float, State]:
    """The action, the reward and the state of a row."""
    action = "" if values[2] is None else str(values[2]).strip()
    if not action:
        raise BrokenRow(f"column {data.action!r} is empty; expected an action")
    reward = parse_number(values[3], f"column {data.reward!r}")
    cells = dict(zip(map(str, data.states), values[4:], strict=True))
    return action, reward, parse_state(cells, data.named_columns)


def parse_state(cells: dict[str, Any], named: tuple[str, ...]) -> State:
    """The state of the cells of its columns; named: the columns whose values are names. A list of numbers becomes a column for
    each: state.1, state.2, …."""
    state: State = {}
    for column, cell in cells.items():
        if column in named:
            state[column] = parse_name(cell, column)
        elif isinstance(cell, list):
            state |= {f"{column}.{at}": parse_number(number, f"column {column!r}") for at, number in enumerate(cell, start=1)}
        else:
            state[column] = parse_number(cell, f"column {column!r}")
    return state


def parse_name(cell: Any, column: str) -> str:
    text = "" if cell is None or isinstance(cell, dict | list) else str(cell).strip()
    if not text:
        raise BrokenRow(f"column {column!r} is {shorten_json(cell)}; expected a name")
    return text


def parse_number(cell: Any, what: str) -> float:
    """The number of a cell; what: has it, for messages."""
    try:
        value = float("nan" if isinstance(cell, bool) else cell)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise BrokenRow(f"{what} is {shorten_json(cell)}; expected a finite number")
    if abs(value) > MAX_VALUE:
        raise BrokenRow(f"{what} is {shorten_json(cell)}; expected a number within ±{MAX_VALUE:g}")
    return value


def parse_step(cell: Any, column: int | str) -> int:
    value = parse_number(cell, f"column {column!r}")
    if value != int(value):
        raise BrokenRow(f"column {column!r} is {shorten_json(cell)}; expected a whole number")
    return int(value)


def check_split(data: TrajectoriesConfig, split: str, source: TrajectorySource) -> CorpusCheck:
    """Read a split once and report its episodes."""
    scan = read_episodes(data, source)
    returns = [float(one.returns[0]) for one in scan.episodes]
    left_out, findings = scan.left_out if source.reports else 0, scan.unusable.findings()
    return CorpusCheck(
        split=split,
        title=str(source.path),
        total=len(scan.episodes) + left_out,
        kept=len(scan.episodes),
        findings=tuple(replace(one, action="left out with their episodes") for one in findings) if source.reports else (),
        dropped=np.zeros(0, np.int64),
        unit="episodes",
        remark=f"{sum(len(one.actions) for one in scan.episodes):,} steps, returns {min(returns):.4g} to {max(returns):.4g}",
        items="episodes",
    )


def splits_with_data(data: TrajectoriesConfig) -> Iterator[tuple[str, TrajectorySource]]:
    for split in PARTS:
        source = find_source(data, split)
        if source is not None:
            yield split, source
