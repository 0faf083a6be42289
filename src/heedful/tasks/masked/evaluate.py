"""Evaluation of a masked language model on a whole text. The masks are drawn with a fixed key, so figures can be compared.

loss                     -log p(token) of the chosen tokens in nats, mean;  perplexity = exp(loss)
accuracy                 share of the chosen tokens that are the most probable prediction
next_sentence_accuracy   share of the pairs that are classified correctly
unigram_accuracy         accuracy of the most frequent token of the training text, always predicted
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from heedful.data.text_blocks import JoinedText
from heedful.data.text_store import TextStore
from heedful.tasks.masked.data import MaskedData
from heedful.tasks.masked.masking import Key, Masking, make_masking, mask_rows
from heedful.tasks.masked.sequences import Blocks, Sequences, SequenceSource
from heedful.tasks.system import System

KEY: Key = (0, 2**42)  # of masks and pairs in evaluation, for every seed


class MaskedBatch(NamedTuple):
    tokens: Tensor  # (rows, time): chosen tokens are replaced
    places: Tensor  # (rows, slots): positions of the chosen tokens
    targets: Tensor  # (rows, slots): the original tokens; padding in unused slots
    mask: Tensor | None  # (rows, time): True for real tokens; None: all are
    segments: Tensor | None  # (rows, time); None: one text
    labels: Tensor | None  # (rows,): 0 if the second text continues the first, else 1; None: one text
    predictions_per_row: Tensor  # (rows,): chosen tokens of the batch / its rows, also in a part of it

    def pin(self) -> MaskedBatch:
        return self.each(Tensor.pin_memory)

    def to(self, device: torch.device) -> MaskedBatch:
        return self.each(lambda tensor: tensor.to(device, non_blocking=True))

    def each(self, function: Callable[[Tensor], Tensor]) -> MaskedBatch:
        """Apply a function to every tensor of the batch."""
        parts: Any = (None if tensor is None else function(tensor) for tensor in self)
        return MaskedBatch(*parts)

    def rows(self, first: int, end: int) -> MaskedBatch:
        return self.each(lambda tensor: tensor[first:end])


def masked_batch(sequences: Sequences, key: Key, masking: Masking) -> MaskedBatch:
    """Sequences with chosen tokens replaced, as tensors."""
    masked = mask_rows(sequences.tokens, key, sequences.places, masking)
    arrays = (*masked, sequences.mask, sequences.segments, sequences.labels)
    tensors: Any = [None if array is None else torch.from_numpy(array) for array in arrays]
    rows, predictions = len(masked[2]), int((masked[2] != masking.pad).sum())
    tensors.append(torch.full((rows,), predictions / rows))
    return MaskedBatch(*tensors)


def evaluation_batches(data: MaskedData, ids: NDArray[Any], system: System) -> Iterator[MaskedBatch]:
    """Batches of a whole text. Without pairs every token is in one sequence; the last one is shorter."""
    marks, masking = system.target_tokenizer.specials, make_masking(data.config, system.target_tokenizer)
    block = min(data.data.block, len(ids) + 1)
    rows = max(1, system.scored_tokens // block)
    if data.config.next_sentence:
        source: SequenceSource = data.sequences(JoinedText([ids]), marks)
        plan = source.plan(np.random.Generator(np.random.Philox(key=KEY)))
    else:
        source = Blocks(JoinedText([ids]), block, marks)
        plan = np.arange(0, len(ids) - block + 2, block - 1)
    for at in range(0, len(plan), rows):
        yield masked_batch(source.rows(plan[at : at + rows]), KEY, masking)
    rest = len(ids) % (block - 1) if not data.config.next_sentence else 0
    if rest:
        yield masked_batch(Blocks(JoinedText([ids]), rest + 1, marks).rows(np.array([len(ids) - rest])), KEY, masking)


class Counts(NamedTuple):
    """Sums over a batch."""

    loss: float  # of the chosen tokens
    chosen: int
    correct: int
    guessed: int  # by the most frequent token
    pairs: int
    classified: int  # correctly


@torch.inference_mode()
def evaluate_text(data: MaskedData, system: System, text: TextStore, common: int | None = None) -> dict[str, float]:
    """The figures of a text. common: the most frequent token of the training text, to compare with; None: no comparison."""
    model: Any = system.models[0]
    pad = system.target_tokenizer.specials.pad

    def score(batch: MaskedBatch) -> Counts:
        batch = batch.to(system.device)
        logits, hidden = model(batch.tokens, batch.places, batch.mask, batch.segments)
        logits, targets = logits.flatten(0, 1).float(), batch.targets.flatten()  # (predictions, vocab), (predictions,)
        correct = int(((logits.argmax(-1) == targets) & (targets != pad)).sum())
        classified = 0 if batch.labels is None else int((model.next_logits(hidden).argmax(-1) == batch.labels).sum())
        return Counts(
            float(functional.cross_entropy(logits, targets, ignore_index=pad, reduction="sum")),
            int((targets != pad).sum()),
            correct,
            int((targets == common).sum()) if common is not None else 0,
            0 if batch.labels is None else len(batch.labels),
            classified,
        )

    counts = system.ranks.map(score, evaluation_batches(data, text.ids, system))
    loss, chosen, correct, guessed, pairs, classified = (sum(column) for column in zip(*counts, strict=True))
    if not math.isfinite(loss):
        raise system.nonfinite_error("a token of the text")
    chosen = max(chosen, 1)  # a text of ends of lines has no token to predict
    figures = {"loss": loss / chosen, "perplexity": math.exp(min(loss / chosen, 700.0)), "accuracy": correct / chosen}
    if data.config.next_sentence:
        figures["next_sentence_accuracy"] = classified / pairs
    if common is not None:
        figures |= {"unigram_accuracy": guessed / chosen, "accuracy_above_unigram": (correct - guessed) / chosen}
    return figures


def most_frequent(ids: NDArray[Any], masking: Masking) -> int:
    """The most frequent token of a text that is not special."""
    counts = np.bincount(ids, minlength=len(masking.special))
    return int(np.where(masking.special, -1, counts).argmax())
