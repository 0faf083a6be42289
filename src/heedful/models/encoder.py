"""Encoder: any sequence layers in any order, without a decoder: recurrent, convolutional, attention.

    layer      x <- x + mix(x)                  mix: attention, recurrence or convolution, chosen for each layer
               x <- x + feed_forward(x)         unless feed_forward is 0

The encoder of family `mixed`, for tasks that label a text or its tokens. With "lstm" layers it is a bidirectional LSTM. With
`characters`, the spelling of each word is part of its embedding (Ma and Hovy, 2016): a convolution over its UTF-8 bytes, and
the maximum over time; so words outside the vocabulary differ as well. With `features`, the inputs are vectors of numbers, and
a linear map takes the place of the embedding. `structure` limits which tokens attend to which. With `causal`, no position reads
a later one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from pydantic import model_validator
from torch import Tensor, nn

from heedful.config.base import Probability, Problem, Size, SmallCount, ZeroOrSize, refuse, unused
from heedful.errors import ConfigError
from heedful.models.family import Architecture, FamilyConfig
from heedful.nn.attention import AttentionBias
from heedful.nn.blocks import NORMS, FeedForward
from heedful.nn.dropout import Dropout
from heedful.nn.hooks import HookPoint
from heedful.nn.layers import Layers
from heedful.nn.linear import linear
from heedful.nn.model import SELF, AttentionLayer, EncoderModel, LayerOutput
from heedful.nn.positions import POSITIONS, PositionSize
from heedful.nn.sequence_layers import SEQUENCE_LAYERS, KindName, LayerSize
from heedful.nn.structure import StructureConfig, attention_structure, make_structure, smallest

Kinds = tuple[KindName, ...]
BYTES = 257  # padding, and every byte + 1
BYTE_DIM = 32  # size of the embedding of a byte
UNUSED_REASONS = {  # why an option has no effect
    "heads": "no layer is attention with heads",
    "window": "no layer is 'restricted'",
    "kernel": "no layer is 'convolution' or 'dilated'",
    "dilation": "no layer is 'dilated'",
    "recurrent_norm": "no layer is 'lstm' or 'gru'",
}


class EncoderConfig(FamilyConfig):
    architecture: ClassVar[Architecture] = "encoder"
    family: Literal["encoder"] = "encoder"
    """Model family."""
    dim: Size = 256
    """Size of embeddings and hidden states."""
    layers: Kinds = ("lstm", "lstm")
    """The kind of each layer, lowest first; none: a bag of words, whose states are the embeddings."""
    heads: SmallCount = 4
    """Attention heads."""
    window: Size = 128
    """Restricted attention: number of tokens attended to."""
    kernel: SmallCount = 3
    """Width of the convolutions, in tokens."""
    dilation: Size = 2
    """Dilated convolution: distance between the tokens it reads."""
    recurrent_norm: Literal["none", "layer"] = "none"
    """Layer normalization of the summed inputs of the gates of lstm and gru layers."""
    feed_forward: ZeroOrSize = 0
    """Hidden size of feed-forward layers; 0: none."""
    norm: Literal["post", "pre"] = "pre"
    """Layer normalization after or before each sub-layer."""
    causal: bool = False
    """Every position reads itself and the positions before it only, as in a decoder-only model."""
    position: Literal["none", "sinusoidal", "learned"] = "none"
    """Positional encoding."""
    max_positions: Size = 1024
    """Number of learned positions."""
    structure: StructureConfig = StructureConfig()
    """Which tokens attend to which."""
    characters: ZeroOrSize = 0
    """Size of the features of a word's spelling, for tasks whose tokens are words; 0: none."""
    features: ZeroOrSize = 0
    """Size of the input vectors, for tasks whose inputs are numbers; 0: the inputs are tokens."""
    dropout: Probability = 0.1
    """Dropout of embeddings and of every sub-layer's output."""
    word_dropout: Probability = 0.0
    """Dropout of whole tokens: their embedding is zero, and only their spelling and context are left."""

    @property
    def reads_spelling(self) -> bool:
        return self.characters > 0

    @property
    def numeric_inputs(self) -> int:
        return self.features

    @property
    def mixes_otherwise(self) -> str | None:
        """The first kind of layer to which the structure of attention does not apply; None: there is none."""
        if self.causal and self.layers:
            return f"causal {self.layers[0]}"
        return next((kind for kind in self.layers if not SEQUENCE_LAYERS[kind].takes_structure()), None)

    @property
    def structures(self) -> dict[str, StructureConfig]:
        return {"structure": self.structure}

    @property
    def size(self) -> LayerSize:
        used = {name for kind in self.layers for name in SEQUENCE_LAYERS[kind].options}
        heads = self.heads if "heads" in used else 1
        return LayerSize(
            dim=self.dim,
            heads=heads,
            causal=self.causal,
            window=self.window,
            kernel=self.kernel,
            dilation=self.dilation,
            recurrent_norm=self.recurrent_norm,
        )

    @model_validator(mode="after")
    def _fits_together(self) -> EncoderConfig:
        problems, used = [], {name for kind in self.layers for name in SEQUENCE_LAYERS[kind].options}
        if self.dim % 2 and not self.causal:
            problems.append(Problem("dim", f"given {self.dim}, expected an even number: one half per direction"))
        if "heads" in used and self.dim % self.heads:
            problems.append(Problem("heads", f"given {self.heads}, which does not divide dim {self.dim}"))
        if self.structure.kind != "full" and self.mixes_otherwise:
            given = f"given {self.structure.kind!r}, but layer {self.mixes_otherwise!r} has no such structure"
            problems.append(Problem("structure.kind", f"{given}; expected layers of 'self-attention'"))
        reasons = {name: why for name, why in UNUSED_REASONS.items() if name not in used}
        if self.position != "learned":
            reasons["max_positions"] = f"only learned positions have a limit, not {self.position!r}"
        if self.features:
            reasons |= dict.fromkeys(("characters", "word_dropout"), "model.features replaces words by vectors")
        refuse([*problems, *unused(self, reasons)])
        return self

    def problems_with(self, *, shared: bool, source: int, target: int) -> list[Problem]:
        problems = self.structure.length_problems("structure", target, target)
        if self.position == "learned" and self.max_positions < target:
            given = f"given {self.max_positions}, expected at least {target}: the sequence length"
            problems.append(Problem("max_positions", given))
        return problems


