"""The training loop: read batches, update, and at intervals report, validate and save.

If the process is killed at any instant and the same command run again, the final weights are bit-identical to those of an
uninterrupted run. The order of the data and dropout are functions of the seed and the step; everything else that the next
update depends on is in the checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn

from heedful.errors import HeedfulError, Interrupted, lookup
from heedful.evaluation.tables import counted, inflect
from heedful.nn.losses import Loss
from heedful.storage.folders import remove
from heedful.training import checkpoint, environment, retention, samples_log, sharded_checkpoint
from heedful.training.async_save import BackgroundWriter
from heedful.training.averaging import RunningAverage, mean_weights
from heedful.training.config import TrainingConfig
from heedful.training.cuda_graphs import graph_accumulation, graph_recorder
from heedful.training.held_folder import HeldFolder
from heedful.training.metrics_log import truncate_metrics
from heedful.training.nonfinite import NonFiniteGuard
from heedful.training.optimizers import make_optimizer, optimizer_tensors, restore_optimizer
from heedful.training.progress import Progress, long_run_warning
from heedful.training.ranks import Ranks
from heedful.training.samples_log import Sample, append_samples, is_logged
from heedful.training.saved_state import (
    SavedState,
    load_saved,
    load_train_state,
    parse_state,
    require_tensors,
    require_train_state,
)
from heedful.training.schedules import SCHEDULES, advance
from heedful.training.sharding import Replica, Shards
from heedful.training.signals import Stop
from heedful.training.time_limit import LONG, Pace, Stopwatch
from heedful.training.train_state import Direction, TrainState, is_better
from heedful.training.update import (
    PRECISIONS,
    Accumulate,
    Gradients,
    Objective,
    SplitLog,
    apply_gradients,
    eager_accumulation,
    gradient_of,
)
from heedful.training.weights import load_into


class StreamedBatch(NamedTuple):
    """A batch, and the position in the data after it."""

    batch: Any
    epoch: int
    cursor: int


class Validation(NamedTuple):
    metrics: dict[str, float]
    signatures: dict[str, str]  # of metrics that have one, such as sacreBLEU's
    samples: list[str]  # lines to print
    outputs: Sequence[Sample] = ()  # examples for samples.jsonl


class TaskDeclaration(Protocol):
    """Properties of a task that its config declares."""

    @property
    def unit(self) -> str:
        """What `count` counts: tokens or examples. The loss is the mean over them."""

    @property
    def compares_rows(self) -> bool:
        """Whether the loss of an example depends on the other examples of its batch, wherever they are computed."""

    @property
    def metrics(self) -> Mapping[str, Direction]:
        """Every metric that `validate` may return, and whether lower or higher is better."""


class Task(Protocol):
    """The interface of a task that training uses."""

    @property
    def config(self) -> TaskDeclaration: ...

    def stream(self, epoch: int, cursor: int) -> Generator[StreamedBatch, None, None]: ...

    def count(self, batch: Any) -> int: ...

    def split(self, batch: Any, parts: int) -> Sequence[Any]: ...

    def loss(self, model: Any, batch: Any) -> Objective: ...

    def validate(self, model: Any) -> Validation: ...

    def describe(self) -> str:
        """One line on the training data."""

    def statistics(self) -> dict[str, float]:
        """Sizes of the training data and of an epoch."""


class Outcome(NamedTuple):
    step: int
    best: str  # the checkpoint that is loaded by default
    metrics: dict[str, float]  # of that checkpoint
    seconds: float  # wall time of all sessions
    already_done: bool


class Trainer:
    """Model, optimizer and state of a run."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        config: TrainingConfig,
        run: Path,
        *,
        seed: int,
        dim: int,
        watch: Stopwatch | None = None,
        ranks: Ranks | None = None,
        shards: Shards | None = None,
    ) -> None:
        """ranks: the processes of the run; shards: this rank's part of the weights, if they are sharded."""
        assert "auto" not in (config.precision, config.cuda_graphs), "runs/auto.py resolves these before training"
        self.model, self.task, self.config, self.run, self.seed, self.dim = model, task, config, run, seed, dim
        self.ranks, self.shards = ranks or Ranks(), shards
        self.weights = cast("Any", model if shards is None else shards)  # what this rank updates
        self.direction: Direction = lookup(config.metric, task.config.metrics, "training.metric")
        self.folder = HeldFolder(run)
        self.checkpoints = run / "checkpoints"
        self.watch = watch or Stopwatch()
        self.pace = Pace(config, self.watch.clock)
        self.optimizer = make_optimizer(config.optimizer, self.weights)
        self.average = RunningAverage(self.weights, config.ema_decay) if config.average == "ema" else None
        self.guard = NonFiniteGuard(config.max_nonfinite_steps, scales=config.precision == "fp16")
        if self.guard.scales:
            self.guard.scale = 2.0**15
        self.train_state = TrainState()
        self.writer = BackgroundWriter()
        self.splits = SplitLog(run / "splits.jsonl", self.ranks)
        self.gradients = Gradients(self.accumulation(), task.split, task.count, self.ranks)
        if task.config.compares_rows and self.ranks.size > 1:
            self.gradients = self.gradients._replace(lockstep=True)
        if shards is not None:
            self.gradients = self.gradients._replace(begin_part=shards.begin_part, lockstep=True)
        self.advice = ""  # printed once if the run will take more than an hour
        self.metrics: dict[str, float] = {}  # of the last validation
        self.signatures: dict[str, str] = {}

    def accumulation(self) -> Accumulate:
        """How the gradient of a part of a batch is computed."""
        if self.shards is not None:
            return self.shards.accumulation(self.loss)
        device = next(self.model.parameters()).device
        if self.config.cuda_graphs is True and device.type == "cuda":
            return graph_accumulation(self.model, self.loss, device, graph_recorder())
        return eager_accumulation(self.loss)

    @property
    def last(self) -> int:
        """The last step; with a time limit, an estimate that changes with the speed of training."""
        return min(self.train_state.last, self.config.steps) if self.pace.limit and self.train_state.last else self.config.steps

    def plan(self, progress: Progress) -> None:
        """Estimate again at which step the time limit ends the run."""
        if self.pace.limit:
            self.train_state.plan(self.config.steps, self.pace.limit, self.updates_left())
            progress.set_total(self.last)

    def updates_left(self) -> float:
        """How many more updates fit into the time limit, by the clock of rank 0."""
        if not self.pace.limit:
            return math.inf
        return self.ranks.from_first(lambda: self.pace.updates_left(self.watch.seconds()))

    def seconds_left(self) -> float | None:
        return self.pace.seconds_left(self.last - self.train_state.step)

    def warn_if_long(self, progress: Progress) -> None:
        """Print the advice as soon as the speed is known, if more than an hour is left."""
        left = self.seconds_left()
        if not self.advice or not self.pace.reliable or left is None:
            return
        if left > LONG:
            progress.print(long_run_warning(left, self.advice))
        self.advice = ""

    def resume(self, progress: Progress) -> None:
        """Load the newest checkpoint that verifies, if there is one. Rank 0 reads it, the others receive it."""
        folder, tensors, saved = self.read_newest(progress) if self.ranks.first else (None, {}, None)
        folder, saved = self.ranks.from_first(lambda: (folder, saved))
        if folder is None or saved is None:
            if self.shards is None:  # else rank 0's weights have been sharded
                self.ranks.copy_from_first(list(self.model.state_dict().values()))
            return
        self.train_state, self.metrics, self.signatures = require_train_state(folder, saved), saved.metrics, saved.signatures
        self.guard.restore(self.train_state.guard)
        load_into(self.weights, self.receive(tensors, "model", folder), folder)
        restore_optimizer(self.optimizer, self.weights, self.receive(tensors, "optimizer", folder), folder)
        if self.average is not None:
            self.average.restore(self.receive(tensors, "average", folder), folder)
        self.watch.earlier = self.train_state.seconds
        self.pace.validation, self.pace.save = self.train_state.validation_seconds, self.train_state.save_seconds
        if not self.train_state.is_over(self.config.steps, self.pace.limit):
            self.train_state.resume(self.config.steps, self.pace.limit)
        if self.ranks.first:
            self.point_best(self.train_state.best)  # the process may have been killed between writing a checkpoint and its link
        progress.print(f"continuing from step {self.train_state.step}")

    def read_newest(self, progress: Progress) -> tuple[Path | None, dict[str, checkpoint.Tensors], SavedState | None]:
        """Read the newest checkpoint that verifies, and remove the log records after it."""
        folder, errors = retention.newest(self.checkpoints)
        for error in errors:
            progress.print(error)
        if folder is None:
            self.truncate_logs(0)
            return None, {}, None
        tensors: dict[str, checkpoint.Tensors] = {}
        if self.shards is not None and checkpoint.is_sharded(folder):
            state = checkpoint.load_state(folder)  # each rank reads its part of the tensors of other stems
            whole = (stem for stem in checkpoint.stems(folder) if not (folder / stem).is_dir())
            tensors = {stem: checkpoint.load_tensors(folder, stem) for stem in whole}
        else:
            tensors, state = checkpoint.load(folder)
        saved = parse_state(folder, state)
        self.truncate_logs(require_train_state(folder, saved).step)
        for change in environment.list_changes(saved.environment):
            progress.print(f"{change}; results may differ from those of an uninterrupted run")
        return folder, tensors, saved

    def receive(self, tensors: Mapping[str, checkpoint.Tensors], stem: str, folder: Path) -> dict[str, Tensor]:
        """The tensors of a stem of the checkpoint that rank 0 has read or verified, or this rank's part of them."""
        if self.shards is not None and (folder / stem).is_dir():
            return sharded_checkpoint.load_parts(folder, stem, self.shards)
        received = self.ranks.share_tensors(require_tensors(tensors, stem, folder) if self.ranks.first else None)
        return received if self.shards is None else self.shards.cut(received)

    def truncate_logs(self, step: int) -> None:
        """Remove the records of steps that will be trained again."""
        for name in ("metrics.jsonl", samples_log.NAME):
            truncate_metrics(self.run / name, step)

    def average_is_current(self) -> bool:
        """Whether checkpoints were already averaged at this step."""
        folder = self.checkpoints / "average"
        return checkpoint.verifies(folder) and load_saved(folder).step == self.train_state.step

    def update(self, streamed: Sequence[StreamedBatch]) -> tuple[dict[str, Loss], Tensor, float]:
        """Update the model with these batches; return the losses to report, the gradient norm and the learning rate."""
        step, schedule = self.train_state.step + 1, self.config.schedule
        position = advance(self.train_state.position, self.train_state.step, schedule, self.config.steps, self.updates_left())
        learning_rate = SCHEDULES[schedule.name](position, schedule, self.config.steps, self.dim)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate * group.get("speed", 1.0)
        batches = [item.batch for item in streamed]
        report = gradient_of(
            self.weights, self.gradients, batches, self.splits, seed=self.seed, step=step, scale=self.guard.scale
        )
        norm = apply_gradients(self.weights, self.optimizer, self.guard, self.config, step, self.ranks)
        if self.average is not None:
            self.average.update(self.weights, step)
        self.train_state.position = position
        self.train_state.step, self.train_state.epoch, self.train_state.cursor = step, streamed[-1].epoch, streamed[-1].cursor
        self.train_state.tokens += sum(self.task.count(batch) for batch in batches)
        return report, norm, learning_rate

    def loss(self, batch: Any) -> Objective:
        precision = PRECISIONS[self.config.precision]
        device = next(self.model.parameters()).device.type
        with nullcontext() if precision is torch.float32 else torch.autocast(device, precision):
            return self.task.loss(self.model, batch)

    def validate(self, progress: Progress) -> bool:
        """Validate the model, or its moving average; return whether it is among the best so far."""
        began = self.watch.clock()
        with self.average.applied_to(self.weights) if self.average else nullcontext():
            validation = self.score()
        self.pace.validation = self.watch.clock() - began
        placed = self.train_state.record_validation(self.metrics[self.config.metric], self.direction, self.config.keep_best)
        best = "  (best so far)" if self.train_state.stale == 0 else ""
        progress.report_validation(self.train_state.step, self.metrics, validation.samples, remark=best)
        logged = self.train_state.step == self.last or is_logged(self.train_state.step, self.config.validate_every)
        if validation.outputs and logged and self.ranks.first:
            append_samples(self.run / samples_log.NAME, self.train_state.step, validation.outputs)
        return placed

    def score(self) -> Validation:
        """Validate the current weights of the model, and store the metrics: the same on all ranks, which share the work."""
        unsharded = Replica(self.model, self.task, forget=bool)
        with nullcontext(unsharded) if self.shards is None else self.shards.replica() as (model, task, _):
            model.eval()
            try:
                own: Validation = task.validate(model)
            except HeedfulError:  # raised on all ranks
                if not self.ranks.first:
                    self.ranks.wait_for_first()  # raises RankLost after rank 0 has printed the error and ended
                raise
            model.train()
        validation = self.ranks.from_first(lambda: own)
        undeclared = validation.metrics.keys() - self.task.config.metrics.keys()
        assert not undeclared, f"the task must declare whether lower or higher is better for: {', '.join(sorted(undeclared))}"
        self.metrics, self.signatures = validation.metrics, validation.signatures
        return validation

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """The tensors of a checkpoint, or this rank's part of them, by stem."""
        tensors = {"model": self.weights.state_dict(), "optimizer": optimizer_tensors(self.optimizer, self.weights)}
        if self.average is not None:
            tensors["average"] = self.average.weights
        return tensors

    def require_space(self) -> None:
        """Raise an error if the disk has not enough space for a checkpoint, before the time until the first save is lost."""
        if self.ranks.first:
            size = sum(checkpoint.bytes_of(checkpoint.unshare(named)[0]) for named in self.tensors().values())
            parts = 1 if self.shards is None else self.ranks.size
            checkpoint.require_space(self.checkpoints / f"step-{self.train_state.step}", parts * size)

    def save(self) -> None:
        """Write a checkpoint on rank 0, or with training.sharded_save on all; with training.async_save, in the background."""
        began = self.watch.clock()
        self.guard.read_pending()
        self.train_state.seconds = self.watch.seconds()
        self.train_state.validation_seconds, self.train_state.save_seconds = self.pace.validation, self.pace.save
        self.train_state.guard = self.guard.as_dict()
        tensors = self.tensors()
        if not self.config.sharded_save:
            if self.shards is not None:
                tensors = {stem: self.shards.gather(named) for stem, named in tensors.items()}
            if not self.ranks.first:
                return
        state = {
            "train_state": self.train_state.as_dict(),
            "metrics": self.metrics,
            "signatures": self.signatures,
            "environment": environment.describe(),
        }
        best = list(self.train_state.best)
        if self.config.async_save:
            self.writer.wait()  # the buffers of the snapshot are in use until then
            snapshot, complete = self.writer.snapshots.take(tensors)

            def write() -> None:
                complete()
                self.write(snapshot, state, best)

            self.writer.start(write)
        else:
            self.write(tensors, state, best)
        self.pace.save = self.watch.clock() - began

    def write(
        self, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any], best: Sequence[tuple[int, float]]
    ) -> None:
        """Write a checkpoint, point `best` to the best one, and delete those that are no longer kept."""
        self.folder.check()
        step = state["train_state"]["step"]
        if self.shards is not None and self.config.sharded_save:
            sharded_checkpoint.save(self.checkpoints, step, tensors, state, self.shards)
        else:
            checkpoint.save(self.checkpoints, step, tensors, state)
        if not self.ranks.first:
            return
        self.point_best(best)
        regular = [step for step in map(retention.number, retention.steps(self.checkpoints)) if self.is_regular_save(step)]
        kept = [*regular[-self.config.keep_last :], *(step for step, _ in best)]
        retention.prune(self.checkpoints, keep_last=1, best_steps=kept)

    def is_regular_save(self, step: int) -> bool:
        """Whether an uninterrupted run saves at this step."""
        return step % self.config.save_every == 0 or step == self.last

    def best_average(self) -> tuple[Path, float] | None:
        """The folder and the metric of the best checkpoint, if that is an average of checkpoints."""
        folder = retention.best_folder(self.checkpoints)
        if folder is None or not folder.name.startswith("average-") or not checkpoint.verifies(folder):
            return None
        return folder, load_saved(folder).metrics[self.config.metric]

    def point_best(self, best: Sequence[tuple[int, float]]) -> None:
        """Point `best` to the best checkpoint of a step, unless an average is better; best: (step, value), best first."""
        if not best:
            return
        step, value = best[0]
        average = self.best_average()
        if average is not None and not is_better(value, average[1], self.direction):
            return
        if (self.checkpoints / f"step-{step}").is_dir():
            retention.point_best(self.checkpoints, f"step-{step}")
            if average is not None:
                remove(average[0])


