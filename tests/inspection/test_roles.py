"""Roles and confidence, of heads whose weights were written by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from heedful.inspection.confidence import summed_confidence
from heedful.inspection.roles import (
    FEWEST,
    AttentionTargets,
    Measure,
    attention_targets,
    measures_of_position,
    measures_of_trials,
    positional,
    trials,
)

LENGTHS = [7, 9, 12, 5, 8, 10, 6, 11, 9, 7] * 3


def pointing(at: Tensor, keys: int) -> Tensor:
    """Heads that look at one key alone: at (heads, query) -> (heads, query, keys)."""
    return torch.nn.functional.one_hot(at, keys).float()


def random_weights(length: int, heads: int = 1) -> Tensor:
    return torch.randn(heads, length, length).softmax(-1)


def test_confidence_of_a_uniform_a_hard_and_a_parked_head() -> None:
    """The last column is the end's, and does not count."""
    uniform, parked = torch.full((4, 4), 0.25), torch.eye(4)[[3, 3, 3, 3]]
    hard = torch.eye(4)[[0, 2, 1, 0]]
    sums = summed_confidence(torch.stack((uniform, hard, parked))[:, :3, :3])
    assert_close(sums / 3, torch.tensor([0.25, 1.0, 0.0]))


def test_a_head_that_looks_at_the_token_before_is_positional() -> None:
    """The first token has none before it: what it looks at says nothing."""
    sentences = [attention_targets(pointing((torch.arange(n) - 1).clamp(min=0)[None], n)) for n in LENGTHS]
    (measure,) = measures_of_position(sentences)
    assert (measure.role, measure.what, measure.value, measure.holds) == ("positional", "-1", 1.0, True)
    assert measure.cases == sum(n - 1 for n in LENGTHS)


@pytest.mark.parametrize("offset", [-3, 2, 0])
def test_any_offset_is_found_where_tokens_follow_others(offset: int) -> None:
    """Four tokens come before the first that looks, as a source does before its target."""
    sentences = [AttentionTargets((torch.arange(n) + 4 + offset)[None], n + 8, shift=4) for n in LENGTHS]
    usual, share, _ = positional(sentences)
    assert (int(usual), float(share)) == (offset, 1.0)


@pytest.mark.parametrize(("wrong", "holds"), [(100, True), (101, False)])
def test_nearly_always_is_nine_of_ten(wrong: int, holds: bool) -> None:
    """Of a thousand tokens that have another before them."""
    at = (torch.arange(1001) - 1).clamp(min=0)
    at[torch.randperm(1000)[:wrong] + 1] += 3
    (measure,) = measures_of_position([AttentionTargets(at[None], 1100)])
    assert measure.value == pytest.approx(1 - wrong / 1000)
    assert measure.holds is holds and measure.holds_mostly is not holds


def test_a_random_head_has_no_role() -> None:
    sentences = [attention_targets(random_weights(n, heads=4)) for n in LENGTHS]
    tried = [trials(one, torch.eye(one.keys, dtype=torch.bool).roll(1, 0)) for one in sentences]
    rare = [trials(one, one_column(one.keys, int(torch.randint(one.keys, ())))) for one in sentences]
    found = measures_of_position(sentences)
    found += measures_of_trials("syntactic", "nsubj to head", tried) + measures_of_trials("rare", "", rare)
    assert len(found) == 12 and not any(measure.holds for measure in found)


def one_column(keys: int, column: int) -> Tensor:
    """Everybody should look there."""
    wanted = torch.zeros(keys, keys, dtype=torch.bool)
    wanted[:, column] = True
    return wanted


def test_a_head_that_follows_frequency_is_called_rare_and_no_other() -> None:
    """Frequencies are drawn at random, so the rarest token stands anywhere."""
    rare, sentences = [], []
    for n in LENGTHS:
        frequency = torch.rand(n)
        weights = torch.stack((-20 * frequency.log().expand(n, n), 20 * frequency.log().expand(n, n))).softmax(-1)
        sentences.append(attention_targets(weights))
        rare.append(trials(sentences[-1], one_column(n, int(frequency.argmin()))))
    first, second = measures_of_trials("rare", "", rare)
    assert first.holds and first.value == 1.0
    assert not second.holds and second.value == 0.0
    assert not any(measure.holds for measure in measures_of_position(sentences))


def test_the_baseline_is_the_best_fixed_offset_and_accuracy_counts_what_was_asked() -> None:
    """Words 0, 1 and 2 depend on words 1, 2 and 0: two of three on the next. Word 3 depends on nothing."""
    wanted = torch.zeros(4, 4, dtype=torch.bool)
    wanted[0, 1] = wanted[1, 2] = wanted[2, 0] = True
    weights = pointing(torch.tensor([[1, 0, 0, 3], [1, 2, 3, 3]]), 4)
    tried = trials(attention_targets(weights), wanted)
    assert tried.cases == 3 and tried.baseline == pytest.approx(2 / 3)
    assert_close(tried.accuracy, torch.tensor([2 / 3, 2 / 3]))


def test_the_baseline_knows_how_much_comes_before_the_tokens_that_look() -> None:
    """Words look at the one before, after sources of 2 and of 5 words: one fixed offset finds all."""
    tried = []
    for before in (2, 5):
        wanted = torch.zeros(4, before + 4, dtype=torch.bool)
        wanted[torch.arange(4), torch.arange(4) + before - 1] = True
        tried.append(trials(AttentionTargets(torch.zeros(1, 4, dtype=torch.long), before + 4, before), wanted))
    (measure,) = measures_of_trials("syntactic", "amod to head", tried)
    assert (measure.baseline, measure.cases) == (1.0, 8)


def test_syntactic_is_ten_points_above_the_baseline_and_few_cases_prove_nothing() -> None:
    assert (
        Measure("positional", "-1", 0.51, None, 100).holds_mostly
        and not Measure("positional", "-1", 0.5, None, 100).holds_mostly
    )
    assert not Measure("positional", "-1", 0.8, None, 29).holds_mostly and not Measure("rare", "", 0.8, 0.75, 100).holds_mostly
    assert Measure("syntactic", "obj to head", 0.51, 0.4, 100).holds
    assert not Measure("syntactic", "obj to head", 0.49, 0.4, 100).holds
    assert not Measure("syntactic", "obj to head", 1.0, 0.4, FEWEST - 1).holds
    assert not Measure("rare", "", 0.45, 0.1, 100).holds  # not even half of the time
    assert not Measure("alignment", "", 0.95, 0.9, 100).holds


def test_a_head_that_follows_a_tree_finds_its_relation() -> None:
    """Subjects stand one to six words before their verb, and a head looks from each to its verb, else anywhere."""
    tried = []
    for n in LENGTHS:
        verb = n - 1
        subject = int(torch.randint(verb, ()))
        at = torch.randint(n, (1, n))
        at[0, subject] = verb
        wanted = torch.zeros(n, n, dtype=torch.bool)
        wanted[subject, verb] = True
        tried.append(trials(attention_targets(pointing(at, n)), wanted))
    (measure,) = measures_of_trials("syntactic", "nsubj to head", tried)
    assert measure.holds and measure.value == 1.0 and measure.cases == len(LENGTHS)
    assert measure.baseline is not None and measure.baseline < 0.5
