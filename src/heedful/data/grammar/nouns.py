"""Noun phrases: determiner, adjectives and noun agree, and the word after the article decides its form.

    the old student    il vecchio studente      (lo studente)
    my mother          mia madre                (la mia vecchia madre, le mie sorelle, la loro madre)
    in Anna's garden   nel giardino di Anna

A possessive has the definite article before it, except one relative, unmodified, whose owner is not "their".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache, partial

from heedful.data.grammar import english, italian
from heedful.data.grammar.italian import Gender
from heedful.data.grammar.lexicon import NAMES, Adjective, Name, Noun
from heedful.data.grammar.phrases import Phrase, Token, assemble, with_labels


@dataclass(frozen=True, eq=False, slots=True)
class Setting:
    """The context of a determiner: the word after it and its noun."""

    following: str
    gender: Gender
    plural: bool
    lone_relative: bool

    @property
    def article(self) -> str:
        return italian.definite(self.following, self.gender, self.plural)


@dataclass(frozen=True, eq=False, slots=True)
class Determiner:
    """`words` returns the Italian determiner; `owner` follows the noun with "di"."""

    english: str
    plural: bool
    words: Callable[[Setting], list[Token]]
    label: str = "det"
    owner: Name | None = None

    @property
    def clues(self) -> tuple[str, ...]:
        return ("a", "an") if self.english == "a" else tuple(self.english.split()[:1])


@dataclass(frozen=True, eq=False, slots=True)
class Modifiers:
    """At most one adjective on each side of the Italian noun; in English they stand in this order before it."""

    before: Adjective | None = None
    after: Adjective | None = None

    @property
    def clues(self) -> tuple[str, ...]:
        first = self.before or self.after
        return first.clues if first else ()


@dataclass(frozen=True, eq=False, slots=True)
class Preposition:
    """Either side may be several words, or none."""

    english: str
    italian: str

    @property
    def clues(self) -> tuple[str, ...]:
        return tuple(self.english.split()[:1])


PLAIN = Modifiers()


def _definite(setting: Setting, keys: str = "d") -> list[Token]:
    return [Token(setting.article, "det", keys)]


def _indefinite(setting: Setting) -> list[Token]:
    return [Token(italian.indefinite(setting.following, setting.gender), "det", "d")]


def _this(setting: Setting) -> list[Token]:
    return [Token(italian.this(setting.following, setting.gender, setting.plural), "det", "d")]


def _that(setting: Setting) -> list[Token]:
    return [Token(italian.join("que", setting.article), "det", "d")]


def _possessive(setting: Setting, forms: str) -> list[Token]:
    """`forms`: masculine and feminine singular, masculine and feminine plural; loro has one."""
    own = forms.split()
    word = own[(2 * setting.plural + (setting.gender == "f")) % len(own)]
    article = Token(italian.definite(word, setting.gender, setting.plural), "det", "d")
    possessive = Token(word, "poss", "d")
    return [possessive] if setting.lone_relative and len(own) > 1 else [article, possessive]


def _unchanged(setting: Setting, word: str, label: str) -> list[Token]:
    return [Token(word, label, "d")]


def _quantity(setting: Setting, word: str) -> list[Token]:
    return [Token(italian.inflect(word, setting.gender, setting.plural), "det", "d")]


def _all(setting: Setting) -> list[Token]:
    return [Token("tutte" if setting.gender == "f" else "tutti", "det", "a"), Token(setting.article, "det", "d")]


def _none(setting: Setting) -> list[Token]:
    return []


POSSESSIVES = {
    "my": "mio mia miei mie",
    "your": "tuo tua tuoi tue",
    "his": "suo sua suoi sue",
    "her": "suo sua suoi sue",
    "our": "nostro nostra nostri nostre",
    "their": "loro",
}

POSSESSED = [
    Determiner(word, plural, partial(_possessive, forms=forms), label="poss")
    for word, forms in POSSESSIVES.items()
    for plural in (False, True)
]
OWNED = [Determiner(name.text + "'s", plural, _definite, "poss", name) for name in NAMES for plural in (False, True)]
THE, A, EVERY = (
    Determiner("the", False, _definite),
    Determiner("a", False, _indefinite),
    Determiner("every", False, partial(_unchanged, word="ogni", label="det")),
)
THIS, THAT = Determiner("this", False, _this), Determiner("that", False, _that)
POINTING = [THIS, THAT, Determiner("these", True, _this), Determiner("those", True, _that)]
THE_MANY = Determiner("the", True, _definite)
NUMBERS = [
    Determiner(here, True, partial(_unchanged, word=there, label="nummod"), "nummod")
    for here, there in (("two", "due"), ("three", "tre"), ("ten", "dieci"))
]
MANY, FEW = (
    Determiner("many", True, partial(_quantity, word="molto")),
    Determiner("few", True, partial(_quantity, word="poco")),
)
QUANTITIES = [*NUMBERS, MANY, FEW, Determiner("all the", True, _all)]
BARE, BARE_MASS = Determiner("", True, _none), Determiner("", False, _none)
# "cats" in "I like cats" is generic, which takes an article in Italian.
KIND, KIND_MASS = (Determiner("", plural, partial(_definite, keys="n")) for plural in (True, False))


@lru_cache(maxsize=1 << 15)
def noun_phrase(
    noun: Noun, determiner: Determiner = THE, modifiers: Modifiers = PLAIN, preposition: Preposition | None = None
) -> Phrase:
    """With a preposition the phrase is an adjunct and brings its own label, without one the frame gives it."""
    source = _english(noun, determiner, modifiers, preposition)
    target = _italian(noun, determiner, modifiers, preposition)
    phrase = assemble(source, target)
    return with_labels(phrase, "obl" if preposition.english else "obj", "obl") if preposition else phrase


def _english(noun: Noun, determiner: Determiner, modifiers: Modifiers, preposition: Preposition | None) -> list[Token]:
    adjectives = [(modifiers.before, "b"), (modifiers.after, "p")]
    words = [Token(adjective.english, "amod", key) for adjective, key in adjectives if adjective]
    words.append(Token(noun.english[determiner.plural], "root", "n"))
    given = [english.article(words[0].text)] if determiner.english == "a" else determiner.english.split()
    keys = "ad" if len(given) == 2 else "d"  # "all the" is aligned word by word
    articles = [Token(word, determiner.label, key) for word, key in zip(given, keys, strict=False)]
    cases = [Token(word, "case", "c") for word in preposition.english.split()] if preposition else []
    return cases + articles + words


def _italian(noun: Noun, determiner: Determiner, modifiers: Modifiers, preposition: Preposition | None) -> list[Token]:
    plural = determiner.plural
    gender = noun.genders[plural]
    word = noun.italian[plural]
    core = [Token(word, "root", "n")]
    if modifiers.before:
        core.insert(0, Token(italian.before_noun(modifiers.before.italian, word, gender, plural), "amod", "b"))
    lone_relative = noun.kin and not plural and modifiers is PLAIN
    articles = determiner.words(Setting(core[0].text, gender, plural, lone_relative))
    if preposition:
        articles = _with_preposition(preposition, articles)
    if modifiers.after:
        core += adjective_words(modifiers.after, gender, plural, "p")
    if determiner.owner:
        core += [Token("di", "case", "d", holds_mostly=True), Token(determiner.owner.text, "nmod", "d")]
    return articles + core


def adjective_words(adjective: Adjective, gender: Gender, plural: bool, key: str) -> list[Token]:
    """An adjective after its noun; a phrase such as "alla moda" hangs there as a noun with its preposition."""
    if " " in adjective.italian:
        case, noun = adjective.italian.split()
        return [Token(case, "case", key, holds_mostly=True), Token(noun, "nmod", key)]
    return [Token(adjective.form(gender, plural), "amod", key)]


def _with_preposition(preposition: Preposition, articles: list[Token]) -> list[Token]:
    *before, last = preposition.italian.split()
    words = [Token(word, "case", "c") for word in before]
    if articles and articles[0].text in italian.ARTICLES and last in italian.CONTRACTING:
        article, *rest = articles
        text = italian.join(italian.CONTRACTING[last], article.text)
        return [*words, Token(text, "case", "c" + article.keys), *rest]
    return [*words, Token(last, "case", "c"), *articles]


@cache
def name_phrase(name: Name, preposition: Preposition | None = None) -> Phrase:
    source, target = [Token(name.text, "root", "n")], [Token(name.text, "root", "n")]
    if preposition is None:
        return assemble(source, target)
    words = [italian.with_euphony(word, name.text) if word == "a" else word for word in preposition.italian.split()]
    source = [*(Token(word, "case", "c") for word in preposition.english.split()), *source]
    return with_labels(assemble(source, [*(Token(word, "case", "c") for word in words), *target]), "obl")
