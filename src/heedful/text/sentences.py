"""Sentences of a text: split after . ! ? and …, at line breaks and at HTML breaks.

    "It works. Really? Mr. Smith paid 3.50 for it."   ->   It works. | Really? | Mr. Smith paid 3.50 for it.

A full stop ends a sentence if white space and no lowercase letter follow, unless it belongs to a common abbreviation or to an
initial. Sentences are slices of the text, so their words are the words of the text.
"""

from __future__ import annotations

import re

ABBREVIATIONS = frozenset(
    [
        "mr",
        "mrs",
        "ms",
        "dr",
        "prof",
        "sr",
        "jr",
        "st",
        "vs",
        "etc",
        "eg",
        "ie",
        "e.g",
        "i.e",
        "no",
        "vol",
        "fig",
        "al",
        "inc",
        "ltd",
        "co",
        "corp",
        "dept",
        "est",
        "approx",
        "gen",
        "rep",
        "sen",
        "gov",
        "lt",
        "col",
        "capt",
    ]
)
BREAK = re.compile(r"(?:<br\s*/?>\s*)+|\n+", re.IGNORECASE)
END = re.compile(r"[.!?…]+[\"'”’)\]]*\s+")
LAST_WORD = re.compile(r"[^\s(\[\"'“‘]+$")


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text without the white space around them; none is empty."""
    sentences, start = [], 0
    for at in boundaries(text):
        sentences.append(text[start:at].strip())
        start = at
    return [sentence for sentence in [*sentences, text[start:].strip()] if sentence]


def boundaries(text: str) -> list[int]:
    """The positions at which a sentence begins, after the first, in order."""
    found = {match.end() for match in BREAK.finditer(text)}
    found |= {match.end() for match in END.finditer(text) if ends_sentence(text, match)}
    return sorted(found - {len(text)})


def ends_sentence(text: str, mark: re.Match[str]) -> bool:
    """Whether this mark, with the white space after it, ends a sentence."""
    if text[mark.end() : mark.end() + 1].islower():
        return False
    if mark.group().rstrip("\"'”’)] \t\n\r") != ".":
        return True
    before = LAST_WORD.search(text, max(0, mark.start() - 20), mark.start())
    word = before.group().lower() if before else ""
    return word not in ABBREVIATIONS and not (len(word) == 1 and word.isalpha() and word != "i")
