"""What the claims about translators are tried on, and how the answers are counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from claims import lengths
from claims.learning import MODELS, Right, percent, right, sources_of, targets_of, write
from claims.negating import negated
from claims.registry import CLAIMS
from claims.translating import ORDERS, all_orders, sure

from heedful import models
from heedful.data.toys import LabeledText, Pair, dictionary, many_to_one, sample
from heedful.evaluation.word_alignment import alignment_error_rate
from heedful.models import config_of

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
    assert {"fixed-vector", "bahdanau-length", "attention-length", "relative-length"} <= CLAIMS.keys()
    assert {"bahdanau", "luong", "posunk", "convs2s", "bytenet", "ensemble", "gnmt-rl"} <= CLAIMS.keys()
    assert all(claim.statement and claim.source for claim in CLAIMS.values())


def test_a_model_is_trained_with_every_seed_and_tested_at_every_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lengths, "TRIED", 4)
    rows = lengths.exact_by_seed(tmp_path, MODELS["sutskever"] | {"dim": 8}, (8, 10), steps=2, pairs=200, seeds=(1, 5))
    assert len(rows) == len([*tmp_path.glob("[15]/run")]) == 2 and all(row.keys() == {"trained", "8", "10"} for row in rows)
    assert all(0 <= share <= 1 for row in rows for share in row.values())
    trained, eight, ten = (f"few: exact at {what}" for what in ("trained lengths", "length 8", "length 10"))
    assert lengths.figures_of({"few": rows}).keys() == {trained, eight, ten}
    sources = [line.split("\t")[0].split() for line in (tmp_path / "1" / "train.tsv").read_text().splitlines()]
    assert {len(source) for source in sources} == set(range(1, lengths.LONGEST + 1)), "none is as long as those tested"


def test_every_seed_has_to_collapse_past_the_trained_length() -> None:
    falls = {"trained": 0.95, "6": 0.9, "8": 0.45, "10": 0.1}
    assert lengths.collapses([falls] * 3)
    for other in ({"trained": 0.94}, {"8": 0.46}, {"10": 0.11}):
        assert not lengths.collapses([falls, falls | other, falls])


def test_a_reversed_source_may_be_a_point_worse_and_has_to_be_learned() -> None:
    forward = [{"trained": 1.0}, {"trained": 0.955}]
    assert lengths.reversal_does_not_hurt(forward, [{"trained": 0.99}, {"trained": 0.95}])
    assert not lengths.reversal_does_not_hurt(forward, [{"trained": 0.98}, {"trained": 0.95}])
    assert not lengths.reversal_does_not_hurt(forward, [{"trained": 0.99}, {"trained": 0.949}])


def test_attention_has_to_keep_80_percent_where_the_fixed_vector_has_a_quarter() -> None:
    attention, fixed = {"trained": 0.95, "10": 0.8}, {"trained": 0.95, "10": 0.25}
    assert lengths.keeps_length([attention] * 3, [fixed] * 3)
    assert not lengths.keeps_length([attention, attention | {"10": 0.79}], [fixed] * 2)
    assert not lengths.keeps_length([attention] * 2, [fixed, fixed | {"10": 0.26}])
    assert not lengths.keeps_length([attention] * 2, [fixed, fixed | {"trained": 0.94}])
    assert lengths.keeps_more([{"14": 0.8}], [{"14": 0.25}], "14") and not lengths.keeps_more(
        [{"14": 0.8}], [{"14": 0.3}], "14"
    )


def test_a_drop_of_more_than_five_points_with_any_seed_counts() -> None:
    keeps = {"6": 1.0, "12": 0.95}
    assert lengths.has_no_drop([keeps] * 3)
    assert not lengths.has_no_drop([keeps, keeps | {"12": 0.94}])
    assert not lengths.has_no_drop([keeps, {"6": 0.94, "12": 0.94}])


def test_the_fixed_vector_has_at_least_as_many_parameters_as_the_attention_it_is_compared_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: dict[str, int] = {}

    def count(folder: Path, model: Mapping[str, Any], single: Sequence[int], **others: Any) -> list[lengths.Shares]:
        config = config_of(models.MODELS[model["family"]])(**model)
        counts[model["family"]] = sum(one.numel() for one in models.make_family(config, 24, 24).parameters())
        return [{"trained": 1.0, "6": 1.0, "10": 0.5, "12": 1.0, "14": 0.5}]

    monkeypatch.setattr(lengths, "exact_by_seed", count)
    claims = {"bahdanau": lengths.bahdanau, "luong": lengths.local_attention, "transformer": lengths.relative_positions}
    for family, compare in claims.items():
        assert not compare(tmp_path).holds
        assert counts[family] <= counts["sutskever"] <= 1.1 * counts[family]
