"""Clauses: the parts of a sentence and their order in each language.

Persons: "I" and "you" are men, "you" is one friend (tu), "we" and "they" are men or a mixed group.
The pronoun is overt before essere in a statement ("Io sono alla moda") and dropped elsewhere ("Faccio la doccia", "Sei
stanco?"); "you two" and "Anna and I" are not bare pronouns and always overt.
Order: a clitic precedes the first finite verb ("Ti voglio vedere"), a frequency adverb follows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import NamedTuple

from heedful.data.grammar import english, italian
from heedful.data.grammar.frames import (
    ASKED,
    COPULA,
    COPULA_QUESTION,
    EXISTENCE,
    LEXICAL,
    LEXICAL_QUESTION,
    LIKING,
    LIKING_QUESTION,
    MODAL,
    MODAL_QUESTION,
    POSSESSION,
    POSSESSION_QUESTION,
    WHEREABOUTS,
    WISH,
    WISH_QUESTION,
)
from heedful.data.grammar.italian import Gender
from heedful.data.grammar.lexicon import Adjective, Name, Verb
from heedful.data.grammar.nouns import Preposition, adjective_words, name_phrase
from heedful.data.grammar.phrases import (
    Frame,
    Phrase,
    Token,
    assemble,
    compose,
    fixed,
    source_only,
    target_only,
)


class Mood(Enum):
    STATEMENT = "statement"
    NEGATIVE = "negative"
    NEVER = "never"
    QUESTION = "question"
    WHY = "why"

    @property
    def clues(self) -> tuple[str, ...]:
        return {"never": ("never",), "why": ("why",)}.get(self.value, ())

    @property
    def asks(self) -> bool:
        return self in (Mood.QUESTION, Mood.WHY)


class Wording(NamedTuple):
    """A word that has one form in each language: very / molto, because / perché."""

    english: str
    italian: str

    @property
    def clues(self) -> tuple[str, ...]:
        return (self.english,)


class Clause(NamedTuple):
    frame: Frame
    parts: dict[str, Phrase]
    asks: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Subject:
    """`overt` is the subject with its pronoun, `dropped` without; person 0 to 5 is io, tu, lui, noi, voi, loro."""

    overt: Phrase
    dropped: Phrase
    person: int
    gender: Gender

    @property
    def plural(self) -> bool:
        return self.person >= 3

    @property
    def clues(self) -> tuple[str, ...]:
        return self.overt.source.words[:1]


def pronoun(source: str, target: str, person: int, gender: Gender = "m") -> Subject:
    return Subject(fixed(source, target), source_only(source), person, gender)


def always_overt(phrase: Phrase, person: int, gender: Gender) -> Subject:
    return Subject(phrase, phrase, person, gender)


NON = target_only("non")
NEVER, MAI = fixed("never", "non"), target_only("mai")
NOT = fixed("not", "non")
WHY = fixed("why", "perché")
TO = source_only("to")
DONT = {False: fixed("don't", "non"), True: fixed("doesn't", "non")}
DO = {False: source_only("do"), True: source_only("does")}
REFLEXIVES = ("mi", "ti", "si", "ci", "vi", "si")
ESSERE, AVERE = italian.conjugate("essere"), italian.conjugate("avere")


@cache
def verb_phrase(verb: Verb, person: int, third: bool, clitic: Phrase | None = None) -> Phrase:
    """A finite verb; `third` is the English form in -s. lo and la lose their vowel before another."""
    head, *particle = verb.third if third else verb.english
    source = [Token(head, "root", "v"), *(Token(word, "prt", "v") for word in particle)]
    form = verb.forms[person]
    target = [Token(form, "root", "v")]
    if verb.reflexive:
        target.insert(0, Token(REFLEXIVES[person], "expl", "v"))
    if clitic:
        (here,), (there,) = clitic.source.words, clitic.target.words
        elided = there in ("lo", "la") and italian.onset(form) == "vowel"
        source.append(Token(here, "obj", "o"))
        target.insert(0, Token("l'" if elided else there, "obj", "o"))
    return assemble(source, target)


@cache
def infinitive_phrase(verb: Verb) -> Phrase:
    head, *particle = verb.english
    source = [Token(head, "root", "v"), *(Token(word, "prt", "v") for word in particle)]
    return assemble(source, [Token(verb.infinitive, "root", "v")])


@cache
def adjective_phrase(adjective: Adjective, gender: Gender, plural: bool, degree: Wording | None) -> Phrase:
    """The predicate of "to be", e.g. very tired / molto stanca."""
    *case, last = adjective_words(adjective, gender, plural, "a")
    source, target = [Token(adjective.english, "root", "a")], [*case, last._replace(label="root")]
    if degree:
        source.insert(0, Token(degree.english, "advmod", "d"))
        target.insert(0, Token(degree.italian, "advmod", "d"))
    return assemble(source, target)


@cache
def be_phrase(person: int, forms: tuple[str, ...] = ESSERE) -> Phrase:
    return fixed(english.TO_BE[person], forms[person])


def lexical(subject: Subject, mood: Mood, verb: Verb, **more: Phrase) -> Clause:
    """A clause with a full verb; `more` fills the slots clitic, object, oblique, adverb and tail."""
    third = subject.person == 2
    clitic = more.pop("clitic", None)
    parts = {"subject": subject.dropped, **more}
    if mood.asks:
        parts["verb"] = verb_phrase(verb, subject.person, False, clitic)
        parts["do"] = DO[third]
        if mood is Mood.WHY:
            parts["why"] = WHY
        return Clause(LEXICAL_QUESTION, parts, asks=True)
    parts["verb"] = verb_phrase(verb, subject.person, third and mood is not Mood.NEGATIVE, clitic)
    if mood is Mood.NEGATIVE:
        parts["polarity"] = DONT[third]
    elif mood is Mood.NEVER:
        parts["polarity"], parts["mai"] = NEVER, MAI
    return Clause(LEXICAL, parts)


def helped(subject: Subject, mood: Mood, helper: Verb, verb: Verb, **more: Phrase) -> Clause:
    """can, must and want to; `more` fills the slots clitic, object, oblique and tail."""
    build = _wish if helper.english == ("want",) else _modal
    return build(subject, mood, helper, verb, {"subject": subject.dropped, **more})


def _being(subject: Subject, mood: Mood, frames: tuple[Frame, Frame], parts: dict[str, Phrase]) -> Clause:
    if mood is Mood.WHY:
        parts["why"] = WHY
    elif mood is Mood.NEGATIVE:
        parts["polarity"] = NOT
    elif mood is Mood.NEVER:
        parts["polarity"], parts["mai"] = NEVER, MAI
    return Clause(frames[mood.asks], parts, mood.asks)


def copula(subject: Subject, mood: Mood, predicate: Phrase, **more: Phrase) -> Clause:
    """To be something or somewhere; in a statement the pronoun is overt."""
    phrase = subject.dropped if mood.asks else subject.overt
    parts = {"subject": phrase, "be": be_phrase(subject.person), "predicate": predicate, **more}
    return _being(subject, mood, (COPULA, COPULA_QUESTION), parts)


def possession(subject: Subject, mood: Mood, predicate: Phrase, **more: Phrase) -> Clause:
    """To be hungry: Italian has hunger."""
    parts = {"subject": subject.dropped, "be": be_phrase(subject.person, AVERE), "predicate": predicate, **more}
    return _being(subject, mood, (POSSESSION, POSSESSION_QUESTION), parts)


def _modal(subject: Subject, mood: Mood, helper: Verb, verb: Verb, parts: dict[str, Phrase]) -> Clause:
    word, form = helper.english[0], helper.forms[subject.person]
    if mood is Mood.NEGATIVE and word == "can":
        word, parts["polarity"] = "cannot", NON
    elif mood is Mood.NEGATIVE:
        parts["polarity"] = NOT
    parts["modal"], parts["verb"] = fixed(word, form), infinitive_phrase(verb)
    return Clause(MODAL_QUESTION if mood.asks else MODAL, parts, mood.asks)


def _wish(subject: Subject, mood: Mood, helper: Verb, verb: Verb, parts: dict[str, Phrase]) -> Clause:
    third = subject.person == 2
    parts["to"], parts["infinitive"] = TO, infinitive_phrase(verb)
    parts["verb"] = verb_phrase(helper, subject.person, third and mood is Mood.STATEMENT)
    if mood is Mood.NEGATIVE:
        parts["polarity"] = DONT[third]
    if mood.asks:
        parts["do"] = DO[third]
    return Clause(WISH_QUESTION if mood.asks else WISH, parts, mood.asks)


@dataclass(frozen=True, eq=False, slots=True)
class Liker:
    """Who likes: mi, ti, gli, le, ci by the verb; a loro and a name in front."""

    phrase: Phrase
    third: bool
    clitic: bool

    @property
    def clues(self) -> tuple[str, ...]:
        return self.phrase.source.words[-1:]


def named_liker(name: Name) -> Liker:
    return Liker(name_phrase(name, Preposition("", "a")), third=True, clitic=False)


def liking(liker: Liker, mood: Mood, plural: bool, **more: Phrase) -> Clause:
    """`more` is an object, or an action (slot doing); its number is the Italian verb's."""
    parts = {"subject": liker.phrase, **more}
    if "doing" in more:
        parts["to"] = TO
    inflected = liker.third and mood is Mood.STATEMENT
    parts["verb"] = fixed("likes" if inflected else "like", "piacciono" if plural else "piace")
    if mood is Mood.NEGATIVE:
        parts["polarity"] = DONT[liker.third]
    if mood.asks:
        parts["do"] = DO[liker.third]
    return Clause((LIKING_QUESTION if mood.asks else LIKING)[liker.clitic], parts, mood.asks)


