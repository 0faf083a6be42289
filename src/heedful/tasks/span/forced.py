"""Questions for analyses: one with its answer as outputs, and batches of many.

    target_in    <s> question </s> context </s>
    outputs      the first and the last token of the answer, each one of the tokens of the context

A sample has the question, a tab and the context as its text; its label is the first character of the answer, a tab and the
answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from heedful.data.samples import Sample
from heedful.data.spans import Answer, Question
from heedful.tasks.encoded_example import EncodedExample, Outputs, tokens_from_ids
from heedful.tasks.forced import BATCH, EncodedSample, ForcedBatch, Pieces
from heedful.tasks.span.data import SpanData, SpanRow
from heedful.tasks.span.model import SpanModel
from heedful.tasks.system import System, batches_of


def sample_of(question: Question) -> Sample:
    answer = question.answers[0]
    return Sample(None, f"{question.question}\t{question.context}", label=f"{answer.start}\t{answer.text}")


def answer_of(sample: Sample) -> Answer | None:
    """The answer of a sample; None if it is not known."""
    if sample.label is None:
        return None
    start, text = sample.label.split("\t", 1)
    return Answer(text, int(start))


def encode_row(row: SpanRow, text: str, data: SpanData, system: System) -> EncodedExample:
    """The example of a row that contains its answer."""
    tokenizer, device = system.target_tokenizer, system.device
    batch = data.collate([row], tokenizer.specials.pad).to(device)
    pieces = tokenizer.pieces(row.tokens)
    choices = batch.choices[:, : len(row.tokens)]  # (1, time)

    def logits(model: SpanModel, hidden: Tensor) -> Tensor:
        return model.project(hidden).float().transpose(1, 2).masked_fill(~choices[:, None], -math.inf)  # (rows, 2, time)

    places = torch.tensor([row.first, row.last], device=device)
    shown = [pieces[row.first], pieces[row.last]]
    outputs = Outputs(places, shown, places, logits, lambda chosen: [pieces[i] for i in chosen])
    target_in = torch.tensor([row.tokens], device=device)  # (1, time)
    more = {"segments": batch.segments[:, : len(row.tokens)]}
    tokens = tokens_from_ids(tokenizer, text, row.tokens[1:-1])
    passed = target_in[:, :0], target_in, outputs
    return EncodedExample(None, tokens, pieces[0], pieces[-1], *passed, reads_end=True, label=" ".join(shown), more=more)


def span_batches(model: SpanModel, system: System, data: SpanData, rows: Sequence[SpanRow]) -> Iterator[ForcedBatch]:
    """Batches of rows that contain their answers, the longest first."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i].tokens), reverse=True)
    for chosen in batches_of(order, lambda i: len(rows[i].tokens), BATCH):
        some = [rows[i] for i in chosen]
        batch = data.collate(some, system.target_tokenizer.specials.pad).to(system.device)
        samples = [EncodedSample(None, Pieces(row.tokens[1:-1], list(range(len(row.tokens) - 2)))) for row in some]
        logits = partial(model, batch.tokens, batch.mask, batch.segments, batch.choices)
        yield ForcedBatch(samples, logits, torch.stack((batch.first, batch.last), 1), 0, batch.tokens.shape[1])
