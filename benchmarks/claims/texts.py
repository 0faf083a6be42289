"""Texts with a known grammar, and the character n-gram model that a language model must beat.

templates      eleven sentences with word classes. Most slots accept words of one class only; two sentences accept any
               word, and these are the ones to classify: the class must be learned from the other sentences
kinds          the eleventh sentence states the kind of a word, but not for all words
Witten-Bell    p(c | h) = (count(h c) + kinds(h) p(c | h')) / (count(h) + kinds(h)), h' without its first character,
               kinds(h): the number of distinct characters after h; the empty history backs off to a uniform distribution
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

KINDS = ("animal", "tool", "food", "cloth")
TEMPLATES = {
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
    stated: set[str]  # words whose kind the text states


def lexicon(seed: int, *, words: int = 40, stated: float = 0.0) -> Lexicon:
    """Invented words of two syllables; the text states the kind of the fraction `stated` of them."""
    draw = random.Random(seed)
    syllables = [first + then for first in "bdfgklmnprstvz" for then in "aeiou"]
    invented = draw.sample([a + b for a in syllables for b in syllables], words * len(KINDS))
    by_kind = {kind: invented[at * words : (at + 1) * words] for at, kind in enumerate(KINDS)}
    return Lexicon(by_kind, {word for words_of_kind in by_kind.values() for word in words_of_kind[: round(stated * words)]})


def sentence(known: Lexicon, draw: random.Random) -> str:
    """A sentence from a template drawn uniformly."""
    kind = draw.choice(KINDS)
    template = draw.choice([*(one for pair in TEMPLATES.values() for one in pair), *ANY, *([QUESTION] * bool(known.stated))])
    if template == QUESTION:
        stated = [word for word in known.words[kind] if word in known.stated]
        return f"{template.format(thing=draw.choice(stated))} {kind}"
    if template in ANY:
        return template.format(name=draw.choice(NAMES), thing=draw.choice(known.words[kind]))
    (owner,) = (kind for kind, pair in TEMPLATES.items() if template in pair)
    parts = template.split(f"{{{owner}}}")
    return "".join(part + draw.choice(known.words[owner]) for part in parts[:-1]) + parts[-1]


def labeled(known: Lexicon, count: int, draw: random.Random) -> list[tuple[str, str]]:
    """(kind, sentence that accepts any word), without duplicates."""
    labels: dict[str, str] = {}
    while len(labels) < count:
        kind = draw.choice(KINDS)
        labels[draw.choice(ANY).format(name=draw.choice(NAMES), thing=draw.choice(known.words[kind]))] = kind
    return [(kind, text) for text, kind in labels.items()]


def questions(known: Lexicon) -> list[tuple[str, str]]:
    """(kind, prompt) for every word whose kind the text does not state."""
    return [
        (kind, QUESTION.format(thing=word)) for kind, words in known.words.items() for word in words if word not in known.stated
    ]


def write_lines(lines: Iterable[str], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


class NGram:
    """A character n-gram model with Witten-Bell interpolation (1991)."""

    def __init__(self, text: str, order: int) -> None:
        self.order, self.alphabet = order, sorted(set(text))
        self.after: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for length in range(order + 1):
            for at in range(length, len(text)):
                self.after[text[at - length : at]][text[at]] += 1
        self.totals = {history: counts.total() for history, counts in self.after.items()}

    def probability(self, character: str, history: str) -> float:
        """p(character | history); an unseen character counts as one more character of the alphabet."""
        estimate = 1 / (len(self.alphabet) + 1)
        for length in range(min(self.order, len(history)) + 1):
            known = history[len(history) - length :]
            if known in self.totals:
                counts, total = self.after[known], self.totals[known]
                estimate = (counts[character] + len(counts) * estimate) / (total + len(counts))
        return estimate

    def bits(self, text: str) -> float:
        """Bits per character; a newline precedes the first character."""
        read = "\n" + text
        logs = (math.log2(self.probability(read[at], read[max(0, at - self.order) : at])) for at in range(1, len(read)))
        return -math.fsum(logs) / len(text)


def known_words(text: str, vocabulary: set[str]) -> float:
    """The fraction of the words of a text that are in the vocabulary."""
    words = words_of(text)
    return sum(word in vocabulary for word in words) / max(len(words), 1)


def words_of(text: str) -> Sequence[str]:
    """Lowercase sequences of letters and apostrophes."""
    return "".join(letter if letter.isalpha() or letter == "'" else " " for letter in text.lower()).split()
