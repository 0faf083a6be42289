"""Evaluation of retrieval: the right answer among others, drawn with a fixed seed from the distinct answers of the split.

    loss        -log softmax over the candidates, similarities divided by the temperature
    recall_1    the right one is the most similar
    recall_10   it is among the ten most similar
    mrr         mean of 1 / rank

Equal similarities: see evaluation/ranking.py. BM25 ranks the same candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.evaluation.bm25 import BM25
from heedful.evaluation.ranking import Numbers, draw_others, name_rankings, rank_statistics
from heedful.tasks.embedding.evaluate import encode_ids
from heedful.tasks.retrieval.data import EncodedExamples, Example
from heedful.tasks.retrieval.model import DualEncoder
from heedful.tasks.system import System

SEED = 1  # of the drawn candidates
BLOCK = 1 << 14  # examples scored at a time
WINDOWS = (1, 3, 0)  # turns of the query of BM25; 0: all that the model reads
PARAMETERS = ((0.9, 0.4), (1.2, 0.75), (2.0, 0.75), (4.0, 0.75), (2.0, 1.0))  # k1 and b


def draw_candidates(answers: Sequence[int], total: int, candidates: int) -> NDArray[np.int64]:
    """For each example its own answer, then others: (examples, candidates); candidates 0: all."""
    others = draw_others(answers, total, (candidates or total) - 1, SEED)
    return np.hstack([np.asarray(answers, np.int64)[:, None], others])


def model_scores(
    model: DualEncoder, system: System, examples: EncodedExamples, candidates: NDArray[np.int64]
) -> NDArray[np.float32]:
    """The similarity of each example's question with its candidates, (examples, candidates)."""
    questions = encode_ids(model, system, examples.questions)
    answers = encode_ids(model.answers, system, examples.ids)
    scores = np.zeros(candidates.shape, np.float32)
    for start in range(0, len(scores), BLOCK):
        part = slice(start, start + BLOCK)
        chosen = answers[torch.from_numpy(candidates[part]).to(answers.device)]  # (block, candidates, dim)
        scores[part] = torch.einsum("rd,rcd->rc", questions[part], chosen).cpu().numpy()
    return scores


def evaluate(
    model: DualEncoder, system: System, examples: EncodedExamples, *, temperature: float, candidates: int
) -> dict[str, float]:
    """The metrics of a validation."""
    drawn = draw_candidates(examples.answers, len(examples.texts), candidates)
    scores = model_scores(model, system, examples, drawn).astype(np.float64)
    return {"loss": softmax_loss(scores / temperature), **name_rankings(rank_statistics(scores).mean(0))}


def softmax_loss(logits: Numbers) -> float:
    """The mean of -log softmax of the first of each row."""
    largest = logits.max(1, keepdims=True)
    return float((np.log(np.exp(logits - largest).sum(1)) + largest[:, 0] - logits[:, 0]).mean())


class Bm25Setting(NamedTuple):
    """A setting of BM25; turns: of the query, 0: all."""

    turns: int
    k1: float
    b: float


def bm25_scores(
    examples: Sequence[Example], texts: Sequence[str], candidates: NDArray[np.int64], setting: Bm25Setting
) -> Numbers:
    """The BM25 score of each example's question with its candidates, (examples, candidates); documents: all texts."""
    index = BM25(texts, k1=setting.k1, b=setting.b)
    queries = (" ".join(example.question[-setting.turns :]) for example in examples)  # -0: all
    return np.stack([index.scores(query)[row] for query, row in zip(queries, candidates, strict=True)])


def choose_bm25(examples: Sequence[Example], encoded: EncodedExamples, candidates: int, sample: int) -> Bm25Setting:
    """The setting with the best recall@1 on these, the validation data: on about `sample` examples, evenly spaced."""
    spaced = slice(None, None, max(1, len(examples) // sample))
    drawn = draw_candidates(encoded.answers, len(encoded.texts), candidates)[spaced]
    turns = WINDOWS if max((len(example.question) for example in examples), default=1) > 1 else (1,)
    settings = [Bm25Setting(window, k1, b) for window, (k1, b) in product(turns, PARAMETERS)]

    def recall(setting: Bm25Setting) -> float:
        return float(rank_statistics(bm25_scores(examples[spaced], encoded.texts, drawn, setting))[:, 0].mean())

    return max(settings, key=recall)
