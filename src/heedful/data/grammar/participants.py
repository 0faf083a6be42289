"""The participants of a clause: spaces of subjects, objects and adjuncts, each with its share.

A share is the probability of the space in a family. The shares of one list need not add up to one.
"""

from __future__ import annotations

from functools import cache
from itertools import permutations, product
from typing import NamedTuple

from heedful.data.grammar import italian
from heedful.data.grammar.clauses import Liker, Mood, Subject, always_overt, named_liker, pronoun
from heedful.data.grammar.lexicon import ADJECTIVES, NAMES, NOUN_LETTERS, NOUNS, Name, Noun
from heedful.data.grammar.nouns import (
    BARE,
    BARE_MASS,
    EVERY,
    KIND,
    KIND_MASS,
    MANY,
    NUMBERS,
    OWNED,
    PLAIN,
    POINTING,
    POSSESSED,
    QUANTITIES,
    THAT,
    THE,
    THE_MANY,
    THIS,
    A,
    Determiner,
    Modifiers,
    Preposition,
    name_phrase,
    noun_phrase,
)
from heedful.data.grammar.phrases import Phrase, fixed
from heedful.data.grammar.spaces import Space, one_of

STATED = one_of([Mood.STATEMENT, Mood.NEGATIVE])
MOODS = one_of([Mood.STATEMENT, Mood.NEGATIVE, Mood.QUESTION])
ALL_MOODS = one_of([Mood.STATEMENT, Mood.NEGATIVE, Mood.QUESTION, Mood.NEVER])
MASS = ("dish", "meal", "drink")


class Thing(NamedTuple):
    """A noun phrase with its number, for agreement of the Italian verb."""

    phrase: Phrase
    plural: bool


# --- subjects

MYSELF, YOU, HE, SHE, WE, THEY = PRONOUNS = [
    pronoun("I", "io", 0),
    pronoun("you", "tu", 1),
    pronoun("he", "lui", 2),
    pronoun("she", "lei", 2, "f"),
    pronoun("we", "noi", 3),
    pronoun("they", "loro", 5),
]
NAMED = [always_overt(name_phrase(name), 2, name.gender) for name in NAMES]
WHO = always_overt(fixed("who", "chi"), 2, "m")


def _and(name: Name) -> str:
    return italian.with_euphony("e", name.text)


def _with_me(name: Name) -> Subject:
    """Anna and I: io e Anna"""
    phrase = fixed(f"{name.text}=a and:cc=b I:conj=c", f"io=c {_and(name)}:cc=b {name.text}:conj=a")
    return always_overt(phrase, 3, "m")


def _with_you(name: Name) -> Subject:
    return always_overt(fixed(f"you and:cc {name.text}:conj", f"tu {_and(name)}:cc {name.text}:conj"), 4, "m")


def _pair(first: Name, second: Name) -> Subject:
    phrase = fixed(f"{first.text} and:cc {second.text}:conj", f"{first.text} {_and(second)}:cc {second.text}:conj")
    return always_overt(phrase, 5, "f" if first.gender == second.gender == "f" else "m")


WITH_ME = [_with_me(name) for name in NAMES]
WITH_YOU = [always_overt(fixed("you two:nummod", "voi due:nummod"), 4, "m"), *map(_with_you, NAMES)]
PAIRS = [_pair(first, second) for first, second in permutations(NAMES, 2)]


def noun_subject(noun: Noun, determiner: Determiner, modifiers: Modifiers) -> Subject:
    plural = determiner.plural
    return always_overt(noun_phrase(noun, determiner, modifiers), 5 if plural else 2, noun.genders[plural])


ONLY_PLAIN = [PLAIN]
ARTICLES = [THE, A, THE_MANY]
SPECIFIC = [*POINTING, *POSSESSED, *QUANTITIES, EVERY]
# "every boy doesn't" is ambiguous, so subjects have no quantifiers.
LEADING = [*POINTING, *POSSESSED, *NUMBERS, MANY]
_OWN = [determiner for determiner in POSSESSED if not determiner.plural]
OF_KIN = [*POSSESSED, *OWNED, *NUMBERS]
OF_PARENTS = [*_OWN, *(determiner for determiner in OWNED if not determiner.plural)]


@cache
def one_adjective(kind: str) -> list[Modifiers]:
    adjectives = ADJECTIVES[NOUN_LETTERS[kind]]
    return [Modifiers(before=a) if a.precedes else Modifiers(after=a) for a in adjectives]


@cache
def two_adjectives(kind: str) -> list[Modifiers]:
    adjectives = ADJECTIVES[NOUN_LETTERS[kind]]
    return [Modifiers(a, b) for a in adjectives if a.precedes for b in adjectives if not b.precedes]


