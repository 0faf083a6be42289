"""Attention in recurrent decoders, before or after each step. x: input, h: hidden state, c: context vector.

    before    c_t = attend(h_{t-1})    h_t = layer([x_t; c_t], h_{t-1})                                 Bahdanau et al., 2015
    after     h_t = stack(x_t, h_{t-1})             c_t = attend(h_t)    a_t = tanh(W [c_t; h_t])       Luong et al., 2015
              h_t = stack([x_t; a_{t-1}], h_{t-1})  with input feeding

Attention after the step without input feeding is computed for all tokens at once. The other variants run step by step, with
everything that does not depend on previous steps computed before or after the loop. Hooks are applied after the loop, to the
weights of all steps at once; if they change the context vectors, the loop runs again with these. Padding does not change
the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from heedful.nn.decoder_state import Tree
from heedful.nn.linear import linear
from heedful.nn.recurrent import Hidden, Layer, RecurrentStack, keep_padded
from heedful.nn.scores import SourceAttention


class RecurrentOutput(NamedTuple):
    hidden: Tensor  # (rows, time, dim)
    context: Tensor  # (rows, time, values)
    state: Hidden


class AttentionBeforeStep(nn.Module):
    def __init__(self, layer: Layer, cross: SourceAttention) -> None:
        super().__init__()
        self.layer, self.cross_attention = layer, cross

    def forward(self, x: Tensor, memory: Tree, state: Hidden, real: Tensor | None) -> RecurrentOutput:
        """x (rows, time, inputs), memory from `make_memory` of the attention, real (rows, time): padding mask."""
        out, weights = self.run_steps(x, memory, state, real, None)
        replacement = self.cross_attention.apply_hooks(weights, memory)
        return out if replacement is None else self.run_steps(x, memory, state, real, replacement)[0]

    def run_steps(
        self, x: Tensor, memory: Tree, state: Hidden, real: Tensor | None, replacement: Tensor | None
    ) -> tuple[RecurrentOutput, list[Tensor]]:
        """Also returns the attention weights (rows, S) of every step; replacement (rows, time, values): context vectors to
        use instead of attention."""
        step, hidden, contexts, weights = self.layer.step_function(), [], [], []
        for at, gates in enumerate(self.layer.project_inputs(x)):
            if replacement is None:
                weight, context = self.cross_attention.attend_step(state[0], memory)
                weights.append(weight)
            else:
                context = replacement[:, at]
            new = step(gates, context, state)
            state = new if real is None else keep_padded(new, state, real[:, at])
            hidden.append(state[0])
            contexts.append(context)
        return RecurrentOutput(torch.stack(hidden, dim=1), torch.stack(contexts, dim=1), state), weights

    if TYPE_CHECKING:
        __call__ = forward


class RecurrentState(NamedTuple):
    """Decoder state of each row."""

    layers: list[Hidden]
    attentional: Tensor | None  # (rows, dim): the last attentional vector, with input feeding
    position: Tensor | None  # (rows,): number of tokens so far, where the attention needs it


class AttentionAfterStep(nn.Module):
    def __init__(self, stack: RecurrentStack, cross: SourceAttention, dim: int, *, feeds: bool) -> None:
        super().__init__()
        self.stack, self.cross_attention, self.dim, self.feeds = stack, cross, dim, feeds
        self.answer = linear(2 * dim, dim)

    def initial_state(self, layers: list[Hidden]) -> RecurrentState:
        hidden = layers[0][0]
        attentional = torch.zeros_like(hidden) if self.feeds else None
        needs_positions = self.cross_attention.needs_positions
        position = hidden.new_zeros(hidden.shape[0], dtype=torch.long) if needs_positions else None
        return RecurrentState(layers, attentional, position)

    def forward(self, x: Tensor, memory: Tree, row_state: RecurrentState, real: Tensor | None) -> tuple[Tensor, RecurrentState]:
        """x (rows, time, inputs), memory from `make_memory` of the attention, real (rows, time): padding mask
        -> attentional vectors (rows, time, dim), and the new state."""
        before, after = count_tokens(row_state.position, x, real)
        if not self.feeds:
            hidden, layers = self.stack(x, row_state.layers, real)
            return self.combine(self.cross_attention(hidden, memory, before), hidden), RecurrentState(layers, None, after)
        out, new, weights = self.run_steps(x, memory, row_state._replace(position=before), real, None)
        replacement = self.cross_attention.apply_hooks(weights, memory)
        if replacement is not None:
            out, new, _ = self.run_steps(x, memory, row_state._replace(position=before), real, replacement)
        return out, new._replace(position=after)

    def run_steps(
        self, x: Tensor, memory: Tree, row_state: RecurrentState, real: Tensor | None, replacement: Tensor | None
    ) -> tuple[Tensor, RecurrentState, list[Tensor]]:
        """Also returns the attention weights (rows, S) of every step; replacement (rows, time, dim): context vectors to use
        instead of attention. `row_state.position` is (rows, time) here."""
        step, out, weights = self.stack.step_function(), [], []
        layers, attentional, positions = row_state.layers, row_state.attentional, row_state.position
        for at, gates in enumerate(self.stack.project_inputs(x)):
            new = step(gates, attentional, layers)
            hidden = new[-1][0]
            if replacement is None:
                position = None if positions is None else positions[:, at]
                weight, context = self.cross_attention.attend_step(hidden, memory, position)
                weights.append(weight)
            else:
                context = replacement[:, at]
            combined = self.combine(context, hidden)
            if real is not None and attentional is not None:
                new = [keep_padded(after, before, real[:, at]) for after, before in zip(new, layers, strict=True)]
                (combined,) = keep_padded((combined,), (attentional,), real[:, at])
            layers, attentional = new, combined
            out.append(combined)
        return torch.stack(out, dim=1), RecurrentState(layers, attentional, positions), weights

    def combine(self, context: Tensor, hidden: Tensor) -> Tensor:
        """Attentional vectors tanh(W [c; h]): (…, dim), (…, dim) -> (…, dim)."""
        return self.answer(torch.cat((context, hidden), dim=-1)).tanh()

    if TYPE_CHECKING:
        __call__ = forward


def count_tokens(position: Tensor | None, x: Tensor, real: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """position (rows,): number of previous tokens -> number of real tokens before each token of x (rows, time), and after all
    of them (rows,)."""
    if position is None:
        return None, None
    new = torch.ones(x.shape[:2], dtype=torch.long, device=x.device) if real is None else real.long()
    return position[:, None] + new.cumsum(-1) - new, position + new.sum(-1)
