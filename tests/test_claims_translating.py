"""What the claims about translators are tried on, and how the answers are counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from claims.learning import Right, hold_out, percent, right, sources_of, targets_of
from claims.refining import name_of, with_names
from claims.registry import CLAIMS
from claims.toys import Pair, copy, dictionary, swap_adjectives, write
from claims.translating import dictionary_pairs, sure

from heedful.evaluation.word_alignment import alignment_error_rate

pytestmark = pytest.mark.benchmark

LENGTHS = range(3, 9)


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    return dictionary(300, LENGTHS, seed=1)


def test_a_copy_is_its_source_and_every_symbol_is_linked_with_itself() -> None:
    found = copy(50, [4, 6], symbols=5, seed=1)
    assert {len(pair.source) for pair in found} == {4, 6}
    assert {word for pair in found for word in pair.source} == {f"s{number}" for number in range(5)}
    for pair in found:
        assert pair.target == pair.source
        assert pair.links == {(at, at) for at in range(len(pair.source))}


def test_links_lead_from_every_word_to_its_one_translation(pairs: list[Pair]) -> None:
    meanings: dict[str, set[str]] = {}
    for pair in pairs:
        assert sorted(source for source, _ in pair.links) == list(range(len(pair.source)))
        assert sorted(target for _, target in pair.links) == list(range(len(pair.target)))
        for source, target in pair.links:
            meanings.setdefault(pair.source[source], set()).add(pair.target[target])
    assert len(meanings) == 40
    assert all(len(words) == 1 for words in meanings.values())
    assert len(set.union(*meanings.values())) == 40, "two words have one translation"


@pytest.mark.parametrize(
    ("source", "order"),
    [
        ("n1 n2", [0, 1]),
        ("a1 n2", [1, 0]),
        ("n1 a2", [0, 1]),
        ("a1 a2 n3", [1, 0, 2]),
        ("a1 a2 a3 n4", [1, 0, 3, 2]),
        ("a1", [0]),
        ("", []),
    ],
)
def test_an_adjective_changes_places_with_the_word_on_its_right(source: str, order: list[int]) -> None:
    assert swap_adjectives(source.split()) == order


def test_the_same_seed_gives_the_same_sentences_and_another_seed_the_same_dictionary() -> None:
    assert dictionary(20, LENGTHS, seed=1) == dictionary(20, LENGTHS, seed=1) != dictionary(20, LENGTHS, seed=2)
    alone = {pair.source[0]: pair.target[0] for pair in dictionary(500, [1], seed=1)}
    again = {pair.source[0]: pair.target[0] for pair in dictionary(500, [1], seed=2)}
    assert alone == again
    assert len(alone) == 40


def test_each_sentence_has_one_name_which_stays_as_it_is() -> None:
    found = dictionary(100, LENGTHS, seed=1, names=7)
    for pair in found:
        (source,) = [at for at, word in enumerate(pair.source) if word.startswith("Name")]
        (target,) = [at for at, word in enumerate(pair.target) if word.startswith("Name")]
        assert pair.source[source] == pair.target[target] == name_of(pair)
        assert (source, target) in pair.links
    assert len({name_of(pair) for pair in found}) == 7


def test_no_name_that_is_tried_was_learned() -> None:
    train, test = with_names(5000)
    assert len(test) > 400
    assert not {name_of(pair) for pair in train} & {name_of(pair) for pair in test}


def test_no_sentence_that_is_tried_was_learned() -> None:
    train, test = dictionary_pairs(5000)
    assert len(test) > 400
    assert not {tuple(pair.source) for pair in train} & {tuple(pair.source) for pair in test}


def test_apart_leaves_out_what_both_have(pairs: list[Pair]) -> None:
    assert hold_out(pairs[:200], pairs[100:]) == (pairs[:200], [pair for pair in pairs[200:] if pair not in pairs[:200]])


def test_a_table_has_a_line_for_each_pair(pairs: list[Pair], tmp_path: Path) -> None:
    lines = write(pairs, tmp_path / "below" / "pairs.tsv").read_text().splitlines()
    assert [tuple(line.split("\t")) for line in lines] == list(zip(sources_of(pairs), targets_of(pairs), strict=True))


def test_a_word_too_few_or_too_many_is_wrong() -> None:
    wanted = [["x", "y"], ["x", "y", "z"]]
    assert right(wanted, wanted) == Right(1.0, 1.0)
    assert right([["x", "y", "y"], ["x", "y"]], wanted) == Right(0.0, 4 / 6)
    assert right([["y", "x"], ["x", "y", "z"]], wanted) == Right(0.5, 3 / 5)
    assert right([[], []], wanted) == Right(0.0, 0.0)


def test_gold_links_have_no_error_and_straight_ones_have_some(pairs: list[Pair]) -> None:
    gold = [sure(pair.links) for pair in pairs]
    straight = [{(at, at) for at in range(len(pair.source))} for pair in pairs]
    assert alignment_error_rate([pair.links for pair in pairs], gold).value == 0
    assert alignment_error_rate(straight, gold).value > 0.4


def test_a_share_is_told_to_a_tenth_of_a_percent() -> None:
    assert [percent(share) for share in (0, 0.9549, 1)] == ["0.0%", "95.5%", "100.0%"]


def test_every_claim_says_what_is_claimed_and_by_whom() -> None:
    assert {"fixed-vector", "bahdanau", "luong", "posunk", "convs2s", "bytenet", "ensemble", "gnmt-rl"} <= CLAIMS.keys()
    assert all(claim.statement and claim.source for claim in CLAIMS.values())
