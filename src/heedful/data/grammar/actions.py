"""Patterns with a full verb and its objects and adjuncts.

Verbs select their objects by semantic class, so that apples are eaten and books are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

from heedful.data.grammar import participants
from heedful.data.grammar.clauses import Clause, Mood, Subject, asked, helped, lexical
from heedful.data.grammar.lexicon import NOUNS, VERBS, Verb
from heedful.data.grammar.nouns import THE, A, Preposition, noun_phrase
from heedful.data.grammar.participants import SUBJECTS, Extra, objects, slot
from heedful.data.grammar.phrases import fixed
from heedful.data.grammar.spaces import Family, Space, one_of

# What is done to nouns of a kind; and what is felt or owned, which goes without "every day" or "in the park".
DONE = {
    "food": "eat buy",
    "dish": "eat buy",
    "meal": "eat cook",
    "drink": "drink buy",
    "text": "read write",
    "road": "drive take buy",
    "ride": "take see wait_for",
    "clothes": "wear look_for find buy",
    "object": "see look_for find buy",
    "opening": "open close clean",
    "surface": "clean see",
    "person": "see look_at help meet wait_for listen_to",
    "kin": "see help meet",
    "parent": "help wait_for listen_to",
    "animal": "see look_at",
}
FELT = {
    "text": "understand",
    "road": "have",
    "clothes": "have want",
    "object": "have want",
    "drink": "want",
    "animal": "have want",
    "person": "love know",
    "kin": "love know",
    "parent": "love",
}
SHOWN = {"give": "object clothes", "send": "text object"}
OBLIQUE = {
    ("talk:parlare", Preposition("about", "di")): "person kin text animal",
    ("think:pensare", Preposition("about", "a")): "person parent kin",
    ("play:giocare", Preposition("with", "con")): "animal kin person",
    ("answer", Preposition("", "a")): "person parent",
    ("go", Preposition("to", "a")): "spot",
    ("return", Preposition("from", "da")): "spot inside",
    ("live", Preposition("in", "in")): "inside",
}
MOVING = "sleep work run sing dance walk swim cook eat study"
COMING = "leave arrive wake_up get_up"
TOUCHING = "see help meet wait_for listen_to look_at look_for find"
KNOWING = "love know understand"


@dataclass(frozen=True, eq=False, slots=True)
class Deed:
    """A verb with what belongs to it."""

    verb: Verb
    extra: Extra

    @property
    def clues(self) -> tuple[str, ...]:
        own = next(iter(self.extra.values()), None)
        return own.source.words[-1:] if own else self.verb.clues


def _idiom(key: str, here: str, there: str, label: str = "obj") -> Deed:
    slot = "object" if label == "obj" else "oblique"
    return Deed(VERBS[key], {slot: fixed(here, there, label)})


IDIOMS = [
    _idiom("take:fare", "a:det shower", "la:det doccia"),
    _idiom("take:fare", "a:det walk", "una:det passeggiata"),
    _idiom("take:fare", "a:det photo", "una:det foto"),
    _idiom("have:fare", "breakfast", "colazione"),
    _idiom("make:fare", "the:det bed", "il:det letto"),
    _idiom("do:fare", "the:det shopping", "la:det spesa"),
    _idiom("ask:fare", "a:det question", "una:det domanda"),
    _idiom("play:suonare", "the:det guitar", "la:det chitarra"),
    _idiom("play:suonare", "the:det piano", "il:det pianoforte"),
    _idiom("listen_to", "music", "la:det musica"),
    _idiom("watch", "television", "la:det televisione"),
    _idiom("go", "to:case bed", "a:case letto", "obl"),
    _idiom("go", "to:case school", "a:case scuola", "obl"),
    _idiom("go", "to:case work", "al:case lavoro", "obl"),
    _idiom("go", "home", "a:case casa", "obl"),
    *(
        _idiom(verb, here, there)
        for verb in ("speak", "study")
        for here, there in (
            ("Italian", "italiano"),
            ("English", "inglese"),
            ("French", "francese"),
            ("Spanish", "spagnolo"),
        )
    ),
]
PLAINLY = (participants.ALONE, participants.OFTEN, participants.DAILY, participants.WHY)
FULLY = (*PLAINLY, participants.SOMEWHERE, participants.TOGETHER)
BRIEFLY = (participants.ALONE, participants.WHY)


def act(subject: Subject, mood: Mood, deed: Deed, *extras: Extra) -> Clause:
    return lexical(subject, mood, deed.verb, **deed.extra, **_all(extras))


def _helped(subject: Subject, mood: Mood, helper: Verb, deed: Deed, *extras: Extra) -> Clause:
    return helped(subject, mood, helper, deed.verb, **deed.extra, **_all(extras))


def _all(extras: tuple[Extra, ...]) -> Extra:
    return {slot: phrase for extra in extras for slot, phrase in extra.items()}


def bare_deeds(keys: str) -> list[Deed]:
    return [Deed(VERBS[key], {}) for key in keys.split()]


@cache
def _verbs(keys: str) -> Space[Deed]:
    return one_of(bare_deeds(keys))


def transitive() -> Iterator[Family]:
    """Anna reads an interesting book every evening"""
    for table, circumstances in ((DONE, FULLY), (FELT, BRIEFLY)):
        for kind, keys in table.items():
            verbs = _verbs(keys)
            for (who, subjects), (what, things), circumstance in product(SUBJECTS, objects(kind), circumstances):
                spaces = subjects, circumstance.moods, verbs, slot("object", things), circumstance.extras
                yield Family(verbs.size * who * what * circumstance.share, act, spaces)
    for kind, (who, subjects) in product(("drink", "clothes"), SUBJECTS):
        for what, things in participants.favorites(kind):
            yield Family(who * what, act, (subjects, participants.MOODS, _verbs("prefer"), slot("object", things)))


def intransitive() -> Iterator[Family]:
    """My brother never gets up early"""
    for keys, manner in ((MOVING, participants.WELL), (COMING, participants.EARLY)):
        verbs = _verbs(keys)
        for (who, subjects), circumstance in product(SUBJECTS, (*FULLY, manner)):
            spaces = subjects, circumstance.moods, verbs, circumstance.extras
            yield Family(verbs.size * who * circumstance.share, act, spaces)


def idiomatic() -> Iterator[Family]:
    """I take a shower"""
    idioms = one_of(IDIOMS)
    for (who, subjects), circumstance in product(SUBJECTS, PLAINLY):
        yield Family(who * circumstance.share, act, (subjects, circumstance.moods, idioms, circumstance.extras))


def dative() -> Iterator[Family]:
    """We give the key to the students"""
    for verb, kinds in SHOWN.items():
        for kind in kinds.split():
            things = slot("object", participants.plain_objects(kind))
            for (who, subjects), (whom, persons) in product(SUBJECTS, participants.receivers()):
                spaces = subjects, participants.ALL_MOODS, _verbs(verb), things, slot("oblique", persons)
                yield Family(who * whom, act, spaces)


def oblique() -> Iterator[Family]:
    """Do they talk about their friends?"""
    for (verb, preposition), kinds in OBLIQUE.items():
        share = 1 / len(kinds.split())
        circumstances = BRIEFLY if verb == "live" else PLAINLY
        for kind in kinds.split():
            for (who, subjects), (what, things), circumstance in product(SUBJECTS, objects(kind, preposition), circumstances):
                spaces = subjects, circumstance.moods, _verbs(verb), slot("oblique", things), circumstance.extras
                yield Family(share * who * what * circumstance.share, act, spaces)


def _mutual() -> list[tuple[float, Space[Subject], Space[Extra]]]:
    """Subjects with the pronouns that do not mean themselves."""
    others = participants.OTHERS
    everybody = slot("clitic", one_of([participants.ME, participants.THEE, participants.US, *others]))
    not_us = slot("clitic", one_of([participants.THEE, *others]))
    not_you = slot("clitic", one_of([participants.ME, participants.US, *others]))
    return [
        (0.12, one_of([participants.MYSELF]), not_us),
        (0.10, one_of([participants.WE, *participants.WITH_ME]), not_us),
        (0.12, one_of([participants.YOU]), not_you),
        (0.08, one_of(participants.WITH_YOU), not_you),
        (0.30, one_of([participants.HE, participants.SHE, participants.THEY]), everybody),
        (0.15, one_of(participants.NAMED), everybody),
        *((share, space, everybody) for share, space in participants.STRANGERS),
    ]


def clitic() -> Iterator[Family]:
    """Do you wait for her?"""
    for keys, circumstances in ((TOUCHING, PLAINLY), (KNOWING, BRIEFLY)):
        verbs = _verbs(keys)
        for (who, subjects, clitics), circumstance in product(_mutual(), circumstances):
            spaces = subjects, circumstance.moods, verbs, clitics, circumstance.extras
            yield Family(verbs.size * who * circumstance.share, act, spaces)


def modal() -> Iterator[Family]:
    """They cannot swim; I want to see her; must we buy a lamp?"""
    moods, helpers = participants.MOODS, one_of([VERBS[key] for key in ("can", "must", "want")])
    deeds = one_of([*IDIOMS, *(deed for deed in bare_deeds(f"{MOVING} {COMING}") if not deed.verb.reflexive)])
    for who, subjects in SUBJECTS:
        yield Family(0.4 * who, _helped, (subjects, moods, helpers, deeds))
        for kind, keys in DONE.items():
            things = slot("object", participants.plain_objects(kind))
            yield Family(0.4 * who / len(DONE), _helped, (subjects, moods, helpers, _verbs(keys), things))
    touches = _verbs(TOUCHING)
    for who, subjects, clitics in _mutual():
        yield Family(0.2 * who, _helped, (subjects, moods, helpers, touches, clitics))


WHERE, WHEN, WHAT = fixed("where", "dove", "advmod"), fixed("when", "quando", "advmod"), fixed("what", "che:det cosa", "obj")
ASKABLE = {
    WHERE: "work sleep live go eat study",
    WHEN: "leave arrive return eat get_up study",
    WHAT: "eat drink read buy cook see write want look_for study",
}


def questioning() -> Iterator[Family]:
    """What do you eat? Where does the doctor work? Who reads the letter?"""
    for question, keys in ASKABLE.items():
        opening, verbs = one_of([question]), one_of([VERBS[key] for key in keys.split()])
        for who, subjects in SUBJECTS:
            yield Family(who, asked, (opening, subjects, verbs))
    for kind, keys in DONE.items():
        things = slot("object", participants.plain_objects(kind))
        yield Family(0.3 / len(DONE), _who, (participants.STATED, _verbs(keys), things))


def _who(mood: Mood, deed: Deed, *extras: Extra) -> Clause:
    return act(participants.WHO, mood, deed, *extras)._replace(asks=True)


def simple_deeds() -> list[Deed]:
    """Verbs with an ordinary object, for the halves of longer sentences."""
    return [
        Deed(deed.verb, {"object": noun_phrase(noun, determiner)})
        for kind in ("food", "text", "person", "object", "clothes", "opening")
        for deed in bare_deeds(DONE[kind])
        for noun in NOUNS[kind]
        for determiner in (THE, A)
    ]
