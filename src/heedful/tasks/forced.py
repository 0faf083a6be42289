"""Teacher-forced passes over samples, for analyses: batches that know their tokens, their logits and their losses.

for batch in predictor.forced_batches(samples):
    with record(model, …) as recorded:
        batch.losses()                            # (examples,): -log p of each target or label
    batch.samples                                 # the tokens of each row of the recorded tensors
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from torch import Tensor
from torch.nn import functional

from heedful.data.conllu import Arc
from heedful.evaluation.word_alignment import Alignment
from heedful.tasks.batches import Batch, collate, pad
from heedful.tasks.system import System, batches_of
from heedful.text.tokenizer import Tokenizer

BATCH = 2**11  # tokens
PADDING = -100  # in the targets of a batch: no prediction


class Pieces(NamedTuple):
    """A tokenized text."""

    ids: list[int]  # without special tokens
    words: list[int]  # word index of each token
    arcs: Sequence[Arc] | None = None  # dependency arcs between these words, if known


class EncodedSample(NamedTuple):
    source: Pieces | None  # None: the model has no source
    target: Pieces
    alignment: Alignment | None = None
    before: int = 1  # special tokens before the target

    @property
    def source_length(self) -> int:
        return 0 if self.source is None else len(self.source.ids)


@dataclass(frozen=True)
class ForcedBatch:
    """A batch of examples. An example has one row in the tensors of the model, or several of equal number."""

    samples: list[EncodedSample]  # of each row
    logits: Callable[[], Tensor]  # a forward pass: (examples, predictions, classes)
    targets: Tensor  # (examples, predictions): the correct class, or PADDING
    source_time: int  # tokens of a padded source; 0: no source
    target_time: int  # tokens of a padded target

    @property
    def mask(self) -> Tensor:
        """(examples, predictions): False for padding."""
        return self.targets != PADDING

    def losses(self) -> Tensor:
        """-log p of the targets of each example, (examples,), by a forward pass."""
        logits = self.logits().float().transpose(1, 2)  # (examples, classes, predictions)
        return functional.cross_entropy(logits, self.targets, ignore_index=PADDING, reduction="none").sum(-1)


def sequence_batches(system: System, samples: Sequence[EncodedSample]) -> Iterator[ForcedBatch]:
    """Batches of sentence pairs, or of texts without a source, the longest first."""
    lengths = [max(sample.source_length, len(sample.target.ids)) + 1 for sample in samples]
    order = sorted(range(len(samples)), key=lambda i: lengths[i], reverse=True)
    model, padding = system.models[0], system.target_tokenizer.specials.pad
    for chosen in batches_of(order, lambda i: lengths[i], BATCH):
        rows = [samples[i] for i in chosen]
        batch = batch_of(system, rows).to(system.device)
        yield ForcedBatch(
            rows,
            partial(model.forced_logits, batch.source, batch.source_mask, batch.target_in),
            batch.target_out.masked_fill(batch.target_out == padding, PADDING),
            batch.source.shape[1],
            batch.target_in.shape[1],
        )


def batch_of(system: System, samples: Sequence[EncodedSample]) -> Batch:
    """Collate samples. Without a source a text starts after an end token, as in the training of language models."""
    marks, targets = system.target_tokenizer.specials, [sample.target.ids for sample in samples]
    sources = [sample.source.ids for sample in samples if sample.source is not None]
    if sources:
        return collate(sources, targets, system.source_tokenizer.specials, marks)
    inputs, outputs = (pad([[*b, *ids, *e] for ids in targets], marks.pad) for b, e in (([marks.end], []), ([], [marks.end])))
    return Batch(inputs[:, :0], None, inputs, outputs, sum(len(ids) + 1 for ids in targets))


def pieces_of(tokenizer: Tokenizer, text: str, arcs: Sequence[Arc] | None, limit: int) -> Pieces | None:
    """The tokenized text; None if it is empty, too long, or has tokens across word boundaries."""
    ids = tokenizer.encode(text)
    if not 0 < len(ids) < limit:
        return None
    words = words_of(tokenizer, text, ids)
    return Pieces(ids, words, arcs) if len(set(words)) == len(text.split()) else None


def words_of(tokenizer: Tokenizer, text: str, ids: list[int]) -> list[int]:
    """The word index of each piece: exact if words are tokenized separately, else by the spelling of the pieces."""
    parts = tokenizer.encode_many(text.split())
    if [id for part in parts for id in part] == ids:
        return [word for word, part in enumerate(parts) for _ in part]
    return tokenizer.word_of(ids)
