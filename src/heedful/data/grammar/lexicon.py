"""The lexicon: nouns by semantic class, adjectives by the nouns they can modify, verbs, names.

cat=gatto             forms that follow from the rules of english.py and italian.py are not written
woman/women=donna     an irregular plural follows a stroke, in either language
egg=uovo/uova*        this plural is feminine although the singular is masculine
look at=guardare      a verb may bring a particle; capire* has -isc-; svegliarsi is reflexive
"""

from __future__ import annotations

from dataclasses import dataclass

from heedful.data.grammar import english, italian
from heedful.data.grammar.italian import Gender


@dataclass(frozen=True, eq=False, slots=True)
class Noun:
    """A noun in both languages; forms are (singular, plural)."""

    english: tuple[str, str]
    italian: tuple[str, str]
    genders: tuple[Gender, Gender]
    kin: bool  # "mia madre" goes without an article

    @property
    def clues(self) -> tuple[str, ...]:
        return self.english


@dataclass(frozen=True, eq=False, slots=True)
class Adjective:
    """An adjective and its side of the Italian noun; `italian` is the masculine singular, or a phrase such as alla moda."""

    english: str
    italian: str
    precedes: bool

    @property
    def clues(self) -> tuple[str, ...]:
        return (self.english,)

    def form(self, gender: Gender, plural: bool) -> str:
        irregular = _IRREGULAR_ADJECTIVES.get((self.italian, gender, plural))
        return irregular or italian.inflect(self.italian, gender, plural)


@dataclass(frozen=True, eq=False, slots=True)
class Verb:
    english: tuple[str, ...]  # the base form and its particle: ("look", "at")
    third: tuple[str, ...]
    infinitive: str
    forms: tuple[str, ...]  # io, tu, lui, noi, voi, loro
    reflexive: bool

    @property
    def clues(self) -> tuple[str, ...]:
        return (self.english[0], self.third[0], self.english[0] + "not")  # cannot is one word


@dataclass(frozen=True, eq=False, slots=True)
class Name:
    text: str
    gender: Gender

    @property
    def clues(self) -> tuple[str, ...]:
        return (self.text, self.text + "'s")


_NOUNS = """
person m    friend=amico/amici boy=ragazzo man/men=uomo/uomini doctor=dottore student=studente teacher=insegnante
person m    child/children=bambino psychologist=psicologo/psicologi actor=attore
person f    girl=ragazza woman/women=donna actress=attrice nurse=infermiera
parent m    father=padre grandfather=nonno
parent f    mother=madre grandmother=nonna
kin m       brother=fratello son=figlio uncle=zio/zii
kin f       sister=sorella daughter=figlia aunt=zia
animal m    cat=gatto dog=cane bird=uccello horse=cavallo squirrel=scoiattolo
animal f    cow=mucca bee=ape
food m      egg=uovo/uova* tomato=pomodoro lemon=limone sandwich=panino
food f      apple=mela orange=arancia/arance cake=torta
dish m      bread=pane cheese=formaggio sugar=zucchero
dish f      salad=insalata
meal f      meat=carne pasta=pasta soup=zuppa
drink m     wine=vino milk=latte coffee=caffè tea=tè
drink f     water=acqua
text m      book=libro novel=romanzo article=articolo
text f      letter=lettera story=storia
road m      bus=autobus taxi=taxi
road f      car=macchina
ride m      train=treno plane=aereo
ride f      boat=barca
clothes m   hat=cappello coat=cappotto backpack=zaino boot=stivale
clothes f   shirt=camicia/camicie shoe=scarpa scarf/scarves=sciarpa
object m    mirror=specchio clock=orologio umbrella=ombrello knife/knives=coltello phone=telefono flower=fiore
object f    key=chiave lamp=lampada chair=sedia
opening m   wardrobe=armadio
opening f   door=porta window=finestra box=scatola
surface m   table=tavolo bed=letto sofa=divano
surface f   bench=panchina
inside m    garden=giardino park=parco office=ufficio hotel=albergo studio/studios=studio
inside f    kitchen=cucina house=casa city=città
spot m      restaurant=ristorante museum=museo airport=aeroporto stadium=stadio zoo=zoo/zoo market=mercato
spot f      station=stazione
landmark m  bridge=ponte tree=albero
landmark f  church=chiesa school=scuola
"""

# The nouns that an adjective can modify: a letter for each class of nouns (see NOUN_LETTERS).
_ADJECTIVES = """
before  beautiful=bello:patvcol good=buono:pafdt big=grande:afvol small=piccolo:afvcol new=nuovo:tvcol
before  old=vecchio:patvcol young=giovane:pa excellent=ottimo:fdt strange=strano:patol
after   tall=alto:p kind=gentile:p rich=ricco:p famous=famoso:p intelligent=intelligente:pa
after   Italian=italiano:pfdtvc English=inglese:ptv French=francese:pfdtc Spanish=spagnolo:pfdt
after   trendy=alla_moda:pc
after   red=rosso:fvcol white=bianco:afvcol black=nero:avcol green=verde:vcol blue=blu:vcol
after   expensive=costoso:dtvco cheap=economico:dtvco empty=vuoto:vo fresh=fresco:fd sweet=dolce:fd
after   interesting=interessante:t difficult=difficile:t long=lungo:tc modern=moderno:vl
state   tired=stanco:p happy=felice:p sad=triste:p ready=pronto:p ill=malato:p busy=occupato:p angry=arrabbiato:p
"""

