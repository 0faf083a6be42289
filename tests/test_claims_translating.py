"""What the claims about translators are tried on, and how the answers are counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from claims.learning import Right, percent, right, sources_of, targets_of, write
from claims.negating import negated
from claims.registry import CLAIMS
from claims.translating import ORDERS, all_orders, sure

from heedful.data.toys import LabeledText, Pair, dictionary, many_to_one, sample
from heedful.evaluation.word_alignment import alignment_error_rate

pytestmark = pytest.mark.benchmark


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    return list(sample(dictionary, "train", 300))


def test_all_orders_of_a_source_differ_and_one_of_them_is_given() -> None:
    for pair in sample(many_to_one, "test", 20):
        orders = all_orders(pair)
        assert len(orders) == ORDERS and pair.source in [one.source for one in orders]
        assert all(sorted(one.source) == sorted(pair.source) and one.target == pair.target for one in orders)


def test_texts_are_negated_if_not_is_before_the_adjective() -> None:
    texts = ["w1 not terrible", "not w1 terrible", "terrible not w1", "good", "not good not w2"]
    assert [*negated(LabeledText("", text) for text in texts)] == [texts[0], texts[4]]


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