_EXISTENCE = {
    (Mood.STATEMENT, False): fixed("there:expl is", "c'è"),
    (Mood.STATEMENT, True): fixed("there:expl are", "ci:expl sono"),
    (Mood.QUESTION, False): fixed("is there:expl", "c'è"),
    (Mood.QUESTION, True): fixed("are=v there:expl=e", "ci:expl=e sono=v"),
}


def existence(mood: Mood, thing: Phrase, plural: bool, place: Phrase) -> Clause:
    """there is: c'è, ci sono"""
    return Clause(EXISTENCE, {"opening": _EXISTENCE[mood, plural], "object": thing, "tail": place}, mood.asks)


def whereabouts(subject: Subject) -> Clause:
    """where is: dov'è, dove sono; an overt subject follows"""
    form = ESSERE[subject.person]
    where = "dov'" if italian.onset(form) == "vowel" else "dove"
    source = [Token("where", "advmod", "w"), Token(english.TO_BE[subject.person], "root", "v")]
    opening = assemble(source, [Token(where, "advmod", "w"), Token(form, "root", "v")])
    return Clause(WHEREABOUTS, {"opening": opening, "subject": subject.dropped}, asks=True)


def asked(question: Phrase, subject: Subject, verb: Verb) -> Clause:
    """where, when and what with a full verb, which the subject follows in Italian"""
    parts = {"asked": question, "subject": subject.dropped, "do": DO[subject.person == 2]}
    return Clause(ASKED, {**parts, "verb": verb_phrase(verb, subject.person, False)}, asks=True)


def joined(frame: Frame, first: Clause, joint: Wording, second: Clause) -> Clause:
    parts = {"first": compose(first.frame, first.parts), "second": compose(second.frame, second.parts)}
    following = parts["second"].target.words[0]
    word = italian.with_euphony(joint.italian, following) if joint.italian == "e" else joint.italian
    return Clause(frame, {**parts, "joint": fixed(joint.english, word)})
