"""GLEU, a score of single sentences ("Google's Neural Machine Translation System", Wu et al., 2016).

    GLEU = matches / max(n-grams of the hypothesis, n-grams of the reference) = min(precision, recall)

over all n-grams of one to four tokens, each matched as often as it stands on both sides. It runs from 0 to 1, is the same
whichever side is the reference, and needs no smoothing: BLEU was made for corpora and is zero for many a sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

ORDER = 4

Grams = Counter[tuple[Hashable, ...]]


def grams(tokens: Sequence[Hashable]) -> Grams:
    """How often each n-gram occurs."""
    found: Grams = Counter()
    for order in range(1, ORDER + 1):
        found.update(zip(*(tokens[begin:] for begin in range(order)), strict=False))  # the shortest ends it
    return found


def gleu(hypothesis: Sequence[Hashable], reference: Sequence[Hashable]) -> float:
    """Of two sequences of words or ids."""
    return gleu_of_grams(grams(hypothesis), grams(reference))


def gleu_of_grams(hypothesis: Grams, reference: Grams) -> float:
    """As `gleu`, where n-grams are counted already; two empty sentences are equal."""
    most = max(hypothesis.total(), reference.total())
    if not most:
        return 1.0
    matches = sum(min(count, reference[gram]) for gram, count in hypothesis.items() if gram in reference)
    return matches / most
