"""Links from weights, and the selection of heads and thresholds."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from heedful.evaluation.word_alignment import Alignment, Link, alignment_error_rate
from heedful.inspection.measures.alignment_links import (
    COVERS,
    LINK_RULES,
    LinkRule,
    choose_heads_and_rule,
    choose_link_rule,
    label_maps,
    link_matrix,
    links,
    select_heads,
)

WEIGHTS = torch.tensor([[0.6, 0.3, 0.1], [0.5, 0.1, 0.4], [0.9, 0.1, 0.0]])  # (target words, source words)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (LinkRule(), {(0, 0), (0, 1), (0, 2)}),
        (LinkRule(row=0.5), {(0, 0), (1, 0), (0, 1), (2, 1), (0, 2)}),
        (LinkRule(row=0.5, column=1.0), {(1, 0), (2, 1), (0, 2)}),
        (LinkRule(row=1.0, column=1.0), {(0, 2)}),
        (LinkRule(row=1.0, column=1.0, cover="target"), {(0, 0), (0, 1), (0, 2)}),
        (LinkRule(row=1.0, column=1.0, cover="both"), {(0, 0), (0, 1), (0, 2), (1, 0), (2, 1)}),
    ],
)
def test_thresholds_by_hand(rule: LinkRule, expected: set[Link]) -> None:
    assert links(WEIGHTS, rule) == expected


def test_zero_weights_give_no_link() -> None:
    assert not link_matrix(torch.zeros(2, 3), LinkRule(row=0.05, cover="both")).any()


@given(st.integers(0, 1000), st.sampled_from(LINK_RULES))
def test_a_covered_word_has_a_link(seed: int, rule: LinkRule) -> None:
    linked = link_matrix(torch.rand(4, 5, generator=torch.Generator().manual_seed(seed)), rule)
    assert rule.cover == "none" or bool(linked.any(-1).all())
    assert rule.cover != "both" or bool(linked.any(-2).all())
    assert rule.cover in COVERS


def random_maps(heads: int, seed: int = 3) -> list[Tensor]:
    draws = torch.Generator().manual_seed(seed)
    return [torch.rand(heads, 2 + i % 3, 2 + i % 4, generator=draws).softmax(-1) for i in range(12)]


def some_gold(maps: list[Tensor]) -> list[Alignment]:
    """One sure and one further possible link per target word."""
    lines = []
    for one in maps:
        sure = frozenset((t % one.shape[2], t) for t in range(one.shape[1]))
        lines.append(Alignment(sure, sure | {((t + 1) % one.shape[2], t) for t in range(one.shape[1])}))
    return lines


@given(st.sampled_from(LINK_RULES))
def test_the_error_rate_of_padded_tensors_equals_that_of_sets_of_links(rule: LinkRule) -> None:
    maps = random_maps(3)
    gold = some_gold(maps)
    expected = alignment_error_rate([links(one[[0, 2]].mean(0), rule) for one in maps], gold).value
    assert label_maps(maps, gold).error_rate([0, 2], rule) == pytest.approx(expected, abs=1e-6)


def test_the_head_with_gold_weights_is_selected_with_matching_thresholds() -> None:
    """Of three heads the second has equal weights on the two gold links of each word and small weights elsewhere."""
    maps = random_maps(3)
    gold = [Alignment(line.possible, line.possible) for line in some_gold(maps)]
    for one, line in zip(maps, gold, strict=True):
        one[1] = 0.01
        for source, target in line.possible:
            one[1, target, source] = 1.0
    heads, rule, error = choose_heads_and_rule(label_maps(maps, gold))
    assert heads == [1] and error == 0 and rule.row > 0.01
    assert select_heads(label_maps(maps, gold), LinkRule())[1] >= error


def test_the_selection_is_never_worse_than_the_default_rule_with_the_best_heads() -> None:
    maps = random_maps(4, seed=5)
    gold = some_gold(maps)
    labeled = label_maps(maps, gold)
    heads, usual = select_heads(label_maps(maps, gold), LinkRule())
    chosen, rule, error = choose_heads_and_rule(labeled)
    assert error <= choose_link_rule(labeled, heads)[1] <= usual
    assert error == pytest.approx(labeled.error_rate(chosen, rule))
