"""Tokenize plain text like the gold alignments of the Hansards (NAACL 2003), so that a model trained on one can be tested on
the other: punctuation separated, lowercase, and contractions expanded.

    Don't go to l'hôtel!    ->  do not go to le hôtel !
    du, aux, J'ai           ->  de le, à les, je ai

The Hansards expand every elided article to "le", whatever its gender.
"""

from __future__ import annotations

import re

APOSTROPHES = str.maketrans("’ʼ`", "'''")
SIGNS = re.compile(r"(\.\.\.|[^\w\s'.]|(?<!\d)\.|\.(?!\d))")
ENGLISH = [
    (re.compile(r"\b(mr|mrs|ms|dr) \."), r"\1."),
    (re.compile(r"\bcan't\b"), "can not"),
    (re.compile(r"\bcannot\b"), "can not"),
    (re.compile(r"\bwon't\b"), "will not"),
    (re.compile(r"\bshan't\b"), "shall not"),
    (re.compile(r"\blet's\b"), "let us"),
    (re.compile(r"(\w)n't\b"), r"\1 not"),
    (re.compile(r"(\w)'m\b"), r"\1 am"),
    (re.compile(r"(\w)'re\b"), r"\1 are"),
    (re.compile(r"(\w)'ve\b"), r"\1 have"),
    (re.compile(r"(\w)'ll\b"), r"\1 will"),
    (re.compile(r"(\w)'d\b"), r"\1 would"),
    (re.compile(r"(\w)'s\b"), r"\1 's"),
]
FRENCH = [
    (re.compile(r"\b(m|mme|mlle|dr) \."), r"\1."),
    (re.compile(r"\baujourd'hui\b"), "aujourd' hui"),
    (re.compile(r"\b([cdjlmnst]|qu|lorsqu|puisqu|quoiqu|jusqu)'"), r"\1e "),
    (re.compile(r"\b(presqu|quelqu)'"), r"\1e "),
    (re.compile(r"\bdu\b"), "de le"),
    (re.compile(r"\bdes\b"), "de les"),
    (re.compile(r"\bau\b(?! -)"), "à le"),
    (re.compile(r"\baux\b"), "à les"),
]
CONTRACTIONS = {"en": ENGLISH, "fr": FRENCH}


def normalize(text: str, language: str) -> str:
    """Tokens separated by single spaces."""
    text = SIGNS.sub(r" \1 ", text.translate(APOSTROPHES).lower())
    for pattern, written in CONTRACTIONS[language]:
        text = pattern.sub(written, " ".join(text.split()))
    return text