class Spelling(nn.Module):
    """Features of words: a convolution over three bytes, and the maximum over the word."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(BYTES, BYTE_DIM, padding_idx=0)
        self.convolution = nn.Conv1d(BYTE_DIM, dim, kernel_size=3, padding=1)

    def forward(self, spelling: Tensor) -> Tensor:
        """spelling (rows, time, bytes), 0 is padding -> (rows, time, dim)."""
        rows, time, width = spelling.shape
        x = self.embedding(spelling.view(rows * time, width)).transpose(1, 2)  # (words, byte dim, bytes)
        x = self.convolution(x).masked_fill(spelling.view(rows * time, 1, width) == 0, 0.0)  # (words, dim, bytes)
        features: Tensor = x.relu().amax(-1).view(rows, time, -1)
        return features

    if TYPE_CHECKING:
        __call__ = forward


class FeatureMap(nn.Module):
    """A linear map of input vectors, standardized by the mean and the standard deviation of the training data."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, features: int, dim: int) -> None:
        super().__init__()
        self.map = linear(features, dim)
        self.standardized = HookPoint()  # (rows, time, features)
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("deviation", torch.ones(features))

    def fit(self, vectors: Tensor) -> None:
        """Set mean and standard deviation to those of the vectors (count, features); a constant feature is only centered."""
        deviation = vectors.std(0, correction=0)
        self.mean.copy_(vectors.mean(0))
        self.deviation.copy_(torch.where(deviation > 0, deviation, 1.0))

    def forward(self, vectors: Tensor) -> Tensor:
        """(rows, time, features) -> (rows, time, dim)."""
        return self.map(self.standardized((vectors.to(self.mean.dtype) - self.mean) / self.deviation))

    if TYPE_CHECKING:
        __call__ = forward


