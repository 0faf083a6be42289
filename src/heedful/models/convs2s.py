"""ConvS2S: convolutional encoder and decoder, with attention in every decoder layer
("Convolutional Sequence to Sequence Learning", Gehring et al., 2017).

    embed      e = word + position
    layer      x <- (glu(conv(x)) + x) / sqrt 2                     glu([a; b]) = a sigmoid(b); the decoder's conv is causal
    attend     q = (W x + e) / sqrt 2,  c = sqrt(m) sum_j softmax_j(q . z_j) (z_j + e_j) / sqrt 2,  x <- (x + V c) / sqrt 2
               between a decoder layer's glu and its sum; z: encoder outputs of the m tokens, e_j: their embeddings

Scaling every sum by 1 / sqrt 2 preserves the variance, and so does the initialization: weights before a gate have four times
the variance of others. All have weight normalization. The state of a row is the last kernel - 1 inputs of every layer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import torch
from pydantic import model_validator
from torch import Tensor, nn
from torch.nn import functional

from heedful.config.base import Probability, Problem, Size, SmallCount, refuse
from heedful.models.family import FamilyConfig, tying_problems
from heedful.nn.attention import AttentionBias, AttentionCore
from heedful.nn.convolution import Convolution, with_weight_norm
from heedful.nn.decoder_state import State, Step, Tree
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import Embeddings
from heedful.nn.hooks import HookPoint
from heedful.nn.layers import Layers
from heedful.nn.linear import Linear
from heedful.nn.model import CROSS, AttentionLayer, LayerOutput, SequenceModel
from heedful.nn.pack_left import gather_time, pack_left_order
from heedful.nn.positions import Learned, PositionSize

Channels = Size | tuple[Size, ...]
Kernels = SmallCount | tuple[SmallCount, ...]
INITIAL_STD = 0.1  # of embeddings
HALF = math.sqrt(0.5)  # halves the variance of a sum


class ConvS2SConfig(FamilyConfig):
    """The paper's model for English-German has dim 768, out_dim 512, 15 layers, channels 9 x 512, 4 x 1024, 2 x 2048 and
    kernel 13 x 3, 2 x 1."""

    family: Literal["convs2s"] = "convs2s"
    """Model family."""
    dim: Size = 512
    """Size of embeddings and of attention queries."""
    out_dim: Size | None = None
    """Size of the layer before the output; default: dim."""
    layers: SmallCount = 8
    """Encoder layers."""
    decoder_layers: SmallCount | None = None
    """Decoder layers; default: as many as `layers`."""
    channels: Channels = 512
    """Convolution channels: one number, or one for each layer."""
    kernel: Kernels = 3
    """Width of the convolutions, in tokens: one number, or one for each layer."""
    max_positions: Size = 1024
    """Number of learned positions."""
    tie: Literal["all", "output", "none"] = "none"
    """Shared weights: both embeddings and output, target and output, none."""
    dropout: Probability = 0.1
    """Dropout of embeddings, convolution inputs and the layer before the output."""

    @property
    def stacks(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """(channels, kernel) of every layer of the encoder and of the decoder."""
        encoder, decoder = (
            list(zip(per_layer(self.channels, layers), per_layer(self.kernel, layers), strict=True))
            for layers in (self.layers, self.decoder_layers or self.layers)
        )
        return encoder, decoder

    @model_validator(mode="after")
    def _fits_together(self) -> ConvS2SConfig:
        layers = {self.layers, self.decoder_layers or self.layers}
        problems = [
            Problem(
                name, f"given {list(given)!r}, expected one number or one for each of {' and '.join(map(str, layers))} layers"
            )
            for name in ("channels", "kernel")
            if isinstance(given := getattr(self, name), tuple) and {len(given)} != layers
        ]
        if self.tie != "none" and self.out_dim not in (None, self.dim):
            problems.append(Problem("out_dim", f"given {self.out_dim}, but a tied output has dim, which is {self.dim}"))
        refuse(problems)
        return self

    def problems_with(self, *, shared: bool, source: int, target: int) -> list[Problem]:
        problems = tying_problems(self.tie, shared=shared)
        if self.max_positions < max(source, target):
            expected = f"expected at least {max(source, target)}, the maximum sequence length"
            problems.append(Problem("max_positions", f"given {self.max_positions}, {expected}"))
        return problems


def per_layer(sizes: Channels | Kernels, layers: int) -> tuple[int, ...]:
    return (sizes,) * layers if isinstance(sizes, int) else sizes


def plain_map(inputs: int, outputs: int, dropout: float = 0.0) -> Linear:
    """A linear layer with weight normalization that preserves the variance of its input after dropout."""
    return with_weight_norm(Linear(inputs, outputs), math.sqrt((1 - dropout) / inputs))


def adapter(inputs: int, outputs: int) -> nn.Module:
    """A projection for residual connections between layers of different width."""
    return nn.Identity() if inputs == outputs else plain_map(inputs, outputs)


class Gated(nn.Module):
    """glu(conv(dropout(x))): the convolution has twice the channels, and one half gates the other."""

    def __init__(self, inputs: int, channels: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.convolution = Convolution(inputs, 2 * channels, kernel)
        with_weight_norm(self.convolution.map, math.sqrt(4 * (1 - dropout) / (kernel * inputs)))

    def centered(self, x: Tensor) -> Tensor:
        return functional.glu(self.convolution.centered(self.dropout(x)))

    def causal(self, x: Tensor, row_state: Tensor, count: Tensor | None) -> tuple[Tensor, Tensor]:
        convolved, row_state = self.convolution.causal(self.dropout(x), row_state, count)
        return functional.glu(convolved), row_state


class EncoderLayer(nn.Module):
    def __init__(self, inputs: int, channels: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.gated = Gated(inputs, channels, kernel, dropout)
        self.adapt = adapter(inputs, channels)
        self.out = HookPoint()

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """x (sources, time, inputs) -> (sources, time, channels), both zero where mask (sources, time) is False."""
        return self.out(zero_padding((self.gated.centered(x) + self.adapt(x)) * HALF, mask))

    if TYPE_CHECKING:
        __call__ = forward


class Attention(nn.Module):
    """Attention of one decoder layer to the source."""

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__()
        self.query = plain_map(channels, dim)
        core = AttentionCore(dropout=0.0)
        self.weights, self.context, self.core = core.weights, core.context, core  # hook points are named after the attention
        self.out = plain_map(dim, channels)

    def forward(self, x: Tensor, embedded: Tensor, memory: Tree) -> Tensor:
        """x (sources, new, channels), embedded (sources, new, dim) -> (sources, new, channels)."""
        query = (self.query(x) + embedded) * (HALF * math.sqrt(embedded.shape[-1]))  # cancels the scaling of the scores
        context = self.core(query[:, None], memory["keys"], memory["values"], AttentionBias(memory["mask"]))[:, 0]
        return self.out(context * memory["scale"])

    if TYPE_CHECKING:
        __call__ = forward


class DecoderLayer(nn.Module):
    def __init__(self, inputs: int, channels: int, kernel: int, config: ConvS2SConfig) -> None:
        super().__init__()
        self.gated = Gated(inputs, channels, kernel, config.dropout)
        self.cross_attention = Attention(channels, config.dim)
        self.adapt = adapter(inputs, channels)
        self.out = HookPoint()

    def forward(
        self, x: Tensor, embedded: Tensor, memory: Tree, row_state: Tensor, count: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """x (rows, time, inputs), embedded (sources, new, dim) -> (rows, time, channels), and the new state."""
        gated, row_state = self.gated.causal(x, row_state, count)
        attended = self.cross_attention(gated.view(*embedded.shape[:2], -1), embedded, memory).view_as(gated)
        return self.out(((gated + attended) * HALF + self.adapt(x)) * HALF), row_state

    if TYPE_CHECKING:
        __call__ = forward


class ConvS2S(SequenceModel):
    def __init__(self, config: ConvS2SConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__()
        self.config = config
        dim, dropout = config.dim, config.dropout
        encoder, decoder = config.stacks
        self.embedding = Embeddings(source_vocab, target_vocab, dim, tie=config.tie, std=INITIAL_STD)
        self.encoder_position, self.decoder_position = position(config), position(config)
        self.dropout = Dropout(dropout)
        self.encoder_in = plain_map(dim, encoder[0][0], dropout)
        widths = [encoder[0][0], *(channels for channels, _ in encoder)]
        self.encoder = Layers(EncoderLayer(widths[i], *size, dropout) for i, size in enumerate(encoder))
        self.encoder_out = plain_map(widths[-1], dim)
        self.decoder_in = plain_map(dim, decoder[0][0], dropout)
        widths = [decoder[0][0], *(channels for channels, _ in decoder)]
        self.decoder = Layers(DecoderLayer(widths[i], *size, config) for i, size in enumerate(decoder))
        self.decoder_out = plain_map(widths[-1], config.out_dim or dim)
        untied = plain_map(config.out_dim or dim, target_vocab, dropout)
        self.output = untied if config.tie == "none" else None

    def attentions(self) -> list[AttentionLayer]:
        return [one for at, layer in enumerate(self.decoder) for one in self.attention(CROSS, at, layer.cross_attention)]

    def layer_outputs(self) -> list[LayerOutput]:
        source = [self.layer_output("source", at, layer.out) for at, layer in enumerate(self.encoder)]
        return source + [self.layer_output("target", at, layer.out) for at, layer in enumerate(self.decoder)]

    @property
    def max_length(self) -> int | None:
        return self.config.max_positions

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
        self.encoder_position.check_length(source.shape[1])
        positions = torch.arange(source.shape[1], device=source.device)[None]
        vectors = self.embedding.embed("source", source)
        embedded = self.dropout(self.encoder_position.embed(vectors, positions))  # (sources, time, dim)
        x = zero_padding(self.encoder_in(embedded), source_mask)
        for layer in self.encoder:
            x = layer(x, source_mask)
        keys = scale_gradient(self.encoder_out(x), 1 / len(self.decoder) if self.training else 1.0)
        lengths = embedded.new_full((source.shape[0],), source.shape[1]) if source_mask is None else source_mask.sum(1)
        memory = {
            "keys": zero_padding(keys, source_mask)[:, None],  # (sources, 1, time, dim)
            "values": zero_padding((keys + embedded) * HALF, source_mask)[:, None],  # (sources, 1, time, dim)
            "mask": None if source_mask is None else source_mask[:, None, None],  # (sources, 1, 1, time)
            "scale": lengths.to(embedded.dtype).sqrt()[:, None, None],  # (sources, 1, 1)
        }
        row_state = {
            "layers": [layer.gated.convolution.initial_state(source.shape[0], x) for layer in self.decoder],
            "length": torch.zeros(source.shape[0], dtype=torch.long, device=source.device),
        }
        return State(memory, row_state)

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step:
        time, sources = tokens.shape[1], state.memory["keys"].shape[0]
        packed = None if mask is None else pack_left_order(mask)
        count = None if packed is None else packed.real
        length, new = state.row_state["length"], time if count is None else count
        if isinstance(state.filled, int):  # in the first step the length is known without reading the tensor
            self.decoder_position.check_length(time if state.filled == 0 or tokens.is_meta else int((length + new).max()))
        positions = (length[:, None] + torch.arange(time, device=tokens.device)).clamp(max=self.config.max_positions - 1)
        if packed is not None:
            tokens = gather_time(tokens, packed.order)
        vectors = self.embedding.embed("target", tokens)
        embedded = self.dropout(self.decoder_position.embed(vectors, positions))  # (rows, time, dim)
        x, by_source = self.decoder_in(embedded), embedded.view(sources, -1, embedded.shape[-1])
        layers = []
        for layer, row_state in zip(self.decoder, state.row_state["layers"], strict=True):
            x, row_state = layer(x, by_source, state.memory, row_state, count)
            layers.append(row_state)
        hidden = self.dropout(self.decoder_out(x))
        if packed is not None:
            hidden = gather_time(hidden, packed.back)
        return Step(
            hidden, state._replace(row_state={"layers": layers, "length": length + new}, filled=state.filled + time), {}
        )

    def project(self, hidden: Tensor) -> Tensor:
        return self.embedding.project(hidden) if self.output is None else self.output(hidden)

    def blocks(self) -> list[nn.Module]:
        return [*self.encoder, *self.decoder]


def zero_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """Set padding to zero: x (sources, time, dim), mask (sources, time)."""
    return x if mask is None else x.masked_fill(~mask[..., None], 0.0)


def scale_gradient(x: Tensor, factor: float) -> Tensor:
    """Return x and multiply its gradient by a factor: the encoder receives a gradient from every decoder layer."""
    detached = x.detach()
    return detached + (x - detached) * factor


def position(config: ConvS2SConfig) -> Learned:
    size = PositionSize(config.dim, heads=1, head_dim=config.dim, limit=config.max_positions, clip=0, reads_ahead=True)
    learned = Learned(size)
    nn.init.normal_(learned.table.weight, std=INITIAL_STD)
    return learned
