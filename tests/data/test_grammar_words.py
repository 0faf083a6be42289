"""Word forms against a grammar book's tables."""

from __future__ import annotations

import pytest

from heedful.data.grammar import english, italian
from heedful.data.grammar.italian import Gender
from heedful.data.grammar.lexicon import NOUNS, VERBS


@pytest.mark.parametrize(
    ("following", "gender", "plural", "article"),
    [
        ("gatto", "m", False, "il"),
        ("studente", "m", False, "lo"),
        ("zaino", "m", False, "lo"),
        ("psicologo", "m", False, "lo"),
        ("amico", "m", False, "l'"),
        ("gatti", "m", True, "i"),
        ("studenti", "m", True, "gli"),
        ("amici", "m", True, "gli"),
        ("mela", "f", False, "la"),
        ("sciarpa", "f", False, "la"),
        ("arancia", "f", False, "l'"),
        ("arance", "f", True, "le"),
    ],
)
def test_definite_article_follows_the_sound_after_it(following: str, gender: Gender, plural: bool, article: str) -> None:
    assert italian.definite(following, gender, plural) == article


def test_indefinite_article_follows_the_sound_after_it() -> None:
    masculine = [italian.indefinite(word, "m") for word in ("gatto", "amico", "studente", "zio")]
    feminine = [italian.indefinite(word, "f") for word in ("mela", "arancia", "sciarpa")]
    assert (masculine, feminine) == (["un", "un", "uno", "uno"], ["una", "un'", "una"])


def test_prepositions_contract_with_every_article() -> None:
    table = {
        "a": "al allo all' alla ai agli alle",
        "da": "dal dallo dall' dalla dai dagli dalle",
        "di": "del dello dell' della dei degli delle",
        "in": "nel nello nell' nella nei negli nelle",
        "su": "sul sullo sull' sulla sui sugli sulle",
    }
    assert set(table) == set(italian.CONTRACTING)
    for preposition, row in table.items():
        assert [italian.join(italian.CONTRACTING[preposition], article) for article in italian.ARTICLES] == row.split()


@pytest.mark.parametrize(
    ("adjective", "forms"),
    [
        ("bello", "bel_libro bello_zaino bell'_uomo bella_casa bell'_ape bei_libri begli_zaini begli_uomini belle_case"),
        ("buono", "buon_libro buono_zaino buon_uomo buona_casa buona_ape buoni_libri buoni_zaini buoni_uomini buone_case"),
        ("grande", "grande_libro grande_zaino grande_uomo grande_casa grande_ape grandi_libri grandi_zaini grandi_case"),
        ("vecchio", "vecchio_libro vecchio_zaino vecchia_casa vecchia_ape vecchi_libri vecchi_zaini vecchie_case"),
    ],
)
def test_adjectives_before_the_noun_take_their_short_forms(adjective: str, forms: str) -> None:
    genders: dict[str, tuple[Gender, bool]] = {
        **dict.fromkeys(("libro", "zaino", "uomo"), ("m", False)),
        **dict.fromkeys(("libri", "zaini", "uomini"), ("m", True)),
        **dict.fromkeys(("casa", "ape"), ("f", False)),
        "case": ("f", True),
    }
    for pair in forms.split():
        form, noun = pair.split("_")
        assert italian.before_noun(adjective, noun, *genders[noun]) == form


@pytest.mark.parametrize(
    ("adjective", "forms"),
    [
        ("rosso", "rosso rossa rossi rosse"),
        ("verde", "verde verde verdi verdi"),
        ("bianco", "bianco bianca bianchi bianche"),
        ("lungo", "lungo lunga lunghi lunghe"),
        ("blu", "blu blu blu blu"),
    ],
)
def test_adjectives_agree_in_gender_and_number(adjective: str, forms: str) -> None:
    cells: list[tuple[Gender, bool]] = [("m", False), ("f", False), ("m", True), ("f", True)]
    assert [italian.inflect(adjective, gender, plural) for gender, plural in cells] == forms.split()


@pytest.mark.parametrize(
    ("infinitive", "forms"),
    [
        ("parlare", "parlo parli parla parliamo parlate parlano"),
        ("mangiare", "mangio mangi mangia mangiamo mangiate mangiano"),
        ("cercare", "cerco cerchi cerca cerchiamo cercate cercano"),
        ("leggere", "leggo leggi legge leggiamo leggete leggono"),
        ("dormire", "dormo dormi dorme dormiamo dormite dormono"),
        ("capire*", "capisco capisci capisce capiamo capite capiscono"),
        ("fare", "faccio fai fa facciamo fate fanno"),
    ],
)
def test_present_tense_in_six_persons(infinitive: str, forms: str) -> None:
    assert italian.conjugate(infinitive) == tuple(forms.split())


def test_plurals_of_the_lexicon_match_a_dictionary() -> None:
    plurals = dict(noun.italian for kind in NOUNS.values() for noun in kind)
    english_plurals = dict(noun.english for kind in NOUNS.values() for noun in kind)
    known = "amico amici, uomo uomini, zio zii, uovo uova, arancia arance, camicia camicie, città città, albergo alberghi"
    more = "parco parchi, specchio specchi, orologio orologi, barca barche, aereo aerei, autobus autobus, studio studi, ape api"
    for pair in f"{known}, {more}".split(", "):
        singular, plural = pair.split()
        assert plurals[singular] == plural
    for pair in [
        "woman women",
        "child children",
        "knife knives",
        "bus buses",
        "church churches",
        "city cities",
        "tomato tomatoes",
    ]:
        singular, plural = pair.split()
        assert english_plurals[singular] == plural


def test_english_verbs_and_articles() -> None:
    thirds = {key: VERBS[key].third[0] for key in ("go", "watch", "study", "buy", "have", "sleep")}
    assert list(thirds.values()) == ["goes", "watches", "studies", "buys", "has", "sleeps"]
    assert [english.article(word) for word in ("apple", "Italian", "cat", "old", "university")] == ["an", "an", "a", "an", "a"]


def test_euphonic_d_only_before_the_same_vowel() -> None:
    assert [italian.with_euphony("a", name) for name in ("Anna", "Elena", "Marco")] == ["ad", "a", "a"]
    assert [italian.with_euphony("e", name) for name in ("Anna", "Elena", "è")] == ["e", "ed", "ed"]
