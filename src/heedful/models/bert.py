"""BERT: a Transformer encoder that attends in both directions (Devlin et al., 2019).

    x = norm(token + position + segment),  then `layers` x (self-attention, feed-forward), each with its norm

    BERT       segments = 2, max_positions = 512, pooler = true
    RoBERTa    segments = 0: no segments and no next-sentence prediction (Liu et al., 2019)

Other positional encodings and pre-norm are options. Tasks add a head: masked tokens, labels, tags.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from pydantic import model_validator
from torch import Tensor, nn

from heedful.config.base import Probability, Problem, Size, SmallCount, ZeroOrSmallCount, refuse, unused
from heedful.models.family import (
    Architecture,
    FamilyConfig,
    PerLayer,
    PositionName,
    head_problems,
    per_layer,
    refuse_pruned_positions,
)
from heedful.nn.attention import AttentionBias, self_attention
from heedful.nn.blocks import FEED_FORWARDS, NORMS
from heedful.nn.dropout import Dropout
from heedful.nn.hooks import HookPoint
from heedful.nn.layers import Layers
from heedful.nn.linear import Linear, linear
from heedful.nn.model import SELF, AttentionLayer, EncoderModel, LayerOutput
from heedful.nn.positions import POSITIONS, Position, PositionSize, make_attention_bias
from heedful.nn.structure import StructureConfig, attention_structure, join, make_structure, smallest

INITIAL_STD = 0.02  # of all weights
NORM_EPS = 1e-12  # as published


class BertConfig(FamilyConfig):
    """Sizes default to BERT base."""

    architecture: ClassVar[Architecture] = "encoder"
    family: Literal["bert"] = "bert"
    """Model family."""
    dim: Size = 768
    """Size of embeddings and hidden states."""
    layers: SmallCount = 12
    """Encoder layers."""
    heads: PerLayer = 12
    """Attention heads: one number, or one for each layer; 0: the layer adds only its bias."""
    head_dim: Size | None = None
    """Size of an attention head; default: dim / heads."""
    feed_forward: Size | None = None
    """Hidden size of feed-forward layers; default: 4 x dim."""
    activation: Literal["relu", "gelu", "gelu_tanh", "swiglu"] = "gelu"
    """Activation of feed-forward layers."""
    norm: Literal["post", "pre"] = "post"
    """Layer normalization after or before each sub-layer."""
    position: PositionName = "learned"
    """Positional encoding."""
    max_positions: Size = 512
    """Number of learned positions."""
    relative_clip: Size = 16
    """Maximum distance that relative positions distinguish."""
    structure: StructureConfig = StructureConfig()
    """Which tokens attend to which."""
    segments: ZeroOrSmallCount = 2
    """Number of segment embeddings, one for each text of a pair; 0: none."""
    pooler: bool = False
    """Dense layer with tanh on the state of the first token, as in BERT; needs a task that uses it: pooling "cls", or
    next-sentence prediction."""
    dropout: Probability = 0.1
    """Dropout of embeddings and of every sub-layer's output."""
    attention_dropout: Probability = 0.1
    """Dropout of attention weights."""
    activation_dropout: Probability = 0.0
    """Dropout inside feed-forward layers."""

    @property
    def structures(self) -> dict[str, StructureConfig]:
        return {"structure": self.structure}

    @property
    def head_counts(self) -> tuple[int, ...]:
        return per_layer(self.heads, self.layers)

    @property
    def resolved_head_dim(self) -> int:
        return self.head_dim or self.dim // max(self.head_counts)

    @property
    def heads_by_kind(self) -> dict[str, tuple[int, ...]]:
        return {SELF.name: self.head_counts}

    def with_heads(self, left: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
        refuse_pruned_positions(self.position, [self.head_counts], [left[SELF.name]])
        return {"heads": left[SELF.name], "head_dim": self.resolved_head_dim}

    @model_validator(mode="after")
    def _fits_together(self) -> BertConfig:
        problems = head_problems(
            self.head_counts, layers=self.layers, dim=self.dim, head_dim=self.head_dim, position=self.position
        )
        if self.position == "sinusoidal" and self.dim % 2:
            problems.append(Problem("dim", f"given {self.dim}, expected an even number for sinusoidal positions"))
        reasons = {}
        if self.position != "learned":
            reasons["max_positions"] = f"only learned positions have a limit, not {self.position!r}"
        if self.position != "relative":
            reasons["relative_clip"] = f"only relative positions are clipped, not {self.position!r}"
        refuse([*problems, *unused(self, reasons)])
        return self

    def problems_with(self, *, shared: bool, source: int, target: int) -> list[Problem]:
        problems = self.structure.length_problems("structure", target, target)
        if self.position == "learned" and self.max_positions < target:
            given = f"given {self.max_positions}, expected at least {target}: the sequence length"
            problems.append(Problem("max_positions", given))
        return problems


class Layer(nn.Module):
    def __init__(self, config: BertConfig, heads: int) -> None:
        super().__init__()
        residual, hidden = NORMS[config.norm], config.feed_forward or 4 * config.dim
        self.self_attention = self_attention(config.dim, heads, config.resolved_head_dim, config.attention_dropout)
        self.self_attention_residual = residual(config.dim, config.dropout, NORM_EPS)
        self.feed_forward = FEED_FORWARDS[config.activation](config.dim, hidden, config.activation, config.activation_dropout)
        self.feed_forward_residual = residual(config.dim, config.dropout, NORM_EPS)
        self.out = HookPoint()

    def forward(self, x: Tensor, position: Position, positions: Tensor, structure: AttentionBias) -> Tensor:
        """x (rows, time, dim), positions (1, time); structure: mask and bias (rows or 1, 1, time or 1, time)."""

        def attend(x: Tensor) -> Tensor:
            query, key, value = self.self_attention.split(x)
            query, key = position.rotate(query, positions), position.rotate(key, positions)
            own = make_attention_bias(position, query, positions, positions, None)
            return self.self_attention(query, key, value, join(own, structure)._replace(mix=own.mix))

        x = self.self_attention_residual(x, attend)
        return self.out(self.feed_forward_residual(x, self.feed_forward))

    if TYPE_CHECKING:
        __call__ = forward


class Bert(EncoderModel):
    def __init__(self, config: BertConfig, vocab: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocab, config.dim)
        size = PositionSize(
            dim=config.dim,
            heads=max(config.head_counts),
            head_dim=config.resolved_head_dim,
            limit=config.max_positions,
            clip=config.relative_clip,
            reads_ahead=True,
        )
        self.position = POSITIONS[config.position](size)
        self.structure = make_structure(config.structure)
        self.segment = nn.Embedding(config.segments, config.dim) if config.segments else None
        self.embedding_norm = nn.LayerNorm(config.dim, NORM_EPS)
        self.dropout = Dropout(config.dropout)
        self.layers = Layers(Layer(config, heads) for heads in config.head_counts)
        self.last = NORMS[config.norm].last(config.dim, NORM_EPS)
        self.pooler = linear(config.dim, config.dim) if config.pooler else None
        self.initialize()

    def initialize(self) -> None:
        """All weights N(0, 0.02^2)."""
        for module in self.modules():
            if isinstance(module, Linear):
                nn.init.normal_(module.weight, std=INITIAL_STD)
        for table in (self.embedding, self.segment):
            if table is not None:
                nn.init.normal_(table.weight, std=INITIAL_STD)

    def attentions(self) -> list[AttentionLayer]:
        return [one for at, layer in enumerate(self.layers) for one in self.attention(SELF, at, layer.self_attention)]

    def layer_outputs(self) -> list[LayerOutput]:
        return [self.layer_output("target", at, layer.out) for at, layer in enumerate(self.layers)]

    @property
    def max_length(self) -> int | None:
        return smallest(self.position.limit, None if self.structure is None else self.structure.limit)

    def encode(
        self,
        tokens: Tensor,
        mask: Tensor | None = None,
        *,
        segments: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """As in the base class; attention_mask (rows or 1, query, key): True where attention is allowed, in addition to the
        structure of the model."""
        self.position.check_length(tokens.shape[1])
        positions = torch.arange(tokens.shape[1], device=tokens.device)[None]  # (1, time)
        x = self.position.embed(self.embedding(tokens), positions)  # (rows, time, dim)
        if self.segment is not None:
            x = x + self.segment(torch.zeros_like(tokens) if segments is None else segments)
        x = self.dropout(self.embedding_norm(x))
        keys = AttentionBias(None if mask is None else mask[:, None, None, :])  # (rows, 1, 1, time)
        structure = join(keys, attention_structure(self.structure, positions, attention_mask))
        for layer in self.layers:
            x = layer(x, self.position, positions, structure)
        hidden: Tensor = self.last(x)
        return hidden

    def first_state(self, hidden: Tensor) -> Tensor:
        first = hidden[:, 0]  # (rows, dim)
        return first if self.pooler is None else self.pooler(first).tanh()

    def blocks(self) -> list[nn.Module]:
        return list(self.layers)