def train(trainer: Trainer, progress: Progress, stop: Stop) -> Outcome:
    """Train to the last step, continuing from the newest checkpoint; the caller holds the lock of the run folder."""
    config, clock = trainer.config, trainer.watch.clock
    trainer.resume(progress)
    train_state = trainer.train_state
    first = train_state.step + 1
    already_done = train_state.step >= trainer.last or out_of_patience(trainer)
    stop.defer()
    trainer.model.train()
    progress.begin(train_state.step, trainer.last)
    stream = trainer.task.stream(train_state.epoch, train_state.cursor)
    with closing(stream), closing(progress), closing(trainer.writer):
        while train_state.step < trainer.last and not out_of_patience(trainer):
            began = clock()
            report, norm, learning_rate = trainer.update([next(stream) for _ in range(config.accumulate)])
            if train_state.step == first:  # the optimizer has its state now
                trainer.require_space()
            extra: dict[str, float | Tensor] = {"rate": learning_rate, "norm": norm, "epoch": train_state.epoch}
            extra["skipped"] = trainer.guard.recently_skipped(train_state.step)
            progress.report_update(train_state.step, report, extra, left=trainer.seconds_left())
            finish_update(trainer, progress, stop, began)
        trainer.writer.wait()
    if out_of_patience(trainer) and train_state.step < trainer.last and not already_done:
        progress.print(
            f"stopped at step {train_state.step} of {trainer.last}: {config.metric} has not improved for {config.patience} "
            "validations (training.patience)"
        )
    if config.average in ("last", "best") and not trainer.ranks.from_first(trainer.average_is_current):
        if already_done or trainer.ranks.from_first(lambda: trainer.pace.allows_average(trainer.watch.seconds())):
            average_checkpoints(trainer, progress)
        else:
            progress.print("no time left to average checkpoints; run the same command again to average them")
    outcome = trainer.ranks.from_first(lambda: finish_run(trainer, already_done))
    return outcome if already_done else outcome._replace(seconds=trainer.watch.seconds())


