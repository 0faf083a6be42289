"""ByteNet: a decoder of dilated convolutions stacked on an encoder of the same kind, without attention
("Neural Machine Translation in Linear Time", Kalchbrenner et al., 2016).

    block     x <- x + up(relu(norm(conv(relu(norm(down(relu(norm(x)))))))))       2d -> d -> d -> 2d; dilations 1, 2, 4, …
    encoder   source embeddings, zero-padded to a |s| columns, then blocks of centered convolutions
    decoder   column i is the embedding of target token i plus column i of the encoder, zeros beyond a |s|; causal blocks

The target may be longer than the encoder's output (dynamic unfolding). Time is linear in length, and paths between tokens are
short: one set of dilations 1 … 16 with kernel 3 covers 63 tokens. It is meant for characters. The state of a row is the last
(kernel - 1) x dilation inputs of every convolution.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from heedful.config.base import Probability, Problem, Size, SmallCount
from heedful.models.family import FamilyConfig, tying_problems
from heedful.nn import masks
from heedful.nn.convolution import Convolution
from heedful.nn.decoder_state import State, Step
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import Embeddings
from heedful.nn.hooks import HookPoint
from heedful.nn.layers import Layers
from heedful.nn.linear import linear
from heedful.nn.model import LayerOutput, SequenceModel
from heedful.nn.pack_left import gather_time, pack_left_order

Sets = Annotated[int, Field(ge=1, le=100)]
Dilations = Annotated[tuple[Size, ...], Field(min_length=1, max_length=32)]
Unfold = Annotated[float, Field(ge=1.0, le=100.0)]


class ByteNetConfig(FamilyConfig):
    """Sizes default to the paper's."""

    family: Literal["bytenet"] = "bytenet"
    """Model family."""
    dim: Size = 800
    """Channels inside a residual block; twice as many between blocks and in embeddings."""
    sets: Sets = 6
    """Number of sets of residual blocks, in the encoder and in the decoder."""
    dilations: Dilations = (1, 2, 4, 8, 16)
    """Dilation of each residual block of a set."""
    kernel: SmallCount = 3
    """Width of the convolutions, in tokens."""
    unfold: Unfold = 1.2
    """Dynamic unfolding: decoder positions per source token."""
    tie: Literal["all", "output", "none"] = "none"
    """Shared weights: both embeddings and output, target and output, none."""
    dropout: Probability = 0.0
    """Dropout of embeddings and of residual blocks."""

    def problems_with(self, *, shared: bool, source: int, target: int) -> list[Problem]:
        return tying_problems(self.tie, shared=shared)


class Block(nn.Module):
    def __init__(self, config: ByteNetConfig, dilation: int) -> None:
        super().__init__()
        dim = config.dim
        self.down_norm, self.down = nn.LayerNorm(2 * dim), linear(2 * dim, dim)
        self.across_norm, self.across = nn.LayerNorm(dim), Convolution(dim, dim, config.kernel, dilation)
        self.up_norm, self.up = nn.LayerNorm(dim), linear(dim, 2 * dim)
        self.dropout = Dropout(config.dropout)
        self.out = HookPoint()

    def before(self, x: Tensor) -> Tensor:
        """Input of the convolution: (…, 2 dim) -> (…, dim)."""
        return functional.relu(self.across_norm(self.down(functional.relu(self.down_norm(x)))))

    def after(self, x: Tensor, convolved: Tensor) -> Tensor:
        """Output of the block: x (…, 2 dim), convolved (…, dim) -> (…, 2 dim)."""
        return self.out(x + self.dropout(self.up(functional.relu(self.up_norm(convolved)))))


class EncoderBlock(Block):
    def forward(self, x: Tensor, real: Tensor | None) -> Tensor:
        """x (sources, width, 2 dim), real (sources, width): padding mask -> as x."""
        inputs = self.before(x)
        return self.after(x, self.across.centered(inputs if real is None else inputs.masked_fill(~real[..., None], 0.0)))


