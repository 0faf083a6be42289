"""The Transformer: an encoder over the whole source and an autoregressive decoder
("Attention Is All You Need", Vaswani et al., 2017).

    start    source -> encoder -> keys and values for every decoder layer, once per source
    step     tokens + cache -> decoder -> hidden states, and the cache with these tokens added

A whole teacher-forced target and a single token use the same `step`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import model_validator
from torch import Tensor, nn

from heedful.config.base import (
    NonNegativeNumber,
    Probability,
    Problem,
    Size,
    SmallCount,
    ZeroOrSize,
    ZeroOrSmallCount,
    refuse,
    unused,
)
from heedful.models.family import FamilyConfig, PerLayer, PositionName, per_layer, refuse_pruned_positions, tying_problems
from heedful.nn import masks
from heedful.nn.attention import AttentionBias, cross_attention, self_attention
from heedful.nn.blocks import FEED_FORWARDS, NORMS
from heedful.nn.decoder_state import State, Step, Tree
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import Embeddings
from heedful.nn.experts import Experts, RoutingRecord, balance_losses, size_problems
from heedful.nn.hooks import HookPoint
from heedful.nn.layers import Layers
from heedful.nn.model import CROSS, DECODER, ENCODER, AttentionKind, AttentionLayer, LayerOutput, SequenceModel
from heedful.nn.positions import EMBEDDED, POSITIONS, Concatenated, Position, PositionSize, make_attention_bias
from heedful.nn.step_context import StepContext, next_tokens, whole_sequence
from heedful.nn.structure import (
    CausalStructureConfig,
    CrossStructureConfig,
    StructureConfig,
    attention_structure,
    join,
    make_structure,
    restrict_step,
    smallest,
)


class TransformerConfig(FamilyConfig):
    """Sizes default to the paper's base model; big is dim 1024, heads 16, feed_forward 4096, dropout 0.3."""

    family: Literal["transformer"] = "transformer"
    """Model family."""
    dim: Size = 512
    """Size of embeddings and hidden states."""
    layers: SmallCount = 6
    """Encoder layers."""
    decoder_layers: SmallCount | None = None
    """Decoder layers; default: as many as `layers`."""
    heads: PerLayer = 8
    """Attention heads: one number, or one for each layer; 0: the layer adds only its bias."""
    decoder_heads: PerLayer | None = None
    """Heads of the decoder's self-attention; default: heads."""
    cross_heads: PerLayer | None = None
    """Heads of cross-attention; default: decoder_heads."""
    head_dim: Size | None = None
    """Size of an attention head; default: dim / heads."""
    feed_forward: Size = 2048
    """Hidden size of feed-forward layers."""
    activation: Literal["relu", "gelu", "swiglu"] = "relu"
    """Activation of feed-forward layers."""
    experts: ZeroOrSmallCount = 0
    """Experts in place of each feed-forward layer; 0: a single feed-forward layer."""
    experts_used: SmallCount = 2
    """Experts used for each token."""
    experts_balance: NonNegativeNumber = 0.01
    """Weight of the load-balancing losses."""
    norm: Literal["post", "pre"] = "post"
    """Layer normalization after or before each sub-layer."""
    position: PositionName = "sinusoidal"
    """Positional encoding."""
    position_join: Literal["sum", "concatenate"] = "sum"
    """How positions are joined to embeddings."""
    max_positions: Size = 1024
    """Number of learned positions."""
    relative_clip: Size = 16
    """Maximum distance that relative positions distinguish."""
    window: ZeroOrSize = 0
    """Restricted self-attention: number of tokens attended to; 0: all."""
    structure: StructureConfig = StructureConfig()
    """Which tokens of the source attend to which."""
    decoder_structure: CausalStructureConfig = CausalStructureConfig()
    """Which of the tokens up to itself a token of the target attends to."""
    cross_structure: CrossStructureConfig = CrossStructureConfig()
    """Which tokens of the source a token of the target attends to."""
    tie: Literal["all", "output", "none"] = "all"
    """Shared weights: both embeddings and output, target and output, none."""
    scale_embeddings: bool = True
    """Multiply embeddings by sqrt(dim)."""
    dropout: Probability = 0.1
    """Dropout of embeddings and of every sub-layer's output."""
    attention_dropout: Probability = 0.0
    """Dropout of attention weights."""
    activation_dropout: Probability = 0.0
    """Dropout inside feed-forward layers."""

    @property
    def structures(self) -> dict[str, StructureConfig]:
        names = "structure", "decoder_structure", "cross_structure"
        return {name: getattr(self, name) for name in names}

    @property
    def head_counts(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Heads per layer of the encoder, of the decoder's self-attention and of its cross-attention."""
        decoder_layers = self.decoder_layers or self.layers
        decoder = self.heads if self.decoder_heads is None else self.decoder_heads
        cross = decoder if self.cross_heads is None else self.cross_heads
        return per_layer(self.heads, self.layers), per_layer(decoder, decoder_layers), per_layer(cross, decoder_layers)

    @property
    def heads_by_kind(self) -> dict[str, tuple[int, ...]]:
        return dict(zip(("encoder", "decoder", "cross"), self.head_counts, strict=True))

    def with_heads(self, left: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
        refuse_pruned_positions(self.position, self.head_counts[:2], (left["encoder"], left["decoder"]))
        return {
            "heads": left["encoder"],
            "decoder_heads": left["decoder"],
            "cross_heads": left["cross"],
            "head_dim": self.resolved_head_dim,
        }

    @property
    def resolved_head_dim(self) -> int:
        return self.head_dim or self.dim // max(max(counts) for counts in self.head_counts)

    @model_validator(mode="after")
    def _fits_together(self) -> TransformerConfig:
        decoder_layers = self.decoder_layers or self.layers
        expected = {"heads": self.layers, "decoder_heads": decoder_layers, "cross_heads": decoder_layers}
        problems = [
            Problem(name, f"given {list(given)!r}, expected one number or one for each of {expected[name]} layers")
            for name in expected
            if isinstance(given := getattr(self, name), tuple) and len(given) != expected[name]
        ]
        if isinstance(self.heads, tuple) and self.decoder_heads is None and decoder_layers != self.layers:
            listed = f"missing; heads are listed for {self.layers} layers, not for {decoder_layers}"
            problems.append(Problem("decoder_heads", listed))
        if not problems and self.head_dim is None:
            most = max(max(counts) for counts in self.head_counts)
            if not most:
                problems.append(Problem("head_dim", "missing; expected a size, since no layer has heads to derive it from"))
            elif self.dim % most:
                problems.append(
                    Problem(
                        "heads", f"given {most}, which does not divide dim {self.dim}; choose a divisor or set model.head_dim"
                    )
                )
        if not problems and self.position == "rotary" and self.resolved_head_dim % 2:
            problems.append(
                Problem("position", f"given 'rotary', which requires an even head_dim, but it is {self.resolved_head_dim}")
            )
        if self.position == "sinusoidal" and self.dim % 2:
            problems.append(Problem("dim", f"given {self.dim}, expected an even number for sinusoidal positions"))
        if self.experts:
            problems += expert_problems(self)
        reasons: dict[str, str] = {}
        if not self.experts:
            reasons |= dict.fromkeys(("experts_used", "experts_balance"), "model.experts is 0")
        if self.position not in EMBEDDED:
            reasons["position_join"] = f"position {self.position!r} is not added to the embeddings"
        if self.position != "learned":
            reasons["max_positions"] = f"only learned positions have a limit, not {self.position!r}"
        if self.position != "relative":
            reasons["relative_clip"] = f"only relative positions are clipped, not {self.position!r}"
        refuse([*problems, *unused(self, reasons)])
        return self

    def problems_with(self, *, shared: bool, source: int, target: int) -> list[Problem]:
        problems = tying_problems(self.tie, shared=shared)
        lengths = (source, source), (target, target), (target, source)
        for (name, structure), sides in zip(self.structures.items(), lengths, strict=True):
            problems += structure.length_problems(name, *sides)
        if self.position == "learned" and self.max_positions < max(source, target):
            most = max(source, target) - 1
            sentence = f"given {self.max_positions}, expected more than data.max_length, which is {most}"
            problems.append(Problem("max_positions", sentence))
        return problems


def expert_problems(config: TransformerConfig) -> list[Problem]:
    problems = size_problems({"dim": config.dim, "feed_forward": config.feed_forward}, config.experts, config.experts_used)
    if config.activation == "swiglu":
        problems.append(Problem("activation", "given 'swiglu', expected 'relu' or 'gelu' in a model with experts"))
    return problems


class EncoderLayer(nn.Module):
    def __init__(self, config: TransformerConfig, heads: int) -> None:
        super().__init__()
        residual = NORMS[config.norm]
        self.self_attention = self_attention(config.dim, heads, config.resolved_head_dim, config.attention_dropout)
        self.self_attention_residual = residual(config.dim, config.dropout)
        self.feed_forward = feed_forward(config)
        self.feed_forward_residual = residual(config.dim, config.dropout)
        self.out = HookPoint()

    def forward(
        self, x: Tensor, position: Position, positions: Tensor, structure: AttentionBias, record: RoutingRecord | None
    ) -> Tensor:
        """x (sources, time, dim); structure: mask and bias (sources or 1, 1, time or 1, time)."""

        def attend(x: Tensor) -> Tensor:
            query, key, value = self.self_attention.split(x)
            query, key = position.rotate(query, positions), position.rotate(key, positions)
            own = make_attention_bias(position, query, positions, positions, None)
            return self.self_attention(query, key, value, join(own, structure)._replace(mix=own.mix))

        x = self.self_attention_residual(x, attend)
        return self.out(self.feed_forward_residual(x, with_routing(self.feed_forward, record)))

    if TYPE_CHECKING:
        __call__ = forward


class DecoderLayer(nn.Module):
    def __init__(self, config: TransformerConfig, heads: int, cross_heads: int) -> None:
        super().__init__()
        residual = NORMS[config.norm]
        self.self_attention = self_attention(config.dim, heads, config.resolved_head_dim, config.attention_dropout)
        self.self_attention_residual = residual(config.dim, config.dropout)
        self.cross_attention = cross_attention(config.dim, cross_heads, config.resolved_head_dim, config.attention_dropout)
        self.cross_attention_residual = residual(config.dim, config.dropout)
        self.feed_forward = feed_forward(config)
        self.feed_forward_residual = residual(config.dim, config.dropout)
        self.out = HookPoint()

    def forward(
        self, x: Tensor, memory: Tree, kv_cache: Tree, position: Position, step: StepContext, record: RoutingRecord | None
    ) -> Tensor:
        """x (sources, new, dim); memory: keys and values of the source, and its AttentionBias; kv_cache: buffers of this layer
        -> as x."""

        def attend(x: Tensor) -> Tensor:
            query, key, value = self.self_attention.split(x)
            query, key = position.rotate(query, step.query_positions), position.rotate(key, step.query_positions)
            if kv_cache is not None:
                key, value = step.append(kv_cache, key.transpose(1, 2), value.transpose(1, 2))
            mask = None if step.mask is None else step.mask[:, None]  # (sources, 1, new, slots)
            positions = step.query_positions, step.key_positions
            bias = make_attention_bias(position, query, *positions, mask, causal=step.whole, bias=step.bias)
            return self.self_attention(query, key, value, bias)

        key, value, source_bias = memory
        x = self.self_attention_residual(x, attend)
        x = self.cross_attention_residual(x, lambda x: self.cross_attention(x, key, value, source_bias))
        return self.out(self.feed_forward_residual(x, with_routing(self.feed_forward, record)))

    if TYPE_CHECKING:
        __call__ = forward


def with_routing(layer: nn.Module, record: RoutingRecord | None) -> Callable[[Tensor], Tensor]:
    """The feed-forward layer, with the record passed to experts in training."""
    return layer if record is None else partial(layer, record=record)


def feed_forward(config: TransformerConfig) -> nn.Module:
    if config.experts:
        sizes = config.dim, config.feed_forward, config.experts, config.experts_used
        return Experts(*sizes, activation=config.activation, dropout=config.activation_dropout)
    return FEED_FORWARDS[config.activation](config.dim, config.feed_forward, config.activation, config.activation_dropout)


def make_position(config: TransformerConfig, heads: Sequence[int], *, reads_ahead: bool) -> Position:
    size = PositionSize(
        dim=config.dim,
        heads=max(heads),
        head_dim=config.resolved_head_dim,
        limit=config.max_positions,
        clip=config.relative_clip,
        reads_ahead=reads_ahead,
    )
    scheme = POSITIONS[config.position](size)
    return scheme if config.position_join == "sum" else Concatenated(size, scheme)


class Transformer(SequenceModel):
    def __init__(self, config: TransformerConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__()
        self.config = config
        encoder_heads, decoder_heads, cross_heads = config.head_counts
        scale = math.sqrt(config.dim) if config.scale_embeddings else 1.0
        self.embedding = Embeddings(source_vocab, target_vocab, config.dim, tie=config.tie, scale=scale, output_dim=config.dim)
        self.dropout = Dropout(config.dropout)
        self.encoder_position = make_position(config, encoder_heads, reads_ahead=True)
        self.structure = make_structure(config.structure)
        self.encoder = Layers(EncoderLayer(config, heads) for heads in encoder_heads)
        self.encoder_last = NORMS[config.norm].last(config.dim)
        self.decoder_position = make_position(config, decoder_heads, reads_ahead=False)
        self.decoder_structure = make_structure(config.decoder_structure)
        self.cross_structure = make_structure(config.cross_structure)
        self.decoder = Layers(
            DecoderLayer(config, heads, cross) for heads, cross in zip(decoder_heads, cross_heads, strict=True)
        )
        self.decoder_last = NORMS[config.norm].last(config.dim)

    def attentions(self) -> list[AttentionLayer]:
        layers: list[tuple[AttentionKind, int, nn.Module]] = [
            (ENCODER, at, layer.self_attention) for at, layer in enumerate(self.encoder)
        ]
        for at, layer in enumerate(self.decoder):
            layers += [(DECODER, at, layer.self_attention), (CROSS, at, layer.cross_attention)]
        return [one for layer in layers for one in self.attention(*layer)]

    def layer_outputs(self) -> list[LayerOutput]:
        source = [self.layer_output("source", at, layer.out) for at, layer in enumerate(self.encoder)]
        return source + [self.layer_output("target", at, layer.out) for at, layer in enumerate(self.decoder)]

    @property
    def max_length(self) -> int | None:
        structures = self.decoder_structure, self.cross_structure
        return smallest(self.decoder_position.limit, *(one.limit for one in structures if one is not None))

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
        self.encoder_position.check_length(source.shape[1])
        positions = torch.arange(source.shape[1], device=source.device)[None]  # (1, time)
        x = self.embed("source", self.encoder_position, source, positions)
        padding = None if source_mask is None else source_mask[:, None, None, :]  # (sources, 1, 1, time)
        mask = padding
        if self.config.window > 0 and (torch.compiler.is_exporting() or self.config.window // 2 < source.shape[1] - 1):
            near = masks.window(positions, positions, self.config.window)[:, None]  # (1, 1, time, time)
            mask = near if padding is None else near & padding
        record = self.routing_record(source_mask)
        structure = join(AttentionBias(mask), attention_structure(self.structure, positions))
        for layer in self.encoder:
            x = layer(x, self.encoder_position, positions, structure, record)
        x = self.encoder_last(x)
        memory = {"layers": [layer.cross_attention.project_memory(x) for layer in self.decoder], "mask": padding}
        if record is not None:
            memory["balance_losses"] = torch.stack(record.losses).sum(0).expand(source.shape[0], -1)  # (sources, 2)
        if not room:
            return State(memory, row_state=None)
        kv_cache = {
            "layers": [self.buffers_for(layer, source.shape[0], room, x) for layer in self.decoder],
            "positions": torch.zeros(source.shape[0], room, dtype=torch.long, device=x.device),
        }
        return State(memory, None, kv_cache, torch.zeros(source.shape[0], room, dtype=torch.bool, device=x.device))

    def buffers_for(self, layer: DecoderLayer, sources: int, room: int, like: Tensor) -> tuple[Tensor, Tensor] | None:
        if not layer.self_attention.heads:
            return None
        shape = (sources, room, layer.self_attention.heads, self.config.resolved_head_dim)
        return like.new_zeros(shape), like.new_zeros(shape)  # zeros: attention weights of empty slots are zero, not skipped

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step:
        assert state.kv_cache is not None or state.filled == 0, "decoding by steps requires `room` in `start`"
        step, record = self.step_context(state, tokens, mask), self.routing_record(mask)
        source_time = state.memory["layers"][0][0].shape[2]
        if state.kv_cache is None:
            self.check_lengths(tokens.shape[1], source_time)
        elif self.max_length is not None and isinstance(state.filled, int) and not tokens.is_meta:
            self.check_lengths(int(step.query_positions.max()) + 1, source_time)
        step = restrict_step(step, self.decoder_structure)
        source_bias = AttentionBias(state.memory["mask"])
        if self.cross_structure is not None:
            source_positions = torch.arange(source_time, device=tokens.device)[None]  # (1, source time)
            source_bias = join(source_bias, self.cross_structure(step.query_positions, source_positions))
        x = self.embed("target", self.decoder_position, tokens.view(step.sources, -1), step.query_positions)
        buffers = [None] * len(self.decoder) if state.kv_cache is None else state.kv_cache["layers"]
        for layer, (key, value), kv_cache in zip(self.decoder, state.memory["layers"], buffers, strict=True):
            x = layer(x, (key, value, source_bias), kv_cache, self.decoder_position, step, record)
        hidden = self.decoder_last(x).view(*tokens.shape, -1)
        losses = {}
        if record is not None:
            totals = torch.stack(record.losses).sum(0) + state.memory["balance_losses"].mean(0)  # (2,)
            losses = balance_losses(totals, self.config.experts_balance)
        filled = state.filled + tokens.numel() // step.sources
        return Step(hidden, state._replace(owned_slots=step.owned_slots, filled=filled), losses)

    def step_context(self, state: State, tokens: Tensor, mask: Tensor | None) -> StepContext:
        sources, window = state.memory["layers"][0][0].shape[0], self.config.window
        if state.kv_cache is None and tokens.shape[0] == sources and mask is None:  # the whole target at once
            step = whole_sequence(tokens)
            if not 0 < window < step.time:
                return step
            return step._replace(mask=masks.causal_window(step.query_positions, step.key_positions, window))
        return next_tokens(state, tokens, mask, sources=sources, limit=self.max_length, window=window)

    def check_lengths(self, target: int, source: int) -> None:
        """Check the lengths against the positions and the structures of the decoder."""
        self.decoder_position.check_length(target)
        if self.decoder_structure is not None:
            self.decoder_structure.check_lengths(target, target)
        if self.cross_structure is not None:
            self.cross_structure.check_lengths(target, source)

    def routing_record(self, real: Tensor | None) -> RoutingRecord | None:
        """A new record in training, if there are experts."""
        return RoutingRecord(real, []) if self.config.experts and self.training else None

    def project(self, hidden: Tensor) -> Tensor:
        return self.embedding.project(hidden)

    def embed(self, side: Literal["source", "target"], position: Position, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.dropout(position.embed(self.embedding.embed(side, tokens), positions))  # (rows, time, dim)

    def blocks(self) -> list[nn.Module]:
        return [*self.encoder, *self.decoder]