class Layer(nn.Module):
    def __init__(self, config: EncoderConfig, kind: KindName) -> None:
        super().__init__()
        residual = NORMS[config.norm]
        self.mix = SEQUENCE_LAYERS[kind](config.size)
        self.mix_residual = residual(config.dim, config.dropout)
        self.feed_forward = FeedForward(config.dim, config.feed_forward, "gelu", dropout=0.0) if config.feed_forward else None
        self.feed_forward_residual = residual(config.dim, config.dropout) if config.feed_forward else None
        self.out = HookPoint()

    def forward(self, x: Tensor, mask: Tensor | None, structure: AttentionBias | None) -> Tensor:
        """x (rows, time, dim), mask (rows, time); structure: mask or bias (rows or 1, 1, time, time)."""
        x = self.mix_residual(x, lambda x: self.mix(x, mask, structure))
        if self.feed_forward is not None and self.feed_forward_residual is not None:
            x = self.feed_forward_residual(x, self.feed_forward)
        return self.out(x)

    if TYPE_CHECKING:
        __call__ = forward


class Encoder(EncoderModel):
    def __init__(self, config: EncoderConfig, vocab: int) -> None:
        super().__init__()
        self.config = config
        self.features = FeatureMap(config.features, config.dim) if config.features else None
        if not config.features:
            self.embedding = nn.Embedding(vocab, config.dim)
            nn.init.normal_(self.embedding.weight, std=config.dim**-0.5)
        self.spelling = Spelling(config.characters) if config.characters else None
        self.join = linear(config.dim + config.characters, config.dim) if config.characters else None
        size = PositionSize(config.dim, 1, config.dim, limit=config.max_positions, clip=0, reads_ahead=not config.causal)
        self.position = POSITIONS[config.position](size)
        self.structure = make_structure(config.structure)
        self.dropout, self.word_dropout = Dropout(config.dropout), Dropout(config.word_dropout)
        self.layers = Layers(Layer(config, kind) for kind in config.layers)
        self.last = NORMS[config.norm].last(config.dim)

    def embeddings(self) -> dict[Literal["source", "target"], nn.Embedding]:
        return {} if self.features is not None else super().embeddings()

    def input_vectors(self) -> list[nn.Module]:
        return super().input_vectors() if self.features is None else [self.features.standardized]

    def attentions(self) -> list[AttentionLayer]:
        modules = [(at, layer.mix.attention()) for at, layer in enumerate(self.layers)]
        return [one for at, module in modules if module is not None for one in self.attention(SELF, at, module)]

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
        spelling: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """As in the base class; spelling (rows, time, bytes): the bytes of each word + 1, 0 is padding. With `features`, tokens
        are vectors (rows, time, features). attention_mask (rows or 1, query, key): True where attention is allowed, in addition
        to the structure of the model."""
        self.position.check_length(tokens.shape[1])
        vectors = self.embedding(tokens) if self.features is None else self.features(tokens)  # (rows, time, dim)
        if self.config.word_dropout:
            vectors = vectors * self.word_dropout(vectors.new_ones(*tokens.shape, 1))
        if self.spelling is not None and self.join is not None:
            assert spelling is not None, "a model with characters is given the spelling of its words"
            vectors = self.join(torch.cat((vectors, self.spelling(spelling)), dim=-1))
        positions = torch.arange(tokens.shape[1], device=tokens.device)[None]  # (1, time)
        x = self.dropout(self.position.embed(vectors, positions))
        structure = attention_structure(self.structure, positions, attention_mask)
        if structure is not None and self.config.mixes_otherwise:
            raise ConfigError(
                f"the model has an attention structure or mask, which layer {self.config.mixes_otherwise!r} does not apply; "
                "expected layers of 'self-attention'"
            )
        for layer in self.layers:
            x = layer(x, mask, structure)
        hidden: Tensor = self.last(x)
        return hidden

    def fit_inputs(self, vectors: Tensor) -> None:
        assert self.features is not None, "the inputs of the model are vectors"
        self.features.fit(vectors.to(self.features.mean))

    def blocks(self) -> list[nn.Module]:
        return list(self.layers)
