"""Decisions: the cross-entropy of the action of every step.

loss = mean over steps of -log p(a_t | R_1, s_1, a_1, …, R_t, s_t)
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from heedful.data.trajectories import TrajectoriesConfig
from heedful.evaluation.tables import counted
from heedful.nn.losses import Loss
from heedful.nn.model import inference_context
from heedful.tasks.base import RunConfig, TaskDefinition
from heedful.tasks.batch_stream import StreamPosition, stream_batches
from heedful.tasks.decisions.config import DecisionsConfig
from heedful.tasks.decisions.data import (
    POOL,
    DecisionData,
    EpisodeSplits,
    TrajectoryBatch,
    Window,
    format_examples,
    resolve,
)
from heedful.tasks.decisions.model import PADDING, DecisionModel, action_losses
from heedful.tasks.decisions.predictor import DecisionMaker, figures_of
from heedful.tasks.decisions.starter import STARTER
from heedful.tasks.system import System
from heedful.training.loop import StreamedBatch, Validation
from heedful.training.update import Objective


class DecisionsTask:
    def __init__(self, run: RunConfig, corpora: EpisodeSplits, system: System) -> None:
        self.config: DecisionsConfig = run.task
        self.data: TrajectoriesConfig = run.data
        self.seed, self.corpora, self.system = run.seed, corpora, system
        model = cast(DecisionModel, system.models[0])
        with torch.no_grad():
            model.fit(corpora.train.returns, corpora.train.states, ~corpora.names)

    def statistics(self) -> dict[str, float]:
        """Sizes of the training data and of an epoch."""
        train = self.corpora.train
        return {
            "episodes": len(train.lengths),
            "steps": len(train.actions),
            "batches_per_epoch": len(self.plan(0)),
            "tokens_per_epoch": len(train.actions) * self.config.tokens_per_step,
        }

    def describe(self) -> str:
        sizes = self.statistics()
        actions = len(self.config.known_actions)
        return (
            f"{counted(sizes['episodes'], 'episodes')} with {counted(sizes['steps'], 'steps')}, {actions} actions, "
            f"{counted(sizes['batches_per_epoch'], 'batches')} per epoch"
        )

    def plan(self, epoch: int) -> list[list[Window]]:
        """The windows of each batch, of similar length, in random order: a pure function of (seed, epoch)."""
        windows = self.corpora.train.windows(self.config.context, seed=self.seed, epoch=epoch)
        generator, size = np.random.Generator(np.random.Philox(key=[self.seed, epoch])), self.data.batch
        order, batches = generator.permutation(len(windows)).tolist(), []
        for at in range(0, len(order), POOL * size):
            pool = sorted((windows[i] for i in order[at : at + POOL * size]), key=lambda window: window.size)
            batches += [pool[first : first + size] for first in range(0, len(pool), size)]
        return [batches[i] for i in generator.permutation(len(batches)).tolist()]

    def stream(self, epoch: int, cursor: int) -> Generator[StreamedBatch, None, None]:
        """An endless stream of batches from the given position, prefetched."""

        def collate(windows: list[Window], epoch: int) -> TrajectoryBatch:
            return self.corpora.train.batch(windows, self.data.length_multiple)

        return stream_batches(
            self.plan, collate, StreamPosition(epoch, cursor), device=self.system.device, ahead=self.data.prefetch
        )

    def count(self, batch: TrajectoryBatch) -> int:
        return int((batch.actions != PADDING).sum())

    def split(self, batch: TrajectoryBatch, parts: int) -> Sequence[TrajectoryBatch]:
        return [TrajectoryBatch(*part) for part in zip(*(tensor.chunk(parts) for tensor in batch), strict=True)]

    def loss(self, model: DecisionModel, batch: TrajectoryBatch) -> Objective:
        return self.objective(model, *batch.to(self.system.device))

    def objective(self, model: DecisionModel, *tensors: Tensor) -> Objective:
        """The loss as a function of tensors only, those of a `TrajectoryBatch`, which can be compiled or captured."""
        batch = TrajectoryBatch(*tensors)
        total = action_losses(model(*batch), batch.actions).sum()
        count = (batch.actions != PADDING).sum()
        return Objective(Loss(total, count), {"loss": Loss(total.detach(), count)})

    def validate(self, model: DecisionModel) -> Validation:
        with inference_context(model):
            return Validation(figures_of(model, self.system, self.corpora.valid, self.config), {}, [])


TASK = TaskDefinition(
    DecisionsConfig, TrajectoriesConfig, DecisionData, DecisionsTask, DecisionMaker, format_examples, STARTER, resolve
)
