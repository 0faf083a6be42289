"""Toy corpora: generated examples with exact answers, each made to test one ability of a model.

    pairs       copy, reverse, dictionary, names, many-to-one       source, target and word alignment
    labeled     negation, key-document, largest                     label and text
    tagged      tag-by-context, echo, agreement                     words and a label for each
    dialogues   two-turns-back                                      turns

    sample(PAIRS["copy"], "train", 20_000)                          examples of a split; a larger count only appends
    sample(partial(copy, lengths=[8]), "test", 500)                 the same with other options

The same seed gives the same examples. Splits are disjoint for every seed: the part of an example is determined by a hash of
what it is made of, as in the grammar (`generated_split.py`). Examples may repeat within a split.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from heedful.data.generated_split import split_of
from heedful.data.grammar.agreement import uninflect
from heedful.data.grammar.corpus import draw_sentence
from heedful.errors import DataError

Link = tuple[int, int]  # source word, target word
PairToy = Literal["copy", "reverse", "dictionary", "names", "many-to-one"]
LabeledToy = Literal["negation", "key-document", "largest"]
TaggedToy = Literal["tag-by-context", "echo", "agreement"]
DialogueToy = Literal["two-turns-back"]

SHORT = range(3, 9)  # words of a sentence
NAMES = 1_000_000  # large, so that a name is rarely seen twice
MAX_MISSES = 100_000  # consecutive draws without an example of the split

POSITIVE = ("good", "great", "lovely", "superb")
NEGATIVE = ("terrible", "bad", "awful", "dull")
NOT, PERHAPS = "not", "perhaps"
MEANINGLESS = 500  # words

TOPICS: dict[str, tuple[str, ...]] = {
    "sport": ("goal", "match", "coach"),
    "food": ("bread", "soup", "spoon"),
    "music": ("violin", "choir", "tune"),
}
FILLERS = tuple(f"w{number}" for number in range(60))

THINGS = ("cat", "dog", "horse", "boat", "house", "car", "sister", "brother", "teacher", "friend")
CALLED = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gil", "Hana", "Ivan", "June", "Kim", "Leo", "Mia", "Ned", "Olga", "Pia")


class Example(Protocol):
    @property
    def group(self) -> str:
        """Examples with the same text here are in the same split."""


Made = TypeVar("Made", bound=Example)
Draw = Callable[[random.Random], Made]  # one example


class Pair(NamedTuple):
    source: list[str]
    target: list[str]
    links: frozenset[Link]  # source word, target word
    group: str

    def __str__(self) -> str:
        return f"{' '.join(self.source)} → {' '.join(self.target)}"


class LabeledText(NamedTuple):
    label: str
    text: str

    @property
    def group(self) -> str:
        return self.text

    def __str__(self) -> str:
        return f"{self.label}: {self.text}"


class LabeledSet(LabeledText):
    """A text whose words have no order."""

    @property
    def group(self) -> str:
        return " ".join(sorted(self.text.split()))


class TaggedWords(NamedTuple):
    words: list[str]
    labels: list[str]
    tree: Sequence[tuple[int, str]] = ()  # head (-1 for the root) and relation of each word; empty: not known

    @property
    def group(self) -> str:
        return " ".join(self.words)

    def __str__(self) -> str:
        return " ".join(f"{word}/{label}" for word, label in zip(self.words, self.labels, strict=True))


class Dialogue(NamedTuple):
    turns: list[str]  # of both speakers in turn; the last one is the answer

    @property
    def group(self) -> str:
        return "\t".join(self.turns[:-1])

    def __str__(self) -> str:
        return " / ".join(self.turns)


class ToySplit(NamedTuple):
    """A split of a labeled or tagged toy, where other data has a path."""

    name: str
    split: str
    size: int  # examples

    def __str__(self) -> str:
        return f"built-in {self.name} {self.split}"


def sample(draw: Draw[Made], split: str, count: int, seed: int = 0) -> Iterator[Made]:
    """Yield `count` examples of a split."""
    state, given, misses = random.Random(seed), 0, 0
    while given < count:
        example = draw(state)
        if split_of(example.group) == split:
            given, misses = given + 1, 0
            yield example
        elif (misses := misses + 1) == MAX_MISSES:
            raise DataError(
                f"none of {MAX_MISSES:,} generated examples belongs to the split {split!r}; it has {given:,} of {count:,}",
                hint="use longer examples, or more symbols",
            )


def symbols_of(draw: random.Random, lengths: Sequence[int], symbols: int) -> list[str]:
    return [f"s{draw.randrange(symbols)}" for _ in range(draw.choice(lengths))]


def make_pair(source: list[str], order: Sequence[int], translate: Callable[[str], str] = str) -> Pair:
    """A pair whose target word t translates the source word order[t]."""
    target = [translate(source[at]) for at in order]
    return Pair(source, target, frozenset((at, position) for position, at in enumerate(order)), " ".join(target))


def copy(draw: random.Random, lengths: Sequence[int] = SHORT, symbols: int = 10) -> Pair:
    source = symbols_of(draw, lengths, symbols)
    return make_pair(source, range(len(source)))


def reverse(draw: random.Random, lengths: Sequence[int] = SHORT, symbols: int = 10) -> Pair:
    source = symbols_of(draw, lengths, symbols)
    return make_pair(source, range(len(source))[::-1])


@cache
def shuffled(count: int) -> list[int]:
    """A fixed permutation."""
    numbers = list(range(count))
    random.Random(0).shuffle(numbers)
    return numbers


def dictionary(draw: random.Random, lengths: Sequence[int] = SHORT, words: int = 40) -> Pair:
    """Words a0 … are adjectives, n0 … are not; each has one translation, and an adjective is swapped with the word on its
    right."""
    source = dictionary_words(draw, lengths, words)
    return make_pair(source, swap_adjectives(source), partial(translate_word, words))


def names(draw: random.Random, lengths: Sequence[int] = SHORT, words: int = 40, names: int = NAMES) -> Pair:
    """As `dictionary`, and one word is a name, which is copied; the splits have no name in common."""
    source = dictionary_words(draw, lengths, words)
    at, name = draw.randrange(len(source)), f"Name{draw.randrange(names)}"
    source[at] = name
    return make_pair(source, swap_adjectives(source), partial(translate_word, words))._replace(group=name)


def dictionary_words(draw: random.Random, lengths: Sequence[int], words: int) -> list[str]:
    return [f"{'a' if number < words // 2 else 'n'}{number}" for number in draw.choices(range(words), k=draw.choice(lengths))]


def translate_word(words: int, word: str) -> str:
    return word if word.startswith("Name") else f"t{shuffled(words)[int(word[1:])]}"


def swap_adjectives(source: Sequence[str]) -> list[int]:
    """The order of the source words in the target: each adjective after the word on its right, from left to right."""
    order, at = list(range(len(source))), 0
    while at + 1 < len(source):
        if source[at].startswith("a"):
            order[at], order[at + 1] = at + 1, at
            at += 1
        at += 1
    return order


def many_to_one(draw: random.Random, words: int = 12) -> Pair:
    """Adverb, subject, verb and object, the nouns with an adjective. The source has free order: the adverb is first or last, an
    adjective before or after its noun; the target has one order. All sources of a target are in the same split."""
    adverb, verb = (f"{kind}{draw.randrange(words)}" for kind in "dv")
    phrases = [[f"n{draw.randrange(words)}", f"a{draw.randrange(words)}"] for _ in range(2)]
    free = [phrase[::-1] if draw.random() < 0.5 else phrase for phrase in phrases]
    clause = [*free[0], verb, *free[1]]
    source = [adverb, *clause] if draw.random() < 0.5 else [*clause, adverb]
    canonical = [adverb, *phrases[0], verb, *phrases[1]]
    order: list[int] = []
    for word in canonical:  # a word that occurs twice is linked from left to right
        order.append(next(at for at, other in enumerate(source) if other == word and at not in order))
    return make_pair(source, order, lambda word: f"{word[0].upper()}{shuffled(words)[int(word[1:])]}")


def negation(draw: random.Random, lengths: Sequence[int] = range(3, 9)) -> LabeledText:
    """Words without meaning and one adjective; before each word is "not", "perhaps" or neither, and what counts is the word
    before the adjective: "not" negates it, and "perhaps" makes the label "open", so that a model has to tell both from other
    words. The words alone predict at most the label of the texts with a plain adjective."""
    words = [f"w{draw.randrange(MEANINGLESS)}" for _ in range(draw.choice(lengths))]
    at, positive = draw.randrange(len(words)), draw.random() < 0.5
    words[at] = draw.choice(POSITIVE if positive else NEGATIVE)
    before = draw.choices(("", NOT, PERHAPS), (60, 25, 15), k=len(words))
    label = "open" if before[at] == PERHAPS else "positive" if positive != (before[at] == NOT) else "negative"
    return LabeledText(label, " ".join(word for both in zip(before, words, strict=True) for word in both if word))


def key_document(draw: random.Random, sentences: int = 5, lengths: Sequence[int] = range(12, 21)) -> LabeledText:
    """Sentences of words without meaning, and one word that determines the label; without such a word it is "other", so that
    a model has to find the words of every label."""
    label = draw.choice([*TOPICS, "other"])
    document = [[draw.choice(FILLERS) for _ in range(draw.choice(lengths))] for _ in range(sentences)]
    chosen = draw.choice(document)
    if label in TOPICS:
        chosen[draw.randrange(1, len(chosen))] = draw.choice(TOPICS[label])
    return LabeledText(label, " ".join(f"{' '.join(words).capitalize()} ." for words in document))


def largest(draw: random.Random, sizes: Sequence[int] = range(3, 9), labels: Sequence[int] = range(8, 16)) -> LabeledSet:
    """Different numbers in random order; the label is the largest of them, uniform over `labels`. These are at least as
    large as a set, so that every label has sets in all splits. A set is in one split in all its orders."""
    top = draw.choice(labels)
    chosen = [top, *draw.sample(range(top), draw.choice(sizes) - 1)]
    draw.shuffle(chosen)
    return LabeledSet(str(top), " ".join(map(str, chosen)))


def tag_by_context(
    draw: random.Random, lengths: Sequence[int] = range(4, 13), classes: int = 4, words: int = 10
) -> TaggedWords:
    """The label of a word is the class of the word before it; words: of each class."""
    kinds = [draw.randrange(classes) for _ in range(draw.choice(lengths))]
    return TaggedWords([f"w{kind}{draw.randrange(words)}" for kind in kinds], ["first", *(f"c{kind}" for kind in kinds[:-1])])


def echo(draw: random.Random, distance: int = 10, lengths: Sequence[int] | None = None, symbols: int = 8) -> TaggedWords:
    """The label of a word is the word `distance` positions before it, "none" if there is none.

    lengths: default: from 2 to 3 distances"""
    words = symbols_of(draw, lengths or range(2 * distance, 3 * distance + 1), symbols)
    return TaggedWords(words, [*["none"] * min(distance, len(words)), *words[:-distance]])


def agreement(draw: random.Random) -> TaggedWords:
    """An Italian sentence of the grammar with verbs and adjectives in their citation form (`grammar/agreement.py`); their label
    is the form that agrees with the subject or the noun."""
    words = uninflect(draw_sentence(draw))
    return TaggedWords(
        [word.text for word in words], [word.label for word in words], [(word.head, word.relation) for word in words]
    )


def two_turns_back(draw: random.Random) -> Dialogue:
    """Two facts, then a question about one of them: the answer is one or two turns of the speaker back."""
    things, called = draw.sample(THINGS, 2), draw.sample(CALLED, 2)
    asked = draw.randrange(2)
    facts = [f"my {thing} is called {name}" for thing, name in zip(things, called, strict=True)]
    return Dialogue([facts[0], "I see", facts[1], "I see", f"what is my {things[asked]} called ?", called[asked]])


PAIRS: dict[PairToy, Draw[Pair]] = {
    "copy": copy,
    "reverse": reverse,
    "dictionary": dictionary,
    "names": names,
    "many-to-one": many_to_one,
}
LABELED: dict[LabeledToy, Draw[LabeledText]] = {"negation": negation, "key-document": key_document, "largest": largest}
TAGGED: dict[TaggedToy, Draw[TaggedWords]] = {"tag-by-context": tag_by_context, "echo": echo, "agreement": agreement}
DIALOGUES: dict[DialogueToy, Draw[Dialogue]] = {"two-turns-back": two_turns_back}

FORMS: dict[str, Mapping[Any, Draw[Any]]] = {"pairs": PAIRS, "labeled": LABELED, "tagged": TAGGED, "dialogues": DIALOGUES}
SUMMARIES = {
    "copy": "the target is the source",
    "reverse": "the target is the source, reversed",
    "dictionary": "word by word, and an adjective is swapped with the word on its right",
    "names": "as dictionary, with a name outside the vocabulary, which is copied",
    "many-to-one": "free word order in the source, one word order in the target",
    "negation": 'whether an adjective is positive, with "not", "perhaps" or neither before it',
    "key-document": "one word of a document of five sentences determines the label; without one it is other",
    "largest": "the label of a set of numbers is the largest of them",
    "tag-by-context": "the label of a word is the class of the word before it",
    "echo": "the label of a word is the word 10 positions before it, or data.distance",
    "agreement": "the label of an Italian verb or adjective, given in its citation form, is the form that agrees",
    "two-turns-back": "a question about a fact of one or two turns before",
}


def list_toys() -> list[dict[str, str]]:
    """Return one row per toy corpus, as in `heed data list`."""
    return [
        {"name": name, "form": form, "summary": SUMMARIES[name], "example": str(next(sample(draw, "train", 1)))}
        for form, toys in FORMS.items()
        for name, draw in toys.items()
    ]
