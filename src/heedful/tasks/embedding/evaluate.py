"""Vectors of encoded texts, and retrieval metrics: how well an anchor finds its positive among all candidates of a split.

    accuracy     the positive is the most similar candidate
    recall_10    it is among the ten most similar ones
    mrr          mean of 1 / rank

Candidates are all distinct positives and hard negatives of the split, without other positives of the same anchor and the anchor
itself. A candidate that is as similar as the positive is ranked before it. Scores are computed in blocks of a matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from heedful.nn import masks
from heedful.nn.model import inference_context
from heedful.tasks.embedding.data import Ids, SimilarRow
from heedful.tasks.embedding.model import EmbeddingModel, PoolingName
from heedful.tasks.system import System, batches_of

BLOCK = 1 << 24  # similarities computed at a time
NEAREST = 10


def encode_ids(model: EmbeddingModel, system: System, texts: Sequence[Ids], pooling: PoolingName | None = None) -> Tensor:
    """The vectors of texts, (texts, dim), by batches of similar lengths; an error where they are not finite."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]), reverse=True)
    padding = system.target_tokenizer.specials.pad

    def encode(chosen: list[int]) -> Tensor:
        time = len(texts[chosen[0]])
        tokens = torch.tensor([[*texts[i], *[padding] * (time - len(texts[i]))] for i in chosen], device=system.device)
        lengths = torch.tensor([len(texts[i]) for i in chosen], device=system.device)
        return model(tokens, masks.padding(lengths, time), pooling=pooling).cpu()  # (rows, dim)

    with inference_context(model):
        parts = system.ranks.map(encode, batches_of(order, lambda i: len(texts[i]), system.batch_tokens))
    if not parts:
        return torch.zeros(0, model.body.config.dim, device=system.device)
    vectors = torch.cat(parts).to(system.device)
    wrong = ~vectors.isfinite().all(1)
    if bool(wrong.any()):
        raise system.nonfinite_error(f"text {order[int(wrong.int().argmax())] + 1}")
    found = torch.empty_like(vectors)
    found[torch.tensor(order, device=vectors.device)] = vectors
    return found


def evaluate(model: EmbeddingModel, system: System, rows: Sequence[SimilarRow], temperature: float) -> dict[str, float]:
    """The metrics of a validation."""
    candidates = number(text for row in rows for text in (row.positive, *row.negatives))
    anchors = number(row.anchor for row in rows)
    positives: dict[Ids, list[Ids]] = {}
    for row in rows:
        positives.setdefault(row.anchor, [row.anchor]).append(row.positive)
    queries, keys = (encode_ids(model, system, list(texts)) for texts in (anchors, candidates))
    losses, ranks = [], []
    for block in blocks(rows, max(1, BLOCK // max(len(candidates), 1))):
        scores = queries[[anchors[row.anchor] for row in block]] @ keys.T  # (block, candidates)
        own = torch.tensor([[candidates[row.positive]] for row in block], device=scores.device)  # (block, 1)
        best = scores.gather(1, own)  # (block, 1)
        excluded = [
            (at, candidates[text])
            for at, row in enumerate(block)
            for text in positives[row.anchor]
            if text != row.positive and text in candidates
        ]
        if excluded:
            places = torch.tensor(excluded, device=scores.device)  # (excluded, 2)
            scores[places[:, 0], places[:, 1]] = -math.inf
        losses.append(((scores / temperature).logsumexp(1) - best[:, 0] / temperature).double().cpu())
        ranks.append((scores >= best).sum(1).cpu())
    loss, rank = torch.cat(losses), torch.cat(ranks)
    return {
        "loss": float(loss.mean()),
        "accuracy": float((rank == 1).double().mean()),
        f"recall_{NEAREST}": float((rank <= NEAREST).double().mean()),
        "mrr": float((1 / rank.double()).mean()),
    }


def blocks(rows: Sequence[SimilarRow], size: int) -> Iterator[Sequence[SimilarRow]]:
    return (rows[at : at + size] for at in range(0, len(rows), size))


def number(texts: Iterable[Ids]) -> dict[Ids, int]:
    """Distinct texts, numbered from 0."""
    return {text: at for at, text in enumerate(dict.fromkeys(texts))}
