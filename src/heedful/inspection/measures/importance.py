"""Importance of attention heads. Multiply the context vectors of each head by a gate xi_h = 1.

    gradient   I_h = E |dL / dxi_h| = E |context_h . dL / dcontext_h|   one backward pass for all heads (Michel et al., 2019)
    ablation   L(xi_h = 0) - L(xi_h = 1)                                one forward pass for each head

L is -log p of a sentence. Both are returned as sums over sentences; callers divide by the number of tokens. In recurrent
decoders the attention weights are those of the unmodified pass.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import Tensor

from heedful.nn.hooks import hook, record
from heedful.nn.model import Model, gradient_context, inference_context

LossFunction = Callable[[], Tensor]  # returns -log p of each sentence, (rows,)


def context_points(model: Model) -> dict[str, str]:
    """Return by hook point of attention weights the hook point of the context vectors computed from them."""
    return {attention.weights: attention.context for attention in model.attentions()}


def gate_gradients(model: Model, loss_function: LossFunction) -> dict[str, Tensor]:
    """Return by hook point of the weights |dL / dxi| summed over the sentences, (heads,)."""
    gates: dict[str, Tensor] = {}

    def gate(name: str, context: Tensor) -> Tensor:
        """context (rows, heads, query, head_dim); for block-local attention (rows x blocks, heads, …)."""
        gates[name] = context.new_ones(*context.shape[:2], 1, 1, requires_grad=True)
        return context * gates[name]

    contexts = context_points(model)
    with gradient_context(model), ExitStack() as hooks:
        for context in contexts.values():
            hooks.enter_context(hook(model, context, gate))
        losses = loss_function()
        gradients = torch.autograd.grad(losses.sum(), list(gates.values()), materialize_grads=True)  # 0 where unused
    by_context = {
        name: gradient.view(len(losses), -1, gradient.shape[1]).sum(1).abs().sum(0)  # (heads,)
        for name, gradient in zip(gates, gradients, strict=True)
    }
    return {weights: by_context[context] for weights, context in contexts.items() if context in by_context}


def ablations(model: Model, loss_function: LossFunction) -> dict[str, Tensor]:
    """Return by hook point of the weights the increase of L without each head, summed over the sentences, (heads,)."""
    contexts = context_points(model)
    increases: dict[str, Tensor] = {}
    with inference_context(model):
        with record(model, *contexts.values()) as recorded:
            before = loss_function().sum()
        for weights, context in contexts.items():
            if context in recorded:  # an empty source is not encoded
                without = [loss_without(model, context, head, loss_function) for head in range(recorded[context].shape[1])]
                increases[weights] = torch.stack(without) - before
    return increases


def loss_without(model: Model, context: str, head: int, loss_function: LossFunction) -> Tensor:
    """Return the total loss with one head ablated."""

    def ablate(name: str, x: Tensor) -> Tensor:
        heads = torch.arange(x.shape[1], device=x.device)
        return x * (heads != head)[:, None, None]

    with hook(model, context, ablate):
        return loss_function().sum()


def within_layer(scores: Tensor) -> Tensor:
    """Normalize scores (heads,) to unit L2 norm, so that layers can be compared."""
    norm: Tensor = torch.linalg.vector_norm(scores)
    return scores / norm.clamp(min=torch.finfo(scores.dtype).tiny)
