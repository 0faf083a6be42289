"""ByteNet: a decoder of dilated convolutions stands on an encoder of the same kind, column upon column, without attention
("Neural Machine Translation in Linear Time", Kalchbrenner et al., 2016).

    block     x <- x + up(relu(norm(conv(relu(norm(down(relu(norm(x)))))))))       2d -> d -> d -> 2d; dilations 1, 2, 4, …
    read      the source's embeddings, zeros up to a |s| columns, then blocks that look both ways
    say       target column i begins with its token's embedding plus the source's column i; beyond a |s|: plus zeros

The target unfolds as far as it likes over what was read (dynamic unfolding). Time is linear in length, and a token's path is
short: one set of dilations 1 … 16 with kernel 3 sees 63 tokens. Meant for characters. The past of a row is the last
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

from heedful.models.family import FamilyConfig, tying_problems
from heedful.nn import masks
from heedful.nn.convolution import Convolution
from heedful.nn.decoder_state import State, Step
from heedful.nn.dropout import Dropout
from heedful.nn.hooks import HookPoint
from heedful.nn.layers import Layers
from heedful.nn.linear import Readout, linear
from heedful.nn.pack_left import gather_time, pack_left_order
from heedful.schema import Probability, Problem, Size, SmallCount

Sets = Annotated[int, Field(ge=1, le=100)]
Dilations = Annotated[tuple[Size, ...], Field(min_length=1, max_length=32)]
Unfold = Annotated[float, Field(ge=1.0, le=100.0)]


class ByteNetConfig(FamilyConfig):
    """Sizes default to the paper's."""

    family: Literal["bytenet"] = "bytenet"
    """Model family."""
    dim: Size = 800
    """Channels inside a residual block; between blocks and in embeddings twice as many."""
    sets: Sets = 6
    """Sets of residual blocks, in the encoder and in the decoder."""
    dilations: Dilations = (1, 2, 4, 8, 16)
    """Dilation of each block of a set."""
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
        """What the convolution reads: (…, 2 dim) -> (…, dim)."""
        return functional.relu(self.across_norm(self.down(functional.relu(self.down_norm(x)))))

    def after(self, x: Tensor, found: Tensor) -> Tensor:
        return self.out(x + self.dropout(self.up(functional.relu(self.up_norm(found)))))


class EncoderBlock(Block):
    def forward(self, x: Tensor, real: Tensor | None) -> Tensor:
        """x (sources, width, 2 dim), real (sources, width): which columns there are -> as x."""
        read = self.before(x)
        return self.after(x, self.across.around(read if real is None else read.masked_fill(~real[..., None], 0.0)))


class DecoderBlock(Block):
    def forward(self, x: Tensor, row_state: Tensor, count: Tensor | None) -> tuple[Tensor, Tensor]:
        """x (rows, time, 2 dim) -> as x, and the past."""
        found, row_state = self.across.follow(self.before(x), row_state, count)
        return self.after(x, found), row_state


class ByteNet(nn.Module):
    def __init__(self, config: ByteNetConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__()
        self.config = config
        width = 2 * config.dim
        self.target_embedding = embedding(target_vocab, width)
        self.source_embedding = None if config.tie == "all" else embedding(source_vocab, width)
        self.scale = math.sqrt(width)  # so that words weigh as much as columns
        self.dropout = Dropout(config.dropout)
        self.encoder = Layers(EncoderBlock(config, dilation) for dilation in dilations(config))
        self.encoder_norm, self.encoder_out = nn.LayerNorm(width), linear(width, width)
        self.decoder = Layers(DecoderBlock(config, dilation) for dilation in dilations(config))
        self.decoder_norm, self.decoder_out = nn.LayerNorm(width), linear(width, width)
        self.readout: nn.Module = linear(width, target_vocab) if config.tie == "none" else Readout(self.target_embedding)

    @property
    def longest(self) -> int | None:
        return None

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
        """source (sources, time), source_mask (sources, time) or None: nothing is padded."""
        table = self.target_embedding if self.source_embedding is None else self.source_embedding
        x = self.dropout(table(source) * self.scale)  # (sources, time, 2 dim)
        share = round(1000 * self.config.unfold)  # columns for a thousand tokens
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
            "blocks": [block.across.beginning(source.shape[0], x) for block in self.decoder],
            "said": torch.zeros(source.shape[0], dtype=torch.long, device=source.device),
        }
        return State({"columns": columns}, row_state)

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step:
        """tokens (rows, time): the next token, a chunk, or a whole target; mask (rows, time): which of them are real."""
        lineup = None if mask is None else pack_left_order(mask)
        count = None if lineup is None else lineup.real
        if lineup is not None:
            tokens = gather_time(tokens, lineup.order)
        said = state.row_state["said"]
        places = said[:, None] + torch.arange(tokens.shape[1], device=tokens.device)  # (rows, time)
        x = self.dropout(self.target_embedding(tokens) * self.scale)  # (rows, time, 2 dim)
        x = x + below(state.memory["columns"], places)
        blocks = []
        for block, row_state in zip(self.decoder, state.row_state["blocks"], strict=True):
            x, row_state = block(x, row_state, count)
            blocks.append(row_state)
        hidden = functional.relu(self.decoder_out(functional.relu(self.decoder_norm(x))))
        if lineup is not None:
            hidden = gather_time(hidden, lineup.back)
        new = {"blocks": blocks, "said": said + (tokens.shape[1] if count is None else count)}
        return Step(hidden, state._replace(row_state=new), {})

    def project(self, hidden: Tensor) -> Tensor:
        """(…, 2 dim) -> logits (…, target vocabulary)."""
        logits: Tensor = self.readout(hidden)
        return logits

    def blocks(self) -> list[nn.Module]:
        """For those who recompute, shard or compile them one by one."""
        return [*self.encoder, *self.decoder]


def below(columns: Tensor, places: Tensor) -> Tensor:
    """columns (sources, width, dim), places (rows, time) -> the column under each place, zeros beyond: (rows, time, dim)."""
    sources, width, _ = columns.shape
    together = places.view(sources, -1, 1)  # the rows of a source stand together
    index = together.clamp(max=width - 1).expand(-1, -1, columns.shape[2])
    found = columns.gather(1, index).masked_fill(together >= width, 0.0)
    return found.view(*places.shape, -1)


def dilations(config: ByteNetConfig) -> Iterator[int]:
    """Of every block of a stack."""
    for _ in range(config.sets):
        yield from config.dilations


def embedding(vocab: int, dim: int) -> nn.Embedding:
    made = nn.Embedding(vocab, dim)
    nn.init.normal_(made.weight, std=dim**-0.5)
    return made
