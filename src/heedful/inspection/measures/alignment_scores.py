"""Alignment error rate of every layer and head, with default settings and with settings chosen on validation sentences.

layer    the mean of its heads with the default rule, at the step that predicts the target word and at the step that consumes it
head     one head with the default rule, likewise
chosen   the same layer with the moment and the rule of lowest error rate on the validation sentences
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from heedful.evaluation.metrics import Score
from heedful.evaluation.word_alignment import Alignment, alignment_error_rate
from heedful.inspection.measures.alignment_heads import MOMENTS, Aligner, AlignmentHead, HeadWeights
from heedful.inspection.measures.alignment_links import choose_link_rule, label_maps


class GoldSet(NamedTuple):
    """Attention weights of sentences and their gold alignments."""

    weights: HeadWeights
    gold: Sequence[Alignment]
    bootstrap: int = 0

    def score(self, aligner: Aligner) -> Score:
        return alignment_error_rate(self.weights.links(aligner), self.gold, bootstrap=self.bootstrap)


class LayerScore(NamedTuple):
    layer: int
    heads: int
    predict: Score
    consume: Score
    chosen: Aligner | None  # on the validation sentences
    score: Score | None  # of the chosen aligner


class HeadScore(NamedTuple):
    head: AlignmentHead
    predict: Score
    consume: Score


def by_head(test: GoldSet) -> list[HeadScore]:
    """Return the scores of every head with attention to the source."""
    return [HeadScore(head, *(test.score(Aligner((head,), moment)) for moment in MOMENTS)) for head in test.weights.heads]


def by_layer(test: GoldSet, valid: GoldSet | None) -> list[LayerScore]:
    """Return the scores of every layer with attention to the source."""
    scores = []
    for layer in dict.fromkeys(head.layer for head in test.weights.heads):
        heads = tuple(head for head in test.weights.heads if head.layer == layer)
        predict, consume = (test.score(Aligner(heads, moment)) for moment in MOMENTS)
        chosen = None if valid is None else choose_moment_and_rule(valid, heads)
        scores.append(LayerScore(layer, len(heads), predict, consume, chosen, None if chosen is None else test.score(chosen)))
    return scores


def choose_moment_and_rule(valid: GoldSet, heads: tuple[AlignmentHead, ...]) -> Aligner:
    """Return the aligner with the moment and the rule of lowest error rate for these heads."""
    indices = [valid.weights.heads.index(head) for head in heads]
    choices = []
    for moment in MOMENTS:
        rule, error = choose_link_rule(label_maps(valid.weights.maps[moment], valid.gold), indices)
        choices.append((error, Aligner(heads, moment, rule)))
    return min(choices, key=lambda choice: choice[0])[1]
