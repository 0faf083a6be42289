"""Skip-thought vectors: a sentence is encoded so that the sentences around it can be predicted (Kiros et al., 2015).

    v = encode(s_i)                                               of length 1, as in tasks/embedding
    h_t = GRU(e(w_{t-1}) + C v, h_{t-1})                          two decoders: of s_{i-1} and of s_{i+1}
    p(w_t | w_<t, s_i) = softmax(U h_t)                           U: shared by both

    loss = -sum_t log p(w_t of s_{i+1}) - sum_t log p(w_t of s_{i-1})

The decoders are used in training only. As published, encoder and decoders are GRUs; the encoder is any model here, and the
decoders read its embeddings e.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.nn import masks
from heedful.nn.linear import linear
from heedful.nn.losses import Loss, cross_entropy
from heedful.nn.model import EncoderModel
from heedful.nn.sequence_layers import Gru, LayerSize
from heedful.tasks.embedding.model import EmbeddingModel, TrainedPooling


class Neighbors(NamedTuple):
    """A batch of sentences with those before and after them; padding where there is none."""

    tokens: Tensor  # (rows, time): [start sentence end]
    lengths: Tensor  # (rows,)
    previous: Tensor  # (rows, time + 1): [start sentence end] of the sentence before
    next: Tensor  # (rows, time + 1): of the sentence after

    def pin(self) -> Neighbors:
        return Neighbors(*(tensor.pin_memory() for tensor in self))

    def to(self, device: torch.device) -> Neighbors:
        return Neighbors(*(tensor.to(device, non_blocking=True) for tensor in self))

    def rows(self, start: int, end: int) -> Neighbors:
        return Neighbors(*(tensor[start:end] for tensor in self))


class Decoder(nn.Module):
    """A GRU over the tokens of a sentence, given the vector of its neighbor."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.condition = linear(dim, dim)
        self.gru = Gru(LayerSize(dim=dim, heads=1, causal=True))

    def forward(self, embedded: Tensor, vectors: Tensor) -> Tensor:
        """embedded (rows, time, dim), vectors (rows, dim) -> (rows, time, dim)."""
        return self.gru(embedded + self.condition(vectors)[:, None])


class SkipThoughtModel(EmbeddingModel):
    """An encoder with two decoders."""

    def __init__(self, body: EncoderModel, pooling: TrainedPooling, dim: int) -> None:
        super().__init__(body, pooling)
        self.previous, self.next = Decoder(dim), Decoder(dim)
        self.readout = linear(dim, body.embedding.num_embeddings)

    def batch_logits(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits of both decoders for the texts themselves: (2, rows, time, vocab)."""
        vectors, embedded = self(target), self.body.embedding(target)
        return self.readout(torch.stack([decoder(embedded, vectors) for decoder in (self.previous, self.next)]))

    def blocks(self) -> Sequence[nn.Module]:
        return [*self.body.blocks(), self.previous, self.next]


def neighbor_loss(model: SkipThoughtModel, batch: Neighbors, padding: int) -> Loss:
    """-log p of the tokens of both neighbors, summed over all that are no padding."""
    vectors = model(batch.tokens, masks.padding(batch.lengths, batch.tokens.shape[1]))  # (rows, dim)
    pairs = [(model.previous, batch.previous), (model.next, batch.next)]
    hidden = torch.cat([decoder(model.body.embedding(text[:, :-1]), vectors) for decoder, text in pairs], dim=1)
    targets = torch.cat([text[:, 1:] for _, text in pairs], dim=1).flatten()  # (rows x time of both,)
    return cross_entropy(model.readout(hidden).flatten(0, 1), targets, padding=padding)[0]
