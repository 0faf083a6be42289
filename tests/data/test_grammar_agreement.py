"""Sentences with verbs and adjectives in their citation form: labels, trees, and what the other words show."""

from __future__ import annotations

import pytest

from heedful.data.conllu import Arc
from heedful.data.grammar import generate, translate_exactly
from heedful.data.grammar.agreement import UNCHANGED, adjective_forms, determiner_forms, uninflect, verb_forms
from heedful.data.tagged import TaggedConfig, find_split_file, read_sentences
from heedful.tasks.tagging.forced import sample_of

HAND_WRITTEN = """
The chair is not red                 | il sedia non essere/è rosso/rossa
My old friends buy the beautiful car | il mio vecchio/vecchi amici comprare/comprano il bello/bella macchina
The actress waits for me             | il attrice mi aspettare/aspetta
Do you see the cat?                  | vedi il gatto ?
There is an egg in the kitchen       | ci essere/è un uovo nel cucina
Where are the keys?                  | dove essere/sono il chiavi ?
You two wake up early                | voi due si svegliare/svegliate presto
Anna likes the cats                  | ad Anna piacere/piacciono il gatti
The nurse must help us               | il infermiera ci dovere/deve aiutare
We drink excellent water              | beviamo ottimo/ottima acqua
"""


@pytest.mark.parametrize("line", HAND_WRITTEN.strip().splitlines())
def test_hand_written_sentences(line: str) -> None:
    source, expected = (part.strip() for part in line.split("|"))
    sentence = translate_exactly(source)
    assert sentence is not None, source
    words = uninflect(sentence)
    assert " ".join(word.text + f"/{word.label}" * (word.label != UNCHANGED) for word in words) == expected


def test_only_nouns_names_and_pronouns_show_person_number_and_gender() -> None:
    """Two sentences that differ in the number or gender of a noun only, differ in no other word that is given."""
    changes = {"The student is tired": "The students are tired", "The student wears a red hat": "The student wears a red shirt"}
    for one, other in changes.items():
        given = [uninflect(sentence) for sentence in map(translate_exactly, (one, other)) if sentence]
        assert len(given) == 2
        differing = [(a, b) for a, b in zip(*given, strict=True) if a != b]
        assert [(a.text != b.text) for a, b in differing].count(True) == 1 < len(differing)


def test_labels_are_forms_of_what_is_given_and_verbs_have_subjects() -> None:
    verbs = adjectives = 0
    for sentence in generate("valid", 1500):
        words = uninflect(sentence)
        subjects = {word.head for word in words if word.relation == "nsubj"}
        for at, word in enumerate(words):
            if word.label == UNCHANGED:
                assert word.relation not in ("det", "poss", "case") or determiner_forms().get(word.text, word.text) == word.text
            elif at in subjects:
                assert verb_forms()[word.label] == word.text
                verbs += 1
            else:
                assert adjective_forms()[word.label] == word.text
                adjectives += 1
    assert verbs > 700 and adjectives > 200


def test_subjects_depend_on_the_word_that_agrees_with_them() -> None:
    expected = {
        "Anna and Marco sleep": [
            ("Anna", "dormire", "nsubj"),
            ("e", "dormire", "nsubj:cc"),
            ("Marco", "dormire", "nsubj:conj"),
        ],
        "The boy can sleep": [("ragazzo", "potere", "nsubj")],
        "The boy is tired": [("ragazzo", "essere", "nsubj")],
    }
    for source, arcs in expected.items():
        sentence = translate_exactly(source)
        assert sentence is not None
        words = uninflect(sentence)
        assert [(w.text, words[w.head].text, w.relation) for w in words if w.relation.startswith("nsubj")] == arcs


def test_the_toy_gives_its_trees_to_analyses() -> None:
    data = TaggedConfig.model_validate({"form": "tagged", "builtin": "agreement", "counts": {"train": 50}})
    file = find_split_file(data, "train")
    assert file is not None
    samples = [sample_of(" ", sentence) for sentence in read_sentences(data, file)]
    arcs = [arc for sample in samples for arc in sample.target_arcs or ()]
    assert len(samples) == 50 and {"nsubj", "amod"} <= {arc.relation for arc in arcs}
    assert all(isinstance(arc, Arc) and arc.dependent != arc.head for arc in arcs)
