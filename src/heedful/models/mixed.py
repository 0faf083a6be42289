"""Mixed: encoder and decoder of any sequence layers, connected by attention or by a fixed vector.

    layer      x <- x + mix(x)          mix: attention, recurrence or convolution, chosen for each layer
               x <- x + attend(x)       in the decoder, if the bridge is attention
               x <- x + feed_forward(x)                                                each with its norm, see nn/blocks.py
    bridge     attention   every decoder layer attends to the encoder output
               vector      v = W mean_j z_j, the mean over the real tokens, is added to every input of the decoder

So recurrence, convolution and attention can be compared with everything else equal. Self-attention in encoder and decoder
with a bridge of attention is the Transformer. LSTMs with a vector and convolutions with attention are the ideas of
Sutskever et al. (2014) and Gehring et al. (2017), without the details of their models.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.config.base import Probability, Problem, Size, SmallCount, refuse, unused
from heedful.models.family import FamilyConfig, tying_problems
from heedful.nn import masks
from heedful.nn.attention import AttentionBias, CrossAttention
from heedful.nn.blocks import NORMS, FeedForward, Residual
from heedful.nn.decoder_state import State, Step, Tree
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import Embeddings
from heedful.nn.hooks import HookPoint
from heedful.nn.layers import Layers
from heedful.nn.linear import linear
from heedful.nn.model import CROSS, DECODER, ENCODER, AttentionKind, AttentionLayer, LayerOutput, SequenceModel
from heedful.nn.pack_left import gather_time, pack_left_order
from heedful.nn.positions import POSITIONS, Position, PositionSize
from heedful.nn.sequence_layers import SEQUENCE_LAYERS, KindName, LayerSize
from heedful.nn.sequence_layers.base import LayerState
from heedful.nn.step_context import StepContext, next_tokens

Kinds = Annotated[tuple[KindName, ...], Field(min_length=1)]
UNUSED_REASONS = {  # why an option has no effect
    "heads": "neither a layer nor the bridge is attention",
    "window": "no layer is 'restricted'",
    "kernel": "no layer is 'convolution' or 'dilated'",
    "dilation": "no layer is 'dilated'",
    "recurrent_norm": "no layer is 'lstm' or 'gru'",
}


class MixedConfig(FamilyConfig):
    """Sizes and layers default to those of the Transformer's base model."""

    family: Literal["mixed"] = "mixed"
    """Model family."""
    dim: Size = 512
    """Size of embeddings and hidden states."""
    encoder: Kinds = ("self-attention",) * 6
    """The kind of each encoder layer, lowest first."""
    decoder: Kinds = ("self-attention",) * 6
    """The kind of each decoder layer, lowest first."""
    bridge: Literal["attention", "vector"] = "attention"
    """Connection of encoder and decoder: attention, or one vector."""
    heads: SmallCount = 8
    """Attention heads, in layers and in the bridge."""
    window: Size = 128
    """Restricted attention: number of tokens attended to."""
    kernel: SmallCount = 3
    """Width of the convolutions, in tokens."""
    dilation: Size = 2
    """Dilated convolution: distance between the tokens it reads."""
    recurrent_norm: Literal["none", "layer"] = "none"
    """Layer normalization of the summed inputs of the gates of lstm and gru layers."""
    feed_forward: Size = 2048
    """Hidden size of feed-forward layers."""
    norm: Literal["post", "pre"] = "post"
    """Layer normalization after or before each sub-layer."""
    position: Literal["none", "sinusoidal", "learned"] = "sinusoidal"
    """Positional encoding."""
    max_positions: Size = 1024
    """Number of learned positions."""
    tie: Literal["all", "output", "none"] = "all"
    """Shared weights: both embeddings and output, target and output, none."""
    scale_embeddings: bool = True
    """Multiply embeddings by sqrt(dim)."""
    dropout: Probability = 0.1
    """Dropout of embeddings and of every sub-layer's output."""

    @property
    def used_options(self) -> set[str]:
        """Options that a layer or the bridge uses, besides `dim`."""
        names = {name for kind in (*self.encoder, *self.decoder) for name in SEQUENCE_LAYERS[kind].options}
        return names | ({"heads"} if self.bridge == "attention" else set())

    def size(self, *, causal: bool) -> LayerSize:
        heads = self.heads if "heads" in self.used_options else 1
        options = {"window": self.window, "kernel": self.kernel, "dilation": self.dilation}
        return LayerSize(dim=self.dim, heads=heads, causal=causal, recurrent_norm=self.recurrent_norm, **options)

    @model_validator(mode="after")
    def _fits_together(self) -> MixedConfig:
        problems = []
        if self.dim % 2:
            problems.append(Problem("dim", f"given {self.dim}, expected an even number: one half per direction"))
        if "heads" in self.used_options and self.dim % self.heads:
            problems.append(Problem("heads", f"given {self.heads}, which does not divide dim {self.dim}"))
        reasons = {name: why for name, why in UNUSED_REASONS.items() if name not in self.used_options}
        if self.position != "learned":
            reasons["max_positions"] = f"only learned positions have a limit, not {self.position!r}"
        refuse([*problems, *unused(self, reasons)])
        return self

    def problems_with(self, *, shared: bool, source: int, target: int) -> list[Problem]:
        problems = tying_problems(self.tie, shared=shared)
        if self.position == "learned" and self.max_positions < max(source, target):
            expected = f"expected at least {max(source, target)}, the maximum sequence length"
            problems.append(Problem("max_positions", f"given {self.max_positions}, {expected}"))
        return problems


