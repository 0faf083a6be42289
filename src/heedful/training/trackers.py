"""Trackers: experiment tracking tools that receive the metrics of a run while it trains.

    training.trackers = ["tensorboard", "wandb", "mlflow"]

A tracker is opened with the config when training begins, receives every record of metrics.jsonl as scalars "train/loss",
"valid/bleu", …, and is closed at the end. If one fails (no network, no login), the error is printed once and training continues
without it.

A killed and resumed run computes the steps since its last checkpoint again, with the same results. It continues the same run
of the tracker, identified by the file `tracking_id` of the run folder, and no step is shown twice: TensorBoard discards the
earlier events of these steps, Weights & Biases and MLflow keep them.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

from heedful.config.read import flatten
from heedful.config.toml import write_toml
from heedful.errors import ConfigError
from heedful.storage.reading import read_bytes
from heedful.storage.writing import replace_text

Name = Literal["tensorboard", "wandb", "mlflow"]  # also the names of the packages

TRACKING_ID, TENSORBOARD = "tracking_id", "tensorboard"  # in the run folder
PROJECT = "heedful"  # the default project of W&B and experiment of MLflow
MLFLOW_BATCH, MLFLOW_VALUE = 100, 500  # limits of MLflow: parameters in one request, characters of a value


class Tracker(Protocol):
    def log(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker is opened with."""

    folder: Path
    id: str
    config: Mapping[str, object]  # nested, as in config.toml
    step: int  # updates done so far: 0, or the step of the checkpoint from which training continues


class TensorBoard:
    """Event files in the folder `tensorboard` of the run."""

    def __init__(self, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer: Any = SummaryWriter(str(run.folder / TENSORBOARD), purge_step=run.step + 1)
        self.writer.add_text("config", "".join(f"    {line}\n" for line in write_toml(run.config).splitlines()), run.step)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        self.writer.close()


class WeightsAndBiases:
    """A run of W&B, with its local files in the folder `wandb` of the run; configured by W&B's environment variables."""

    def __init__(self, run: TrackedRun) -> None:
        import wandb

        self.run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=run.id,
            name=run.folder.resolve().name,
            dir=str(run.folder),
            config=dict(run.config),
            resume="allow",
            allow_val_change=True,  # training.steps may be raised
            reinit="create_new",  # independent of a run that the calling program may have
            settings=wandb.Settings(console="off"),  # leave stdout and stderr alone
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if step >= self.run.starting_step:  # W&B accepts increasing steps only
            self.run.log(dict(values), step=step)

    def close(self) -> None:
        self.run.finish()


class Mlflow:
    """A run of MLflow, on the server or in the database that MLflow's environment variables name."""

    def __init__(self, run: TrackedRun) -> None:
        from mlflow import MlflowClient

        self.client: Any = MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        known = self.client.get_experiment_by_name(name)
        experiment = self.client.create_experiment(name) if known is None else known.experiment_id
        found = self.client.search_runs([experiment], f"tags.`heedful.{TRACKING_ID}` = '{run.id}'")
        self.resumes = bool(found)
        self.steps: dict[str, set[int]] = {}  # of each metric, those that MLflow has
        if self.resumes:
            self.id = found[0].info.run_id
            self.client.update_run(self.id, status="RUNNING")
        else:
            tags = {f"heedful.{TRACKING_ID}": run.id}
            self.id = self.client.create_run(experiment, run_name=run.folder.resolve().name, tags=tags).info.run_id
            self.log_config(run.config)

    def log_config(self, config: Mapping[str, object]) -> None:
        from mlflow.entities import Param

        params = [Param(name, str(value)[:MLFLOW_VALUE]) for name, value in flatten(config).items() if value is not None]
        for start in range(0, len(params), MLFLOW_BATCH):
            self.client.log_batch(self.id, params=params[start : start + MLFLOW_BATCH])

    def log(self, step: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        new = {name: value for name, value in values.items() if step not in self.known_steps(name)}
        now = round(1000 * time.time())
        self.client.log_batch(self.id, metrics=[Metric(name, value, now, step) for name, value in new.items()])
        for name in new:
            self.steps[name].add(step)

    def known_steps(self, name: str) -> set[int]:
        if name not in self.steps:
            history = self.client.get_metric_history(self.id, name) if self.resumes else []
            self.steps[name] = {metric.step for metric in history}
        return self.steps[name]

    def close(self) -> None:
        self.client.set_terminated(self.id)


TRACKERS: dict[str, Callable[[TrackedRun], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": Mlflow,
}


class Trackers:
    """The trackers of a run. The first error of a tracker is printed; after that it is not used any more."""

    def __init__(self, names: Sequence[str], folder: Path, config: Mapping[str, object]) -> None:
        self.names, self.folder, self.config = names, folder, config
        self.opened: dict[str, Tracker] = {}
        self.print_line: Callable[[str], None] = print

    def open(self, step: int, print_line: Callable[[str], None]) -> None:
        """Open all trackers; step: updates done so far; print_line: prints a warning."""
        self.print_line = print_line
        if not self.names:
            return
        run = TrackedRun(self.folder, tracking_id(self.folder), self.config, step)
        for name in self.names:
            try:
                self.opened[name] = TRACKERS[name](run)
            except Exception as error:
                self.report(name, error)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.call(lambda tracker: tracker.log(step, values))

    def close(self) -> None:
        self.call(lambda tracker: tracker.close())
        self.opened = {}

    def call(self, act: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self.opened.items()):
            try:
                act(tracker)
            except Exception as error:
                del self.opened[name]
                self.report(name, error)

    def report(self, name: str, error: Exception) -> None:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        self.print_line(f"warning: {name} failed, and training continues without it: {reason}")


def require_packages(names: Sequence[str]) -> None:
    """Raise ConfigError if the package of a tracker is not installed."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"training.trackers: given {', '.join(map(repr, missing))}, but {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not installed",
            hint="pip install 'heedful[track]'",
        )


def tracking_id(folder: Path) -> str:
    """The id that the trackers know this run by: drawn once, and stored in the run folder."""
    path = folder / TRACKING_ID
    if not path.exists():
        replace_text(path, f"{secrets.token_hex(8)}\n")
    return read_bytes(path).decode(errors="replace").strip()
