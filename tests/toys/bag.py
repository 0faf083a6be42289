"""Bags of words: the next token from the mean of the source, the sum of the tokens so far, and the last of them."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from heedful.config.base import Probability, Size
from heedful.models.family import FamilyConfig
from heedful.nn.decoder_state import State, Step
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import Embeddings
from heedful.nn.hooks import HookPoint
from heedful.nn.linear import linear
from heedful.nn.model import LayerOutput, SequenceModel


class BagConfig(FamilyConfig):
    family: Literal["bag"] = "bag"
    """Model family."""
    dim: Size = 256
    """Size of embeddings and hidden states."""
    dropout: Probability = 0.1
    """Dropout of the hidden states."""


class Bag(SequenceModel):
    """Predicts the next token from two bags of words, of the source and of the target so far, and the previous token."""

    def __init__(self, config: BagConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embeddings(source_vocab, target_vocab, config.dim, tie="none", output_dim=config.dim)
        self.hidden = linear(3 * config.dim, config.dim)
        self.dropout = Dropout(config.dropout)
        self.outputs = nn.ModuleDict({"source": HookPoint(), "target": HookPoint()})

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
        x = self.outputs["source"](self.embedding.embed("source", source))  # (sources, time, dim)
        real = x.new_ones(x.shape[:2]) if source_mask is None else source_mask.to(x.dtype)
        mean = (x * real[..., None]).sum(1) / real.sum(1, keepdim=True)  # (sources, dim)
        return State(memory={"mean": mean}, row_state=torch.zeros_like(mean))

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step:
        mean = state.memory["mean"]
        rows = mean.repeat_interleave(tokens.shape[0] // mean.shape[0], 0)  # (rows, dim)
        previous = self.embedding.embed("target", tokens)  # (rows, time, dim)
        real = previous if mask is None else previous * mask[..., None].to(previous.dtype)
        total = state.row_state[:, None] + real.cumsum(1)  # (rows, time, dim)
        inputs = torch.cat((previous, total, rows[:, None].expand_as(previous)), dim=-1)
        hidden = self.outputs["target"](self.dropout(self.hidden(inputs).tanh()))
        return Step(hidden, state._replace(row_state=total[:, -1]), {})

    def project(self, hidden: Tensor) -> Tensor:
        return self.embedding.project(hidden)

    def layer_outputs(self) -> list[LayerOutput]:
        return [LayerOutput("source", 0, "outputs.source"), LayerOutput("target", 0, "outputs.target")]

    def blocks(self) -> list[nn.Module]:
        return [self.hidden]
