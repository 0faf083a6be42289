"""The grammar: all patterns with their shares, and sentences made of two clauses.

A family is one pattern with one verb, one kind of subject, of object and of adjunct; its weight is the product of theirs,
so that short sentences are common although most of the possible sentences are long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product

from heedful.data.grammar import actions, participants, states
from heedful.data.grammar.clauses import Clause, Mood, Subject, Wording, adjective_phrase, copula, joined, possession
from heedful.data.grammar.frames import COORDINATED, SUBORDINATED
from heedful.data.grammar.lexicon import STATES, Adjective
from heedful.data.grammar.spaces import Family, Space, one_of

JOINTS = {
    COORDINATED: [Wording("and", "e"), Wording("but", "ma")],
    SUBORDINATED: [Wording("because", "perché"), Wording("when", "quando"), Wording("if", "se")],
}


def _state(subject: Subject, mood: Mood, adjective: Adjective) -> Clause:
    return copula(subject, mood, adjective_phrase(adjective, subject.gender, subject.plural, None))


def _halves() -> list[Space[Clause]]:
    subjects = [*participants.PRONOUNS, *participants.NAMED]
    moods = [Mood.STATEMENT, Mood.NEGATIVE]
    deeds = [*actions.IDIOMS, *actions.bare_deeds(f"{actions.MOVING} {actions.COMING}")]
    return [
        Space(actions.act, subjects, moods, deeds),
        Space(actions.act, subjects, moods, actions.simple_deeds()),
        Space(_state, subjects, moods, STATES),
        Space(possession, subjects, moods, states.FEELINGS),
    ]


def double() -> Iterator[Family]:
    """I don't sleep because I am hungry"""
    halves = _halves()
    for frame, wordings in JOINTS.items():
        joints = one_of(wordings)
        for first, second in product(halves, halves):
            yield Family(joints.size, partial(joined, frame), (first, joints, second))


PATTERNS: dict[str, tuple[float, Callable[[], Iterator[Family]]]] = {
    "transitive": (0.28, actions.transitive),
    "intransitive": (0.08, actions.intransitive),
    "idiomatic": (0.06, actions.idiomatic),
    "dative": (0.04, actions.dative),
    "oblique": (0.07, actions.oblique),
    "clitic": (0.06, actions.clitic),
    "modal": (0.09, actions.modal),
    "questioning": (0.04, actions.questioning),
    "adjectival": (0.10, states.adjectival),
    "nominal": (0.03, states.nominal),
    "local": (0.04, states.local),
    "feeling": (0.03, states.feeling),
    "pleasing": (0.04, states.pleasing),
    "existential": (0.03, states.existential),
    "double": (0.05, double),
}


@cache
def families() -> tuple[Family, ...]:
    """Every family of the grammar; within a pattern the weights add up to the pattern's share."""
    result: list[Family] = []
    for share, pattern in PATTERNS.values():
        members = list(pattern())
        scale = share / sum(family.weight for family in members)
        result += [family._replace(weight=family.weight * scale) for family in members]
    return tuple(result)
