"""BM25: ranking of documents by the words that they share with a query (Robertson et al., 1994).

    score(q, d) = sum_{t in q} idf(t) * tf (k1 + 1) / (tf + k1 (1 - b + b |d| / mean |d|))
    idf(t) = log(1 + (N - n + 1/2) / (n + 1/2))                 N documents, n of them contain t; never negative

tf: occurrences of t in d; |d|: words of d. A word that occurs twice in the query counts twice. Only the documents that contain
a word of the query are scored, by a list of the documents of each word (an inverted index); all others score 0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

WORD = re.compile(r"\w+(?:'\w+)?")

K1, B = 1.2, 0.75  # the usual values


def split_words(text: str) -> list[str]:
    """Lowercase words, without punctuation."""
    return WORD.findall(text.lower())


class Postings(NamedTuple):
    """The documents that contain a word."""

    documents: NDArray[np.int64]  # (documents with the word,)
    weights: NDArray[np.float64]  # (documents with the word,): what one occurrence in the query adds to their scores


class BM25:
    """Documents, indexed by their words."""

    def __init__(self, documents: Sequence[str], *, k1: float = K1, b: float = B) -> None:
        self.size = len(documents)
        counts = [Counter(split_words(document)) for document in documents]
        lengths = np.array([count.total() for count in counts], np.float64)
        relative = lengths / max(lengths.mean(), 1.0) if len(lengths) else lengths  # |d| / mean |d|
        found: dict[str, list[tuple[int, int]]] = {}  # word -> documents and occurrences
        for number, count in enumerate(counts):
            for word, occurrences in count.items():
                found.setdefault(word, []).append((number, occurrences))
        self.postings: dict[str, Postings] = {}
        for word, pairs in found.items():
            rows = np.array([number for number, _ in pairs], np.int64)
            tf = np.array([occurrences for _, occurrences in pairs], np.float64)
            idf = np.log(1 + (self.size - len(rows) + 0.5) / (len(rows) + 0.5))
            self.postings[word] = Postings(rows, idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * relative[rows])))

    def scores(self, query: str) -> NDArray[np.float64]:
        """The score of every document, (documents,)."""
        total = np.zeros(self.size)
        for word, occurrences in Counter(split_words(query)).items():
            if word in self.postings:
                documents, weights = self.postings[word]
                total[documents] += occurrences * weights
        return total