def finish_run(trainer: Trainer, already_done: bool) -> Outcome:
    """Read the outcome, after each tensor of the newest and the best checkpoint is in one file."""
    if trainer.config.sharded_save:
        for which in ("last", None):
            sharded_checkpoint.join_parts(retention.resolve(trainer.run, which))
    return read_outcome(trainer.run, already_done=already_done)


def read_outcome(run: Path, *, already_done: bool) -> Outcome:
    """Read the outcome of a run from its folder."""
    newest, best = retention.resolve(run, "last"), retention.resolve(run)
    train_state = load_train_state(newest)
    return Outcome(train_state.step, best.name, load_saved(best).metrics, train_state.seconds, already_done)


def finish_update(trainer: Trainer, progress: Progress, stop: Stop, began: float) -> None:
    """Validate, save and stop as needed after an update, which began at the given time."""
    step, config, pace = trainer.train_state.step, trainer.config, trainer.pace
    trainer.writer.check()
    if step % config.report_every == 0:
        trainer.guard.read_pending()
    pace.record_update(began, trainer.guard.read_pending)
    trainer.warn_if_long(progress)
    trainer.plan(progress)
    placed = False
    last = step == trainer.last
    if last or step % config.validate_every == 0 or must_measure_validation(trainer):
        try:
            placed = trainer.validate(progress)
        except Exception:  # out of memory, a lost file: this costs the validation, not the updates since the last checkpoint
            if not last and not trainer.ranks.sharded:  # the other ranks do not send their parts of the weights now
                trainer.save()
            raise
        if not last:
            trainer.plan(progress)
            last = step == trainer.last  # the validation used up the time limit
    stopping = trainer.ranks.any(stop.requested)
    if last or placed or stopping or step % config.save_every == 0 or out_of_patience(trainer):
        trainer.save()
    if last and step < config.steps:
        progress.print(describe_time_limit(trainer))
    if stopping and not last:
        trainer.writer.wait()
        trainer.ranks.wait_for_first()  # until rank 0 has saved: torchrun ends all processes when one has ended
        raise Interrupted(f"saved at step {step} of {trainer.last}", hint="run the same command again to continue")