PERSON = NOUNS["person"]
RELATED = [
    (0.07, Space(noun_subject, NOUNS["kin"], OF_KIN, ONLY_PLAIN)),
    (0.04, Space(noun_subject, NOUNS["parent"], OF_PARENTS, ONLY_PLAIN)),
]
SHORT_SUBJECTS = [(0.40, one_of(PRONOUNS)), (0.12, one_of(NAMED)), (0.07, one_of(WITH_ME)), (0.08, one_of(WITH_YOU))]
STRANGERS = [
    (0.10, Space(noun_subject, PERSON, ARTICLES, ONLY_PLAIN)),
    (0.07, Space(noun_subject, PERSON, LEADING, ONLY_PLAIN)),
    (0.06, Space(noun_subject, PERSON, [*ARTICLES, *LEADING], one_adjective("person"))),
]
SUBJECTS = [*SHORT_SUBJECTS, (0.05, one_of(PAIRS)), *STRANGERS, *RELATED]
LIKERS = [
    Liker(fixed("I", "mi"), third=False, clitic=True),
    Liker(fixed("you", "ti"), third=False, clitic=True),
    Liker(fixed("he", "gli"), third=True, clitic=True),
    Liker(fixed("she", "le"), third=True, clitic=True),
    Liker(fixed("we", "ci"), third=False, clitic=True),
    Liker(fixed("they", "a:case loro"), third=False, clitic=False),
    *(named_liker(name) for name in NAMES),
]
ME, THEE, HIM, HER, US, THEM = (
    fixed(*pair) for pair in (("me", "mi"), ("you", "ti"), ("him", "lo"), ("her", "la"), ("us", "ci"), ("them", "li"))
)
OTHERS = [HIM, HER, THEM]

Extra = dict[str, Phrase]  # slot of a frame -> what fills it


@cache
def slot(name: str, space: Space[Phrase]) -> Space[Extra]:
    return Space(lambda *chosen: {name: space.make(*chosen)}, *space.choices)


# --- objects

Choices = list[tuple[float, list[Determiner], list[Modifiers]]]  # share, determiners, adjectives


def _objects(kind: str) -> Choices:
    if kind in MASS:
        return [
            (0.6, [THE, BARE_MASS], ONLY_PLAIN),
            (0.2, [THIS, THAT, *_OWN], ONLY_PLAIN),
            (0.2, [THE, BARE_MASS, THIS, THAT, *_OWN], one_adjective(kind)),
        ]
    if kind == "kin":
        return [(0.8, [A, *OF_KIN], ONLY_PLAIN), (0.2, [A, *POSSESSED], one_adjective(kind))]
    if kind == "parent":
        return [(0.8, OF_PARENTS, ONLY_PLAIN), (0.2, _OWN, one_adjective(kind))]
    if kind in ("inside", "spot"):
        near = [A, THIS, THAT, *_OWN]
        return [(0.5, [THE], ONLY_PLAIN), (0.3, near, ONLY_PLAIN), (0.2, [THE, *near], one_adjective(kind))]
    unnamed = ARTICLES if kind == "person" else [*ARTICLES, BARE]  # "vedo gatti", but not "vedo dottori"
    return [
        (0.40, unnamed, ONLY_PLAIN),
        (0.25, SPECIFIC, ONLY_PLAIN),
        (0.05, OWNED, ONLY_PLAIN),
        (0.22, [*unnamed, *SPECIFIC], one_adjective(kind)),
        (0.08, [*unnamed, *SPECIFIC], two_adjectives(kind)),
    ]


def _favorites(kind: str) -> Choices:
    """Objects of "like" and "prefer": a specific one, several, or the generic plural."""
    if kind in MASS:
        return [(1.0, [KIND_MASS, THE, THIS], ONLY_PLAIN)]
    particular = [THE, THE_MANY, *POINTING, *POSSESSED]
    return [
        (0.5, [KIND, THE, THE_MANY], ONLY_PLAIN),
        (0.3, particular[2:], ONLY_PLAIN),
        (0.2, [KIND, *particular], one_adjective(kind)),
    ]


@cache
def objects(kind: str, preposition: Preposition | None = None) -> list[tuple[float, Space[Phrase]]]:
    """Noun phrases of one kind, with and without adjectives; a preposition requires a determiner."""
    return [
        (share, Space(noun_phrase, NOUNS[kind], [d for d in chosen if d.english or not preposition], modifiers, [preposition]))
        for share, chosen, modifiers in _objects(kind)
    ]


@cache
def plain_objects(kind: str) -> Space[Phrase]:
    return objects(kind)[0][1]


