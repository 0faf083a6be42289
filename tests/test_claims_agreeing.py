"""The claim of agreement: which words count as the subject, and trees that `heed inspect heads --conllu` reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from claims import by_seed
from claims.agreeing import all_words, first_word, one_word, write_trees

from heedful.data.conllu import Arc, read_trees
from heedful.data.toys import TaggedWords

pytestmark = pytest.mark.benchmark

WORDS = ["Anna", "e", "Marco", "dormire", "perché", "il", "gatto", "correre"]
TREE = [(3, "nsubj"), (3, "nsubj:cc"), (3, "nsubj:conj"), (-1, "root"), (7, "mark"), (6, "det"), (7, "nsubj"), (3, "advcl")]


@pytest.mark.parametrize(("convert", "subjects"), [(all_words, [0, 1, 2, 6]), (first_word, [0, 6]), (one_word, [6])])
def test_the_words_of_a_subject_in_the_trees_of_each_figure(convert: object, subjects: list[int], tmp_path: Path) -> None:
    sentence = TaggedWords(WORDS, ["-"] * len(WORDS), TREE)
    (tree,) = read_trees(write_trees([sentence], convert, tmp_path / "a.conllu"))  # type: ignore[arg-type]
    assert tree.text == " ".join(WORDS)
    verbs = {0: 3, 1: 3, 2: 3, 6: 7}
    assert [arc for arc in tree.arcs if arc.relation == "nsubj"] == [Arc(at, verbs[at], "nsubj") for at in subjects]


def test_figures_of_all_seeds() -> None:
    assert by_seed([{"accuracy": 1.0}, {"accuracy": 0.985}]) == {"accuracy": "100.0, 98.5%"}
