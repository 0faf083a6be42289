"""A family without attention: the next token depends on mean embeddings, of the source and of the target so far.

    hidden_t = tanh(W [mean of source, mean of target tokens up to t, target token t])

A toy: tests/test_extending.py adds this file to a copy of the package as `models/bag.py`, with one line in `MODELS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from heedful.config.base import Probability, Size
from heedful.models.family import FamilyConfig
from heedful.nn.decoder_state import State, Step
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import Embeddings
from heedful.nn.hooks import HookPoint
from heedful.nn.model import LayerOutput, SequenceModel


class BagConfig(FamilyConfig):
    reads: ClassVar[bool] = False
    family: Literal["bag"] = "bag"
    """Model family."""
    dim: Size = 256
    """Size of embeddings and hidden states."""
    dropout: Probability = 0.1
    """Dropout of hidden states."""


class Mix(nn.Module):
    """The three vectors of a position as one."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(3 * dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.dropout = Dropout(dropout)
        self.out = HookPoint()

    def forward(self, source: Tensor, target: Tensor, token: Tensor) -> Tensor:
        """(rows, time, dim) each -> (rows, time, dim)."""
        inner = torch.tanh(self.inner(torch.cat((source, target, token), -1)))  # (rows, time, 4 dim)
        mixed: Tensor = self.out(self.dropout(self.outer(inner)))
        return mixed


class Bag(SequenceModel):
    def __init__(self, config: BagConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__()
        self.embedding = Embeddings(source_vocab, target_vocab, config.dim, tie="output", std=1.0)
        self.layers = nn.ModuleList([Mix(config.dim, config.dropout)])
        self.dim = config.dim

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
        mask = torch.ones_like(source, dtype=torch.bool) if source_mask is None else source_mask
        count = mask.sum(1, keepdim=True)  # (sources, 1)
        total = (self.embedding.embed("source", source) * mask[..., None]).sum(1)  # (sources, dim)
        nothing = total.new_zeros(len(source), self.dim), total.new_zeros(len(source), 1)
        return State(total / count.clamp(min=1), nothing)

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step:
        rows, time = tokens.shape
        real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
        x = self.embedding.embed("target", tokens)  # (rows, time, dim)
        total, count = state.row_state  # (rows, dim), (rows, 1)
        totals = total[:, None] + (x * real[..., None]).cumsum(1)  # (rows, time, dim)
        counts = count[:, None] + real[..., None].cumsum(1)  # (rows, time, 1)
        source = state.memory.repeat_interleave(rows // len(state.memory), 0)[:, None]  # (rows, 1, dim)
        hidden = self.layers[0](source.expand(-1, time, -1), totals / counts.clamp(min=1), x)
        return Step(hidden, state._replace(row_state=(totals[:, -1], counts[:, -1])), {})

    def project(self, hidden: Tensor) -> Tensor:
        return self.embedding.project(hidden)

    def layer_outputs(self) -> list[LayerOutput]:
        return [self.layer_output("target", at, layer.out) for at, layer in enumerate(self.mixes)]

    def blocks(self) -> Sequence[nn.Module]:
        return self.mixes

    @property
    def mixes(self) -> list[Mix]:
        return [layer for layer in self.layers if isinstance(layer, Mix)]
