"""Exact match and F1 of answers, as in SQuAD (Rajpurkar et al., 2016).

    exact match   the answers are equal after normalization
    F1            2 P R / (P + R) = 2 x shared words / (words of both); words are counted as often as they occur

Normalization: lower case, without punctuation, the articles a, an, the, and repeated white space. An answer without words after
it matches only another one. Of several references, the best counts.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(answer: str, references: Sequence[str]) -> float:
    return float(normalize_answer(answer) in map(normalize_answer, references))


def answer_f1(answer: str, references: Sequence[str]) -> float:
    return max(word_f1(normalize_answer(answer).split(), normalize_answer(one).split()) for one in references)


def word_f1(words: Sequence[str], reference: Sequence[str]) -> float:
    if not words or not reference:
        return float(not words and not reference)
    shared = (Counter(words) & Counter(reference)).total()
    return 2 * shared / (len(words) + len(reference))
