"""Where attention enters a recurrence. x: the token, h: the state, c: what a look at the source found.

    before    c_t = look(h_{t-1})    h_t = layer([x_t; c_t], h_{t-1})                                 Bahdanau et al., 2015
    after     h_t = stack(x_t, h_{t-1})             c_t = look(h_t)    a_t = tanh(W [c_t; h_t])       Luong et al., 2015
              h_t = stack([x_t; a_{t-1}], h_{t-1})  where the answer is fed to the next input

Without feeding, looking after the fact is one look for all tokens. The others walk: token by token, with all that does not
depend on the walk computed before it or after it. Listeners hear a walk's looks at its end, all at once; if they interfere,
it is walked again with what they would have it find. A token that is not real changes nothing.
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
    said: Tensor  # (rows, time, dim)
    found: Tensor  # (rows, time, values)
    state: Hidden


class AttentionBeforeStep(nn.Module):
    def __init__(self, layer: Layer, cross: SourceAttention) -> None:
        super().__init__()
        self.layer, self.cross_attention = layer, cross

    def forward(self, x: Tensor, memory: Tree, state: Hidden, real: Tensor | None) -> RecurrentOutput:
        """x (rows, time, inputs), memory as the attention remembers it, real (rows, time)."""
        walked, weights = self.walk(x, memory, state, real, None)
        instead = self.cross_attention.tell(weights, memory)
        return walked if instead is None else self.walk(x, memory, state, real, instead)[0]

    def walk(
        self, x: Tensor, memory: Tree, state: Hidden, real: Tensor | None, instead: Tensor | None
    ) -> tuple[RecurrentOutput, list[Tensor]]:
        """Also the weights (rows, S) of every look; instead (rows, time, values): what is found without looking."""
        walk, said, found, weights = self.layer.walk(), [], [], []
        for at, gates in enumerate(self.layer.foresee(x)):
            if instead is None:
                weight, here = self.cross_attention.once(state[0], memory)
                weights.append(weight)
            else:
                here = instead[:, at]
            new = walk(gates, here, state)
            state = new if real is None else keep_padded(new, state, real[:, at])
            said.append(state[0])
            found.append(here)
        return RecurrentOutput(torch.stack(said, dim=1), torch.stack(found, dim=1), state), weights

    if TYPE_CHECKING:
        __call__ = forward


class RecurrentState(NamedTuple):
    """What a row knows."""

    layers: list[Hidden]
    answer: Tensor | None  # (rows, dim): the last one, where it is fed
    said: Tensor | None  # (rows,): how many tokens, where the attention counts them


class AttentionAfterStep(nn.Module):
    def __init__(self, stack: RecurrentStack, cross: SourceAttention, dim: int, *, feeds: bool) -> None:
        super().__init__()
        self.stack, self.cross_attention, self.dim, self.feeds = stack, cross, dim, feeds
        self.answer = linear(2 * dim, dim)

    def begin(self, layers: list[Hidden]) -> RecurrentState:
        first = layers[0][0]
        answer = torch.zeros_like(first) if self.feeds else None
        return RecurrentState(
            layers, answer, first.new_zeros(first.shape[0], dtype=torch.long) if self.cross_attention.counts else None
        )

    def forward(self, x: Tensor, memory: Tree, row_state: RecurrentState, real: Tensor | None) -> tuple[Tensor, RecurrentState]:
        """x (rows, time, inputs), memory as the attention remembers it, real (rows, time) -> the answers (rows, time, dim)."""
        before, after = count_tokens(row_state.said, x, real)
        if not self.feeds:
            hidden, layers = self.stack(x, row_state.layers, real)
            return self.combine(self.cross_attention(hidden, memory, before), hidden), RecurrentState(layers, None, after)
        answers, new, weights = self.walk(x, memory, row_state._replace(said=before), real, None)
        instead = self.cross_attention.tell(weights, memory)
        if instead is not None:
            answers, new, _ = self.walk(x, memory, row_state._replace(said=before), real, instead)
        return answers, new._replace(said=after)

    def walk(
        self, x: Tensor, memory: Tree, row_state: RecurrentState, real: Tensor | None, instead: Tensor | None
    ) -> tuple[Tensor, RecurrentState, list[Tensor]]:
        """Also the weights (rows, S) of every look; instead (rows, time, dim): what is found without looking.

        `past.said` is here (rows, time), before every token."""
        walk, answers, weights = self.stack.walk(), [], []
        layers, answer = row_state.layers, row_state.answer
        for at, gates in enumerate(self.stack.foresee(x)):
            new = walk(gates, answer, layers)
            hidden = new[-1][0]
            if instead is None:
                weight, found = self.cross_attention.once(
                    hidden, memory, None if row_state.said is None else row_state.said[:, at]
                )
                weights.append(weight)
            else:
                found = instead[:, at]
            said = self.combine(found, hidden)
            if real is not None and answer is not None:
                new = [keep_padded(here, before, real[:, at]) for here, before in zip(new, layers, strict=True)]
                (said,) = keep_padded((said,), (answer,), real[:, at])
            layers, answer = new, said
            answers.append(said)
        return torch.stack(answers, dim=1), RecurrentState(layers, answer, row_state.said), weights

    def combine(self, found: Tensor, hidden: Tensor) -> Tensor:
        return self.answer(torch.cat((found, hidden), dim=-1)).tanh()

    if TYPE_CHECKING:
        __call__ = forward


def count_tokens(said: Tensor | None, x: Tensor, real: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """How many real tokens come before each token of x, (rows, time), and how many there are after all of them, (rows,)."""
    if said is None:
        return None, None
    new = torch.ones(x.shape[:2], dtype=torch.long, device=x.device) if real is None else real.long()
    return said[:, None] + new.cumsum(-1) - new, said + new.sum(-1)