def must_measure_validation(trainer: Trainer) -> bool:
    """Whether a run with a time limit has to validate now, to know how long that takes."""
    pace, watch = trainer.pace, trainer.watch
    return bool(pace.limit) and trainer.ranks.from_first(lambda: pace.must_measure_validation(watch.seconds()))


def describe_time_limit(trainer: Trainer) -> str:
    """The message for a run that ends because of its time limit."""
    warmup, position = trainer.config.schedule.warmup, trainer.train_state.position
    minutes = trainer.config.minutes
    text = f"time limit of {minutes:g} {inflect('minutes', minutes)} reached after {counted(trainer.train_state.step, 'steps')}"
    if position >= warmup:
        return text
    return f"{text}, before the learning rate reached its peak ({position / warmup:.0%} of the warm-up)"


def out_of_patience(trainer: Trainer) -> bool:
    return 0 < trainer.config.patience <= trainer.train_state.stale


def average_checkpoints(trainer: Trainer, progress: Progress) -> None:
    """Write the mean of the last or best checkpoints, and point `best` to it if its metric is better."""
    config, train_state = trainer.config, trainer.train_state
    of = trainer.ranks.from_first(lambda: [folder.name for folder in folders_to_average(trainer)])
    folders = [trainer.checkpoints / name for name in of]
    weights = mean_weights(folders) if trainer.ranks.first else {}
    samples: list[str] = []
    if of != [f"step-{train_state.step}"]:  # else it was just validated
        trainer.weights.load_state_dict(trainer.receive({"model": weights}, "model", trainer.checkpoints))
        samples = trainer.score().samples
    if not trainer.ranks.first:
        return
    value = trainer.metrics[config.metric]
    kept = trainer.best_average()
    improved = is_better(value, kept[1] if kept else train_state.best[0][1], trainer.direction)
    remark = f"  average of {', '.join(of)}{' (best so far)' if improved else ''}"
    progress.report_validation(train_state.step, trainer.metrics, samples, remark=remark, kind="average")
    state = {"step": train_state.step, "of": of, "metrics": trainer.metrics, "signatures": trainer.signatures}
    trainer.folder.check()
    if improved:  # `best` points to a copy, which the next average does not overwrite
        folder = checkpoint.save_named(trainer.checkpoints, f"average-{train_state.step}", {"model": weights}, state)
        retention.point_best(trainer.checkpoints, folder.name)
        if kept is not None and kept[0] != folder:
            remove(kept[0])
    checkpoint.save_named(trainer.checkpoints, "average", {"model": weights}, state)


def folders_to_average(trainer: Trainer) -> list[Path]:
    """The checkpoints that training.average chooses."""
    config = trainer.config
    if config.average == "last":  # regular saves only, so that the result does not depend on interruptions
        regular = [f for f in retention.steps(trainer.checkpoints) if trainer.is_regular_save(retention.number(f))]
        return regular[-config.average_count :]
    return [trainer.checkpoints / f"step-{step}" for step, _ in trainer.train_state.best[: config.average_count]]
