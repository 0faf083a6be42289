"""Italian sentences in which verbs and adjectives have to be inflected: what they agree with determines their form.

    given     il    sedia   non   essere   rosso   ?
    label     -     -       -     è        rossa   -

A verb with a subject, an adjective and every other word that agrees with a noun is in its citation form: infinitive or
masculine singular. Person, number and gender can then be read from nouns, names and pronouns only. The label of a verb or an
adjective is its inflected form, of every other word "-"; without an overt subject, a verb and its predicate keep their forms.

Words are those of Universal Dependencies: an elided word is separated from the next one ("l'amico": il amico, "c'è": ci
essere), and a question mark is a word. The subject depends on the word that agrees with it: the copula or auxiliary, if there
is one. A coordinated subject ("Anna e Marco") is plural because of all its words, so all depend on the verb: the first as
nsubj, the others as nsubj:cc and nsubj:conj.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

from heedful.data.grammar import italian
from heedful.data.grammar.corpus import Sentence
from heedful.data.grammar.italian import Gender
from heedful.data.grammar.lexicon import ADJECTIVES, NAMES, STATES, VERBS
from heedful.data.grammar.nouns import POSSESSIVES

UNCHANGED = "-"
FORMS: tuple[tuple[Gender, bool], ...] = (("m", False), ("f", False), ("m", True), ("f", True))  # gender, plural
ONSETS = ("cane", "zaino", "amico")  # a word of each onset
ELIDED = {"c'": "ci", "dov'": "dove", "d'": "di"}
DETERMINERS = ("l'", "un'", "quest'", "quell'")
CAPITALIZED = frozenset(name.text for name in NAMES)


class Word(NamedTuple):
    text: str
    head: int  # -1 for the root
    relation: str
    label: str = UNCHANGED


@cache
def verb_forms() -> Mapping[str, str]:
    """The infinitive of each finite form."""
    verbs = {verb.infinitive: verb.forms for verb in VERBS.values()}
    verbs |= {"essere": italian.conjugate("essere"), "piacere": ("piace", "piacciono")}
    return {form: infinitive for infinitive, forms in verbs.items() for form in forms}


@cache
def adjective_forms() -> Mapping[str, str]:
    """The masculine singular of each form."""
    forms = {}
    for adjective in {*STATES, *(one for several in ADJECTIVES.values() for one in several)}:
        for gender, plural in FORMS:
            forms[adjective.form(gender, plural)] = adjective.italian
            if adjective.precedes:
                forms |= {italian.before_noun(adjective.italian, onset, gender, plural): adjective.italian for onset in ONSETS}
    return forms


@cache
def determiner_forms() -> Mapping[str, str]:
    """The masculine singular of articles, demonstratives, possessives, quantifiers and prepositions with an article."""
    forms = dict.fromkeys(italian.ARTICLES, "il") | dict.fromkeys(("un", "uno", "una", "un'"), "un") | {"quest'": "questo"}
    for stem, article in product((*italian.CONTRACTING.values(), "que"), italian.ARTICLES):
        forms[italian.join(stem, article)] = italian.join(stem, "il")
    for written in POSSESSIVES.values():
        forms |= dict.fromkeys(written.split(), written.split()[0])
    for word, (gender, plural) in product(("questo", "molto", "poco", "tutto"), FORMS):
        forms[italian.inflect(word, gender, plural)] = word
    return forms


def uninflect(sentence: Sentence) -> list[Word]:
    """The Italian side of a sentence of the built-in corpus."""
    words = attach_subjects(split_words(sentence))
    verbs = {word.head for word in words if word.relation == "nsubj"}
    existing = {verb for verb in verbs if verb_forms()[words[verb].text] == "essere"}  # "ci sono" is not reflexive
    predicates = {words[verb].head for verb in verbs if words[verb].relation == "cop"}
    return [
        cite(
            word,
            is_verb=at in verbs,
            is_adjective=word.relation == "amod" or at in predicates,
            is_reflexive=word.relation == "expl" and word.head in verbs - existing,
        )
        for at, word in enumerate(words)
    ]


def cite(word: Word, *, is_verb: bool, is_adjective: bool, is_reflexive: bool) -> Word:
    """A word in its citation form, with the label of verbs and adjectives."""
    text = word.text
    if is_verb:
        return word._replace(text=verb_forms()[text], label=text)
    if is_adjective:
        return word._replace(text=adjective_forms()[text], label=text) if text in adjective_forms() else word
    if is_reflexive:
        return word._replace(text="si")
    return word._replace(text=determiner_forms().get(text, text)) if word.relation in ("det", "poss", "case") else word


def split_words(sentence: Sentence) -> list[Word]:
    """The words of the target in lower case but for names, with elided words and the question mark separated."""
    pieces: list[Word] = []  # with heads counted in words separated by spaces
    places: list[int] = []  # of each of these words, that of its last piece
    written = sentence.target.removesuffix("?").split()
    for text, head, relation in zip(written, sentence.target_heads, sentence.target_labels, strict=True):
        elided, apostrophe, rest = text.rpartition("'")
        if apostrophe:
            pieces.append(elided_word(elided.lower() + "'", rest, len(places)))
        places.append(len(pieces))
        pieces.append(Word(rest if rest in CAPITALIZED else rest.lower(), head, relation))
    words = [piece._replace(head=places[piece.head] if piece.head >= 0 else -1) for piece in pieces]
    root = next(at for at, word in enumerate(words) if word.head < 0)
    return [*words, Word("?", root, "punct")] if sentence.target.endswith("?") else words


def elided_word(text: str, following: str, head: int) -> Word:
    """A word that lost its vowel before the next one, on which it depends."""
    whole = ELIDED.get(text, text)
    if text in adjective_forms():
        return Word(text, head, "amod")
    if following in verb_forms():
        return Word(whole, head, {"ci": "expl", "dove": "advmod"}.get(whole, "obj"))
    return Word(whole, head, "det" if text in DETERMINERS else "case")


def attach_subjects(words: Sequence[Word]) -> list[Word]:
    """The words with each subject as a dependent of the finite verb, and a coordinated subject with all its words."""
    finite = {word.head: at for at, word in enumerate(words) if word.relation in ("cop", "aux")}
    verbs = {at: finite.get(word.head, word.head) for at, word in enumerate(words) if word.relation == "nsubj"}
    attached = []
    for at, word in enumerate(words):
        if at in verbs:
            word = word._replace(head=verbs[at])
        elif word.head in verbs and word.relation in ("conj", "cc"):
            word = word._replace(head=verbs[word.head], relation=f"nsubj:{word.relation}")
        attached.append(word)
    return attached
