"""GLEU, a sentence-level metric ("Google's Neural Machine Translation System", Wu et al., 2016).

    GLEU = matches / max(n-grams of the hypothesis, n-grams of the reference) = min(precision, recall)

over all n-grams of one to four tokens, with clipped counts. It ranges from 0 to 1, is symmetric in hypothesis and
reference, and needs no smoothing: BLEU is a corpus metric and zero for many single sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

ORDER = 4

NgramCounts = Counter[tuple[Hashable, ...]]


def count_ngrams(tokens: Sequence[Hashable]) -> NgramCounts:
    """Count the n-grams of all orders."""
    counts: NgramCounts = Counter()
    for order in range(1, ORDER + 1):
        counts.update(zip(*(tokens[begin:] for begin in range(order)), strict=False))  # stops at the shortest
    return counts


def gleu(hypothesis: Sequence[Hashable], reference: Sequence[Hashable]) -> float:
    """Return the GLEU of two sequences of words or ids."""
    return gleu_from_counts(count_ngrams(hypothesis), count_ngrams(reference))


def gleu_from_counts(hypothesis: NgramCounts, reference: NgramCounts) -> float:
    """As `gleu`, from n-gram counts; 1 for two empty sentences."""
    total = max(hypothesis.total(), reference.total())
    if not total:
        return 1.0
    matches = sum(min(count, reference[gram]) for gram, count in hypothesis.items() if gram in reference)
    return matches / total
