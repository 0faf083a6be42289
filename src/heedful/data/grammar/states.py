"""Patterns with "to be", "to like" and "there is"."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from heedful.data.grammar import participants
from heedful.data.grammar.clauses import (
    Clause,
    Liker,
    Mood,
    Subject,
    Wording,
    adjective_phrase,
    copula,
    existence,
    infinitive_phrase,
    liking,
    possession,
    whereabouts,
)
from heedful.data.grammar.lexicon import ADJECTIVES, NOUN_LETTERS, NOUNS, STATES, VERBS, Adjective, Verb
from heedful.data.grammar.nouns import FEW, MANY, NUMBERS, POINTING, POSSESSED, THE, THE_MANY, A, Modifiers, noun_phrase
from heedful.data.grammar.participants import ONLY_PLAIN, SUBJECTS, Circumstance, Extra, Thing, noun_subject, slot
from heedful.data.grammar.phrases import Phrase, fixed
from heedful.data.grammar.spaces import Family, Space, one_of

DEGREES = [Wording("very", "molto"), Wording("too", "troppo")]
FEELINGS = [
    fixed("hungry", "fame"),
    fixed("thirsty", "sete"),
    fixed("sleepy", "sonno"),
    fixed("cold", "freddo"),
    fixed("right", "ragione"),
    fixed("in:case a:det hurry", "fretta"),
]
TODAY = slot("tail", one_of([fixed("today", "oggi", "advmod"), fixed("now", "adesso", "advmod")]))
OFTEN = participants.OFTEN.extras
THINGS = ("food", "text", "road", "ride", "clothes", "object", "animal", "inside")
ENJOYED = "sleep work run sing dance walk swim cook read write study drive"
KNOWN = [THE, THE_MANY, *POINTING, *POSSESSED]


def _be(subject: Subject, mood: Mood, adjective: Adjective, degree: Wording | None, extra: Extra) -> Clause:
    predicate = adjective_phrase(adjective, subject.gender, subject.plural, degree)
    return copula(subject, mood, predicate, **extra)


def _gradable(adjectives: list[Adjective]) -> list[Adjective]:
    """Rule out nonsense such as "too Italian" and "very excellent"."""
    return [a for a in adjectives if a.english.islower() and a.english != "excellent"]


def adjectival() -> Iterator[Family]:
    """I am trendy; is the red car too expensive?"""
    lasting, gradable, passing = one_of(ADJECTIVES["p"]), one_of(_gradable(ADJECTIVES["p"])), one_of(STATES)
    moods, all_moods, why = participants.MOODS, participants.ALL_MOODS, participants.WHY.moods
    alone = participants.ALONE.extras
    plain, degrees = one_of([None]), one_of(DEGREES)
    for who, subjects in SUBJECTS:
        yield Family(0.20 * who, _be, (subjects, moods, lasting, plain, alone))
        yield Family(0.10 * who, _be, (subjects, moods, gradable, degrees, alone))
        yield Family(0.15 * who, _be, (subjects, all_moods, passing, plain, alone))
        yield Family(0.10 * who, _be, (subjects, moods, passing, degrees, alone))
        yield Family(0.05 * who, _be, (subjects, moods, passing, plain, OFTEN))
        yield Family(0.05 * who, _be, (subjects, moods, passing, plain, TODAY))
        yield Family(0.05 * who, _be, (subjects, why, passing, plain, alone))
    for kind in THINGS:
        subjects = Space(noun_subject, NOUNS[kind], KNOWN, ONLY_PLAIN)
        of_kind = ADJECTIVES[NOUN_LETTERS[kind]]
        yield Family(0.25 / len(THINGS), _be, (subjects, moods, one_of(of_kind), plain, alone))
        yield Family(0.10 / len(THINGS), _be, (subjects, moods, one_of(_gradable(of_kind)), degrees, alone))


def nominal() -> Iterator[Family]:
    """Marco is a good student; she is my sister"""
    for gender in ("m", "f"):
        people = [subject for subject in (*participants.PRONOUNS, *participants.NAMED) if subject.gender == gender]
        single = one_of([subject for subject in people if not subject.plural])
        others = one_of([subject for subject in people if subject.person == 2])
        persons, kin = ([n for n in NOUNS[kind] if n.genders[0] == gender] for kind in ("person", "kin"))
        moods = participants.MOODS
        yield Family(0.3, copula, (single, moods, Space(noun_phrase, persons, [A], ONLY_PLAIN)))
        yield Family(0.3, copula, (single, moods, Space(noun_phrase, persons, [A], participants.one_adjective("person"))))
        yield Family(0.2, copula, (others, moods, Space(noun_phrase, kin, participants.OF_PARENTS, ONLY_PLAIN)))
        yield Family(0.2, copula, (others, moods, Space(noun_phrase, persons, participants.OF_PARENTS, ONLY_PLAIN)))


def local() -> Iterator[Family]:
    """Anna is at home; my keys are not on the table; where is the cat?"""
    moods, at_home = participants.MOODS, one_of(participants.AT_HOME)
    for who, subjects in SUBJECTS:
        yield Family(0.5 * who, copula, (subjects, moods, participants.PLACES))
        yield Family(0.1 * who, copula, (subjects, participants.ALL_MOODS, at_home))
        yield Family(0.1 * who, whereabouts, (subjects,))
    for kind in ("object", "animal", "text", "clothes"):
        things = Space(noun_subject, NOUNS[kind], KNOWN, ONLY_PLAIN)
        yield Family(0.05, copula, (things, moods, participants.SURFACES))
        yield Family(0.02, whereabouts, (things,))


def _have(subject: Subject, mood: Mood, feeling: Phrase, extra: Extra) -> Clause:
    return possession(subject, mood, feeling, **extra)


def feeling() -> Iterator[Family]:
    """Are you hungry? The doctor is never in a hurry"""
    circumstances = participants.ALONE, participants.WHY, participants.OFTEN, Circumstance(0.1, TODAY, participants.MOODS)
    feelings = one_of(FEELINGS)
    for (who, subjects), circumstance in product(SUBJECTS, circumstances):
        yield Family(who * circumstance.share, _have, (subjects, circumstance.moods, feelings, circumstance.extras))


def _like(liker: Liker, mood: Mood, thing: Thing) -> Clause:
    return liking(liker, mood, thing.plural, object=thing.phrase)


def _like_to(liker: Liker, mood: Mood, verb: Verb) -> Clause:
    return liking(liker, mood, False, doing=infinitive_phrase(verb))


def pleasing() -> Iterator[Family]:
    """She likes cats; Marco doesn't like to dance"""
    likers, moods = one_of(participants.LIKERS), participants.MOODS
    for kind in ("animal", "food", "dish", "meal", "drink", "text", "clothes", "road", "inside"):
        for share, things in participants.favorite_things(kind):
            yield Family(0.1 * share, _like, (likers, moods, things))
    verbs = [
        VERBS[key]
        for key in ["sleep", "work", "run", "sing", "dance", "walk", "swim", "cook", "read", "write", "study", "drive"]
    ]
    yield Family(0.2, _like_to, (likers, moods, one_of(verbs)))


def _exist(mood: Mood, thing: Thing, place: Phrase) -> Clause:
    return existence(mood, thing.phrase, thing.plural, place)


def existential() -> Iterator[Family]:
    """There are two cats in the garden"""
    moods = one_of([Mood.STATEMENT, Mood.QUESTION])
    for kind, modified in product(("person", "animal", "object", "food", "clothes"), (False, True)):
        modifiers: list[Modifiers] = participants.one_adjective(kind) if modified else ONLY_PLAIN
        share = 0.4 if modified else 1.0
        things = Space(participants.thing, NOUNS[kind], [A, *NUMBERS, MANY, FEW], modifiers)
        if kind != "person":
            yield Family(0.5 * share, _exist, (moods, things, participants.SURFACES))
        yield Family(0.5 * share, _exist, (moods, things, participants.PLACES))
