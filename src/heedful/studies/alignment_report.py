"""How well attention aligns: the error rate of every layer, and of what was chosen on validation, on sentences kept apart.

layer    the mean of its heads, one link for every target word: when the word is said, and when it is fed
chosen   the same layer with the moment and the thresholds that did best on the validation sentences
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from heedful.evaluation.metrics import Score
from heedful.evaluation.word_alignment import Alignment, alignment_error_rate
from heedful.inspection.alignment_links import choose_link_rule, label_maps
from heedful.studies.alignment import MOMENTS, Aligner, AlignmentHead, HeadWeights


class GoldSet(NamedTuple):
    """Watched sentences and their gold alignments."""

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
    chosen: Aligner | None  # on validation
    score: Score | None  # of that one


def by_layer(test: GoldSet, valid: GoldSet | None) -> list[LayerScore]:
    """Every layer that looks at the source."""
    found = []
    for layer in dict.fromkeys(head.layer for head in test.weights.heads):
        heads = tuple(head for head in test.weights.heads if head.layer == layer)
        said, fed = (test.score(Aligner(heads, moment)) for moment in MOMENTS)
        chosen = None if valid is None else choose_moment_and_rule(valid, heads)
        found.append(LayerScore(layer, len(heads), said, fed, chosen, None if chosen is None else test.score(chosen)))
    return found


def choose_moment_and_rule(valid: GoldSet, heads: tuple[AlignmentHead, ...]) -> Aligner:
    """The moment and the thresholds that suit these heads best."""
    places = [valid.weights.heads.index(head) for head in heads]
    choices = []
    for moment in MOMENTS:
        rule, error = choose_link_rule(label_maps(valid.weights.maps[moment], valid.gold), places)
        choices.append((error, Aligner(heads, moment, rule)))
    return min(choices, key=lambda one: one[0])[1]
