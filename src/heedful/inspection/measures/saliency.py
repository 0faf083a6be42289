"""Saliency: the influence of each source token and each previous target token on each predicted token.

    gradient x input        s_ti = x_i . d log p(y_t) / d x_i                          x_i: the embedding of token i
    bound                   |x_i| |d log p(y_t) / d x_i|, an upper bound of |s_ti|
    integrated gradients    gradient x input with the mean gradient along the line from 0 to x (Sundararajan et al., 2017);
                            the s_ti of all i sum to log p(y_t | x) - log p(y_t | 0)

Where a norm layer removes the length of an embedding, gradient x input is near zero even for influential tokens; the bound is
not. Attention weights and saliency often disagree, and neither is an explanation by itself (Jain and Wallace, 2019; Wiegreffe
and Pinter, 2019).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.nn.model import SequenceModel, copy_with_shared_weights, gradient_context

NOTE = (
    "Attention is not an explanation: weights show which tokens a model attends to, not which tokens cause its output "
    "(Jain & Wallace 2019; Wiegreffe & Pinter 2019)."
)


class Saliency(NamedTuple):
    source: Tensor  # (outputs, source time)
    target: Tensor  # (outputs, target time): previous target tokens, including the start token
    source_bound: Tensor  # same shape as source
    target_bound: Tensor  # same shape as target


def midpoints(steps: int) -> list[float]:
    """Return the midpoints of `steps` equal parts of [0, 1]."""
    return [(step + 0.5) / steps for step in range(steps)]


def saliency(
    model: SequenceModel, source: Tensor, target_in: Tensor, target_out: Tensor, scales: Sequence[float] = (1.0,)
) -> Saliency:
    """source (1, source time), target_in and target_out (1, target time); scales: factors of the embeddings at which
    gradients are computed. (1.0,) is gradient x input, `midpoints(n)` integrated gradients."""
    time = target_in.shape[1]

    def log_probabilities(hidden: Tensor) -> Tensor:
        index = torch.arange(time, device=hidden.device)
        return model.project(hidden[index, index]).log_softmax(-1)[index, target_out[0].clone()]

    return output_saliency(model, source, target_in, log_probabilities, time, scales)


def output_saliency(
    model: SequenceModel,
    source: Tensor,
    target_in: Tensor,
    log_probabilities: Callable[[Tensor], Tensor],
    outputs: int,
    scales: Sequence[float] = (1.0,),
) -> Saliency:
    """`saliency` of any outputs. log_probabilities: hidden states (outputs, target time, dim) -> log p of output i, computed
    from row i, (outputs,)."""
    model = copy_with_shared_weights(model)
    with gradient_context(model):
        totals = [torch.zeros(outputs, tokens.shape[1], device=source.device) for tokens in (source, target_in)]
        bounds = [torch.zeros_like(total) for total in totals]
        rows = source.repeat(outputs, 1), target_in.repeat(outputs, 1)  # row i computes gradients of output i: one pass for all
        for scale in scales:
            with scaled_embeddings(model, scale) as embeddings:
                hidden = model.forced(rows[0], None, rows[1]).hidden  # (outputs, target time, dim)
            gradients = torch.autograd.grad(log_probabilities(hidden).sum(), embeddings)
            for at, (x, gradient) in enumerate(zip(embeddings, gradients, strict=True), start=2 - len(embeddings)):
                x = x.detach() / scale  # index 0: the source, absent if it has no tokens
                totals[at] += (x * gradient).sum(-1) / len(scales)
                bounds[at] += x.norm(dim=-1) * gradient.norm(dim=-1) / len(scales)
    return Saliency(*totals, *bounds)


def agreement(first: Tensor, second: Tensor) -> float:
    """Return the agreement of two rankings of the same tokens, (queries, keys) each: the mean of Kendall's tau."""
    left, right = ((x[:, :, None] - x[:, None, :]).sign() for x in (first.double(), second.double()))  # (queries, keys, keys)
    tau = (left * right).sum((1, 2)) / (left.square().sum((1, 2)) * right.square().sum((1, 2))).sqrt().clamp(min=1e-12)
    return float(tau.mean())


@contextmanager
def scaled_embeddings(model: SequenceModel, scale: float) -> Iterator[list[Tensor]]:
    """Multiply embeddings by `scale` and collect them as leaves for gradients."""
    recorded: list[Tensor] = []

    def scale_output(module: nn.Module, inputs: Any, out: Tensor) -> Tensor:
        recorded.append((out.detach() * scale).requires_grad_())
        return recorded[-1]

    hooks = [table.register_forward_hook(scale_output) for table in set(model.embeddings().values())]
    try:
        yield recorded
    finally:
        for hook in hooks:
            hook.remove()
