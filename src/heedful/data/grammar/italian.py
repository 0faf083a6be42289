"""Italian word forms: the sound that a word begins with decides the article, the endings decide the rest.

    l'amico, lo studente, il gatto        gli amici, gli studenti, i gatti
    nell'albergo, nello zaino, nel parco  quell'uomo, quello zio, quel cane      bell'albero, bello specchio, bel libro

The last three rows show one regularity, used throughout: de-, ne-, a-, da-, su-, que- and be- take the same endings as
the definite article (`join`).
"""

from __future__ import annotations

from typing import Literal

Gender = Literal["m", "f"]
Onset = Literal["vowel", "impure", "plain"]

VOWELS = "aeiouàèéìòù"
ARTICLES = ("il", "lo", "l'", "la", "i", "gli", "le")
CONTRACTING = {"a": "a", "di": "de", "da": "da", "in": "ne", "su": "su"}
_ENDINGS = dict(zip(ARTICLES, ("l", "llo", "ll'", "lla", "i", "gli", "lle"), strict=True))


def onset(word: str) -> Onset:
    """Return the class of a word's initial sound, which decides the article; "impure" is s + consonant, z, ps, gn, x, y."""
    word = word.lower()
    if word[0] in VOWELS + "h":
        return "vowel"
    if word[0] in "zxy" or word[:2] in ("ps", "gn", "pn") or (word[0] == "s" and word[1] not in VOWELS):
        return "impure"
    return "plain"


def definite(following: str, gender: Gender, plural: bool) -> str:
    """il, lo, l', la, i, gli, le"""
    start = onset(following)
    if plural:
        return "le" if gender == "f" else "i" if start == "plain" else "gli"
    if start == "vowel":
        return "l'"
    return "la" if gender == "f" else "il" if start == "plain" else "lo"


def indefinite(following: str, gender: Gender) -> str:
    """un, uno, una, un'"""
    start = onset(following)
    if gender == "f":
        return "un'" if start == "vowel" else "una"
    return "uno" if start == "impure" else "un"


def join(stem: str, article: str) -> str:
    """de + il = del, ne + l' = nell', que + gli = quegli, be + i = bei"""
    return stem + _ENDINGS[article]


def this(following: str, gender: Gender, plural: bool) -> str:
    """questo, questa, questi, queste; quest' before a vowel in the singular"""
    if not plural and onset(following) == "vowel":
        return "quest'"
    return inflect("questo", gender, plural)


def inflect(adjective: str, gender: Gender, plural: bool) -> str:
    """The form of a regular adjective given as its masculine singular: rosso, verde, bianco, vecchio; blu stays."""
    if adjective.endswith("o"):
        stem = adjective[:-1]
        if not plural:
            return stem + ("o" if gender == "m" else "a")
        if stem.endswith(("c", "g")):
            return stem + ("hi" if gender == "m" else "he")
        return stem + "e" if gender == "f" else stem.removesuffix("i") + "i"
    if adjective.endswith("e"):
        return adjective[:-1] + "i" if plural else adjective
    return adjective


def before_noun(adjective: str, following: str, gender: Gender, plural: bool) -> str:
    """The form that an adjective takes in front of `following`: bello goes like quello, buono like uno."""
    if adjective == "bello":
        return join("be", definite(following, gender, plural))
    if adjective == "buono" and gender == "m" and not plural:
        return "buo" + indefinite(following, gender)[1:]
    return inflect(adjective, gender, plural)


def pluralize(noun: str, gender: Gender) -> str:
    """gatto gatti, mela mele, cane cani, parco parchi, barca barche, specchio specchi; città and autobus stay."""
    stem, ending = noun[:-1], noun[-1]
    if ending == "o":
        hard = stem.endswith(("c", "g"))
        return stem + "hi" if hard else stem.removesuffix("i") + "i"
    if ending == "a" and gender == "f":
        return stem + ("he" if stem.endswith(("c", "g")) else "e")
    return stem + "i" if ending in "ae" else noun


def with_euphony(word: str, following: str) -> str:
    """a -> ad before a, e -> ed before e, and nowhere else."""
    first = following[0].lower()
    return word + "d" if first == word or (word == "e" and first in "èé") else word


_PRESENT = {
    "are": "o i a iamo ate ano",
    "ere": "o i e iamo ete ono",
    "ire": "o i e iamo ite ono",
    "isc": "isco isci isce iamo ite iscono",
}
_IRREGULAR = {
    "essere": "sono sei è siamo siete sono",
    "avere": "ho hai ha abbiamo avete hanno",
    "fare": "faccio fai fa facciamo fate fanno",
    "andare": "vado vai va andiamo andate vanno",
    "dare": "do dai dà diamo date danno",
    "bere": "bevo bevi beve beviamo bevete bevono",
    "volere": "voglio vuoi vuole vogliamo volete vogliono",
    "potere": "posso puoi può possiamo potete possono",
    "dovere": "devo devi deve dobbiamo dovete devono",
}


def conjugate(infinitive: str) -> tuple[str, ...]:
    """The six forms of the present (io, tu, lui, noi, voi, loro); `capire*` marks a verb in -isc-."""
    plain = infinitive.removesuffix("*")
    if plain in _IRREGULAR:
        return tuple(_IRREGULAR[plain].split())
    stem, group = plain[:-3], "isc" if infinitive.endswith("*") else plain[-3:]
    forms = []
    for ending in _PRESENT[group].split():
        if ending.startswith("i") and group == "are":
            if stem.endswith(("c", "g")):  # cerc-o, cerch-i: the sound stays hard
                ending = "h" + ending
            elif stem.endswith("i"):  # mangi-o, mangi: one i is enough
                ending = ending[1:]
        forms.append(stem + ending)
    return tuple(forms)
