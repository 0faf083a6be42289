"""Guided alignment: some heads are trained to attend to the source words of the word that is predicted (Chen et al., 2016;
Garg et al., 2019).

    a_ts = mean over guided heads of the attention weight on source token s at the step that predicts target token t
    g_ts = 1 / (links of t) where t and s are aligned
    loss = - weight * sum_ts g_ts log a_ts        added to the sum of the token losses; tokens without links add nothing

Only the guided layer computes its weights beside the fused kernel; a hook records them with their autograd graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from heedful.config.base import Problem
from heedful.data.batching import Index
from heedful.data.links import JoinedLinks
from heedful.data.splits import DataConfig
from heedful.errors import ConfigError
from heedful.nn.hooks import HookPoint, hook_points, register
from heedful.nn.losses import Loss
from heedful.nn.model import CROSS, SequenceModel
from heedful.tasks.batches import Batch
from heedful.training.config import TrainingConfig
from heedful.training.update import Objective

MIN_WEIGHT = 1e-9  # smaller weights are clamped to this: the weight of masked padding is 0


class GuidedConfig(Protocol):
    """The options of guided alignment in a task's config."""

    @property
    def guided_alignment(self) -> float: ...
    @property
    def guided_layer(self) -> int | None: ...
    @property
    def guided_heads(self) -> tuple[int, ...]: ...


class AlignmentGuide(NamedTuple):
    """The heads to guide and the weight of their loss."""

    hook_point: HookPoint  # attention weights of the guided layer
    heads: tuple[int, ...]
    weight: float

    def add_loss(self, objective: Callable[[], Objective], gold: Tensor) -> Objective:
        """Compute an objective and add the guided loss; gold (rows, target time, source time).

        Where the objective runs several forward passes over the batch, the guided loss is their mean."""
        with record_weights(self.hook_point) as recorded:
            plain = objective()
        (weights,) = recorded
        passes = len(weights) // len(gold)
        loss = guided_loss(weights, gold.repeat(passes, 1, 1), self.heads)
        guided = Loss(loss.total / passes, loss.count / passes)
        total = plain.minimize.total + self.weight * guided.total
        return Objective(Loss(total, plain.minimize.count), plain.report | {"alignment": guided})


def make_guide(model: SequenceModel, config: GuidedConfig) -> AlignmentGuide:
    """The guide for a model; raises `ConfigError` if it has no cross-attention."""
    names = {attention.layer: attention.weights for attention in model.attentions() if attention.kind == CROSS}
    if not names:
        raise ConfigError(
            f"task.guided_alignment: given {config.guided_alignment}, but this model has no cross-attention "
            "that could be guided",
            hint="choose a family with cross-attention: transformer, bahdanau, luong, gnmt, convs2s",
        )
    layer = choose_layer(sorted(names), config.guided_layer)
    return AlignmentGuide(hook_points(model)[names[layer]], config.guided_heads, config.guided_alignment)


def choose_layer(layers: Sequence[int], given: int | None) -> int:
    """The given layer; default: the second to last (Garg et al.), or the only one."""
    if given is None:
        return layers[max(len(layers) - 2, 0)]
    if given not in layers:
        raise ConfigError(
            f"task.guided_layer: given {given}, but the layers with cross-attention are: {', '.join(map(str, layers))}"
        )
    return given


@contextmanager
def record_weights(hook_point: HookPoint) -> Iterator[list[Tensor]]:
    """Record the tensors at a hook point, not detached."""
    recorded: list[Tensor] = []

    def keep(name: str, x: Tensor) -> Tensor:
        recorded.append(x)
        return x

    with register({"guided": hook_point}, keep, changes=False):
        yield recorded


def guided_loss(weights: Tensor, gold: Tensor, heads: Sequence[int]) -> Loss:
    """Cross-entropy of attention: weights (rows, heads, target time, source time), gold (rows, target time, source time).
    The count is the number of target tokens with links."""
    if max(heads) >= weights.shape[1]:
        raise ConfigError(f"task.guided_heads: given {list(heads)}, but the guided layer has {weights.shape[1]} heads, from 0")
    chosen = torch.stack([weights[:, head] for head in heads])  # no index tensor to copy to the GPU
    attention = chosen.float().mean(0).clamp(min=MIN_WEIGHT)  # (rows, target time, source time)
    shares = gold / gold.sum(-1, keepdim=True).clamp(min=1)
    return Loss(-(shares * attention.log()).sum(), gold.any(-1).sum())


def add_gold_alignment(batch: Batch, links: JoinedLinks, indices: Index) -> Batch:
    """The batch of these pairs with their gold alignment, from target_out tokens to source tokens."""
    links_of = [links.of(int(index)) for index in indices]
    rows = np.repeat(np.arange(len(links_of)), [len(pairs) for pairs in links_of])  # (links of all rows,)
    source, target = np.concatenate(links_of).T
    gold = np.zeros((*batch.target_in.shape, batch.source.shape[1]), np.float32)  # (rows, target time, source time)
    gold[rows, target, source] = 1.0
    return batch._replace(gold=torch.from_numpy(gold))


def guided_alignment_problems(weight: float, data: DataConfig, dropout: float, training: TrainingConfig) -> list[Problem]:
    """Options that conflict with guided alignment, or have no effect without it."""
    no_effect = "alignment is given, but has no effect"
    problems = [
        Problem(f"data.{split}", f"{no_effect}: attention is guided in training only; remove it")
        for split in ("valid", "test")
        if any(corpus.alignment for corpus in getattr(data, split) or ())
    ]
    if not weight:
        if any(corpus.alignment for corpus in data.train or ()):
            problems.append(Problem("data.train", f"{no_effect} because task.guided_alignment is 0"))
        return problems
    aligned = [corpus.builtin or corpus.alignment is not None for corpus in data.train] if data.train else [data.builtin]
    if not all(aligned):
        why = f"task.guided_alignment is {weight}, but a corpus has no alignment; `heed align --out FILE` writes one"
        problems.append(Problem("data.train", why))
    if dropout:
        why = f"given {dropout}, but task.guided_alignment needs the same tokens in every epoch; expected 0"
        problems.append(Problem("tokenizer.dropout", why))
    why = "given true, but task.guided_alignment records attention in every update, which this does not support; expected false"
    return problems + [Problem(f"training.{name}", why) for name in ("compile", "recompute") if getattr(training, name)]
