"""Guided alignment: some heads are taught to look where the word being said comes from (Chen et al., 2016; Garg et al., 2019).

    a_ts = mean over guided heads of the weight on source piece s when target piece t is said
    g_ts = 1 / (links of t) where t and s are linked
    loss = - weight * sum_ts g_ts log a_ts        added to the sum of the tokens' losses; a piece without links asks nothing

Only the guided layer computes its weights beside the fused kernel; a listener hears them with their graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from heedful.data.batching import Index
from heedful.data.links import JoinedLinks
from heedful.data.splits import DataConfig
from heedful.errors import ConfigError
from heedful.inspection.attention_maps import attentions, layer_of
from heedful.nn.hooks import HookPoint, hook_points, register
from heedful.nn.losses import Loss
from heedful.schema import Problem
from heedful.tasks.batches import Batch
from heedful.training.config import TrainingConfig
from heedful.training.update import Objective

SMALLEST = 1e-9  # a weight below it counts as this: where padding is masked out it is 0


class Guided(Protocol):
    """What a task's config says of it."""

    @property
    def guided_alignment(self) -> float: ...
    @property
    def guided_layer(self) -> int | None: ...
    @property
    def guided_heads(self) -> tuple[int, ...]: ...


class AlignmentGuide(NamedTuple):
    """Who is guided, and how strongly."""

    tap: HookPoint  # of the layer's weights
    heads: tuple[int, ...]
    weight: float

    def added(self, objective: Callable[[], Objective], gold: Tensor) -> Objective:
        """An objective with the guided loss in it; gold (rows, target time, source time). One that passes over its batch
        several times is guided in each of them and counts them as one."""
        with record_weights(self.tap) as heard:
            plain = objective()
        (weights,) = heard
        passes = len(weights) // len(gold)
        found = guided_loss(weights, gold.repeat(passes, 1, 1), self.heads)
        guided = Loss(found.total / passes, found.count / passes)
        total = plain.minimize.total + self.weight * guided.total
        return Objective(Loss(total, plain.minimize.count), plain.report | {"alignment": guided})


def guide_of(model: object, config: Guided) -> AlignmentGuide:
    """For this model; one without such a layer is an error."""
    assert isinstance(model, nn.Module), "models are modules"
    names = {layer_of(name): name for name, kind in attentions(model).items() if kind.name == "cross"}
    if not names:
        raise ConfigError(
            f"task.guided_alignment: given {config.guided_alignment}, but this model has no attention from the target to "
            "the source that could be guided",
            hint="families that have: transformer, bahdanau, luong, gnmt, convs2s",
        )
    layer = guided_layer(sorted(names), config.guided_layer)
    return AlignmentGuide(hook_points(model)[names[layer]], config.guided_heads, config.guided_alignment)


def guided_layer(layers: Sequence[int], wanted: int | None) -> int:
    """The last but one where none is named (Garg et al.), or the only one."""
    if wanted is None:
        return layers[max(len(layers) - 2, 0)]
    if wanted not in layers:
        raise ConfigError(
            f"task.guided_layer: given {wanted}, but this model looks at its source in layers: {', '.join(map(str, layers))}"
        )
    return wanted


@contextmanager
def record_weights(tap: HookPoint) -> Iterator[list[Tensor]]:
    """What passes the tap, with its graph."""
    heard: list[Tensor] = []

    def keep(name: str, x: Tensor) -> Tensor:
        heard.append(x)
        return x

    with register({"guided": tap}, keep, changes=False):
        yield heard


def guided_loss(weights: Tensor, gold: Tensor, heads: Sequence[int]) -> Loss:
    """weights (rows, heads, target time, source time), gold (rows, target time, source time): where to look, 1 or 0.
    The count is of the target pieces that have links."""
    if max(heads) >= weights.shape[1]:
        raise ConfigError(f"task.guided_heads: given {list(heads)}, but the guided layer has {weights.shape[1]} heads, from 0")
    chosen = torch.stack([weights[:, head] for head in heads])  # no index that would have to travel to a GPU
    look = chosen.float().mean(0).clamp(min=SMALLEST)  # (rows, target time, source time)
    shares = gold / gold.sum(-1, keepdim=True).clamp(min=1)
    return Loss(-(shares * look.log()).sum(), gold.any(-1).sum())


def with_gold(batch: Batch, links: JoinedLinks, indices: Index) -> Batch:
    """The batch of these pairs, with where each token to be said should look."""
    found = [links.of(int(index)) for index in indices]
    rows = np.repeat(np.arange(len(found)), [len(one) for one in found])  # (links of all rows,)
    source, target = np.concatenate(found).T
    gold = np.zeros((*batch.target_in.shape, batch.source.shape[1]), np.float32)  # (rows, target time, source time)
    gold[rows, target, source] = 1.0
    return batch._replace(gold=torch.from_numpy(gold))


def guide_problems(weight: float, data: DataConfig, dropout: float, training: TrainingConfig) -> list[Problem]:
    """What does not fit with guided alignment, or with its absence."""
    idle = "alignment is given, but has no effect"
    problems = [
        Problem(f"data.{split}", f"{idle}: only attention in training is guided; remove it")
        for split in ("valid", "test")
        if any(corpus.alignment for corpus in getattr(data, split) or ())
    ]
    if not weight:
        if any(corpus.alignment for corpus in data.train or ()):
            problems.append(Problem("data.train", f"{idle} because task.guided_alignment is 0"))
        return problems
    known = [corpus.builtin or corpus.alignment is not None for corpus in data.train] if data.train else [data.builtin]
    if not all(known):
        why = f"task.guided_alignment is {weight}, but a corpus has no alignment; `heed align --out FILE` makes one"
        problems.append(Problem("data.train", why))
    if dropout:
        why = f"given {dropout}, but task.guided_alignment needs words to be cut alike in every epoch; expected 0"
        problems.append(Problem("tokenizer.dropout", why))
    given = "given true, but task.guided_alignment listens to attention in every update, which this cannot do; expected false"
    return problems + [Problem(f"training.{name}", given) for name in ("compile", "recompute") if getattr(training, name)]
