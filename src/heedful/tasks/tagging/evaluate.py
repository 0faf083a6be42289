"""Labels, loss and metrics of encoded sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from heedful.evaluation.spans import count_spans, f1
from heedful.nn.model import inference_context
from heedful.tasks.system import System
from heedful.tasks.tagging.config import TaggingConfig
from heedful.tasks.tagging.data import TaggedData, TagRow
from heedful.tasks.tagging.model import PADDING, TaggingModel


class TaggedRow(NamedTuple):
    """The predictions of a row."""

    labels: list[int]
    probabilities: list[float]  # of these labels
    loss: float  # -log p of the given labels


def tag_rows(model: TaggingModel, system: System, data: TaggedData, rows: Sequence[TagRow]) -> list[TaggedRow]:
    """Predict the labels of rows, in batches of similar length; the result is in the order of the rows."""
    padding = system.target_tokenizer.specials.pad

    def tag(chosen: list[int]) -> Iterator[TaggedRow]:
        batch = data.collate([rows[i] for i in chosen], padding).to(system.device)
        logits = model(batch.tokens, batch.mask, batch.first, batch.spelling)
        real = words_mask([len(rows[i].first) for i in chosen], batch.labels)
        best = model.decode(logits, real)  # (rows, words)
        chances = model.log_probabilities(logits, real).exp().gather(2, best[..., None]).squeeze(-1)
        losses = model.losses(logits, batch.labels)
        for at, i in enumerate(chosen):
            words = len(rows[i].first)
            yield TaggedRow(best[at, :words].tolist(), chances[at, :words].tolist(), float(losses[at]))

    with inference_context(model):
        results = system.map_batches(tag, [len(row.tokens) for row in rows], system.batch_tokens)
    if not all(math.isfinite(chance) for row in results for chance in row.probabilities):
        raise system.nonfinite_error("a sentence")
    return results


def words_mask(counts: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """True for words: (rows, words); rows that fill up the batch have one word."""
    lengths = torch.tensor([*counts, *[1] * (len(like) - len(counts))], device=like.device)
    return torch.arange(like.shape[1], device=like.device) < lengths[:, None]


class SentenceLabels(NamedTuple):
    gold: list[str]
    predicted: list[str]


class Tagging(NamedTuple):
    """The predictions for a corpus."""

    sentences: list[SentenceLabels]
    loss: float  # mean over words

    @property
    def words(self) -> int:
        return sum(len(one.gold) for one in self.sentences)


def join_rows(count: int, rows: Sequence[TagRow], tagged: Sequence[TaggedRow], labels: Sequence[str]) -> Tagging:
    """The predictions of sentences from those of their parts; count: sentences."""
    sentences = [SentenceLabels([], []) for _ in range(count)]
    for row, result in zip(rows, tagged, strict=True):
        sentences[row.sentence].gold.extend(labels[i] for i in row.labels.tolist())
        sentences[row.sentence].predicted.extend(labels[i] for i in result.labels)
    words = sum(int((row.labels != PADDING).sum()) for row in rows)
    return Tagging(sentences, sum(result.loss for result in tagged) / max(words, 1))


def figures(tagging: Tagging, config: TaggingConfig) -> dict[str, float]:
    """The metrics of the task."""
    correct = sum(g == p for one in tagging.sentences for g, p in zip(one.gold, one.predicted, strict=True))
    found = {"loss": tagging.loss, "accuracy": correct / max(tagging.words, 1)}
    if config.has_spans:
        counts = [count_spans(one.predicted, one.gold) for one in tagging.sentences]
        found["span_f1"] = f1(*(sum(column) for column in zip(*counts, strict=True)))
    return found


def evaluate(model: TaggingModel, system: System, data: TaggedData, rows: Sequence[TagRow]) -> Tagging:
    """Predict and join all rows of a corpus."""
    tagged = tag_rows(model, system, data, rows)
    return join_rows(rows[-1].sentence + 1 if rows else 0, rows, tagged, data.config.known_labels)