class DecoderBlock(Block):
    def forward(self, x: Tensor, row_state: Tensor, count: Tensor | None) -> tuple[Tensor, Tensor]:
        """x (rows, time, 2 dim) -> as x, and the new state."""
        convolved, row_state = self.across.causal(self.before(x), row_state, count)
        return self.after(x, convolved), row_state


class ByteNet(SequenceModel):
    def __init__(self, config: ByteNetConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__()
        self.config = config
        width = 2 * config.dim
        scale = math.sqrt(width)  # so that embeddings have the variance of encoder columns
        self.embedding = Embeddings(source_vocab, target_vocab, width, tie=config.tie, scale=scale)
        self.dropout = Dropout(config.dropout)
        self.encoder = Layers(EncoderBlock(config, dilation) for dilation in dilations(config))
        self.encoder_norm, self.encoder_out = nn.LayerNorm(width), linear(width, width)
        self.decoder = Layers(DecoderBlock(config, dilation) for dilation in dilations(config))
        self.decoder_norm, self.decoder_out = nn.LayerNorm(width), linear(width, width)
        self.output = linear(width, target_vocab) if config.tie == "none" else None

    def layer_outputs(self) -> list[LayerOutput]:
        source = [self.layer_output("source", at, block.out) for at, block in enumerate(self.encoder)]
        return source + [self.layer_output("target", at, block.out) for at, block in enumerate(self.decoder)]

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
        x = self.dropout(self.embedding.embed("source", source))  # (sources, time, 2 dim)
        share = round(1000 * self.config.unfold)  # columns per thousand tokens
        width = (source.shape[1] * share + 999) // 1000
        real = None
        if source_mask is not None:
            x = x.masked_fill(~source_mask[..., None], 0.0)
            real = masks.padding((source_mask.sum(1) * share + 999) // 1000, width)
        x = functional.pad(x, (0, 0, 0, width - source.shape[1]))  # (sources, width, 2 dim)
        for block in self.encoder:
            x = block(x, real)
        x = self.encoder_out(functional.relu(self.encoder_norm(x)))
        columns = x if real is None else x.masked_fill(~real[..., None], 0.0)
        row_state = {
            "blocks": [block.across.initial_state(source.shape[0], x) for block in self.decoder],
            "length": torch.zeros(source.shape[0], dtype=torch.long, device=source.device),
        }
        return State({"columns": columns}, row_state)

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step:
        packed = None if mask is None else pack_left_order(mask)
        count = None if packed is None else packed.real
        if packed is not None:
            tokens = gather_time(tokens, packed.order)
        length = state.row_state["length"]
        places = length[:, None] + torch.arange(tokens.shape[1], device=tokens.device)  # (rows, time)
        x = self.dropout(self.embedding.embed("target", tokens))  # (rows, time, 2 dim)
        x = x + gather_columns(state.memory["columns"], places)
        blocks = []
        for block, row_state in zip(self.decoder, state.row_state["blocks"], strict=True):
            x, row_state = block(x, row_state, count)
            blocks.append(row_state)
        hidden = functional.relu(self.decoder_out(functional.relu(self.decoder_norm(x))))
        if packed is not None:
            hidden = gather_time(hidden, packed.back)
        new = {"blocks": blocks, "length": length + (tokens.shape[1] if count is None else count)}
        return Step(hidden, state._replace(row_state=new), {})

    def project(self, hidden: Tensor) -> Tensor:
        return self.embedding.project(hidden) if self.output is None else self.output(hidden)

    def blocks(self) -> list[nn.Module]:
        return [*self.encoder, *self.decoder]


def gather_columns(columns: Tensor, places: Tensor) -> Tensor:
    """columns (sources, width, dim), places (rows, time) -> the column at each place, zeros beyond: (rows, time, dim)."""
    sources, width, _ = columns.shape
    by_source = places.view(sources, -1, 1)  # (sources, beam x time, 1)
    index = by_source.clamp(max=width - 1).expand(-1, -1, columns.shape[2])
    return columns.gather(1, index).masked_fill(by_source >= width, 0.0).view(*places.shape, -1)


def dilations(config: ByteNetConfig) -> Iterator[int]:
    """The dilation of every block of a stack."""
    for _ in range(config.sets):
        yield from config.dilations
