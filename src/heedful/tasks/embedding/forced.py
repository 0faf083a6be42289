"""Texts of an `Embedder` for analyses: what is predicted is the most similar one of a fixed set of candidates.

    target_in    <s> text </s>
    output       its positive, one of the candidates: softmax over v . c / T

Candidates are the positives and hard negatives of the validation data, as vectors that are computed once: an analysis of a text
changes its own vector only. Left out are the text itself and other positives of it, as in validation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.data.similar import SimilarTexts
from heedful.nn import masks
from heedful.tasks.batches import pad
from heedful.tasks.embedding.data import Ids, encode_texts
from heedful.tasks.embedding.evaluate import encode_ids
from heedful.tasks.embedding.model import EmbeddingModel
from heedful.tasks.encoded_example import EncodedExample, Outputs, tokens_from_ids
from heedful.tasks.forced import BATCH, EncodedSample, ForcedBatch
from heedful.tasks.system import System, batches_of


class Candidates(NamedTuple):
    texts: list[str]
    places: dict[Ids, int]  # the index of each
    vectors: Tensor  # (candidates, dim)
    positives: dict[Ids, set[Ids]]  # of each anchor

    def allowed(self, text: Ids, positive: Ids | None) -> list[bool]:
        """For each candidate whether a text is compared with it; positive: its own."""
        wrong = ({text} | self.positives.get(text, set())) - {positive}
        excluded = {self.places[one] for one in wrong if one in self.places}
        return [at not in excluded for at in range(len(self.texts))]


def make_candidates(model: EmbeddingModel, system: System, pairs: Iterable[SimilarTexts], most: int) -> Candidates:
    """The positives and hard negatives of pairs; most: tokens of a text."""
    listed = list(pairs)
    texts = list(dict.fromkeys(text for pair in listed for text in (pair.positive, *pair.negatives)))
    distinct = dict(zip(reversed(encode_texts(texts, system.target_tokenizer, most)), reversed(texts), strict=True))
    places = {ids: at for at, ids in enumerate(distinct)}
    anchors = encode_texts([pair.anchor for pair in listed], system.target_tokenizer, most)
    own = encode_texts([pair.positive for pair in listed], system.target_tokenizer, most)
    positives: dict[Ids, set[Ids]] = {}
    for anchor, positive in zip(anchors, own, strict=True):
        positives.setdefault(anchor, set()).add(positive)
    return Candidates(list(distinct.values()), places, encode_ids(model, system, list(places)), positives)


def similarity_logits(candidates: Tensor, allowed: Tensor, temperature: float, vectors: Tensor) -> Tensor:
    """vectors (rows, dim), candidates (candidates, dim), allowed (rows or 1, candidates) -> (rows, 1, candidates)."""
    scores = vectors @ candidates.T / temperature
    return scores.masked_fill(~allowed, -math.inf)[:, None]


def encode_row(
    row: Ids, text: str, positive: int, candidates: Candidates, system: System, temperature: float
) -> EncodedExample:
    """The example of an encoded text and the index of its positive."""
    tokenizer, device = system.target_tokenizer, system.device
    start, end = tokenizer.pieces([row[0], row[-1]])
    own = next(ids for ids, at in candidates.places.items() if at == positive)
    allowed = torch.tensor([candidates.allowed(row, own)], device=device)  # (1, candidates)

    def logits(model: EmbeddingModel, hidden: Tensor) -> Tensor:
        return similarity_logits(candidates.vectors, allowed, temperature, model.pool(hidden, None))

    place = torch.zeros(1, dtype=torch.int64, device=device)
    names = candidates.texts
    outputs = Outputs(place + positive, [names[positive]], place, logits, lambda chosen: [names[i] for i in chosen])
    target_in = torch.tensor([row], device=device)  # (1, time)
    tokens = tokens_from_ids(tokenizer, text, list(row[1:-1]))
    passed = target_in[:, :0], target_in, outputs
    return EncodedExample(None, tokens, start, end, *passed, reads_end=True, label=names[positive])


def similar_batches(
    model: EmbeddingModel, system: System, rows: Sequence[tuple[EncodedSample, Ids]], candidates: Candidates, temperature: float
) -> Iterator[ForcedBatch]:
    """Batches of texts and their positives, the longest first."""
    marks, device = system.target_tokenizer.specials, system.device
    texts = [(marks.start, *sample.target.ids, marks.end) for sample, _ in rows]
    order = sorted(range(len(rows)), key=lambda i: len(texts[i]), reverse=True)
    for chosen in batches_of(order, lambda i: len(texts[i]), BATCH):
        tokens = pad([texts[i] for i in chosen], marks.pad).to(device)  # (rows, time)
        mask = masks.padding(torch.tensor([len(texts[i]) for i in chosen], device=device), tokens.shape[1])
        allowed = torch.tensor([candidates.allowed(texts[i], rows[i][1]) for i in chosen], device=device)
        targets = torch.tensor([[candidates.places[rows[i][1]]] for i in chosen], device=device)
        scores = partial(similarity_logits, candidates.vectors, allowed, temperature)
        logits = partial(batch_logits, model, tokens, mask, scores)
        yield ForcedBatch([rows[i][0] for i in chosen], logits, targets, 0, tokens.shape[1])


def batch_logits(model: EmbeddingModel, tokens: Tensor, mask: Tensor, scores: partial[Tensor]) -> Tensor:
    return scores(model(tokens, mask))
