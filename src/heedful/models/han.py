"""Hierarchical attention: words -> sentences -> document (Yang et al., 2016).

    words       h = BiGRU(embeddings)          sentence = sum_t a_t h_t,  a: attention pooling, see nn/pooling.py
    sentences   h = BiGRU(sentence vectors)    document = sum_i a_i h_i

A text is a grid of tokens, (sentences, words); with three levels, (sentences, words, characters), where the states of a word's
characters are pooled first. Both attentions say which words and sentences determine the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from pydantic import model_validator
from torch import Tensor, nn

from heedful.config.base import Probability, Problem, Size, refuse, unused
from heedful.models.family import Architecture, FamilyConfig
from heedful.nn.dropout import Dropout
from heedful.nn.hooks import HookPoint
from heedful.nn.layers import Layers
from heedful.nn.linear import linear
from heedful.nn.model import EncoderModel, LayerOutput, PoolingAttention
from heedful.nn.pooling import AttentionPooling
from heedful.nn.sequence_layers import SEQUENCE_LAYERS, LayerSize


class HanConfig(FamilyConfig):
    """Sizes default to the published ones."""

    architecture: ClassVar[Architecture] = "encoder"
    family: Literal["han"] = "han"
    """Model family."""
    dim: Size = 100
    """Size of the states of every level: one half per direction."""
    embedding: Size = 200
    """Size of embeddings."""
    context: Size = 100
    """Size of the hidden layer of the attention."""
    cell: Literal["gru", "lstm"] = "gru"
    """Recurrent cell."""
    levels: tuple[Literal["characters", "words", "sentences"], ...] = ("words", "sentences")
    """What the states of each level belong to, lowest first; with "characters", tokens are characters."""
    max_sentences: Size = 40
    """Maximum sentences of a text; longer ones are truncated."""
    max_words: Size = 50
    """Maximum words of a sentence; longer ones are divided into several."""
    max_characters: Size = 20
    """Maximum characters of a word; longer ones are truncated."""
    dropout: Probability = 0.1
    """Dropout of embeddings and of the vectors of every level."""

    @model_validator(mode="after")
    def _fits_together(self) -> HanConfig:
        problems = []
        if self.dim % 2:
            problems.append(Problem("dim", f"given {self.dim}, expected an even number: one half per direction"))
        if self.levels not in (("words", "sentences"), ("characters", "words", "sentences")):
            known = '["words", "sentences"] or ["characters", "words", "sentences"]'
            problems.append(Problem("levels", f"given {list(self.levels)!r}, expected {known}"))
        reasons = {} if "characters" in self.levels else {"max_characters": "no level is 'characters'"}
        refuse([*problems, *unused(self, reasons)])
        return self

    @property
    def grid(self) -> tuple[int, ...]:
        sizes = {"sentences": self.max_sentences, "words": self.max_words, "characters": self.max_characters}
        return tuple(sizes[level] for level in reversed(self.levels))


class Level(nn.Module):
    """The states of a sequence in both directions, and their weighted mean."""

    def __init__(self, config: HanConfig, inputs: int) -> None:
        super().__init__()
        self.map = linear(inputs, config.dim) if inputs != config.dim else nn.Identity()
        self.recurrent = SEQUENCE_LAYERS[config.cell](LayerSize(dim=config.dim, heads=1))
        self.out = HookPoint()  # (rows, time, dim)
        self.pooling = AttentionPooling(config.dim, config.context)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x (rows, time, inputs), mask (rows, time) -> (rows, dim)."""
        states = self.out(self.recurrent(self.map(x), mask))
        return self.dropout(self.pooling(states, mask))

    if TYPE_CHECKING:
        __call__ = forward


class Han(EncoderModel):
    def __init__(self, config: HanConfig, vocab: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocab, config.embedding)
        nn.init.normal_(self.embedding.weight, std=config.embedding**-0.5)
        self.dropout = Dropout(config.dropout)
        inputs = [config.embedding, *[config.dim] * (len(config.levels) - 1)]
        self.levels = Layers(Level(config, size) for size in inputs)

    def poolings(self) -> list[PoolingAttention]:
        return [
            PoolingAttention(name, self.path_of(level.pooling.weights))
            for name, level in zip(self.config.levels, self.levels, strict=True)
        ]

    def layer_outputs(self) -> list[LayerOutput]:
        return [self.layer_output("state", at, level.out) for at, level in enumerate(self.levels)]

    def encode(self, tokens: Tensor, mask: Tensor | None = None, *, segments: Tensor | None = None) -> Tensor:
        """tokens (rows, sentences, words) or (rows, sentences, words, characters); mask: as tokens, True for real ones
        -> the vector of each document, (rows, 1, dim)."""
        real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
        x = self.dropout(self.embedding(tokens))  # (rows, …, time, embedding)
        for level in self.levels:
            pooled = level(x.flatten(0, -3), real.flatten(0, -2))  # (rows x …, dim)
            real = real.any(-1)  # (rows, …): a sentence without words is padding
            x = pooled.view(*real.shape, -1)  # (rows, …, dim)
        return x[:, None]  # the last level leaves one vector per row

    def blocks(self) -> list[nn.Module]:
        return list(self.levels)
