"""The built-in corpus: its sentences against hand-written ones and against the rules it states."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from itertools import islice

import pytest

from heedful.data.grammar import (
    EXAMPLES,
    LABELS,
    SPLITS,
    Sentence,
    Split,
    count_pairs,
    generate,
    split_of,
    translate_exactly,
)
from heedful.data.grammar.corpus import derivations
from heedful.data.grammar.lexicon import ADJECTIVES, NAMES, STATES, VERBS
from heedful.errors import ConfigError

HAND_WRITTEN = """
I am trendy | Io sono alla moda
I take a shower | Faccio la doccia
Do you see the cat? | Vedi il gatto?
She is not tired | Lei non è stanca
Are they happy? | Sono felici?
Are you hungry? | Hai fame?
He is never in a hurry | Non ha mai fretta
Anna and I never drink coffee | Io e Anna non beviamo mai caffè
You and Elena wait for the plane | Tu ed Elena aspettate l'aereo
You two are too young | Voi due siete troppo giovani
Anna and Sara are ready | Anna e Sara sono pronte
Anna and Marco are ready | Anna e Marco sono pronti
The student has a backpack | Lo studente ha uno zaino
The young student doesn't sleep | Il giovane studente non dorme
My friend reads an article | Il mio amico legge un articolo
My mother loves my sisters | Mia madre ama le mie sorelle
Their mother loves their daughter | La loro madre ama la loro figlia
I love my old mother | Amo la mia vecchia madre
Does Paolo always eat an orange? | Paolo mangia sempre un'arancia?
We buy two fresh eggs | Compriamo due uova fresche
I buy a fresh egg | Compro un uovo fresco
That man looks for those mirrors | Quell'uomo cerca quegli specchi
I see a beautiful squirrel | Vedo un bello scoiattolo
I see those beautiful trains | Vedo quei bei treni
Those beautiful women dance well | Quelle belle donne ballano bene
He is a good psychologist | Lui è un buono psicologo
She is a good nurse | Lei è una buona infermiera
Do you wear Anna's beautiful red scarf? | None
Do you wear Anna's scarf? | Porti la sciarpa di Anna?
They never open this old red box | Non aprono mai questa vecchia scatola rossa
I buy an excellent Italian cheese | None
We want excellent water | Vogliamo ottima acqua
He lives in the studio | Vive nello studio
We eat in our garden | Mangiamo nel nostro giardino
Marco works at the airport | Marco lavora all'aeroporto
Does the girl return from the stadium? | La ragazza torna dallo stadio?
I talk about the friends of Anna | None
I talk about Anna's friends | Parlo degli amici di Anna
Do they think about the children? | Pensano ai bambini?
She gives the key to Anna | Dà la chiave ad Anna
She gives the key to that actress | Dà la chiave a quell'attrice
The keys are on the table | Le chiavi sono sul tavolo
There is a bird under the bench | C'è un uccello sotto la panchina
Are there many bees in the park? | Ci sono molte api nel parco?
Where is the hotel? | None
Where is my hat? | Dov'è il mio cappello?
Where does the doctor work? | Dove lavora il dottore?
What do you two eat? | Che cosa mangiate voi due?
Who closes the door? | Chi chiude la porta?
Do you wait for her? | L'aspetti?
I don't wait for them | Non li aspetto
He always looks at me | Mi guarda sempre
I want to see you | Ti voglio vedere
You cannot help us | Non ci puoi aiutare
Must we go home? | Dobbiamo andare a casa?
I like cats | Mi piacciono i gatti
Does she like bread? | Le piace il pane?
Anna doesn't like to swim | Ad Anna non piace nuotare
They prefer tea | Preferiscono il tè
She wakes up early | Si sveglia presto
We don't get up at night | Non ci alziamo di notte
She answers my father every day | Risponde a mio padre ogni giorno
I don't sleep because I am hungry | Non dormo perché ho fame
Marco sleeps and Elena reads a book | Marco dorme ed Elena legge un libro
Why do all the boys laugh? | None
""".strip().splitlines()


@pytest.fixture(scope="module")
def sample() -> list[Sentence]:
    return [sentence for seed in (0, 1) for sentence in generate("train", 10_000, seed=seed)]


@pytest.fixture(scope="module")
def few(sample: list[Sentence]) -> list[Sentence]:
    return sample[::8]


@pytest.mark.parametrize("line", HAND_WRITTEN)
def test_translation_equals_the_hand_written_one(line: str) -> None:
    source, target = line.split(" | ")
    sentence = translate_exactly(source)
    assert (sentence.target if sentence else "None") == target


def test_the_two_examples_are_sentences_of_the_grammar() -> None:
    pairs = [(example.source, example.target) for example in EXAMPLES]
    assert pairs == [("I am trendy", "Io sono alla moda"), ("I take a shower", "Faccio la doccia")]
    assert tuple(translate_exactly(example.source) for example in EXAMPLES) == EXAMPLES
    assert [split_of(example.source) for example in EXAMPLES] == ["train", "train"]


def test_gold_structure_of_the_examples() -> None:
    trendy, shower = EXAMPLES
    assert trendy.alignment == {(0, 0), (1, 1), (2, 2), (2, 3)}
    assert (trendy.target_heads, trendy.target_labels) == ((3, 3, 3, -1), ("nsubj", "cop", "case", "root"))
    assert shower.alignment == {(0, 0), (1, 0), (2, 1), (3, 2)}
    assert (shower.source_heads, shower.source_labels) == ((1, -1, 3, 1), ("nsubj", "root", "det", "obj"))


def test_a_dropped_word_is_aligned_with_the_word_that_expresses_it() -> None:
    expected = {
        "I never eat in the garden": {(0, 1), (1, 0), (1, 2), (2, 1), (3, 3), (4, 3), (5, 4)},
        "Do you wait for her?": {(0, 0), (1, 0), (2, 0), (3, 0), (4, 0)},
        "I want to see you": {(0, 1), (1, 1), (2, 2), (3, 2), (4, 0)},
        "Anna and I sleep": {(0, 2), (1, 1), (2, 0), (3, 3)},
        "Are you hungry?": {(0, 0), (1, 0), (2, 1)},
    }
    for source, alignment in expected.items():
        sentence = translate_exactly(source)
        assert sentence is not None
        assert sentence.alignment == alignment


def test_a_source_never_has_two_targets(sample: list[Sentence]) -> None:
    targets: dict[str, set[str]] = defaultdict(set)
    for sentence in sample:
        targets[sentence.source].add(sentence.target)
    assert len(targets) > 12_000
    assert all(len(different) == 1 for different in targets.values())


def test_no_source_comes_twice_in_one_call(sample: list[Sentence]) -> None:
    assert len({sentence.source for sentence in sample[:10_000]}) == 10_000


def test_every_source_has_one_derivation(sample: list[Sentence]) -> None:
    for sentence in sample[:20]:
        assert list(derivations(sentence.source)) == [sentence]


@pytest.mark.parametrize("split", SPLITS)
def test_sentences_belong_to_their_split(split: Split) -> None:
    sources = [sentence.source for sentence in generate(split, 200)]
    assert len(sources) == 200
    assert {split_of(source) for source in sources} == {split}


def test_split_shares_are_ninety_five_five() -> None:
    splits = [split_of(str(number)) for number in range(20_000)]
    assert [round(splits.count(split) / 20_000, 2) for split in SPLITS] == [0.90, 0.05, 0.05]


def test_a_longer_call_begins_like_a_shorter_one(sample: list[Sentence]) -> None:
    assert list(generate("train", 300)) == sample[:300]
    assert list(islice(generate("train", 10**9), 300)) == sample[:300]
    assert sample[:300] != sample[10_000:10_300]


def test_sentences_do_not_depend_on_the_hash_seed_of_the_process() -> None:
    program = "from heedful.data.grammar import generate; print([s[:2] + s[3:] for s in generate('valid', 20, seed=7)])"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {f"{[s[:2] + s[3:] for s in generate('valid', 20, seed=7)]}\n".encode()}


def test_an_unknown_split_is_an_error() -> None:
    with pytest.raises(ConfigError, match="unknown split 'dev'"):
        next(generate("dev", 1))  # type: ignore[arg-type]


def test_other_sentences_have_no_translation() -> None:
    assert [translate_exactly(source) for source in ("", "I am", "The the cat", "I am trendy?", "i am trendy")] == [None] * 5


def test_there_are_enough_words_and_pairs(sample: list[Sentence]) -> None:
    english = {word.lower() for sentence in sample for word in sentence.source.removesuffix("?").split()}
    italian = {word.lower() for sentence in sample for word in re.split("[ ']", sentence.target.removesuffix("?"))}
    assert len(english) >= 300
    assert len(italian) >= 300
    assert count_pairs() >= 10**6


def test_text_is_plain_words_with_single_spaces(sample: list[Sentence]) -> None:
    shape = re.compile(r"[A-ZÈ][\w']*( [\w']+)*\??")
    for sentence in sample:
        assert shape.fullmatch(sentence.source)
        assert shape.fullmatch(sentence.target)
        assert sentence.source.endswith("?") == sentence.target.endswith("?")
        assert 2 <= len(sentence.source.split()) <= 15


def test_every_word_is_aligned_and_no_index_is_out_of_range(few: list[Sentence]) -> None:
    for sentence in few:
        source, target = (set(range(len(text.split()))) for text in sentence[:2])
        assert {i for i, _ in sentence.alignment} == source
        assert {j for _, j in sentence.alignment} == target


def test_heads_form_a_tree_with_known_labels(few: list[Sentence]) -> None:
    seen: set[str] = set()
    for sentence in few:
        for text, heads, labels in (
            (sentence.source, sentence.source_heads, sentence.source_labels),
            (sentence.target, sentence.target_heads, sentence.target_labels),
        ):
            assert len(heads) == len(labels) == len(text.split())
            assert [head == -1 for head in heads] == [label == "root" for label in labels]
            assert heads.count(-1) == 1
            for word in range(len(heads)):
                path = [word]
                while path[-1] != -1:
                    assert len(path) <= len(heads), f"the heads of {text!r} run in a circle"
                    path.append(heads[path[-1]])
            seen.update(labels)
    assert seen == set(LABELS)


VOWEL = "[aeiouàèéh]"
IMPURE = "(?:z|ps|s[^aeiouàèéì])"
PLAIN = "(?!z|ps|s[^aeiouàèéì])[b-df-gj-np-tv-z]"
BEFORE_PLAIN = "il i un del dei nel nei al ai dal sul sui quel quei bel bei buon"
BEFORE_VOWEL = "gli un degli negli agli dagli sugli quegli begli buon"
BEFORE_IMPURE = "lo gli uno dello degli nello allo agli dallo dagli quello quegli bello begli"
FEMININE = "la una della nella alla dalla sulla quella"


def test_articles_fit_the_sound_that_follows(sample: list[Sentence]) -> None:
    """No article precedes a sound that requires another form."""
    text = "\n".join(sentence.target.lower() for sentence in sample)
    plain, vowel, impure, feminine = (set(row.split()) for row in (BEFORE_PLAIN, BEFORE_VOWEL, BEFORE_IMPURE, FEMININE))
    pronouns = {"lo", "gli"}  # lo vedo, gli piace
    for forms, sound in (
        ((plain | impure | feminine) - vowel - {"bello"}, VOWEL),
        ((plain | vowel) - impure, IMPURE),
        ((vowel | impure) - plain - pronouns - {"bello", "buono"}, PLAIN),
    ):
        assert not (found := re.search(rf"(?m)(?:^| )({'|'.join(forms)}) {sound}\w*", text)), found
    assert not (found := re.search(rf"'(?!{VOWEL})", text)), found
    assert len((plain | vowel | impure | feminine) & set(text.split())) > 35


def _target_subject(sentence: Sentence) -> list[str]:
    words = sentence.target.removesuffix("?").split()
    heads, labels = sentence.target_heads, sentence.target_labels
    subject = next((i for i, label in enumerate(labels) if label == "nsubj" and heads[i] == labels.index("root")), None)
    if subject is None:
        return []
    return [words[subject], *(words[i] for i, head in enumerate(heads) if head == subject and labels[i] == "conj")]


def test_verbs_agree_with_named_subjects(sample: list[Sentence]) -> None:
    names = {name.text for name in NAMES}
    forms = {count: {verb.forms[person] for verb in VERBS.values()} for count, person in ((1, 2), (2, 5))}
    checked = 0
    for sentence in sample:
        subject = _target_subject(sentence)
        root = sentence.target.removesuffix("?").split()[sentence.target_labels.index("root")]
        if subject and set(subject) <= names and "cop" not in sentence.target_labels and root in forms[1] | forms[2]:
            assert root in forms[len(subject)], sentence.target
            checked += 1
    assert checked > 1000


def test_predicates_agree_with_named_subjects(sample: list[Sentence]) -> None:
    gender = {name.text: name.gender for name in NAMES}
    adjectives = [adjective for adjective in {*ADJECTIVES["p"], *STATES} if adjective.english != "trendy"]
    english = {adjective.english: adjective for adjective in adjectives}
    checked = 0
    for sentence in sample:
        source = sentence.source.removesuffix("?").split()
        adjective = english.get(source[sentence.source_labels.index("root")])
        subject = _target_subject(sentence)
        if adjective and subject and set(subject) <= set(gender):
            both = "f" if all(gender[name] == "f" for name in subject) else "m"
            expected = adjective.form("f" if both == "f" else "m", plural=len(subject) == 2)
            assert sentence.target.removesuffix("?").split()[sentence.target_labels.index("root")] == expected
            checked += 1
    assert checked > 300
