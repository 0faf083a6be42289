"""Hierarchical attention: words -> sentences -> document (Yang et al., 2016).

    words       h = BiGRU(embeddings of a sentence)    sentence = sum_t a_t h_t,  a: attention pooling, see nn/pooling.py
    sentences   h = BiGRU(sentences)                   document = sum_i a_i h_i

A third level below is optional: h = BiGRU(characters of a word), and the word is its embedding plus sum_c a_c h_c.

The input is one row of tokens per document, with the sentence of each token in `segments`. They are moved to a grid
(sentences, words), and the weights of both attentions show which words and sentences determine the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from pydantic import model_validator
from torch import Tensor, nn

from heedful.config.base import Probability, Problem, Size, refuse
from heedful.models.encoder import BYTES
from heedful.models.family import Architecture, FamilyConfig, SentenceGrid
from heedful.nn.dropout import Dropout
from heedful.nn.grid import grid_sizes, make_grid
from heedful.nn.hooks import HookPoint
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
    """Size of word embeddings."""
    context: Size = 100
    """Size of the hidden layer of the attention."""
    cell: Literal["gru", "lstm"] = "gru"
    """Recurrent cell."""
    norm: Literal["none", "layer"] = "none"
    """Layer normalization of the summed inputs of the recurrent gates."""
    characters: bool = False
    """A level of characters below the words: the bytes of each word."""
    max_sentences: Size = 40
    """Maximum sentences of a text; longer ones are truncated."""
    max_words: Size = 50
    """Maximum tokens of a sentence; longer ones are divided into several."""
    dropout: Probability = 0.1
    """Dropout of embeddings and of the vectors of every level."""

    @model_validator(mode="after")
    def _fits_together(self) -> HanConfig:
        if self.dim % 2:
            refuse([Problem("dim", f"given {self.dim}, expected an even number: one half per direction")])
        return self

    @property
    def reads_spelling(self) -> bool:
        return self.characters

    @property
    def sentence_grid(self) -> SentenceGrid:
        return SentenceGrid(self.max_sentences, self.max_words)


class Level(nn.Module):
    """The states of a sequence in both directions, and their weighted mean."""

    def __init__(self, config: HanConfig, inputs: int) -> None:
        super().__init__()
        self.map = linear(inputs, config.dim) if inputs != config.dim else None
        self.recurrent = SEQUENCE_LAYERS[config.cell](LayerSize(dim=config.dim, heads=1, recurrent_norm=config.norm))
        self.out = HookPoint()  # (rows, time, dim)
        self.pooling = AttentionPooling(config.dim, config.context)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x (rows, time, inputs), mask (rows, time) -> (rows, dim)."""
        states = self.out(self.recurrent(x if self.map is None else self.map(x), mask))
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
        self.bytes = nn.Embedding(BYTES, config.dim, padding_idx=0) if config.characters else None
        self.characters = Level(config, config.dim) if config.characters else None
        self.join = linear(config.embedding + config.dim, config.embedding) if config.characters else None
        self.words = Level(config, config.embedding)
        self.sentences = Level(config, config.dim)

    def levels(self) -> dict[str, Level]:
        """The levels by name, lowest first."""
        lowest = {} if self.characters is None else {"characters": self.characters}
        return lowest | {"words": self.words, "sentences": self.sentences}

    def poolings(self) -> list[PoolingAttention]:
        return [PoolingAttention(name, self.path_of(level.pooling.weights)) for name, level in self.levels().items()]

    def layer_outputs(self) -> list[LayerOutput]:
        return [self.layer_output("state", at, level.out) for at, level in enumerate(self.levels().values())]

    def encode(
        self,
        tokens: Tensor,
        mask: Tensor | None = None,
        *,
        segments: Tensor | None = None,
        spelling: Tensor | None = None,
    ) -> Tensor:
        """tokens, mask (rows, time); segments (rows, time): the sentence of each token; spelling (rows, time, bytes): the bytes
        of each word + 1, 0 is padding -> the vector of each document, (rows, 1, dim)."""
        real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
        x = self.embedding(tokens)  # (rows, time, embedding)
        if self.bytes is not None and self.characters is not None and self.join is not None:
            assert spelling is not None, "a model with characters is given the spelling of its words"
            letters = spelling.flatten(0, 1)  # (rows x time, bytes)
            words = self.characters(self.bytes(letters), letters != 0).view(*tokens.shape, -1)  # (rows, time, dim)
            x = self.join(torch.cat((x, words), dim=-1))
        segments = torch.zeros_like(tokens) if segments is None else segments
        grid = make_grid(segments, real, grid_sizes(segments, real, self.config.sentence_grid))
        x = grid.move(self.dropout(x))  # (rows, sentences, words, embedding)
        there = grid.move(real[..., None].to(x.dtype))[..., 0] > 0  # (rows, sentences, words)
        vectors = self.words(x.flatten(0, 1), there.flatten(0, 1))  # (rows x sentences, dim)
        document = self.sentences(vectors.view(*there.shape[:2], -1), there.any(-1))  # (rows, dim)
        return document[:, None]

    def blocks(self) -> list[nn.Module]:
        return list(self.levels().values())