@cache
def favorites(kind: str) -> list[tuple[float, Space[Phrase]]]:
    return [(share, Space(noun_phrase, NOUNS[kind], chosen, modifiers)) for share, chosen, modifiers in _favorites(kind)]


def favorite_things(kind: str) -> list[tuple[float, Space[Thing]]]:
    return [(share, Space(thing, NOUNS[kind], chosen, modifiers)) for share, chosen, modifiers in _favorites(kind)]


def thing(noun: Noun, determiner: Determiner, modifiers: Modifiers) -> Thing:
    return Thing(noun_phrase(noun, determiner, modifiers), determiner.plural)


# --- adjuncts

IN, AT, ON = Preposition("in", "in"), Preposition("at", "a"), Preposition("on", "su")
UNDER, NEAR, BEHIND = Preposition("under", "sotto"), Preposition("near", "vicino a"), Preposition("behind", "dietro")
IN_FRONT_OF = Preposition("in front of", "davanti a")
WITH, TO = Preposition("with", "con"), Preposition("to", "a")


def _put(prepositions: list[Preposition], nouns: list[Noun], determiners: list[Determiner]) -> list[Phrase]:
    chosen = product(nouns, determiners, prepositions)
    return [noun_phrase(noun, determiner, PLAIN, preposition) for noun, determiner, preposition in chosen]


PLACES = one_of(
    [
        *_put([IN], NOUNS["inside"], [THE, THIS, THAT, *_OWN]),
        *_put([AT], NOUNS["spot"], [THE]),
        *_put([NEAR, BEHIND, IN_FRONT_OF], [*NOUNS["landmark"], *NOUNS["spot"]], [THE]),
    ]
)
SURFACES = one_of(_put([ON, UNDER, NEAR], NOUNS["surface"], [THE, THIS, THAT, *_OWN]))
COMPANY = one_of([*(name_phrase(name, WITH) for name in NAMES), *_put([WITH], NOUNS["kin"], POSSESSED)])
AT_HOME = [
    fixed("at:case home", "a:case casa"),
    fixed("at:case school", "a:case scuola"),
    fixed("at:case work", "al:case lavoro"),
]


@cache
def receivers() -> list[tuple[float, Space[Phrase]]]:
    return [
        (0.4, Space(name_phrase, NAMES, [TO])),
        (0.3, one_of(_put([TO], PERSON, [*ARTICLES, *POINTING, *POSSESSED, *NUMBERS]))),
        (0.2, one_of(_put([TO], NOUNS["kin"], OF_KIN))),
        (0.1, one_of(_put([TO], NOUNS["parent"], OF_PARENTS))),
    ]


def _phrases(*pairs: tuple[str, str], label: str = "obl") -> list[Phrase]:
    return [fixed(here, there, label) for here, there in pairs]


FREQUENCIES = _phrases(("always", "sempre"), ("often", "spesso"))
TIMES = _phrases(
    ("every:det day", "ogni:det giorno"),
    ("every:det morning", "ogni:det mattina"),
    ("every:det evening", "ogni:det sera"),
    ("in:case=n the:det=d afternoon=n", "il:det=d pomeriggio=n"),
    ("at:case night", "di:case notte"),
    ("on:case Mondays", "il:det lunedì"),
    ("on:case Sundays", "la:det domenica"),
    ("after:case dinner", "dopo:case cena"),
    ("before:case=c lunch=n", "prima:case=c di:case=c pranzo=n"),
    ("in:case summer", "d'estate"),
)
MANNERS = _phrases(
    ("well", "bene"), ("slowly", "lentamente"), ("a:det lot", "molto"), ("too:advmod much", "troppo"), label="advmod"
)
HOURS = _phrases(("early", "presto"), ("late", "tardi"), label="advmod")


class Circumstance(NamedTuple):
    """A kind of adjunct and the moods that allow it."""

    share: float
    extras: Space[Extra]
    moods: Space[Mood]


ALONE = Circumstance(0.55, Space(dict), ALL_MOODS)
OFTEN = Circumstance(0.10, slot("adverb", one_of(FREQUENCIES)), MOODS)
DAILY = Circumstance(0.14, slot("tail", one_of(TIMES)), MOODS)
WELL = Circumstance(0.14, slot("tail", one_of(MANNERS)), MOODS)
EARLY = Circumstance(0.14, slot("tail", one_of(HOURS)), MOODS)
SOMEWHERE = Circumstance(0.12, slot("tail", PLACES), ALL_MOODS)
TOGETHER = Circumstance(0.05, slot("tail", COMPANY), ALL_MOODS)
WHY = Circumstance(0.04, Space(dict), one_of([Mood.WHY]))
