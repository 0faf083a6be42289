"""Evaluation of replies: the perplexity of the true ones per token, the end token included, and metrics of generated ones.

    distinct-n = 100 x different n-grams of words / n-grams of words                                     (Li et al., 2016)

A model that gives the same safe reply to everything has a low distinct-n.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from heedful.evaluation.metrics import METRICS
from heedful.search import SearchConfig
from heedful.tasks.system import System
from heedful.tasks.translation.data import Examples
from heedful.tasks.translation.evaluate import evaluate
from heedful.tasks.translation.translate import translate

DISTINCT = {"distinct_1": 1, "distinct_2": 2}  # metric -> length of its n-grams


class ReplyEvaluation(NamedTuple):
    figures: dict[str, float]
    signatures: dict[str, str]
    replies: list[str]  # generated


def distinct(texts: Sequence[str], length: int) -> float:
    """Different n-grams per n-gram, from 0 to 100; 0 if there are none."""
    words = [text.split() for text in texts]
    grams = [tuple(row[at : at + length]) for row in words for at in range(len(row) - length + 1)]
    return 100 * len(set(grams)) / max(len(grams), 1)


def evenly_spaced(examples: Examples, count: int) -> Examples:
    """This many examples, evenly spaced; 0: all."""
    total = len(examples.sources)
    if not 0 < count < total:
        return examples
    chosen = [at * total // count for at in range(count)]
    return Examples([examples.sources[at] for at in chosen], [examples.references[at] for at in chosen])


def evaluate_replies(
    system: System, examples: Examples, search: SearchConfig, metrics: Sequence[str], limit: int
) -> ReplyEvaluation:
    """The perplexity of all replies, and metrics of replies generated for the first `limit` examples; 0: for all."""
    by_reference = [name for name in metrics if name in METRICS]
    result = evaluate(system, examples, search, by_reference, limit)
    replies = result.translations
    if metrics and not by_reference:
        replies = [reply.text for reply in translate(system, examples.sources[: limit or None], search)]
    diversity = {name: distinct(replies, DISTINCT[name]) for name in metrics if name in DISTINCT}
    figures = result.figures | diversity
    ordered = {name: figures[name] for name in ("loss", "perplexity", *metrics)}
    return ReplyEvaluation(ordered, {name: score.signature for name, score in result.scores.items()}, replies)
