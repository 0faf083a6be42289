"""Texts whose grammar is known, and the count of characters that a language model must beat.

templates      eleven sentences with word classes. A word of a class stands where only its class can, and in two sentences
               that any word fits, which are the ones to be labeled: what it is must be known from elsewhere
kinds          the eleventh sentence names the kind of a word; of some words it is never said
Witten-Bell    p(c | h) = (count(h c) + kinds(h) p(c | h')) / (count(h) + kinds(h)), h' without its first character,
               kinds(h): how many different characters followed; below the empty history all are alike
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

KINDS = ("animal", "tool", "food", "cloth")
SAID = {
    "animal": ("the {animal} runs after the {animal}", "a hungry {animal} sleeps in the grass"),
    "tool": ("she mends the door with a {tool}", "the {tool} hangs on the wall beside the {tool}"),
    "food": ("we cook the {food} with the {food}", "he eats a warm {food} every day"),
    "cloth": ("she wears a {cloth} over a {cloth}", "the {cloth} is washed and dried"),
}
ANY = ("yesterday {name} saw the {thing}", "what {name} wants is a {thing}")
NAMES = ("anna", "bruno", "carla", "dario", "elsa", "fabio", "greta", "hugo")
QUESTION = "the {thing} is a kind of"


class Lexicon(NamedTuple):
    words: dict[str, list[str]]  # of every kind
    told: set[str]  # those whose kind a text says


def lexicon(seed: int, *, words: int = 40, told: float = 0.0) -> Lexicon:
    """Invented words of two syllables; of the part `told` of each kind the text says what it is."""
    draw = random.Random(seed)
    syllables = [first + then for first in "bdfgklmnprstvz" for then in "aeiou"]
    invented = draw.sample([a + b for a in syllables for b in syllables], words * len(KINDS))
    found = {kind: invented[at * words : (at + 1) * words] for at, kind in enumerate(KINDS)}
    return Lexicon(found, {word for one in found.values() for word in one[: round(told * words)]})


def sentence(known: Lexicon, draw: random.Random) -> str:
    """Every template is as likely as any other."""
    kind = draw.choice(KINDS)
    template = draw.choice([*(one for pair in SAID.values() for one in pair), *ANY, *([QUESTION] * bool(known.told))])
    if template == QUESTION:
        told = [word for word in known.words[kind] if word in known.told]
        return f"{template.format(thing=draw.choice(told))} {kind}"
    if template in ANY:
        return template.format(name=draw.choice(NAMES), thing=draw.choice(known.words[kind]))
    (owner,) = (kind for kind, pair in SAID.items() if template in pair)
    parts = template.split(f"{{{owner}}}")
    return "".join(part + draw.choice(known.words[owner]) for part in parts[:-1]) + parts[-1]


def labeled(known: Lexicon, count: int, draw: random.Random) -> list[tuple[str, str]]:
    """(kind, sentence that any word fits), no sentence twice."""
    found: dict[str, str] = {}
    while len(found) < count:
        kind = draw.choice(KINDS)
        found[draw.choice(ANY).format(name=draw.choice(NAMES), thing=draw.choice(known.words[kind]))] = kind
    return [(kind, text) for text, kind in found.items()]


def questions(known: Lexicon) -> list[tuple[str, str]]:
    """(kind, prompt) for every word whose kind was not told."""
    return [
        (kind, QUESTION.format(thing=word)) for kind, words in known.words.items() for word in words if word not in known.told
    ]


def write_lines(lines: Iterable[str], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


class Counted:
    """An n-gram of characters, interpolated after Witten and Bell (1991)."""

    def __init__(self, text: str, order: int) -> None:
        self.order, self.alphabet = order, sorted(set(text))
        self.after: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for length in range(order + 1):
            for at in range(length, len(text)):
                self.after[text[at - length : at]][text[at]] += 1
        self.totals = {history: counts.total() for history, counts in self.after.items()}

    def probability(self, character: str, history: str) -> float:
        """Of a character after a history of any length; one never seen has the share of one more in the alphabet."""
        found = 1 / (len(self.alphabet) + 1)
        for length in range(min(self.order, len(history)) + 1):
            known = history[len(history) - length :]
            if known in self.totals:
                counts, total = self.after[known], self.totals[known]
                found = (counts[character] + len(counts) * found) / (total + len(counts))
        return found

    def bits(self, text: str) -> float:
        """Per character; the end of a line comes before the first."""
        read = "\n" + text
        logs = (math.log2(self.probability(read[at], read[max(0, at - self.order) : at])) for at in range(1, len(read)))
        return -math.fsum(logs) / len(text)


def known_words(text: str, vocabulary: set[str]) -> float:
    """The share of the words of a text that are in the vocabulary."""
    found = words_of(text)
    return sum(word in vocabulary for word in found) / max(len(found), 1)


def words_of(text: str) -> Sequence[str]:
    """Letters and apostrophes in a row, in lower case."""
    return "".join(letter if letter.isalpha() or letter == "'" else " " for letter in text.lower()).split()
