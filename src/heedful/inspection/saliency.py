"""Saliency: how much each token that was read, or said before, bears on each token that is said.

    gradient x input        s_ti = x_i . d log p(y_t) / d x_i                          x_i: the embedding of token i
    bound                   |x_i| |d log p(y_t) / d x_i|: no s_ti can be larger
    integrated gradients    the first with the gradient's mean along the way from 0 to x (Sundararajan et al., 2017);
                            then the s_ti of all i add up to log p(y_t | x) - log p(y_t | 0)

Where norms undo the length of an embedding, growing it changes little and gradient x input is near zero, however much rests on
the token; the bound is not. Attention weights say where a model looked, saliency what moves its answer. The two often
disagree, and neither is an explanation by itself (Jain and Wallace, 2019; Wiegreffe and Pinter, 2019).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.inspection.attention_maps import copy_with_shared_weights, gradient_context
from heedful.inspection.lens import LogitModel

NOTE = (
    "Attention is not an explanation: weights show where a model looked, not what its answer rests on "
    "(Jain & Wallace 2019; Wiegreffe & Pinter 2019)."
)


class Saliency(NamedTuple):
    source: Tensor  # (target time, source time)
    target: Tensor  # (target time, target time): of what was said before, the start included
    source_bound: Tensor  # as source
    target_bound: Tensor


def midpoints(steps: int) -> list[float]:
    """The middles of so many equal parts of the way from nothing to the embeddings."""
    return [(step + 0.5) / steps for step in range(steps)]


def saliency(
    model: LogitModel, source: Tensor, target_in: Tensor, target_out: Tensor, scales: Sequence[float] = (1.0,)
) -> Saliency:
    """source (1, source time), target_in and target_out (1, target time); scales: where on the way from nothing to the
    embeddings gradients are taken. (1.0,) is gradient x input, `halfway(n)` integrated gradients."""
    model = copy_with_shared_weights(model)
    assert isinstance(model, nn.Module), "models are modules"
    time = target_in.shape[1]
    with gradient_context(model):
        empty = [torch.zeros(time, tokens.shape[1], device=source.device) for tokens in (source, target_in)]
        totals, bounds = empty, [torch.zeros_like(total) for total in empty]
        rows = source.repeat(time, 1), target_in.repeat(time, 1)  # row t is asked for token t alone: one pass answers all
        place = torch.arange(time, device=source.device)
        for scale in scales:
            with scaled_embeddings(model, scale) as words:
                hidden = model.step(rows[1], model.start(rows[0], None, room=0)).hidden[place, place]  # (target time, dim)
            own = model.project(hidden).log_softmax(-1)[place, target_out[0].clone()]
            gradients = torch.autograd.grad(own.sum(), words)
            for at, (x, gradient) in enumerate(zip(words, gradients, strict=True), start=2 - len(words)):
                x = x.detach() / scale  # at 0: the source, which is not read where it has no tokens
                totals[at] += (x * gradient).sum(-1) / len(scales)
                bounds[at] += x.norm(dim=-1) * gradient.norm(dim=-1) / len(scales)
    return Saliency(*totals, *bounds)


def agreement(one: Tensor, other: Tensor) -> float:
    """How far two ways to rank the same tokens agree, (queries, keys) each: the mean over the queries of Kendall's tau."""
    left, right = ((x[:, :, None] - x[:, None, :]).sign() for x in (one.double(), other.double()))  # (queries, keys, keys)
    both = (left * right).sum((1, 2)) / (left.square().sum((1, 2)) * right.square().sum((1, 2))).sqrt().clamp(min=1e-12)
    return float(both.mean())


@contextmanager
def scaled_embeddings(model: nn.Module, scale: float) -> Iterator[list[Tensor]]:
    """Collect what tokens are turned into, multiplied by `scale`, as leaves that gradients can be asked for."""
    recorded: list[Tensor] = []

    def hear(module: nn.Module, given: Any, out: Tensor) -> Tensor:
        recorded.append((out.detach() * scale).requires_grad_())
        return recorded[-1]

    tables = [module for name, module in model.named_modules() if name.endswith("embedding")]
    hooks = [table.register_forward_hook(hear) for table in tables if isinstance(table, nn.Embedding)]
    try:
        yield recorded
    finally:
        for hook in hooks:
            hook.remove()