class EncoderLayer(nn.Module):
    def __init__(self, config: MixedConfig, kind: KindName) -> None:
        super().__init__()
        residual = NORMS[config.norm]
        self.mix = SEQUENCE_LAYERS[kind](config.size(causal=False))
        self.mix_residual = residual(config.dim, config.dropout)
        self.feed_forward = FeedForward(config.dim, config.feed_forward, "relu", dropout=0.0)
        self.feed_forward_residual = residual(config.dim, config.dropout)
        self.out = HookPoint()

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """x (sources, time, dim), mask (sources, time)."""
        x = self.mix_residual(x, lambda x: self.mix(x, mask))
        return self.out(self.feed_forward_residual(x, self.feed_forward))

    if TYPE_CHECKING:
        __call__ = forward


class DecoderLayer(nn.Module):
    def __init__(self, config: MixedConfig, kind: KindName) -> None:
        super().__init__()
        residual = NORMS[config.norm]
        self.mix = SEQUENCE_LAYERS[kind](config.size(causal=True))
        self.mix_residual = residual(config.dim, config.dropout)
        self.cross_attention: CrossAttention | None = None
        self.cross_attention_residual: Residual | None = None
        if config.bridge == "attention":
            self.cross_attention = CrossAttention(config.dim, config.heads, config.dim // config.heads, dropout=0.0)
            self.cross_attention_residual = residual(config.dim, config.dropout)
        self.feed_forward = FeedForward(config.dim, config.feed_forward, "relu", dropout=0.0)
        self.feed_forward_residual = residual(config.dim, config.dropout)
        self.out = HookPoint()

    def forward(self, x: Tensor, memory: Tree, state: LayerState, step: StepContext | None) -> tuple[Tensor, Tree]:
        """x (rows, time, dim); memory: keys, values and mask of the source, None if the bridge is a vector; step: slots and
        positions of x, None: x is the whole target -> as x, and the new row state."""
        row_state = [state.row_state]

        def mix(x: Tensor) -> Tensor:
            if step is None:
                return self.mix(x)
            out, row_state[0] = self.mix.step(x, state, step)
            return out

        x = self.mix_residual(x, mix)
        if self.cross_attention_residual is not None:
            x = self.cross_attention_residual(x, lambda x: self.attend(x, *memory))
        return self.out(self.feed_forward_residual(x, self.feed_forward)), row_state[0]

    def attend(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Cross-attention of x (rows, time, dim), with the rows of a source joined along time."""
        assert self.cross_attention is not None, "the bridge must be attention"
        return self.cross_attention(x.reshape(key.shape[0], -1, x.shape[-1]), key, value, AttentionBias(mask)).view_as(x)

    if TYPE_CHECKING:
        __call__ = forward


class Summary(nn.Module):
    """The bridge of one vector: W mean z + b."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.map = linear(dim, dim)
        self.thought = HookPoint()  # (sources, 1, dim)

    def forward(self, encoded: Tensor, mask: Tensor | None) -> Tensor:
        """encoded (sources, time, dim), mask (sources, time) -> (sources, 1, dim)."""
        if mask is None:
            mean = encoded.mean(1, keepdim=True)
        else:
            real = mask[..., None]  # (sources, time, 1)
            mean = (encoded * real).sum(1, keepdim=True) / real.sum(1, keepdim=True)
        return self.thought(self.map(mean))

    if TYPE_CHECKING:
        __call__ = forward


class Mixed(SequenceModel):
    def __init__(self, config: MixedConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__()
        self.config = config
        scale = math.sqrt(config.dim) if config.scale_embeddings else 1.0
        self.embedding = Embeddings(source_vocab, target_vocab, config.dim, tie=config.tie, scale=scale, output_dim=config.dim)
        self.dropout = Dropout(config.dropout)
        self.encoder_position, self.decoder_position = make_position(config), make_position(config)
        self.encoder = Layers(EncoderLayer(config, kind) for kind in config.encoder)
        self.encoder_last = NORMS[config.norm].last(config.dim)
        self.summary = Summary(config.dim) if config.bridge == "vector" else None
        self.decoder = Layers(DecoderLayer(config, kind) for kind in config.decoder)
        self.decoder_last = NORMS[config.norm].last(config.dim)

    def attentions(self) -> list[AttentionLayer]:
        layers: list[tuple[AttentionKind, int, nn.Module | None]] = [
            (ENCODER, at, layer.mix.attention()) for at, layer in enumerate(self.encoder)
        ]
        for at, layer in enumerate(self.decoder):
            layers += [(DECODER, at, layer.mix.attention()), (CROSS, at, layer.cross_attention)]
        return [one for kind, at, module in layers if module is not None for one in self.attention(kind, at, module)]

    def layer_outputs(self) -> list[LayerOutput]:
        outputs = [self.layer_output("source", at, layer.out) for at, layer in enumerate(self.encoder)]
        if self.summary is not None:
            outputs.append(self.layer_output("state", 0, self.summary.thought))
        return outputs + [self.layer_output("target", at, layer.out) for at, layer in enumerate(self.decoder)]

    @property
    def max_length(self) -> int | None:
        return self.decoder_position.limit

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
        self.encoder_position.check_length(source.shape[1])
        positions = torch.arange(source.shape[1], device=source.device)[None]  # (1, time)
        x = self.embed("source", self.encoder_position, source, positions)
        for layer in self.encoder:
            x = layer(x, source_mask)
        x = self.encoder_last(x)
        row_state = [layer.mix.initial_state(source.shape[0], x) for layer in self.decoder]
        if not room:
            return State(self.make_memory(x, source_mask), row_state)
        kv_cache = {
            "layers": [layer.mix.slots(source.shape[0], room, x) for layer in self.decoder],
            "positions": torch.zeros(source.shape[0], room, dtype=torch.long, device=x.device),
        }
        owned_slots = torch.zeros(source.shape[0], room, dtype=torch.bool, device=x.device)
        return State(self.make_memory(x, source_mask), row_state, kv_cache, owned_slots)

    def make_memory(self, encoded: Tensor, source_mask: Tensor | None) -> Tree:
        """Encoder output (sources, time, dim) -> keys and values of every decoder layer, or one vector."""
        if self.summary is not None:
            return {"vector": self.summary(encoded, source_mask)}
        mask = None if source_mask is None else source_mask[:, None, None, :]  # (sources, 1, 1, time)
        return {
            "layers": [
                layer.cross_attention.project_memory(encoded) for layer in self.decoder if layer.cross_attention is not None
            ],
            "mask": mask,
        }

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step:
        assert state.kv_cache is not None or state.filled == 0, "decoding by steps requires `room` in `start`"
        packed = None if mask is None else pack_left_order(mask)
        if packed is not None:
            tokens, mask = gather_time(tokens, packed.order), masks.padding(packed.real, tokens.shape[1])
        step = None
        if state.kv_cache is not None:
            step = next_tokens(state, tokens, mask, sources=state.kv_cache["positions"].shape[0], limit=self.max_length)
        x = self.embed_target(tokens, state, step)
        row_state = []
        for layer, memory, layer_state in zip(self.decoder, self.memories(state), layer_states(state), strict=True):
            x, new = layer(x, memory, layer_state, step)
            row_state.append(new)
        hidden = self.decoder_last(x)
        if packed is not None:
            hidden = gather_time(hidden, packed.back)
        if step is None:
            return Step(hidden, state._replace(filled=tokens.shape[1]), {})
        filled = state.filled + step.query_positions.shape[1]
        return Step(hidden, state._replace(row_state=row_state, owned_slots=step.owned_slots, filled=filled), {})

    def embed_target(self, tokens: Tensor, state: State, step: StepContext | None) -> Tensor:
        """Input of the first decoder layer: (rows, time, dim)."""
        if step is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)[None]  # (1, time)
            self.decoder_position.check_length(tokens.shape[1])
        else:
            positions = step.query_positions.view_as(tokens)
            if self.max_length is not None and isinstance(state.filled, int) and not tokens.is_meta:
                self.decoder_position.check_length(int(positions.max()) + 1)
        x = self.embed("target", self.decoder_position, tokens, positions)
        if self.summary is None:
            return x
        vector: Tensor = state.memory["vector"]  # (sources, 1, dim)
        return x + vector.repeat_interleave(x.shape[0] // vector.shape[0], 0)

    def memories(self, state: State) -> list[Tree]:
        """Keys, values and mask of the source for every decoder layer."""
        if self.summary is not None:
            return [None] * len(self.decoder)
        return [(*pair, state.memory["mask"]) for pair in state.memory["layers"]]

    def project(self, hidden: Tensor) -> Tensor:
        return self.embedding.project(hidden)

    def embed(self, side: Literal["source", "target"], position: Position, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.dropout(position.embed(self.embedding.embed(side, tokens), positions))  # (rows, time, dim)

    def blocks(self) -> list[nn.Module]:
        return [*self.encoder, *self.decoder]


def layer_states(state: State) -> list[LayerState]:
    """The state of every decoder layer."""
    kv_cache = [None] * len(state.row_state) if state.kv_cache is None else state.kv_cache["layers"]
    return [LayerState(*both) for both in zip(state.row_state, kv_cache, strict=True)]


def make_position(config: MixedConfig) -> Position:
    head_dim = config.dim // config.heads
    size = PositionSize(config.dim, config.heads, head_dim, limit=config.max_positions, clip=0, reads_ahead=True)
    return POSITIONS[config.position](size)
