"""Sentences of a tagger for analyses: one with its labels as outputs, and batches of many.

    target_in    <s> the un happy cat </s>          the tokens that the model reads, with its spelling if it reads one
    outputs      DET ADJ NOUN                       the label of each word, from the hidden state of its first token

A numeric sequence has no start and end; its tokens are frames, named by their numbers: #1, #2, ….

With a CRF, the logits are the logarithms of the probabilities of each label over all label sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from heedful.data.conllu import Arc, build_arcs
from heedful.data.samples import Sample
from heedful.data.tagged import TaggedSentence
from heedful.tasks.encoded_example import EncodedExample, Outputs, Tokens
from heedful.tasks.forced import BATCH, EncodedSample, ForcedBatch, Pieces
from heedful.tasks.system import System, batches_of
from heedful.tasks.tagging.data import TagBatch, TaggedData, TagRow
from heedful.tasks.tagging.model import PADDING, TaggingModel
from heedful.text.tokenizer import Tokenizer

SEPARATOR = "\t"  # between the labels of a sample


def untagged(words: Sequence[str]) -> TaggedSentence:
    return TaggedSentence(1, list(words), [""] * len(words), list(range(1, len(words) + 1)))


def sample_of(between: str, sentence: TaggedSentence) -> Sample:
    """A tagged sentence, with its dependency tree if the file has it; between: what separates its words."""
    arcs: list[Arc] | None = None
    if len(sentence.rows) == len(sentence.words):
        arcs = list(build_arcs(sentence.rows, range(len(sentence.rows))))
    return Sample(None, between.join(sentence.words), target_arcs=arcs, label=SEPARATOR.join(sentence.labels))


def encode_row(row: TagRow, text: str, labels: Sequence[str], known: Sequence[str], system: System) -> EncodedExample:
    """The example of a row and its labels, one for each word; known: all labels."""
    tokenizer, device = system.target_tokenizer, system.device
    first, (start, tokens, end) = row.first.to(device), tokens_of(row, text, tokenizer)
    outputs = Outputs(
        torch.tensor([known.index(label) for label in labels], device=device),
        list(labels),
        first,
        partial(word_logits, first),
        lambda chosen: [known[i] for i in chosen],
    )
    target_in = row.tokens[None].to(device)  # (1, time), or vectors (1, time, features)
    more = {"spelling": row.spelling[None].long().to(device)} if row.spelling.shape[1] else {}
    passed = target_in[:, :0], target_in, outputs
    return EncodedExample(None, tokens, start, end, *passed, reads_end=True, label=" ".join(labels), more=more)


def tokens_of(row: TagRow, text: str, tokenizer: Tokenizer) -> tuple[str | None, Tokens, str | None]:
    """The start token, the tokens and the end token of a row; a numeric sequence has frames as tokens, and no others."""
    if row.tokens.ndim > 1:
        count, features = row.tokens.shape
        places = list(range(count))
        return None, Tokens(f"{count} frames of {features} numbers", places, [f"#{at + 1}" for at in places], places), None
    ids = row.tokens.tolist()
    start, *pieces, end = tokenizer.pieces(ids)
    return start, Tokens(text, ids[1:-1], pieces, words_of(row)), end


def words_of(row: TagRow) -> list[int]:
    """The word of each token, without start and end token."""
    places = torch.arange(1, len(row.tokens) - 1)
    words: list[int] = (torch.searchsorted(row.first, places, right=True) - 1).tolist()
    return words


def word_logits(first: Tensor, model: TaggingModel, hidden: Tensor) -> Tensor:
    """first (words,): position of the first token of each word; hidden (rows, time, dim) -> (rows, words, labels)."""
    logits = model.classify(hidden[:, first.clone()])
    return model.log_probabilities(logits, torch.ones_like(logits[..., 0], dtype=torch.bool))


def tagged_batches(
    model: TaggingModel, system: System, data: TaggedData, tagged: Sequence[tuple[Sample, TagRow]]
) -> Iterator[ForcedBatch]:
    """Batches of samples and their rows, the longest first."""
    order = sorted(range(len(tagged)), key=lambda i: len(tagged[i][1].tokens), reverse=True)
    for chosen in batches_of(order, lambda i: len(tagged[i][1].tokens), BATCH):
        rows = [tagged[i][1] for i in chosen]
        padded = data.collate(rows, system.target_tokenizer.specials.pad)
        batch = TagBatch(*(part[: len(rows)] for part in padded)).to(system.device)  # without rows that fill up the batch
        words = max(len(row.first) for row in rows)
        samples = [encoded_sample(*tagged[i]) for i in chosen]
        logits = partial(batch_logits, model, batch, words)
        yield ForcedBatch(samples, logits, batch.labels[:, :words], 0, batch.tokens.shape[1])


def encoded_sample(sample: Sample, row: TagRow) -> EncodedSample:
    if row.tokens.ndim > 1:  # frames of a numeric sequence
        places = list(range(len(row.tokens)))
        return EncodedSample(None, Pieces(places, places), before=0)
    return EncodedSample(None, Pieces(row.tokens[1:-1].tolist(), words_of(row), sample.target_arcs))


def batch_logits(model: TaggingModel, batch: TagBatch, words: int) -> Tensor:
    """(rows, words, labels)."""
    logits = model(batch.tokens, batch.mask, batch.first[:, :words], batch.spelling)
    return model.log_probabilities(logits, batch.labels[:, :words] != PADDING)