NOUN_LETTERS = {
    "person": "p", "kin": "p", "parent": "p", "animal": "a", "food": "f", "dish": "d", "meal": "d", "drink": "d", "text": "t",
    "road": "v", "ride": "v", "clothes": "c", "object": "o", "opening": "o", "surface": "o", "inside": "l", "spot": "l",
}  # fmt: skip

_IRREGULAR_ADJECTIVES: dict[tuple[str, Gender, bool], str] = {("economico", "m", True): "economici"}

_VERBS = """
eat=mangiare cook=cucinare drink=bere read=leggere write=scrivere drive=guidare take=prendere wear=portare see=vedere
buy=comprare have=avere want=volere love=amare help=aiutare know=conoscere meet=incontrare find=trovare
open=aprire close=chiudere clean=pulire* prefer=preferire* understand=capire* study=studiare speak=parlare
give=dare send=mandare answer=rispondere go=andare return=tornare live=vivere sleep=dormire work=lavorare
run=correre sing=cantare dance=ballare walk=camminare swim=nuotare leave=partire arrive=arrivare
can=potere must=dovere watch=guardare
"""
# Verbs with a particle, or whose name here differs from the English word because another verb has it.
_OTHER_VERBS = """
look_at=guardare look_for=cercare wait_for=aspettare listen_to=ascoltare wake_up=svegliarsi get_up=alzarsi
have:fare=fare take:fare=fare make:fare=fare ask:fare=fare do:fare=fare play:suonare=suonare play:giocare=giocare
talk:parlare=parlare think:pensare=pensare
"""


def _singular_and_plural(written: str) -> tuple[str, str | None]:
    singular, _, plural = written.partition("/")
    return singular, plural or None


def _read_noun(entry: str, gender: Gender, kin: bool) -> Noun:
    here, there = entry.split("=")
    english_singular, english_plural = _singular_and_plural(here)
    singular, plural = _singular_and_plural(there)
    turns = plural is not None and plural.endswith("*")
    return Noun(
        english=(english_singular, english_plural or english.pluralize(english_singular)),
        italian=(singular, (plural or italian.pluralize(singular, gender)).rstrip("*")),
        genders=(gender, "f" if turns else gender),
        kin=kin,
    )


def _read_nouns() -> dict[str, list[Noun]]:
    nouns: dict[str, list[Noun]] = {}
    for line in _NOUNS.strip().splitlines():
        kind, gender, *entries = line.split()
        assert gender in ("m", "f"), f"the gender of {line!r} is neither m nor f"
        of_kind = nouns.setdefault(kind, [])
        of_kind += [_read_noun(entry, "m" if gender == "m" else "f", kind in ("kin", "parent")) for entry in entries]
    return nouns


def _read_adjectives() -> tuple[dict[str, list[Adjective]], list[Adjective]]:
    """Attributive adjectives by letter of noun class; and those used only of people with "to be"."""
    by_letter: dict[str, list[Adjective]] = {letter: [] for letter in sorted(set(NOUN_LETTERS.values()))}
    states: list[Adjective] = []
    for line in _ADJECTIVES.strip().splitlines():
        side, *entries = line.split()
        for entry in entries:
            words, letters = entry.split(":")
            here, there = words.split("=")
            adjective = Adjective(here, there.replace("_", " "), side == "before")
            for letter in letters if side != "state" else "":
                by_letter[letter].append(adjective)
            if side == "state":
                states.append(adjective)
    return by_letter, states


def _read_verbs() -> dict[str, Verb]:
    verbs: dict[str, Verb] = {}
    for entry in (_VERBS + _OTHER_VERBS).split():
        key, infinitive = entry.split("=")
        base, *particle = key.partition(":")[0].split("_")
        reflexive = infinitive.endswith("rsi")
        plain = infinitive.removesuffix("si") + "e" if reflexive else infinitive
        third = english.third_person(base)
        words = (base, *particle), (third, *particle)
        verbs[key] = Verb(*words, plain.removesuffix("*"), italian.conjugate(plain), reflexive)
    return verbs


NOUNS = _read_nouns()
ADJECTIVES, STATES = _read_adjectives()
VERBS = _read_verbs()
NAMES = (
    Name("Anna", "f"),
    Name("Sara", "f"),
    Name("Elena", "f"),
    Name("Marco", "m"),
    Name("Luca", "m"),
    Name("Paolo", "m"),
)
