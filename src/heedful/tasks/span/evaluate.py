"""Answers of encoded questions, and their loss, exact match and F1."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from heedful.evaluation.answers import answer_f1, exact_match
from heedful.nn.model import inference_context
from heedful.tasks.span.data import QuestionRows, SpanData, SpanRow
from heedful.tasks.span.model import SpanModel, best_spans, span_losses
from heedful.tasks.system import System


class FoundSpan(NamedTuple):
    """The best span of a window."""

    log_probability: float
    start: int  # characters of the context
    end: int
    loss: float  # of the given answer


def find_spans(model: SpanModel, system: System, data: SpanData, rows: Sequence[SpanRow]) -> list[FoundSpan]:
    """The best span of each row, in batches of similar length; an error where scores are not finite."""
    padding = system.target_tokenizer.specials.pad

    def find(chosen: list[int]) -> Iterator[FoundSpan]:
        batch = data.collate([rows[i] for i in chosen], padding).to(system.device)
        logits = model(batch.tokens, batch.mask, batch.segments, batch.choices)  # (rows, 2, time)
        losses = span_losses(logits, batch.first, batch.last)
        columns = [part.tolist() for part in (*best_spans(logits, data.config.max_answer), losses)]
        for i, score, first, last, loss in zip(chosen, *columns, strict=True):
            if math.isnan(score):
                raise system.nonfinite_error(f"question {rows[i].example + 1}")
            spans = rows[i].spans[first - rows[i].second : last - rows[i].second + 1] if first else []
            start, end = (spans[0][0], spans[-1][1]) if spans else (0, 0)  # without a choice, the answer is empty
            yield FoundSpan(score, start, end, loss)

    with inference_context(model):
        return system.map_batches(find, [len(row.tokens) for row in rows], system.scored_tokens)


def best_of_windows(rows: Sequence[SpanRow], found: Sequence[FoundSpan]) -> list[FoundSpan]:
    """The most probable span of each question."""
    best: dict[int, FoundSpan] = {}
    for row, span in zip(rows, found, strict=True):
        if row.example not in best or span.log_probability > best[row.example].log_probability:
            best[row.example] = span
    return [best[example] for example in range(len(best))]


def evaluate(model: SpanModel, system: System, data: SpanData, encoded: QuestionRows) -> dict[str, float]:
    """The metrics of a validation."""
    found = find_spans(model, system, data, encoded.rows)
    scores = []
    for question, span in zip(encoded.questions, best_of_windows(encoded.rows, found), strict=True):
        answer, references = question.context[span.start : span.end], [one.text for one in question.answers]
        scores.append((exact_match(answer, references), answer_f1(answer, references)))
    count = max(len(scores), 1)
    return {
        "loss": math.fsum(span.loss for span in found) / max(len(found), 1),
        "exact_match": math.fsum(exact for exact, _ in scores) / count,
        "f1": math.fsum(f1 for _, f1 in scores) / count,
    }
