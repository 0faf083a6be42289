"""How much a head matters to what a model says. Put a gate xi_h before what each head found, and let it be 1.

    gradient   I_h = E |dL / dxi_h| = E |found_h . dL / dfound_h|       one backward pass for all heads (Michel et al., 2019)
    ablation   L(xi_h = 0) - L(xi_h = 1)                                one forward pass for each head

L is -log p of a sentence. Both are sums over sentences here; whoever prints them divides by the tokens. Where a decoder
walks token by token, its looks are those of the undisturbed walk.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from heedful.inspection.attention_maps import attentions, gradient_context, inference_context
from heedful.nn.hooks import hook, record

LossFunction = Callable[[], Tensor]  # lets the model say some sentences: -log p of each, (rows,)


def context_points(model: nn.Module) -> dict[str, str]:
    """By the name of a tap on weights the one that hears what was found with them."""
    return {name: f"{name.removesuffix('weights')}context" for name in attentions(model)}


def gate_gradients(model: nn.Module, loss_function: LossFunction) -> dict[str, Tensor]:
    """By the name of its weights, for each layer: |dL / dxi| added up over the sentences, (heads,)."""
    gates: dict[str, Tensor] = {}

    def gate(name: str, found: Tensor) -> Tensor:
        """found (rows, heads, query, head_dim); where a layer looks within blocks (rows x blocks, heads, …)."""
        gates[name] = found.new_ones(*found.shape[:2], 1, 1, requires_grad=True)
        return found * gates[name]

    taps = context_points(model)
    with gradient_context(model), ExitStack() as listeners:
        for found in taps.values():
            listeners.enter_context(hook(model, found, gate))
        losses = loss_function()
        slopes = torch.autograd.grad(losses.sum(), list(gates.values()), materialize_grads=True)  # what nobody uses: 0
    by_tap = {
        name: slope.view(len(losses), -1, slope.shape[1]).sum(1).abs().sum(0)  # (heads,)
        for name, slope in zip(gates, slopes, strict=True)
    }
    return {weights: by_tap[found] for weights, found in taps.items() if found in by_tap}


def ablations(model: nn.Module, loss_function: LossFunction) -> dict[str, Tensor]:
    """By the name of its weights, for each layer: how much L grows without each head, added up over the sentences, (heads,)."""
    taps = context_points(model)
    grown: dict[str, Tensor] = {}
    with inference_context(model):
        with record(model, *taps.values()) as seen:
            before = loss_function().sum()
        for weights, found in taps.items():
            if found in seen:  # an empty source is not read
                without = [loss_without(model, found, head, loss_function) for head in range(seen[found].shape[1])]
                grown[weights] = torch.stack(without) - before
    return grown


def loss_without(model: nn.Module, found: str, head: int, loss_function: LossFunction) -> Tensor:
    def silence(name: str, x: Tensor) -> Tensor:
        heads = torch.arange(x.shape[1], device=x.device)
        return x * (heads != head)[:, None, None]

    with hook(model, found, silence):
        return loss_function().sum()


def within_layer(scores: Tensor) -> Tensor:
    """(heads,) -> of length 1, so that layers can be compared."""
    length: Tensor = torch.linalg.vector_norm(scores)
    return scores / length.clamp(min=torch.finfo(scores.dtype).tiny)
