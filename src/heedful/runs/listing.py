"""The run folders below a folder, and the comparison of two of them, read from their small files:

    config.toml                                         task, family and all other options
    checkpoints/best (or the newest)/state.json         validation metrics
    checkpoints/step-N/state.json of the newest         steps and wall time
    …/model.safetensors                                 its header only: the number of parameters
    metrics.jsonl                                       time of the last record

No model is loaded and torch is not imported, so that a list of many runs is fast. A damaged run is listed with the reason.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError, safe_open

from heedful.config.read import MISSING, difference
from heedful.config.toml import parse_toml
from heedful.errors import CheckpointError, ConfigError, HeedfulError
from heedful.storage.reading import read_bytes
from heedful.training import facts
from heedful.training.manifest import STEP
from heedful.training.metrics_log import read_metrics
from heedful.training.readable import list_folder
from heedful.training.saved_state import load_saved, load_train_state

# last part of the names of buffers that are stored with the weights: statistics of the data, matrices of attention
BUFFERS = ("mean", "deviation", "matrix", "ridge", "return_scale", "state_scale")


class TaskName(BaseModel):
    name: str


class ModelFamily(BaseModel):
    family: str


class Training(BaseModel):
    metric: str
    steps: int


class ListedConfig(BaseModel):
    """The options of config.toml that a list shows; others are ignored, because the run may be of another version."""

    task: TaskName
    model: ModelFamily
    training: Training


@dataclass(frozen=True)
class RunSummary:
    folder: Path
    task: str
    family: str  # of the model
    parameters: int | None  # None: no checkpoint yet
    metric: str  # training.metric, which selects the best checkpoint
    value: float | None  # of that metric; None: not validated yet
    metrics: dict[str, float]  # all metrics of the best checkpoint, or of the newest if there was no validation
    step: int  # of the newest checkpoint
    steps: int  # training.steps
    seconds: float  # wall time of training
    size: int  # bytes of all files
    date: datetime  # of the last record of metrics.jsonl, in UTC

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"folder": str(self.folder), "date": self.date.isoformat(timespec="seconds")}


@dataclass(frozen=True)
class DamagedRun:
    folder: Path
    reason: str
    size: int  # bytes of all files

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"folder": str(self.folder)}


@dataclass(frozen=True)
class RunList:
    runs: tuple[RunSummary, ...]  # newest first
    damaged: tuple[DamagedRun, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"runs": [run.to_dict() for run in self.runs], "damaged": [run.to_dict() for run in self.damaged]}


@dataclass(frozen=True)
class Difference:
    """A value in two runs; None: it has none."""

    name: str
    first: Any
    second: Any


@dataclass(frozen=True)
class RunComparison:
    first: RunSummary
    second: RunSummary
    options: tuple[Difference, ...]  # the options of config.toml that differ, by dotted name
    metrics: tuple[Difference, ...]  # all metrics that one of them has

    def to_dict(self) -> dict[str, Any]:
        return {
            "first": self.first.to_dict(),
            "second": self.second.to_dict(),
            "options": [asdict(one) for one in self.options],
            "metrics": [asdict(one) for one in self.metrics],
        }


def list_runs(folder: str | os.PathLike[str] = "runs") -> RunList:
    """Summarize every run folder below a folder, which may be a run folder itself."""
    root = Path(folder)
    if not root.is_dir():
        raise ConfigError(f"there is no folder {str(root)!r}", hint="give the folder of your runs: heed runs FOLDER")
    runs, damaged = [], []
    for path in find_runs(root):
        try:
            runs.append(summarize_run(path))
        except HeedfulError as error:
            damaged.append(DamagedRun(path, str(error.args[0]), size_of(path)))
    return RunList(tuple(sorted(runs, key=lambda run: run.date, reverse=True)), tuple(damaged))


def compare_runs(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> RunComparison:
    """Compare the configs and metrics of two run folders."""
    folders = Path(first), Path(second)
    one, other = map(summarize_run, folders)
    options = [
        Difference(name, *(None if value is MISSING else value for value in values))
        for name, *values in difference(*map(read_config, folders))
    ]
    names = dict.fromkeys((*one.metrics, *other.metrics))
    metrics = [Difference(name, one.metrics.get(name), other.metrics.get(name)) for name in names]
    return RunComparison(one, other, tuple(options), tuple(metrics))


def find_runs(folder: Path, above: frozenset[tuple[int, int]] = frozenset()) -> Iterator[Path]:
    """Yield the run folders below a folder, through links as well; above: the folders on the way, so that no link loops."""
    if (folder / facts.NAME).exists() or any((folder / "checkpoints").glob("step-*")):  # without run.json it is damaged
        yield folder
        return
    try:
        status = folder.stat()
        inside = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:  # not ours to read
        return
    identity = status.st_dev, status.st_ino
    if identity not in above:
        for path in inside:
            yield from find_runs(path, above | {identity})


def summarize_run(folder: Path) -> RunSummary:
    """Summarize a run folder; CheckpointError if it is damaged."""
    if not folder.is_dir():
        raise CheckpointError(f"run folder {folder} does not exist")
    if facts.read_facts(folder)["format"] != facts.UNVERIFIED:
        facts.check_files(folder)
    config = read_config(folder)
    newest, chosen = find_checkpoints(folder / "checkpoints")
    metrics = {} if chosen is None else load_saved(chosen).metrics
    state = None if newest is None else load_train_state(newest)
    try:
        listed = ListedConfig.model_validate(config)
    except ValidationError as error:
        name = ".".join(map(str, error.errors()[0]["loc"]))
        raise CheckpointError(f"{folder / facts.CONFIG} is damaged: {name}: {error.errors()[0]['msg']}") from error
    return RunSummary(
        folder=folder,
        task=listed.task.name,
        family=listed.model.family,
        parameters=None if chosen is None else count_parameters(chosen),
        metric=listed.training.metric,
        value=metrics.get(listed.training.metric),
        metrics=metrics,
        step=0 if state is None else state.step,
        steps=listed.training.steps,
        seconds=0.0 if state is None else state.seconds,
        size=size_of(folder),
        date=date_of(folder),
    )


def read_config(folder: Path) -> dict[str, Any]:
    """Read config.toml, without checking the options."""
    path = folder / facts.CONFIG
    try:
        return dict(parse_toml(read_bytes(path).decode()))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, ConfigError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error


def find_checkpoints(checkpoints: Path) -> tuple[Path | None, Path | None]:
    """The newest checkpoint of a step, and the one that is loaded by default: the best, else the newest."""
    steps = {int(match[1]): path for path in list_folder(checkpoints) if (match := STEP.fullmatch(path.name))}
    newest = steps[max(steps)] if steps else None
    best = checkpoints / "best"
    return newest, best.resolve() if best.is_dir() else newest


def count_parameters(checkpoint: Path) -> int:
    """Count the weights of a checkpoint; tied ones are stored once, and buffers are no weights."""
    whole = checkpoint / "model.safetensors"
    parts = sorted((checkpoint / "model").glob("*.safetensors"))  # of a sharded checkpoint
    count = 0
    for path in parts or [whole]:
        try:
            with safe_open(path, "numpy") as file:
                names = [name for name in file.keys() if name.rpartition(".")[2] not in BUFFERS]  # noqa: SIM118
                count += sum(math.prod(file.get_slice(name).get_shape()) for name in names)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
    return count


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder; a link counts as nothing, because what it points to is counted elsewhere."""
    total = 0
    for root, _, names in os.walk(folder):
        for path in (Path(root, name) for name in names):
            with suppress(OSError):  # removed in the meantime by the run, which is training
                total += 0 if path.is_symlink() else path.stat().st_size
    return total


def date_of(folder: Path) -> datetime:
    """The time of the last record of metrics.jsonl; without one, of run.json."""
    for record in reversed(read_metrics(folder / "metrics.jsonl")):
        with suppress(KeyError, TypeError, ValueError, OverflowError, OSError):  # a record without a time, or with nonsense
            return datetime.fromtimestamp(record["time"], UTC)
    return datetime.fromtimestamp((folder / facts.NAME).stat().st_mtime, UTC)
