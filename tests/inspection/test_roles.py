"""Roles and confidence of heads with known weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from heedful.inspection.measures.confidence import summed_confidence
from heedful.inspection.measures.roles import (
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
    """Return weights with all mass on one key: at (heads, query) -> (heads, query, keys)."""
    return torch.nn.functional.one_hot(at, keys).float()


def random_weights(length: int, heads: int = 1) -> Tensor:
    return torch.randn(heads, length, length).softmax(-1)


def test_confidence_of_a_uniform_a_hard_and_a_parked_head() -> None:
    """The last column is the end token, which does not count."""
    uniform, parked = torch.full((4, 4), 0.25), torch.eye(4)[[3, 3, 3, 3]]
    hard = torch.eye(4)[[0, 2, 1, 0]]
    sums = summed_confidence(torch.stack((uniform, hard, parked))[:, :3, :3])
    assert_close(sums / 3, torch.tensor([0.25, 1.0, 0.0]))


def test_a_previous_token_head_is_positional() -> None:
    """The first token has no previous token and is skipped."""
    sentences = [attention_targets(pointing((torch.arange(n) - 1).clamp(min=0)[None], n)) for n in LENGTHS]
    (measure,) = measures_of_position(sentences)
    assert (measure.role, measure.what, measure.value, measure.holds) == ("positional", "-1", 1.0, True)
    assert measure.cases == sum(n - 1 for n in LENGTHS)


@pytest.mark.parametrize("offset", [-3, 2, 0])
def test_any_offset_is_detected_with_preceding_keys(offset: int) -> None:
    """Four keys precede the first query, as a source precedes its target."""
    sentences = [AttentionTargets((torch.arange(n) + 4 + offset)[None], n + 8, shift=4) for n in LENGTHS]
    usual, share, _ = positional(sentences)
    assert (int(usual), float(share)) == (offset, 1.0)


@pytest.mark.parametrize(("misses", "holds"), [(100, True), (101, False)])
def test_a_positional_head_requires_90_percent(misses: int, holds: bool) -> None:
    """Of a thousand tokens with a previous token."""
    at = (torch.arange(1001) - 1).clamp(min=0)
    at[torch.randperm(1000)[:misses] + 1] += 3
    (measure,) = measures_of_position([AttentionTargets(at[None], 1100)])
    assert measure.value == pytest.approx(1 - misses / 1000)
    assert measure.holds is holds and measure.holds_mostly is not holds


def test_a_random_head_has_no_role() -> None:
    sentences = [attention_targets(random_weights(n, heads=4)) for n in LENGTHS]
    results = [trials(one, torch.eye(one.keys, dtype=torch.bool).roll(1, 0)) for one in sentences]
    rare = [trials(one, one_column(one.keys, int(torch.randint(one.keys, ())))) for one in sentences]
    measures = measures_of_position(sentences)
    measures += measures_of_trials("syntactic", "nsubj to head", results) + measures_of_trials("rare", "", rare)
    assert len(measures) == 12 and not any(measure.holds for measure in measures)


def one_column(keys: int, column: int) -> Tensor:
    """Expect one key for all queries."""
    expected = torch.zeros(keys, keys, dtype=torch.bool)
    expected[:, column] = True
    return expected


def test_only_a_head_that_attends_to_the_rarest_token_is_rare() -> None:
    """Frequencies are drawn at random, so the rarest token is anywhere."""
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


def test_the_baseline_is_the_best_fixed_offset() -> None:
    """Words 0, 1 and 2 depend on words 1, 2 and 0: two of three on the next. Word 3 has no head."""
    expected = torch.zeros(4, 4, dtype=torch.bool)
    expected[0, 1] = expected[1, 2] = expected[2, 0] = True
    weights = pointing(torch.tensor([[1, 0, 0, 3], [1, 2, 3, 3]]), 4)
    results = trials(attention_targets(weights), expected)
    assert results.cases == 3 and results.baseline == pytest.approx(2 / 3)
    assert_close(results.accuracy, torch.tensor([2 / 3, 2 / 3]))


def test_the_baseline_accounts_for_preceding_keys() -> None:
    """Words attend to the previous word, after sources of 2 and of 5 words: one fixed offset matches all."""
    results = []
    for before in (2, 5):
        expected = torch.zeros(4, before + 4, dtype=torch.bool)
        expected[torch.arange(4), torch.arange(4) + before - 1] = True
        results.append(trials(AttentionTargets(torch.zeros(1, 4, dtype=torch.long), before + 4, before), expected))
    (measure,) = measures_of_trials("syntactic", "amod to head", results)
    assert (measure.baseline, measure.cases) == (1.0, 8)


def test_roles_require_a_margin_over_the_baseline_and_enough_cases() -> None:
    assert (
        Measure("positional", "-1", 0.51, None, 100).holds_mostly
        and not Measure("positional", "-1", 0.5, None, 100).holds_mostly
    )
    assert not Measure("positional", "-1", 0.8, None, 29).holds_mostly and not Measure("rare", "", 0.8, 0.75, 100).holds_mostly
    assert Measure("syntactic", "obj to head", 0.51, 0.4, 100).holds
    assert not Measure("syntactic", "obj to head", 0.49, 0.4, 100).holds
    assert not Measure("syntactic", "obj to head", 1.0, 0.4, FEWEST - 1).holds
    assert not Measure("rare", "", 0.45, 0.1, 100).holds  # below 50%
    assert not Measure("alignment", "", 0.95, 0.9, 100).holds


def test_a_head_that_follows_a_dependency_relation_is_syntactic() -> None:
    """Subjects attend to their verb, one to six words later; other words attend to random keys."""
    results = []
    for n in LENGTHS:
        verb = n - 1
        subject = int(torch.randint(verb, ()))
        at = torch.randint(n, (1, n))
        at[0, subject] = verb
        expected = torch.zeros(n, n, dtype=torch.bool)
        expected[subject, verb] = True
        results.append(trials(attention_targets(pointing(at, n)), expected))
    (measure,) = measures_of_trials("syntactic", "nsubj to head", results)
    assert measure.holds and measure.value == 1.0 and measure.cases == len(LENGTHS)
    assert measure.baseline is not None and measure.baseline < 0.5
