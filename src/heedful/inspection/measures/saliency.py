"""Saliency: the influence of each source token and each previous target token on each predicted token.

    gradient x input        s_ti = x_i . d log p(y_t) / d x_i                          x_i: the embedding of token i
    bound                   |x_i| |d log p(y_t) / d x_i|, an upper bound of |s_ti|
    integrated gradients    gradient x input with the mean gradient along the line from 0 to x (Sundararajan et al., 2017);
                            the s_ti of all i sum to log p(y_t | x) - log p(y_t | 0)

The frames of a numeric sequence have no embedding: there x_i is the standardized vector of frame i. Of an output that is a
number, as a forecast, the number itself takes the place of its log p.

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

from heedful.nn.model import Model, copy_with_shared_weights, gradient_context
from heedful.tasks.encoded_example import Forward

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
    model: Model, forward: Forward, score: Callable[[Tensor], Tensor], outputs: int, scales: Sequence[float] = (1.0,)
) -> Saliency:
    """Saliency for all outputs of the pass over an example. score: hidden states (rows, target time, dim) -> log p of the
    outputs, or their values (rows, outputs); scales: factors of the embeddings at which gradients are computed. (1.0,) is
    gradient x input, `midpoints(n)` integrated gradients."""
    model, device = copy_with_shared_weights(model), next(model.parameters()).device
    totals = [torch.zeros(outputs, 0, device=device)] * 2  # of the source, absent if it has no tokens, and of the target
    bounds = list(totals)
    with gradient_context(model):
        for scale in scales:
            with scaled_embeddings(model, scale) as embeddings:
                hidden = forward(model, outputs).hidden  # (outputs, target time, dim): row i for output i, one pass for all
            scores = [score(hidden[i : i + 1])[0, i] for i in range(outputs)]
            gradients = torch.autograd.grad(torch.stack(scores).sum(), embeddings)
            for at, (x, gradient) in enumerate(zip(embeddings, gradients, strict=True), start=2 - len(embeddings)):
                x = x.detach() / scale
                product, bound = (x * gradient).sum(-1) / len(scales), x.norm(dim=-1) * gradient.norm(dim=-1) / len(scales)
                totals[at] = totals[at] + product if totals[at].numel() else product  # (outputs, time)
                bounds[at] = bounds[at] + bound if bounds[at].numel() else bound
    return Saliency(*totals, *bounds)


def agreement(first: Tensor, second: Tensor) -> float:
    """Return the agreement of two rankings of the same tokens, (queries, keys) each: the mean of Kendall's tau."""
    left, right = ((x[:, :, None] - x[:, None, :]).sign() for x in (first.double(), second.double()))  # (queries, keys, keys)
    tau = (left * right).sum((1, 2)) / (left.square().sum((1, 2)) * right.square().sum((1, 2))).sqrt().clamp(min=1e-12)
    return float(tau.mean())


@contextmanager
def scaled_embeddings(model: Model, scale: float) -> Iterator[list[Tensor]]:
    """Multiply embeddings by `scale` and collect them as leaves for gradients."""
    recorded: list[Tensor] = []

    def scale_output(module: nn.Module, inputs: Any, out: Tensor) -> Tensor:
        recorded.append((out.detach() * scale).requires_grad_())
        return recorded[-1]

    hooks = [table.register_forward_hook(scale_output) for table in model.input_vectors()]
    try:
        yield recorded
    finally:
        for hook in hooks:
            hook.remove()
