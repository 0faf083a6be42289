"""Labeled spans of words in BIO notation, and their F1 (CoNLL: Tjong Kim Sang and De Meulder, 2003).

    B-PER I-PER O B-LOC    ->   PER of words 0 to 1, LOC of word 3

A predicted span is correct if its label, its first and its last word are those of a span of the reference. Sequences that are
not valid are read as conlleval does: an I- starts a span if the word before it is outside of spans, or in one of another label.

    precision = correct / predicted      recall = correct / gold      F1 = 2 correct / (predicted + gold)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

OUTSIDE = "O"


class Span(NamedTuple):
    label: str
    start: int  # the first word, from 0
    end: int  # the word after the last one


class SpanCounts(NamedTuple):
    correct: int
    predicted: int
    gold: int


def is_bio(labels: Sequence[str]) -> bool:
    """Whether the labels are BIO: O, B-… and I-…, at least one B-…, and a B-… for every I-…."""
    others = set(labels) - {OUTSIDE}
    begins = {label[2:] for label in others if label.startswith("B-")}
    return bool(begins) and all(label[:2] in ("B-", "I-") and label[2:] in begins for label in others)


def follows(previous: str | None, label: str) -> bool:
    """Whether a label may follow another in BIO; previous None: at the start of a sentence."""
    if not label.startswith("I-"):
        return True
    return previous is not None and previous[:2] in ("B-", "I-") and previous[2:] == label[2:]


def spans_of(labels: Sequence[str]) -> list[Span]:
    """The spans of a sentence."""
    spans: list[Span] = []
    previous: str | None = None
    for at, label in enumerate(labels):
        if label[:2] in ("B-", "I-"):
            if label.startswith("I-") and follows(previous, label):
                spans[-1] = spans[-1]._replace(end=at + 1)
            else:
                spans.append(Span(label[2:], at, at + 1))
        previous = label
    return spans


def count_spans(predicted: Sequence[str], gold: Sequence[str]) -> SpanCounts:
    """The spans of a sentence that are correct, predicted, and in the reference."""
    found, expected = set(spans_of(predicted)), set(spans_of(gold))
    return SpanCounts(len(found & expected), len(found), len(expected))


def f1(correct: float, predicted: float, gold: float) -> float:
    """2 correct / (predicted + gold); 0 where there is none of both."""
    return 2 * correct / (predicted + gold) if predicted + gold else 0.0
